"""The write-ahead log. What it promises, in the words that its modules use.

A *record* is a length, a checksum, a number (LSN) and bytes. Records lie in *segments*:
preallocated files, each with an id of its own that every checksum in it includes, so that bytes of
another file never pass for records. A *group* is what was waiting when the commit thread came
round: one write, one `fdatasync`. Invariants:

1. A record is reported as committed only after a successful sync that covers it.
2. A sync that failed is never tried again on the same file: its group is written anew elsewhere.
3. Each record says up to which LSN the log was synced when it was written. What lies above the
   highest such number belongs to the last group, which may be torn; what lies below was durable,
   and if it can't be read it is damaged.
4. A damaged record costs itself only: the scan finds the next one by the segment's id. Its bytes
   are quarantined and counted.
5. A segment says with which LSN it begins: what an older segment holds from there on is the rest of
   a group that failed there, and is ignored.
6. A segment is removed only after the numbers that it proves (sequences, known ids) stand in a
   synced checkpoint, oldest segment first.
7. One process owns a folder.
"""
