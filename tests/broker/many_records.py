"""Batches of very many very small records, made quickly"""

from tests.broker.log.rejection_table import spoiled
from tidemill.core.records.batch import HEADER_BYTES
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS, compress
from tidemill.core.records.record import NewRecord
from tidemill.core.records.varint import encode_varint

NOW_MS = 1_700_000_000_000


def many_records(count: int, *, keyed: bool = True, codec: str = "zstd", producer: tuple[int, int] = (-1, -1)) -> bytes:
    """A batch of so many records, all with the same key or without one; `producer` is id and base sequence."""
    rest = b"\x02k\x02v\0" if keyed else b"\x01\x02v\0"
    deltas = [encode_varint(number) for number in range(count)]
    records = b"".join(bytes((2 * (2 + len(delta) + len(rest)),)) + b"\0\0" + delta + rest for delta in deltas)
    packed = compress(codec, records)
    producer_id, sequence = producer
    head = build_batch(
        [NewRecord(NOW_MS, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=sequence,
    )[:HEADER_BYTES]
    return spoiled(
        head + packed,
        length=HEADER_BYTES - 12 + len(packed),
        attributes=CODECS[codec],
        count=count,
        last_offset_delta=count - 1,
    )
