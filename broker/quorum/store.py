"""The metadata log on disk: one file of record batches, Kafka's layout

A decision is one batch in `__cluster_metadata-0/00000000000000000000.log`, so it is there whole or not at all, and it
is synced before anybody is answered. Because the next batch is written only after the one before it is on the disk, a
crash can damage nothing but the last batch: such a torn tail is cut off at start-up. Damage anywhere before it is not
the trace of a crash; the store then refuses to open rather than forget topics.

On a full disk decisions must still be taken, or nobody could delete what fills it: room for the next ones is set aside.

After a failed sync nobody knows what the disk holds, so the store takes no more writes until the process starts
again.

Not here: what the records mean. A consensus log takes the place of this file's `append` when there are more nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord, decode_record, encode_record
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import HEADER_BYTES, BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.disk import Directory, File

FOLDER: Final = "__cluster_metadata-0"
FILE: Final = "00000000000000000000.log"
LEADER_EPOCH: Final = 1
"""A quorum of one has had one leader."""
KAFKA_ASIDE: Final = "__cluster_metadata-0.kafka"
"""Where `tidemill log adopt` puts the metadata log that Apache Kafka wrote."""
KAFKA_STATE: Final = "quorum-state"
"""A file that Apache Kafka keeps beside its metadata log and we do not."""

ROOM_BYTES: Final = 256 * 1024
"""Set aside for decisions: enough to delete thousands of topics."""

_LENGTH_END = 12  # base offset and length fields, which the length does not count
_MAGIC_AT = 16


class MetadataCorruptError(RuntimeError):
    """The metadata log cannot be trusted; the message says where and what to do."""


class MetadataStoreError(OSError):
    """The disk did not take a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """What was on the disk."""

    batches: tuple[tuple[MetadataRecord, ...], ...]
    torn_bytes: int


def why_not_ours(data: Directory) -> str | None:
    """What to say when the topics of `data` are still in Apache Kafka's own metadata log; None when they are not."""
    if data.is_directory(FOLDER):
        if not data.subdirectory(FOLDER).exists(KAFKA_STATE):
            return None
        what = "was written by Apache Kafka"
    elif data.is_directory(KAFKA_ASIDE):
        what = "was written by Apache Kafka and is half taken over"
    else:
        return None
    return f"{data.path} {what}: `tidemill log adopt {data.path}` takes its topics over, once and for good"


def encode_batch(records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> bytes:
    """One decision as it is on the disk."""
    values = [NewRecord(timestamp=now_ms, key=None, value=encode_record(record)) for record in records]
    return build_batch(values, base_offset=base_offset, leader_epoch=LEADER_EPOCH)


class MetadataStore:
    """Appends decisions; one writer at a time."""

    def __init__(self, data: Directory) -> None:
        self._directory = data.subdirectory(FOLDER)
        created = not self._directory.exists(FILE)
        self._file: File = self._directory.create(FILE) if created else self._directory.open(FILE)
        self._directory.sync()  # always: a process that was killed may have made the names and not have come to this
        data.sync()
        self._size = self._file.size()
        self._room_end = 0
        self._failed: str | None = None
        self.offset_end = 0

    def load(self) -> LoadedLog:
        """Read every decision and cut off a torn tail; raises MetadataCorruptError."""
        data = self._file.read_at(0, self._size)
        batches: list[tuple[MetadataRecord, ...]] = []
        end = 0
        for view, end in sound_batches(data):
            if view.base_offset != self.offset_end:
                raise self._corrupt(end - view.size_bytes, f"offset {view.base_offset} follows {self.offset_end}")
            try:
                batches.append(tuple(decode_record(record.value or b"") for record in decode_records(view)))
            except (MetadataFormatError, KafkaError) as error:
                raise self._corrupt(end - view.size_bytes, str(error)) from None
            self.offset_end = view.last_offset + 1
        torn = len(data) - end
        if torn:
            self._cut_tail(data, end)
        self._keep_room()
        self._file.sync()  # what was read may be in the page cache only; from here on it is built upon
        return LoadedLog(batches=tuple(batches), torn_bytes=torn)

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Write one decision and return the offset after it; call `sync` before telling anybody.

        When the disk refuses (it is full, say) the file is as it was before and a later append may succeed.
        """
        if self._failed:
            raise MetadataStoreError(self._failed)
        batch = encode_batch(records, self.offset_end, now_ms)
        try:
            self._file.write_at(self._size, batch)
        except OSError as error:
            self._undo(error)
            raise MetadataStoreError(error.errno, f"the metadata log could not be written: {error}") from error
        self._size += len(batch)
        self.offset_end += len(records)
        self._keep_room()
        return self.offset_end

    def _keep_room(self) -> None:
        if self._room_end - self._size < ROOM_BYTES // 2 and self._file.set_aside(self._size, ROOM_BYTES):
            self._room_end = self._size + ROOM_BYTES

    def sync(self) -> None:
        """Return once everything appended is on the disk; blocks, so call it from a worker thread."""
        try:
            self._file.sync()
        except OSError as error:
            self._failed = f"the metadata log could not be synced ({error}): repair the disk and start again"
            raise MetadataStoreError(error.errno, self._failed) from error

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _undo(self, error: OSError) -> None:
        self._room_end = 0
        try:
            self._file.truncate(self._size)
        except OSError:
            self._failed = f"the metadata log is damaged by a failed write ({error}): repair the disk and start again"

    def _cut_tail(self, data: bytes, end: int) -> None:
        later = later_batch(data, end + 1)
        if later is not None:
            raise self._corrupt(end, f"the batch there is damaged but a sound one follows at byte {later}")
        self._file.truncate(end)
        self._size = end

    def _corrupt(self, position: int, why: str) -> MetadataCorruptError:
        return MetadataCorruptError(
            f"The metadata log {self._directory.path}/{FILE} is corrupt at byte {position}: {why}. "
            "Restore the file from a backup; starting without it would forget topics."
        )


def sound_batches(data: bytes) -> Iterator[tuple[BatchView, int]]:
    """Batches with a matching CRC from the start, each with the position after it; stops before the first bad one."""
    position = 0
    while (view := _sound_batch(data, position)) is not None:
        position += view.size_bytes
        yield view, position


def _sound_batch(data: bytes, position: int) -> BatchView | None:
    if position + HEADER_BYTES > len(data) or data[position + _MAGIC_AT] != 2:
        return None
    length = int.from_bytes(data[position + 8 : position + _LENGTH_END], "big", signed=True)
    if length < HEADER_BYTES - _LENGTH_END or position + _LENGTH_END + length > len(data):
        return None
    view = BatchView(data, position)
    return view if view.verify_crc() else None


def later_batch(data: bytes, start: int) -> int | None:
    """Position of a sound batch at or after `start`, wherever it begins."""
    for position in range(start, len(data) - HEADER_BYTES + 1):
        if data[position + _MAGIC_AT] == 2 and _sound_batch(data, position) is not None:
            return position
    return None
