"""What one task of ingest hands to another, by bucket: Arrow's own bytes in a binary column.

Spark need not take them apart into rows and put them together again. It passes on many packs at
once, so a pack is small, however large the events in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onex_platform.domain.headers import EnumHeaderFinding
from onex_platform.ingest.admission.admit import Admitted
from onex_platform.ingest.admission.echo import EchoRun
from onex_platform.ingest.admission.header_columns import Findings
from onex_platform.ingest.event_schema import LOG_SCHEMA, PARKED_SCHEMA, buckets_of, by_bucket

PACK = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("events", pa.binary()),
        pa.field("parked", pa.binary()),
        pa.field("findings", pa.string()),
        pa.field("echoes", pa.string()),
        pa.field("size", pa.int64(), nullable=False),  # unpacked
        pa.field("load", pa.float64(), nullable=False),  # of the task that packed, if too much
    ]
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
# Spark collects five hundred packs; those of ordinary events are smaller than this.
_PACK_BYTES = 1024**2


def packs_of(admitted: Admitted, buckets: int) -> Iterator[pa.RecordBatch]:
    """What was admitted, for the tasks that write it."""
    numbers = buckets_of(admitted.events["entity_id"].combine_chunks(), buckets)
    for bucket, events in by_bucket(admitted.events, numbers):
        yield from _packed(bucket, "events", events)
    # Any bucket will do for a parked record; its place spreads them.
    offsets = admitted.parked["offset"].to_numpy()
    for bucket, parked in by_bucket(admitted.parked, (offsets % buckets).astype(np.int32)):
        yield from _packed(bucket, "parked", parked)
    if told := told_besides(admitted):
        yield pa.RecordBatch.from_pylist([{"bucket": 0, **told, "size": 0, "load": 0.0}], PACK)


def told_besides(admitted: Admitted) -> dict[str, str]:
    """What is counted of records besides events and parked ones, as texts; nothing if there is
    nothing."""
    findings, echoes = admitted.findings, admitted.echoes
    texts = {"findings": findings_text(findings), "echoes": echoes_text(echoes)}
    return texts if findings or echoes else {}


def findings_text(findings: Findings) -> str:
    """Findings as text, from one process to another."""
    return json.dumps([[*place, count] for place, count in findings.items()])


def findings_of(texts: Iterable[str | None]) -> Findings:
    """The sum of findings that came as texts."""
    findings = Findings()
    for text in texts:
        for topic, finding, count in json.loads(text or "[]"):
            findings[topic, EnumHeaderFinding(finding)] += count
    return findings


def echoes_text(echoes: Iterable[EchoRun]) -> str:
    """Runs of echoes as text, from one process to another."""
    return json.dumps(list(echoes))


def echoes_of(texts: Iterable[str | None]) -> list[EchoRun]:
    """All runs of echoes that came as texts."""
    return [EchoRun(*run) for text in texts for run in json.loads(text or "[]")]


def warnings_of(load: float, buckets: int) -> Iterator[pa.RecordBatch]:
    """Tells every task that writes that one of those before it had too much."""
    for bucket in range(buckets):
        yield pa.RecordBatch.from_pylist([{"bucket": bucket, "size": 0, "load": load}], PACK)


def _packed(bucket: int, column: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    data = _to_bytes(rows)
    if len(data) > _PACK_BYTES and len(rows) > 1:
        half = len(rows) // 2
        yield from _packed(bucket, column, rows.slice(0, half))
        yield from _packed(bucket, column, rows.slice(half))
        return
    pack = {"bucket": bucket, column: data, "size": rows.nbytes, "load": 0.0}
    yield pa.RecordBatch.from_pylist([pack], PACK)


def _to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(packs: Iterable[pa.RecordBatch], most_bytes: float) -> tuple[Admitted, float]:
    """What one task is to write, and its load: bytes needed ÷ bytes allowed.

    With more than it may hold, the packs are only counted.
    """
    events, parked = [LOG_SCHEMA.empty_table()], [PARKED_SCHEMA.empty_table()]
    size, load, findings = 0, 0.0, Findings()
    echoes: list[EchoRun] = []
    for batch in packs:
        findings += findings_of(batch.column("findings").to_pylist())
        echoes += echoes_of(batch.column("echoes").to_pylist())
        size += pc.sum(batch.column("size")).as_py()
        load = max(load, size / most_bytes, pc.max(batch.column("load")).as_py())
        for column, tables in (("events", events), ("parked", parked)):
            if load > 1:
                del tables[1:]
            else:
                tables += [
                    pa.ipc.open_stream(item.as_buffer()).read_all()
                    for item in batch.column(column)
                    if item.is_valid
                ]
    return Admitted(pa.concat_tables(events), pa.concat_tables(parked), findings, echoes), load
