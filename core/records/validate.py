"""What a broker demands of a produced batch

One partition of a Produce request carries exactly one batch of format v2. `validate_produced_batch` looks at the header
and the checksum only, in the order and with the errors Kafka clients know; `validate_records` is the deep half for
topics that need it: it walks over the records and catches counts, lengths and offset deltas that lie.

Not here: what depends on the topic or on time (timestamp bounds, timestamp type, sequence numbers).
"""

from collections.abc import Iterator

from ..errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from ..types import new_tuple
from .batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    header_fields,
)
from .columns import ColumnReader, RecordColumns
from .compression import CODECS
from .crc import crc32c

BATCH_BYTES_MAX = 1048588  # max.message.bytes of Kafka: 1 MiB and the 12 bytes before the counted part
ZSTD_PRODUCE_VERSION = 7
_ZSTD = CODECS["zstd"]
_JUDGED = ColumnReader("offsets", "keyless", "headers")
_JUDGED_WITH_TIMES = ColumnReader("timestamps", "offsets", "keyless", "headers")
_NO_KEY = "no key, which a compacted topic needs"
NO_TIMESTAMP = -1  # what a record has that its producer gave none
RECORD_ERRORS_MAX = 10_000
"""Records that one error names, as many as librdkafka puts into a batch; each of them is an object in the answer."""


def validate_produced_batch(
    data: bytes | bytearray | memoryview | None, max_bytes: int = BATCH_BYTES_MAX, produce_version: int = 13
) -> BatchHeader:
    """The header of the one batch of a produced partition; raises the error the producer gets.

    One rule after the other, each with its reason, so that a good batch costs a comparison per rule and its checksum.
    """
    if data is None or (size_bytes := len(data)) < HEADER_BYTES:
        raise _too_few_bytes(data)
    fields = header_fields(data)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = fields
    if magic != MAGIC_V2:
        raise _other_magic(magic)
    if length != size_bytes - LOG_OVERHEAD_BYTES:
        raise _other_length(length + LOG_OVERHEAD_BYTES, size_bytes)
    if size_bytes > max_bytes:
        raise MessageTooLarge(f"record batch of {size_bytes} bytes; the topic allows {max_bytes}")
    if base_offset != 0:
        raise InvalidRecord(f"a produced record batch must have base offset 0, not {base_offset}")
    codec = attributes & CODEC_MASK
    if codec >= _ZSTD and (codec > _ZSTD or produce_version < ZSTD_PRODUCE_VERSION):
        raise _other_codec(codec, produce_version)
    if attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not produce control batches")
    if crc32c((data if type(data) is memoryview else memoryview(data))[ATTRIBUTES_AT:]) != crc:
        raise CorruptMessage(f"record batch fails its checksum {crc:#010x}")
    if delta < 0 or count != delta + 1:
        raise _other_count(count, delta)
    if producer_id >= 0 and sequence < 0:
        raise InvalidRecord(f"producer id {producer_id} with the sequence number {sequence}")
    return new_tuple(BatchHeader, fields)


def _too_few_bytes(data: bytes | bytearray | memoryview | None) -> KafkaError:
    """Why what is shorter than a header is no batch: what little is there is judged by the same rules."""
    if not data:
        return InvalidRecord("a produce request must carry one record batch per partition")
    if len(data) <= MAGIC_AT:
        return InvalidRecord(f"{len(data)} bytes are too few for a record batch")
    magic = int.from_bytes(data[MAGIC_AT : MAGIC_AT + 1], "big", signed=True)
    if magic != MAGIC_V2:
        return _other_magic(magic)
    length = int.from_bytes(data[BATCH_LENGTH_AT : BATCH_LENGTH_AT + 4], "big", signed=True)
    return _other_length(length + LOG_OVERHEAD_BYTES, len(data))


def _other_magic(magic: int) -> KafkaError:
    if 0 <= magic < MAGIC_V2:
        return InvalidRecord(f"record batch with magic {magic}; only magic 2 may be produced")
    return CorruptMessage(f"record batch with unknown magic {magic & 0xFF}")


def _other_length(batch_bytes: int, size_bytes: int) -> KafkaError:
    """Not one whole batch, or one that cannot hold its own header."""
    if batch_bytes < HEADER_BYTES:
        return CorruptMessage(f"record batch of {batch_bytes} bytes; the least is {HEADER_BYTES}")
    if batch_bytes > size_bytes:
        return InvalidRecord(f"record batch of {batch_bytes} bytes, but only {size_bytes} were sent")
    return InvalidRecord("a produce request must carry exactly one record batch per partition")


def _other_count(count: int, delta: int) -> KafkaError:
    if delta < 0:
        return InvalidRecord(f"last offset delta {delta} is negative")
    if count <= 0:
        return InvalidRecord(f"a record batch of {count} records")
    return InvalidRecord(f"{count} records cannot have the last offset delta {delta}")


def _other_codec(codec: int, produce_version: int) -> KafkaError:
    if codec == _ZSTD:
        return UnsupportedCompressionType(f"zstd needs Produce version {ZSTD_PRODUCE_VERSION}, not {produce_version}")
    return UnsupportedCompressionType(f"unknown compression codec {codec}")


def validate_records(
    header: BatchHeader, data: bytes | memoryview, *, compacted: bool = False, times: tuple[int, int] | None = None
) -> None:
    """Walk over the uncompressed records of a produced batch and check what its header cannot show.

    Records that cannot be read behind a checksum that matches were sent like that: InvalidRecord, which a producer does
    not retry, and not CorruptMessage, which it does. Where they can be read the error names those at fault: without a
    key if the topic is to be compacted; with a time that is not within `times`, if these have to be judged.
    """
    first = 0
    faults = _Faults()
    try:
        for columns in (_JUDGED if times is None else _JUDGED_WITH_TIMES).parts(header, data):
            end = first + len(columns.offsets)
            if columns.offsets != [*range(first, end)]:
                raise _other_offset(columns.offsets, first)
            if times is not None:
                faults.note_times(columns, first, times, compacted)
            elif compacted and True in columns.keyless:
                faults.note_keys(columns, first)
            first = end
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from error
    if faults.count:
        raise faults.error(header.record_count)
    if times is not None and header.max_timestamp > times[1]:
        raise InvalidTimestamp(f"the largest timestamp is said to be {header.max_timestamp}, which no record has")


class _Faults:
    """The records of a batch that cannot be stored; one that has no key is not asked for its time."""

    __slots__ = ("count", "late", "named")

    def __init__(self) -> None:
        self.count = 0
        self.named: list[tuple[int, str]] = []
        self.late = False  # or early: some record's time is at fault

    def note_keys(self, columns: RecordColumns, first: int) -> None:
        self._note((number, _NO_KEY) for number, missing in enumerate(columns.keyless, first) if missing)

    def note_times(self, columns: RecordColumns, first: int, times: tuple[int, int], compacted: bool) -> None:
        self._note(self._judged(columns, first, times, compacted))

    def _judged(
        self, columns: RecordColumns, first: int, times: tuple[int, int], compacted: bool
    ) -> Iterator[tuple[int, str]]:
        low, high = times
        for number, (time, keyless) in enumerate(zip(columns.timestamps, columns.keyless, strict=True), first):
            if keyless and compacted:
                yield number, _NO_KEY
            elif not low <= time <= high and time != NO_TIMESTAMP:
                self.late = True
                yield number, f"timestamp {time} is not within [{low}, {high}]"

    def _note(self, faults: Iterator[tuple[int, str]]) -> None:
        for fault in faults:
            self.count += 1
            if len(self.named) < RECORD_ERRORS_MAX:
                self.named.append(fault)

    def error(self, record_count: int) -> KafkaError:
        """What the producer gets; Kafka too calls the batch late as soon as one record is."""
        number, reason = self.named[0]
        text = f"{self.count} of {record_count} records cannot be stored; the first is record {number}: {reason}"
        error = InvalidTimestamp(text) if self.late else InvalidRecord(text)
        error.record_errors = tuple(self.named)
        return error


def _other_offset(offsets: list[int], first: int) -> KafkaError:
    offset, due = next((offset, due) for due, offset in enumerate(offsets, first) if offset != due)
    return InvalidRecord(f"record {due} has offset delta {offset}")
