"""The registration domain, pure: no clock, no I/O, no client library, nothing else of ours."""
