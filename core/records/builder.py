"""Building a record batch from records

Offsets are consecutive from `base_offset`, whatever offsets the records had: what a producer writes. `keep_offsets`
keeps them instead (a batch with gaps, as compaction leaves it), in which case the first may lie above `base_offset`.
"""

import struct
from collections.abc import Sequence

from .batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from .compression import codec_number, compress
from .crc import crc32c
from .record import Record, RecordLike
from .varint import encode_varint

_UNCOVERED = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, checksum
_COVERED = struct.Struct(">hiqqqhii")  # attributes to count


def encode_record(record: RecordLike, timestamp_delta: int, offset_delta: int) -> bytes:
    """Encode one record with its length."""
    key, value = record.key, record.value
    body = bytearray(1)  # attributes
    body += encode_varint(timestamp_delta)
    body += encode_varint(offset_delta)
    if key is None:
        body.append(1)  # zigzag of -1
    else:
        body += encode_varint(len(key))
        body += key
    if value is None:
        body.append(1)
    else:
        body += encode_varint(len(value))
        body += value
    body += encode_varint(len(record.headers))
    for name, header_value in record.headers:
        encoded = name.encode()
        body += encode_varint(len(encoded))
        body += encoded
        if header_value is None:
            body.append(1)
        else:
            body += encode_varint(len(header_value))
            body += header_value
    return encode_varint(len(body)) + body


def build_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    codec: str | int = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    timestamp_type: int = 0,
    transactional: bool = False,
    control: bool = False,
    keep_offsets: bool = False,
) -> bytes:
    """Return the bytes of one batch holding `records` (at least one)."""
    if not records:
        raise ValueError("a record batch holds at least one record")
    base_timestamp = records[0].timestamp
    parts = []
    delta = -1
    for i, record in enumerate(records):
        delta = record.offset - base_offset if keep_offsets and isinstance(record, Record) else i
        parts.append(encode_record(record, record.timestamp - base_timestamp, delta))
    number = codec_number(codec)
    attributes = (
        number
        | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    payload = compress(number, b"".join(parts))
    covered = _COVERED.pack(
        attributes,
        delta,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(payload, crc32c(covered))
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    assert len(covered) == HEADER_BYTES - ATTRIBUTES_AT
    return _UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC_V2, crc) + covered + payload


def build_empty_batch(first_offset: int, last_offset: int, *, leader_epoch: int = -1) -> bytes:
    """Return a batch without records that takes the offsets from `first_offset` to `last_offset`.

    Kafka's cleaner leaves such batches; readers skip them.
    """
    delta = last_offset - first_offset
    if not 0 <= delta < 2**31:
        raise ValueError(f"a batch cannot hold the offsets from {first_offset} to {last_offset}")
    covered = _COVERED.pack(0, delta, -1, -1, -1, -1, -1, 0)
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES
    return _UNCOVERED.pack(first_offset, length, leader_epoch, MAGIC_V2, crc32c(covered)) + covered
