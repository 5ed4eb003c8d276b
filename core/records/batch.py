"""The header of a record batch, read and edited in place

The 61 bytes are unpacked once; the records stay where they are. There is one type for them, `BatchHeader`, since what
follows a header is another matter: whoever walks over a file has the header first, and it is a claim, not a fact.
`plausible_size` says whether its length may be believed at all, and only the CRC says whether the batch may. A
`BatchView` is a header whose batch is there as a whole, so it can show the bytes too.

Base offset, length, leader epoch and magic lie outside the checksum, so `stamp` writes offset and epoch in place
without touching it; every other edit has to rewrite it.

Not here: reading records (`record`), building batches (`builder`), judging what a producer sent (`validate`).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Self

from ..errors import CorruptMessage
from ..types import new_tuple
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
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")

header_fields = _HEADER.unpack_from
"""`(buffer, position) -> fields` of a BatchHeader."""

stamp_start = struct.Struct(">qii").pack_into
"""`(buffer, position, base offset, length, leader epoch)`: as `stamp`, and writes the length again, counted as it is in
the header (what follows it): the caller knows it is that."""


class BatchHeader(NamedTuple):
    """The fields of a batch header, in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return self.length + LOG_OVERHEAD_BYTES

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
        """Sequence number of the last record, -1 without one; 0 follows 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`, which must have HEADER_BYTES bytes behind it."""
    return new_tuple(BatchHeader, header_fields(buffer, position))


def pack_header(header: BatchHeader) -> bytes:
    """The bytes of a header, as `read_header` reads them."""
    return _HEADER.pack(*header)


def plausible_size(header: BatchHeader) -> bool:
    """Whether magic and length can be those of a version 2 batch."""
    size_bytes = header.length + LOG_OVERHEAD_BYTES
    return header.magic == MAGIC_V2 and size_bytes >= HEADER_BYTES and header.last_offset_delta >= 0


def crc_matches(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the batch at `position`, all of it in `buffer`, is the one its CRC was made for."""
    end = position + header.length + LOG_OVERHEAD_BYTES
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]) == header.crc


class BatchView(BatchHeader):
    """One complete batch inside a buffer; raises CorruptMessage if the buffer does not hold it whole."""

    buffer: bytes | bytearray | memoryview
    offset: int

    def __new__(cls, buffer: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        """The batch at `offset` of `buffer`."""
        available = len(buffer) - offset
        if available < HEADER_BYTES:
            raise CorruptMessage(f"a record batch needs {HEADER_BYTES} bytes of header, only {available} are there")
        fields = header_fields(buffer, offset)
        size_bytes = fields[1] + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= size_bytes <= available:
            raise CorruptMessage(f"record batch of {size_bytes} bytes in a buffer of {available}")
        view = new_tuple(cls, fields)
        view.buffer = buffer
        view.offset = offset
        return view

    def covered_header(self) -> bytes:
        """Return the 40 header bytes the checksum covers (see `crc.patch_crc`)."""
        return bytes(self.buffer[self.offset + ATTRIBUTES_AT : self.offset + HEADER_BYTES])

    def verify_crc(self) -> bool:
        """Whether the checksum matches the bytes."""
        return crc_matches(self.buffer, self.offset, self)

    def records_bytes(self) -> memoryview:
        """Return the bytes behind the header: the records, compressed if `codec` says so."""
        return memoryview(self.buffer)[self.offset + HEADER_BYTES : self.offset + self.size_bytes]

    def batch_bytes(self) -> memoryview:
        """Return the whole batch."""
        return memoryview(self.buffer)[self.offset : self.offset + self.size_bytes]

    def __repr__(self) -> str:
        return (
            f"BatchView(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"record_count={self.record_count}, size_bytes={self.size_bytes}, codec={self.codec}, "
            f"producer_id={self.producer_id})"
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
        view = new_tuple(BatchView, header_fields(buffer, offset))
        view.buffer = buffer
        view.offset = offset
        yield view
        offset += size


def stamp(buffer: bytearray | memoryview, offset: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch of the batch at `offset`, in place; the checksum stays valid."""
    _OFFSET.pack_into(buffer, offset, base_offset)
    _INT32.pack_into(buffer, offset + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, offset: int, timestamp_ms: int) -> None:
    """Turn the batch at `offset` into one with log append time `timestamp_ms`, in place; renews the checksum."""
    _OFFSET.pack_into(buffer, offset + MAX_TIMESTAMP_AT, timestamp_ms)
    _change_attributes(buffer, offset, TIMESTAMP_TYPE_BIT, TIMESTAMP_TYPE_BIT)


def set_create_time(buffer: bytearray | memoryview, offset: int = 0) -> None:
    """Make the batch at `offset` one whose producer set the time, in place; renews the checksum."""
    _change_attributes(buffer, offset, TIMESTAMP_TYPE_BIT, 0)


def with_records(header: bytes | bytearray | memoryview, records: bytes, codec: int) -> bytearray:
    """A batch with this header but for codec, length and CRC, and with these records, compressed by `codec`."""
    batch = bytearray(header) + records
    _INT32.pack_into(batch, BATCH_LENGTH_AT, len(batch) - LOG_OVERHEAD_BYTES)
    _change_attributes(batch, 0, CODEC_MASK, codec)
    return batch


def _change_attributes(buffer: bytearray | memoryview, offset: int, mask: int, bits: int) -> None:
    """Replace the attributes within `mask` and renew the CRC, which covers everything from them on."""
    size = _INT32.unpack_from(buffer, offset + BATCH_LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
    crc, attributes = _CRC_AND_ATTRIBUTES.unpack_from(buffer, offset + CRC_AT)
    _CRC_AND_ATTRIBUTES.pack_into(buffer, offset + CRC_AT, crc, attributes & ~mask | bits)
    with memoryview(buffer) as view:
        _CRC.pack_into(buffer, offset + CRC_AT, crc32c(view[offset + ATTRIBUTES_AT : offset + size]))
