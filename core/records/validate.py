"""What a broker demands of a produced batch

One partition of a Produce request carries exactly one batch of format v2. `validate_produced_batch` looks at the header
and the checksum only, in the order and with the errors Kafka clients know; `validate_records` is the deep half for
topics that need it: it walks over the records and catches counts, lengths and offset deltas that lie.

Not here: what depends on the topic or on time (timestamp bounds, timestamp type, sequence numbers).
"""

from ..errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from .batch import BATCH_LENGTH_AT, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_AT, MAGIC_V2, BatchView
from .compression import CODEC_NAMES, CODECS, decompress
from .record import DECOMPRESSED_BYTES_MAX, read_headers
from .varint import varint_tail

BATCH_BYTES_MAX = 1048588  # max.message.bytes of Kafka: 1 MiB and the 12 bytes before the counted part
ZSTD_PRODUCE_VERSION = 7


def validate_produced_batch(
    buffer: bytes | bytearray | memoryview | None, *, max_bytes: int = BATCH_BYTES_MAX, produce_version: int = 13
) -> BatchView:
    """Return the one batch of a produced partition, or raise the error the producer gets."""
    if not buffer:
        raise InvalidRecord("a produce request must carry one record batch per partition")
    size = len(buffer)
    if size <= MAGIC_AT:
        raise InvalidRecord(f"{size} bytes are too few for a record batch")
    magic = buffer[MAGIC_AT]
    if magic > MAGIC_V2:
        raise CorruptMessage(f"record batch with unknown magic {magic}")
    if magic < MAGIC_V2:
        raise InvalidRecord(f"record batch with magic {magic}; only magic 2 may be produced")
    batch_length = int.from_bytes(buffer[BATCH_LENGTH_AT : BATCH_LENGTH_AT + 4], "big", signed=True)
    batch_bytes = batch_length + LOG_OVERHEAD_BYTES
    if batch_bytes < HEADER_BYTES:
        raise CorruptMessage(f"record batch of {batch_bytes} bytes; the least is {HEADER_BYTES}")
    if batch_bytes > size:
        raise InvalidRecord(f"record batch of {batch_bytes} bytes, but only {size} were sent")
    if batch_bytes < size:
        raise InvalidRecord("a produce request must carry exactly one record batch per partition")
    if size > max_bytes:
        raise MessageTooLarge(f"record batch of {size} bytes; the topic allows {max_bytes}")
    view = BatchView(buffer)
    _check_header(view, produce_version)
    if not view.verify_crc():
        raise CorruptMessage(f"record batch fails its checksum {view.crc:#010x}")
    _check_counts(view)
    return view


def _check_header(view: BatchView, produce_version: int) -> None:
    if view.base_offset != 0:
        raise InvalidRecord(f"a produced record batch must have base offset 0, not {view.base_offset}")
    if view.codec not in CODEC_NAMES:
        raise UnsupportedCompressionType(f"unknown compression codec {view.codec}")
    if view.codec == CODECS["zstd"] and produce_version < ZSTD_PRODUCE_VERSION:
        raise UnsupportedCompressionType(f"zstd needs Produce version {ZSTD_PRODUCE_VERSION}, not {produce_version}")
    if view.is_control:
        raise InvalidRecord("clients may not produce control batches")


def _check_counts(view: BatchView) -> None:
    if view.last_offset_delta < 0:
        raise InvalidRecord(f"last offset delta {view.last_offset_delta} is negative")
    if view.count <= 0:
        raise InvalidRecord(f"a record batch of {view.count} records")
    if view.count != view.last_offset_delta + 1:
        raise InvalidRecord(f"{view.count} records cannot have the last offset delta {view.last_offset_delta}")
    if view.has_producer_id and view.base_sequence < 0:
        raise InvalidRecord(f"producer id {view.producer_id} with the sequence number {view.base_sequence}")


def validate_records(view: BatchView, *, compacted: bool = False, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Walk over the records of a produced batch, check what the header cannot show and return them uncompressed.

    Records that cannot be read behind a checksum that matches were sent like that: InvalidRecord, which a producer does
    not retry, and not CorruptMessage, which it does.
    """
    try:
        data = decompress(view.codec, view.records_bytes(), max_bytes)
        end = _walk(data, view.count, compacted)
    except IndexError as error:
        raise InvalidRecord("the record batch ends inside a record") from error
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"a record header's name is not UTF-8: {error.reason}") from error
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from error
    if end != len(data):
        raise InvalidRecord(f"{len(data) - end} bytes behind the {view.count} records of the batch")
    return data


def _walk(data: bytes, count: int, compacted: bool) -> int:
    """Where the last record ends. Nothing is kept of a record: this runs once for each, varints are read in place."""
    size_bytes = len(data)
    at = 0
    for index in range(count):
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        end = at + ((n >> 1) ^ -(n & 1))
        if not at < end <= size_bytes:
            raise CorruptMessage(f"record {index} has a length that does not fit")
        at += 1  # the attributes of a record, which Kafka does not use
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        if n != index << 1:
            raise InvalidRecord(f"record {index} has offset delta {(n >> 1) ^ -(n & 1)}")
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        if not n & 1:  # an odd zigzag is a negative length: null
            at += n >> 1
        elif compacted:
            raise InvalidRecord(f"record {index} has no key, which a compacted topic needs")
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        if not n & 1:
            at += n >> 1
        if data[at]:
            _, at = read_headers(data, at)
        else:
            at += 1
        if at != end:
            raise CorruptMessage(f"record {index} ends at byte {at} of the batch, its length says {end}")
    return at
