"""The 61-byte header of a record batch, apart from the batch

`tidemill.core.records.batch.BatchView` is a batch that is there as a whole. Walking over a log file is different: the
header comes first, and whether the rest follows is the question. A header read from a disk is a claim, not a fact:
`plausible_size` says whether its length may be believed at all, and only the CRC says whether the batch may.
"""

import struct
from typing import NamedTuple, Protocol

from tidemill.core.records.batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    SEQUENCE_MAX,
    TIMESTAMP_TYPE_BIT,
)
from tidemill.core.records.compression import CODECS
from tidemill.core.records.crc import crc32c
from tidemill.core.records.validate import ZSTD_PRODUCE_VERSION

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
_ZSTD = CODECS["zstd"]
_new_header = tuple.__new__  # twice as fast as the NamedTuple's own constructor, once per batch


class ProducedBatch(Protocol):
    """What the log needs to know of a batch, wherever its header is kept."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...


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
    def timestamp_type(self) -> int:
        """0 for create time, 1 for log append time."""
        return 1 if self.attributes & TIMESTAMP_TYPE_BIT else 0

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record; sequence numbers start again at 0 after 2**31 - 1."""
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`, which must have HEADER_BYTES bytes behind it."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def pack_header(header: BatchHeader) -> bytes:
    """The bytes of a header, as `read_header` reads them."""
    return _HEADER.pack(*header)


def accept_produced(data: bytes | bytearray | memoryview, max_bytes: int, produce_version: int) -> BatchHeader | None:
    """The header of the one batch in `data` if `tidemill.core.records.validate.validate_produced_batch` would take it.

    This is the cheap way to say yes; whoever gets None asks there what is wrong.
    """
    size_bytes = len(data)
    if not HEADER_BYTES <= size_bytes <= max_bytes:
        return None
    fields = _HEADER.unpack_from(data)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = fields
    codec = attributes & CODEC_MASK
    if (
        base_offset != 0
        or length != size_bytes - LOG_OVERHEAD_BYTES
        or magic != MAGIC_V2
        or attributes & CONTROL_BIT
        or codec > _ZSTD
        or (codec == _ZSTD and produce_version < ZSTD_PRODUCE_VERSION)
        or delta < 0
        or count != delta + 1
        or (producer_id >= 0 and sequence < 0)
        or crc32c(memoryview(data)[ATTRIBUTES_AT:]) != crc
    ):
        return None
    return _new_header(BatchHeader, fields)


def plausible_size(header: BatchHeader) -> bool:
    """Whether magic and length can be those of a version 2 batch."""
    return header.magic == MAGIC_V2 and header.size_bytes >= HEADER_BYTES and header.last_offset_delta >= 0


def crc_matches(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the batch at `position`, all of it in `buffer`, is the one its CRC was made for."""
    end = position + header.size_bytes
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]) == header.crc


def set_create_time(batch: bytearray | memoryview) -> None:
    """Make the batch one whose producer set the time, and renew its CRC."""
    _change_attributes(batch, TIMESTAMP_TYPE_BIT, 0)


def with_records(header: bytes | bytearray | memoryview, records: bytes, codec: int) -> bytearray:
    """A batch with this header but for codec, length and CRC, and with these records, compressed by `codec`."""
    batch = bytearray(header) + records
    _LENGTH.pack_into(batch, BATCH_LENGTH_AT, len(batch) - LOG_OVERHEAD_BYTES)
    _change_attributes(batch, CODEC_MASK, codec)
    return batch


def _change_attributes(batch: bytearray | memoryview, mask: int, bits: int) -> None:
    """Replace the attributes within `mask` and renew the CRC, which covers everything from them on."""
    crc, attributes = _CRC_AND_ATTRIBUTES.unpack_from(batch, CRC_AT)
    _CRC_AND_ATTRIBUTES.pack_into(batch, CRC_AT, crc, attributes & ~mask | bits)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
