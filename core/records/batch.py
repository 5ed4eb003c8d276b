"""A record batch as a view of its 61-byte header

The header is unpacked once; the records stay where they are. Base offset, length, leader epoch and magic lie outside
the checksum, so `stamp` writes offset and epoch in place without touching it; a change of the timestamp type
(`stamp_append_time`) has to rewrite it.

Not here: reading records (`record`), building batches (`builder`), judging what a producer sent (`validate`).
"""

import struct
from collections.abc import Iterator

from ..errors import CorruptMessage
from .crc import crc32c

BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
COUNT_AT = 57
HEADER_BYTES = 61

LOG_OVERHEAD_BYTES = 12
"""Base offset and length: what precedes the bytes that `batch_length` counts."""

MAGIC_V2 = 2
CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

SEQUENCE_MAX = 2**31 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")


class BatchView:
    """One complete batch inside a buffer; raises CorruptMessage if the buffer does not hold it whole."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "offset",
        "producer_epoch",
        "producer_id",
        "size_bytes",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    count: int
    crc: int
    last_offset_delta: int
    leader_epoch: int
    magic: int
    max_timestamp: int
    producer_epoch: int
    producer_id: int
    size_bytes: int

    def __init__(self, buffer: bytes | bytearray | memoryview, offset: int = 0) -> None:
        self.buffer = buffer
        self.offset = offset
        available = len(buffer) - offset
        if available < HEADER_BYTES:
            raise CorruptMessage(f"a record batch needs {HEADER_BYTES} bytes of header, only {available} are there")
        (
            self.base_offset,
            batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEADER.unpack_from(buffer, offset)
        self.size_bytes = batch_length + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= self.size_bytes <= available:
            raise CorruptMessage(f"record batch of {self.size_bytes} bytes in a buffer of {available}")

    @property
    def codec(self) -> int:
        """Number of the compression codec, see `compression.CODECS`."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & TIMESTAMP_TYPE_BIT else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers rather than data."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time after which the cleaner may drop tombstones."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_offset(self) -> int:
        """Offset of the last record (of the batch as produced)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer sent the batch."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without producer id; 0 follows 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    def covered_header(self) -> bytes:
        """Return the 40 header bytes the checksum covers (see `crc.patch_crc`)."""
        return bytes(self.buffer[self.offset + ATTRIBUTES_AT : self.offset + HEADER_BYTES])

    def verify_crc(self) -> bool:
        """Whether the checksum matches the bytes."""
        with memoryview(self.buffer) as view:
            return crc32c(view[self.offset + ATTRIBUTES_AT : self.offset + self.size_bytes]) == self.crc

    def records_bytes(self) -> memoryview:
        """Return the bytes behind the header: the records, compressed if `codec` says so."""
        return memoryview(self.buffer)[self.offset + HEADER_BYTES : self.offset + self.size_bytes]

    def batch_bytes(self) -> memoryview:
        """Return the whole batch."""
        return memoryview(self.buffer)[self.offset : self.offset + self.size_bytes]

    def __repr__(self) -> str:
        return (
            f"BatchView(base_offset={self.base_offset}, last_offset={self.last_offset}, count={self.count}, "
            f"size_bytes={self.size_bytes}, codec={self.codec}, producer_id={self.producer_id})"
        )


def iter_batches(buffer: bytes | bytearray | memoryview) -> Iterator[BatchView]:
    """Yield the batches in `buffer`; stops before a truncated last one, raises CorruptMessage for nonsense."""
    offset = 0
    end = len(buffer)
    while end - offset >= LOG_OVERHEAD_BYTES:
        size = _INT32.unpack_from(buffer, offset + BATCH_LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            raise CorruptMessage(f"record batch of {size} bytes at byte {offset}; the least is {HEADER_BYTES}")
        if size > end - offset:
            return
        yield BatchView(buffer, offset)
        offset += size


def stamp(buffer: bytearray | memoryview, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch of the batch at `offset`, in place; the checksum stays valid."""
    _OFFSET.pack_into(buffer, offset, base_offset)
    _INT32.pack_into(buffer, offset + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, offset: int, timestamp_ms: int) -> None:
    """Turn the batch at `offset` into one with log append time `timestamp_ms`, in place; renews the checksum."""
    size = _INT32.unpack_from(buffer, offset + BATCH_LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
    attributes = _ATTRIBUTES.unpack_from(buffer, offset + ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(buffer, offset + ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE_BIT)
    _OFFSET.pack_into(buffer, offset + MAX_TIMESTAMP_AT, timestamp_ms)
    with memoryview(buffer) as view:
        _CRC.pack_into(buffer, offset + CRC_AT, crc32c(view[offset + ATTRIBUTES_AT : offset + size]))
