"""The log of one partition: ordered segments behind an append and a read

Offsets of interest, never out of order:

    log_start_offset <= committed <= held <= log_end_offset

What lies below the log start has been deleted. `held` is what this copy counts as having: under `flush.policy=group`
what is durable, so that nobody relies on a record that a power cut could still take back, under `os` everything, as on
an Apache Kafka node. `committed` is what is never cut off again; whoever owns the log says so (`commit`), and nothing
beyond is cleaned, deleted or searched. A log that nobody owns commits what it holds.

An append judges the header and CRC of a batch, asks the producer states whether it is new, stamps offset and leader
epoch into the caller's bytes and writes them. Nothing is changed when it raises; `judge` stops before the writing.
Where records have to be looked at (`examination`) somebody may do so elsewhere between the judging and the storing. A
follower's batches come with their offsets and epochs (`append_at`), a coordinator ends transactions (`append_marker`).

The end of the log may be cut off (`cut`), as a follower has to where its log parts from its leader's; `truncation` does
what has to be done on the disk for it. Not here: who may append, what consumers see, acknowledgement
(`tidemill.broker.replication`).
"""

import asyncio
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from tidemill.core.errors import (
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from tidemill.core.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    BatchView,
    pack_header,
    read_header,
    set_create_time,
    stamp,
    stamp_append_time,
    stamp_start,
)
from tidemill.core.records.validate import NO_TIMESTAMP, validate_produced_batch
from tidemill.core.runtime.disk import DISK_FULL, ByteBuffer, Directory
from tidemill.core.types import TopicPartition, new_tuple

from . import markers
from .appended import AppendResult, stored_already
from .config import LONG_MAX, LogConfig
from .epochs import LeaderEpochs
from .examination import Examination, examination_of
from .flush_plan import FlushPlan, LogPosition
from .flusher import Flusher, FlushWork
from .lookup import LogView
from .producers import KeptBatch, ProducerStates
from .recode import wanted_codec
from .replicated import check_replicated
from .segment import Segment
from .segment_files import name_gaps

log = structlog.get_logger("tidemill.broker.log")

HOT_BYTES = 64 * 2**20  # of the newest data; a consumer within once or twice of this is spared the look for cold pages
INDEXES_KEPT_MAX = 4  # of sealed segments: as many consumers that are behind read without loading indexes in turn


class Traffic(NamedTuple):
    """What this process has put into logs for clients, sent out of them to clients, and copied from leaders."""

    messages_in: int
    bytes_in: int
    bytes_out: int
    bytes_copied: int = 0


class Cut(NamedTuple):
    """What `PartitionLog.cut` has taken out of a log in memory, and what is left to do on the disk.

    `active` is on the same file as `whole`, which goes on behind it; all of `gone` are behind that.
    """

    active: Segment
    whole: Segment
    gone: list[Segment]


class PartitionLog:
    """One partition; made by `LogStore`, used on its event loop only."""

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        directory: Directory,
        config: LogConfig,
        flusher: Flusher,
        held_when_durable: bool,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: int,
        on_failure: Callable[[OSError], None],
        epochs_written: bool = True,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self._active = segments[-1]
        self.config = config
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.segments = segments
        self.closed = False
        self._bases = [segment.base_offset for segment in segments]
        self._sealed_bytes = sum(segment.size_bytes for segment in segments[:-1])
        self.flusher = flusher
        self._held_when_durable = held_when_durable
        self._on_failure = on_failure
        self.log_end_offset = self._active.next_offset
        self._active.know_latest()
        self._durable = self.held = self.committed = self.end_position()  # to be read only
        self._plan = FlushPlan(self._durable)  # of the next round ...
        self._plan.epochs = not epochs_written
        self._begun = self._plan  # ... and of the last one that began
        self._flush_due_ms = LONG_MAX
        self._hot_from = self._hot_next = self.log_end_offset  # from here on everything is surely in memory
        self._bytes_in = 0  # appended since it was opened
        self._hot_moves_at = HOT_BYTES  # of them
        self._bytes_out = self._bytes_copied = 0
        self._opened_at = self.log_end_offset
        self._indexed: list[Segment] = []
        self.changes = 0  # of segments that were there: how often some were removed or replaced
        self.replacing = False  # segments are being replaced by cleaned ones: none may be removed meanwhile
        self.disk_full = False  # the last append found no room
        self.appends_refused = 0  # for that reason
        self.cutting = False  # the end is being cut off: nothing is appended meanwhile
        self.cuts = 0  # how often that was done
        self._sparse = not self._active.dense
        self._reported_missing: frozenset[int] = frozenset()  # base offsets of segments, so that each is said once
        self._owner: Callable[[], None] | None = None
        self._on_start: Callable[[], None] = lambda: None
        self.on_append: Callable[[], None] | None = None  # set while somebody waits for more than what is committed

    # -- state

    @property
    def config(self) -> LogConfig:
        """The settings that hold now."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._append_time, self._codec = config.append_time, wanted_codec(config)  # these are asked for each batch
        self._counts_flushes = config.flush_messages < LONG_MAX
        self._looks_closer = config.append_time or config.walks_records or self._codec is not None
        self._plan_roll()

    @property
    def held_offset(self) -> int:
        """First offset that this copy does not count as having."""
        return self.held.offset

    @property
    def committed_offset(self) -> int:
        """First offset that might be cut off again."""
        return self.committed.offset

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is durable and needs no check after a crash."""
        return self._durable.offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._sealed_bytes + self._active.size_bytes

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self._active

    @property
    def leader_epoch(self) -> int:
        """The epoch of the last append; -1 when there was none."""
        return self.epochs.latest

    @property
    def traffic(self) -> Traffic:
        """What was appended and read so far; it does not change any more once the log is closed."""
        copied = self._bytes_copied
        return Traffic(self.log_end_offset - self._opened_at, self._bytes_in - copied, self._bytes_out, copied)

    def note_read(self, records: bytes | memoryview) -> None:
        """A client is sent these records of this log."""
        if not self.closed:
            self._bytes_out += len(records)

    def end_position(self) -> LogPosition:
        """Where the next batch goes."""
        active = self._active
        latest, _ = active.indexes.latest
        return new_tuple(LogPosition, (self.log_end_offset, active.base_offset, active.size_bytes, latest))

    # -- appending

    def append(
        self, data: ByteBuffer, *, now_ms: int, leader_epoch: int = 0, produce_version: int = 13
    ) -> AppendResult:
        """Judge and store one record batch of a client; raises KafkaError and then nothing has changed.

        `data` is stamped in place when it can be written to, else a copy is. If its records have to be looked at, that
        is done here and now, whatever it costs; see `try_append`.
        """
        found = self.try_append(data, now_ms, leader_epoch, produce_version)
        return self.append_examined(found, found.run()) if isinstance(found, Examination) else found

    def try_append(
        self, data: ByteBuffer, now_ms: int, leader_epoch: int = 0, produce_version: int = 13
    ) -> AppendResult | Examination:
        """The same, but if the batch's records have to be looked at first nothing is stored and this is returned."""
        if self.closed or self.cutting or self.flusher.failure is not None:
            self._check_open()
        config = self._config
        batch = validate_produced_batch(data, config.max_message_bytes, produce_version)
        if (
            self._looks_closer
            or batch.max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or now_ms - batch.base_timestamp > config.message_timestamp_before_max_ms
        ):
            examination = examination_of(data, batch, config, self._codec, now_ms, leader_epoch)
            if examination is not None:
                return examination
        return self._store(data, batch, now_ms, leader_epoch)

    def refuse(self, data: ByteBuffer, error: KafkaError, *, followed_epoch: int, now_ms: int) -> None:
        """A client's batch is not even to be judged, for a reason that passes: see `ProducerStates.refuse`."""
        if len(data) >= HEADER_BYTES:
            self.producers.refuse(read_header(data), error, followed_epoch=followed_epoch, now_ms=now_ms)

    def judge(self, data: ByteBuffer, *, now_ms: int, produce_version: int = 13) -> AppendResult | None:
        """What `append` would do, without doing it: raise, find that the batch is there already, or store it (None)."""
        self._check_open()
        batch = validate_produced_batch(data, self._config.max_message_bytes, produce_version)
        examination = examination_of(data, batch, self._config, self._codec, now_ms, self.leader_epoch)
        if examination is not None:
            examination.run()
            batch = examination.batch
        original = self.producers.check(batch) if batch.producer_id >= 0 else None
        return None if original is None else self._found(original)

    def append_examined(self, examination: Examination, data: ByteBuffer) -> AppendResult:
        """Store what `try_append` wanted to have examined, `data` being the outcome of that.

        The settings must be those it was made with; anything else may have changed meanwhile.
        """
        assert examination.config is self._config
        self._check_open()
        return self._store(data, examination.batch, examination.now_ms, examination.leader_epoch)

    def append_own(self, data: ByteBuffer, *, now_ms: int, leader_epoch: int = 0) -> AppendResult:
        """Store one batch that a coordinator of this broker has made: its times and records are taken as they are."""
        self._check_open()
        batch = validate_produced_batch(data, self._config.max_message_bytes)
        return self._store(data, batch, now_ms, leader_epoch)

    def append_marker(
        self, marker: markers.Marker, *, producer_id: int, producer_epoch: int, now_ms: int, leader_epoch: int = 0
    ) -> AppendResult:
        """End a producer's transaction; raises InvalidProducerEpoch, TransactionCoordinatorFenced and as `append`."""
        self._check_open()
        self.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
        data = bytearray(markers.encode(marker, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms))
        base_offset, leader_epoch = self.log_end_offset, max(leader_epoch, self.epochs.latest)
        stamp(data, 0, base_offset, leader_epoch)
        self._write(data, now_ms, base_offset, now_ms)
        self._note_epoch(leader_epoch, base_offset)
        self.producers.end_transaction(read_header(data), base_offset, marker.coordinator_epoch, now_ms)
        self.producers.decided(self.committed.offset)
        self._advance(base_offset + 1, len(data))
        return AppendResult(base_offset, base_offset, NO_TIMESTAMP, self.log_start_offset, False)

    def append_at(self, offset: int, data: ByteBuffer, *, now_ms: int) -> None:
        """Store whole batches as the leader has them, from `offset` on, where this log has to end.

        Raises OffsetOutOfRange, CorruptMessage, and then nothing has changed, or KafkaStorageError, and then those
        before the one that could not be written are there.
        """
        self._check_open()
        if offset != self.log_end_offset:
            raise OffsetOutOfRange(f"{self.topic_partition} ends at {self.log_end_offset}, not at {offset}")
        view = memoryview(data)
        found = check_replicated(data, offset, self.epochs.latest)
        ended = {at: markers.decode_any(BatchView(data, at)) for at, each in found if each.attributes & CONTROL_BIT}
        for at, batch in found:
            self._store_replicated(view[at : at + batch.size_bytes], batch, ended.get(at), now_ms)

    def _store_replicated(
        self, data: memoryview, batch: BatchHeader, marker: markers.Marker | None, now_ms: int
    ) -> None:
        if batch.base_offset != self.log_end_offset and not self._sparse:
            self._expect_gaps()
        next_offset, size_bytes = batch.next_offset, len(data)
        self._write(data, batch.max_timestamp, next_offset - 1, now_ms)
        self._note_epoch(batch.leader_epoch, self.log_end_offset)  # it says who wrote what is missing, see `recovery`
        if marker is not None:
            self.producers.end_transaction(batch, batch.base_offset, marker.coordinator_epoch, now_ms)
            self.producers.decided(self.committed.offset)
        elif batch.producer_id >= 0 and batch.base_sequence >= 0:  # the cleaner leaves some without records
            self.producers.update(batch, batch.base_offset, batch.max_timestamp, now_ms, batch.leader_epoch)
        self._opened_at += next_offset - self.log_end_offset  # the leader has counted it
        self._bytes_copied += size_bytes
        self._advance(next_offset, size_bytes)

    def _expect_gaps(self) -> None:
        """From now on offsets may be missing between batches: a start must not take that for a sign of damage.

        Once in the life of a log it waits for the disk: the name has to be there before the first gap can be.
        """
        try:
            name_gaps(self.directory)
        except OSError as error:
            raise self._storage_error(error) from error
        self.note_gaps()

    def _note_epoch(self, leader_epoch: int, base_offset: int) -> None:
        if leader_epoch > self.epochs.latest and self.epochs.assign(leader_epoch, base_offset):
            self._plan.epochs = True

    def _check_open(self) -> None:
        if self.closed:
            raise KafkaStorageError(f"{self.topic_partition} is closed")
        if self.flusher.failure is not None:
            raise KafkaStorageError(f"the log folder failed: {self.flusher.failure}")
        if self.cutting:
            raise NotLeaderOrFollower(f"the end of {self.topic_partition} is being cut off")

    def _store(self, data: ByteBuffer, batch: BatchHeader, now_ms: int, leader_epoch: int) -> AppendResult:
        """Give a batch that has been judged the next offsets and write it, unless it is there already."""
        idempotent = batch.producer_id >= 0
        if idempotent:
            original = self.producers.check(batch)
            if original is not None:
                return self._found(original)
        if type(data) is memoryview:
            if data.readonly:
                data = bytearray(data)
        elif type(data) is not bytearray:
            data = bytearray(data)
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        append_time, max_timestamp = NO_TIMESTAMP, batch.max_timestamp
        if self._append_time:
            append_time = max_timestamp = now_ms
            stamp_append_time(data, 0, now_ms)
        elif batch.attributes & TIMESTAMP_TYPE_BIT:
            set_create_time(data)
        latest_epoch = self.epochs.latest
        if leader_epoch < latest_epoch:  # no epoch goes back in a log, or no follower could store it
            leader_epoch = latest_epoch
        stamp_start(data, 0, base_offset, len(data) - LOG_OVERHEAD_BYTES, leader_epoch)
        try:
            self._write(data, max_timestamp, last_offset, now_ms)
        except KafkaStorageError as error:
            data[:HEADER_BYTES] = pack_header(batch)  # the caller may try again with it
            self.producers.refuse(batch, error, now_ms=now_ms)
            raise
        if leader_epoch > latest_epoch and self.epochs.assign(leader_epoch, base_offset):
            self._plan.epochs = True
        if idempotent:
            self.producers.update(batch, base_offset, max_timestamp, now_ms)
        self._advance(last_offset + 1, len(data))
        return new_tuple(AppendResult, (base_offset, last_offset, append_time, self.log_start_offset, False))

    def _found(self, original: KeptBatch) -> AppendResult:
        return stored_already(original, self.log_start_offset, stamps=self._append_time)

    def _write(self, data: ByteBuffer, max_timestamp: int, last_offset: int, now_ms: int) -> None:
        config, active = self._config, self._active
        try:
            if active.size_bytes and (
                not active.fits(len(data), last_offset, config.segment_bytes, config.segment_index_bytes)
                or (active.first_append_ms is not None and now_ms - active.first_append_ms > self._roll_after_ms)
            ):
                self.roll()
                active = self._active
            active.append(data, max_timestamp, last_offset, config.index_interval_bytes)
        except OSError as error:
            raise self._storage_error(error) from error
        if self.disk_full:
            self.disk_full = False
            log.info("there is room again: appends go on", partition=str(self.topic_partition))
        if active.first_append_ms is None:
            active.first_append_ms = now_ms

    def _storage_error(self, error: OSError) -> KafkaStorageError:
        """A full disk is waited out; any other error ends the folder."""
        if error.errno in DISK_FULL:
            self.appends_refused += 1
            if not self.disk_full:
                self.disk_full = True
                log.warning("disk full: refusing appends, reads go on", partition=str(self.topic_partition))
            return KafkaStorageError(f"no space left in {self.directory.path}: free some, appends go on by themselves")
        log.critical("write failed", partition=str(self.topic_partition), error=str(error))
        self._on_failure(error)
        return KafkaStorageError(f"cannot write to {self.directory.path}: {error.strerror}")

    def roll(self) -> None:
        """Seal the active segment and begin the next one at the log end; nothing happens to an empty one."""
        if self._active.size_bytes == 0 or self.cutting:
            return
        segment = Segment.create(self.directory, self.log_end_offset)
        segment.dense = not self._sparse
        self._active.seal()
        self._plan.seal(self._active, self.log_end_offset, self.producers)
        self._sealed_bytes += self._active.size_bytes
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._plan_roll()
        self.flusher.add(self)

    def _plan_roll(self) -> None:
        self._roll_after_ms = self._config.roll_after_ms(f"{self.topic_partition}@{self._active.base_offset}")

    def _advance(self, log_end_offset: int, size_bytes: int) -> None:
        """`size_bytes` more have been written, and the log ends there now."""
        self.log_end_offset = log_end_offset
        self._bytes_in += size_bytes
        if self._bytes_in >= self._hot_moves_at:
            self._hot_from, self._hot_next = self._hot_next, log_end_offset
            self._hot_moves_at = self._bytes_in + HOT_BYTES
        if self.on_append is not None:
            self.on_append()
        if self._held_when_durable:
            self.flusher.add(self)
            return
        if self._counts_flushes and log_end_offset - self._begun.end.offset >= self._config.flush_messages:
            self.flusher.add(self)
        active = self._active  # `end_position` and `_hold` in place: with each batch, a call counts
        self.held = new_tuple(
            LogPosition, (log_end_offset, active.base_offset, active.size_bytes, active.indexes.latest[0])
        )
        if self._owner is None:
            self.committed = self.held
        else:
            self._owner()

    # -- durability

    def pending(self, last_offset: int) -> "asyncio.Future[None] | None":
        """What to wait for before this copy holds the record at `last_offset`; None when it does.

        The future is shared: shield it where the waiter can be cancelled. Raises KafkaStorageError on a closed log.
        """
        if last_offset < self.held.offset:
            return None
        if self.closed:
            raise KafkaStorageError(f"{self.topic_partition} is closed")
        if last_offset >= self.log_end_offset:
            raise NotLeaderOrFollower(f"offset {last_offset} of {self.topic_partition} is not there any more")
        return self.flusher.next_round()

    async def durable(self, last_offset: int) -> None:
        """Return when this copy holds the record at `last_offset`.

        Raises KafkaStorageError if it never will, NotLeaderOrFollower if it may have been cut off meanwhile.
        """
        cuts = self.cuts
        while (pending := self.pending(last_offset)) is not None:
            await asyncio.shield(pending)
            if self.cuts != cuts:
                raise NotLeaderOrFollower(f"the end of {self.topic_partition} has been cut off")

    def begin_flush(self) -> FlushWork:
        """Freeze what this round covers and say what has to be done for it."""
        if self.closed:
            return FlushWork([], [])
        end = self.end_position()
        self._begun, self._plan = self._plan, FlushPlan(end)
        self._begun.end = end
        return self._begun.work(self.directory, self.epochs, self._active)

    def end_flush(self) -> None:
        """What `begin_flush` froze is durable."""
        self._begun.leave_to(self._plan)
        if self.closed:
            return
        self._durable = self._begun.end
        if self._held_when_durable:
            self._hold(self._durable)

    def _hold(self, position: LogPosition) -> None:
        self.held = position
        if self._owner is None:
            self.committed = position
        else:
            self._owner()

    # -- the owner

    def own(self, on_change: Callable[[], None], on_start: Callable[[], None] = lambda: None) -> None:
        """From now on `on_change` is called when more or, after a cut, less is held and when the log is closed,
        `on_start` when the log start has advanced; and its owner commits."""
        self._owner, self._on_start = on_change, on_start

    def position_of(self, offset: int) -> LogPosition:
        """Where `offset`, which is held, lies, or the batch that has it; raises CorruptMessage, KafkaStorageError."""
        held = self.held
        if offset >= held.offset:
            assert offset == held.offset
            return held
        segment = self.segments[max(bisect_right(self._bases, offset) - 1, 0)]
        try:
            position = segment.position_of(offset)
        except OSError as error:
            raise KafkaStorageError(f"cannot read {self.directory.path}: {error.strerror}") from error
        return LogPosition(offset, segment.base_offset, position, None)

    def segment_start(self, offset: int) -> LogPosition:
        """The beginning of the segment that has `offset`: nothing has to be read for it."""
        base = self._bases[max(bisect_right(self._bases, offset) - 1, 0)]
        return LogPosition(max(base, self.log_start_offset), base, 0, None)

    def commit(self, position: LogPosition) -> None:
        """Nothing below this position, which is of an offset that is held, is ever cut off again."""
        assert position.offset <= self.held.offset
        self.committed = position

    # -- reading

    def read(
        self, offset: int, max_bytes: int, end: LogPosition | None = None, *, at_least_one: bool = True
    ) -> bytes | memoryview:
        """Whole batches from the one that has `offset`, up to `end`, or what is committed, and within one segment.

        Empty at the end, or when the first batch is larger than `max_bytes` and `at_least_one` is not set.
        Raises OffsetOutOfRange, and CorruptMessage when the batch at `offset` is damaged.
        """
        if self.closed:
            raise KafkaStorageError(f"{self.topic_partition} is closed")
        if end is None:
            end = self.committed
        if not self.log_start_offset <= offset <= end.offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is not in [{self.log_start_offset}, {end.offset}]"
            )
        if offset == end.offset or (max_bytes <= 0 and not at_least_one):
            return b""
        try:
            return self._read(offset, max_bytes, end, at_least_one)
        except OSError as error:
            log.error("read failed", partition=str(self.topic_partition), error=str(error))
            raise KafkaStorageError(f"cannot read {self.directory.path}: {error.strerror}") from error

    def _read(self, offset: int, max_bytes: int, end: LogPosition, at_least_one: bool) -> bytes | memoryview:
        number = bisect_right(self._bases, offset) - 1
        while number < len(self.segments):
            segment = self.segments[number]
            is_last = segment.base_offset == end.segment_base
            position = end.position if is_last else segment.size_bytes
            data = segment.read(offset, max_bytes, position, at_least_one=at_least_one)
            self._keep_few_indexes(segment)
            if data:
                return data
            if is_last:
                break
            self._report_missing(segment, offset)
            number += 1
        return b""

    def _report_missing(self, segment: Segment, offset: int) -> None:
        """A sealed segment ends before `offset`: only the cleaner may leave a log like that."""
        if self.config.compacted or segment.base_offset in self._reported_missing:
            return
        self._reported_missing |= {segment.base_offset}
        log.error(
            "the end of a segment is missing: acknowledged records are lost",
            segment=segment.label,
            offset=offset,
            next_offset=segment.next_offset,
        )

    def cold(self, offset: int, max_bytes: int) -> Callable[[], None] | None:
        """What to do in another thread before `read`, so that the event loop does not wait for the disk; or None.

        What was appended last is taken to be in memory.
        """
        if self.closed or offset >= self._hot_from or not self.log_start_offset <= offset < self.committed.offset:
            return None
        segment = self.segments[bisect_right(self._bases, offset) - 1]
        try:
            found = segment.cold_range(offset, max_bytes)
        except (OSError, CorruptMessage):
            return None  # `read` meets the same and says it
        return None if found is None else partial(segment.file.prefetch, *found)

    def _keep_few_indexes(self, segment: Segment) -> None:
        """The indexes of sealed segments stay in memory for the last few that were read."""
        if (self._indexed and self._indexed[-1] is segment) or segment.base_offset >= self._durable.segment_base:
            return  # it is the active one, or the round that writes the files of its indexes is not over
        if segment in self._indexed:
            self._indexed.remove(segment)
        self._indexed.append(segment)
        if len(self._indexed) > INDEXES_KEPT_MAX:
            self._indexed.pop(0).indexes.forget()

    def view(self) -> LogView:
        """What is committed now, for a search by time in another thread; it holds until `changes` changes."""
        visible = self.committed
        return LogView(
            segments=tuple(self.segments),
            log_start=self.log_start_offset,
            high_watermark=visible.offset,
            last_base=visible.segment_base,
            last_end=visible.position,
            last_latest=visible.latest,
            changes=self.changes,
        )

    # -- deleting

    def advance_log_start(self, offset: int) -> bool:
        """Hide everything below `offset`, which must not be beyond what is committed; True if anything changed."""
        if offset > self.committed.offset:
            raise OffsetOutOfRange(f"offset {offset} is beyond the high watermark {self.committed.offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._plan.epochs = self.epochs.truncate_from_start(offset) or self._plan.epochs
        self._on_start()
        return True

    def detach_segments(self, count: int) -> list[Segment]:
        """Take the oldest `count` segments, all of them durable, out of the log; the caller removes their files.

        A round of the flusher may still be at work on them: see `Flusher.between_rounds`.
        """
        assert 0 <= count < len(self.segments)
        assert self._bases[count] <= self._durable.offset
        self.changes += count > 0
        gone = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        self._sealed_bytes -= sum(segment.size_bytes for segment in gone)
        self._plan.rolled = [segment for segment in self._plan.rolled if segment not in gone]
        self._indexed = [segment for segment in self._indexed if segment not in gone]
        return gone

    @property
    def settled_offset(self) -> int:
        """Base offset of the first segment that is still of interest to appends, to rounds of fsync or to the limits of
        reads; those below it never change, unless `replace_segments` does it."""
        return min(self.committed.segment_base, self._durable.segment_base)

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> bool:
        """Put `new` in the place of `old`, settled segments next to one another; False if they are not there any more.

        From the return on no read goes to `old`. The caller sees to the files.
        """
        first = bisect_left(self._bases, old[0].base_offset)
        if self.closed or self.segments[first : first + len(old)] != old:
            return False
        assert new[0].base_offset == old[0].base_offset and old[-1].next_offset <= self.settled_offset
        self.changes += 1
        self.segments[first : first + len(old)] = new
        self._bases[first : first + len(old)] = [segment.base_offset for segment in new]
        self._indexed = [segment for segment in self._indexed if segment not in old]
        self._sealed_bytes += sum(each.size_bytes for each in new) - sum(each.size_bytes for each in old)
        return True

    # -- cutting off

    def check_cut(self, offset: int, *, unclean: bool) -> int:
        """Where the log will end if nothing is to be left from `offset` on, since batches stay whole.

        Raises OffsetOutOfRange if that is beyond the end, before the first segment, or, unless it is to be `unclean`,
        in what is committed.
        """
        if self.closed or self.flusher.failure is not None:
            self._check_open()
        if not self._bases[0] <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} has offsets from {self._bases[0]} to {self.log_end_offset}: it cannot be cut "
                f"at {offset}"
            )
        try:
            _, end, kept_to = self.segments[bisect_right(self._bases, offset) - 1].end_before(offset)
        except OSError as error:
            raise KafkaStorageError(f"cannot read {self.directory.path}: {error.strerror}") from error
        if kept_to < self.committed.offset and not unclean:
            raise OffsetOutOfRange(
                f"{self.topic_partition} is committed up to {self.committed.offset}: it will not be cut at {kept_to}"
            )
        return end

    def has_gaps_from(self, offset: int) -> bool:
        """Whether the cleaner may have left gaps, that have no name, in what a cut at `offset` touches."""
        number = bisect_right(self._bases, offset) - 1
        return not self._sparse and not all(segment.dense for segment in self.segments[number:])

    def note_gaps(self) -> None:
        """The gaps of this log have a name (`segment_files.name_gaps`)."""
        self._sparse = True
        self._active.dense = False

    def release_views(self, offset: int) -> bool:
        """Whether nobody uses bytes any more that were read from where a cut at `offset` would begin."""
        return self.segments[bisect_right(self._bases, offset) - 1].file.release_views()

    def cut(self, offset: int) -> Cut:
        """Have nothing from `offset` on, in memory; what it returns must be done on the disk before anything else.

        What the producer states say of it is left to the caller too. Raises OSError, and then nothing has changed.
        """
        number = bisect_right(self._bases, offset) - 1
        whole, gone = self.segments[number], self.segments[number + 1 :]
        position, end_offset, _ = whole.end_before(offset)
        active, ended = whole.cut(position, end_offset), self.log_end_offset
        self.segments[number:], self._bases[number:] = [active], [active.base_offset]
        self._sealed_bytes = sum(segment.size_bytes for segment in self.segments[:-1])
        self._active, self.log_end_offset = active, end_offset
        self._indexed = [segment for segment in self._indexed if segment in self.segments]
        self.changes += 1
        self.cuts += 1
        self._opened_at -= ended - end_offset  # what has been appended stays counted
        self._hot_from, self._hot_next = min(self._hot_from, end_offset), min(self._hot_next, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self._plan.names = True
        self._plan.epochs = self.epochs.truncate_from_end(end_offset) or self._plan.epochs
        end = self.end_position()
        for plan in (self._plan, self._begun):
            plan.cut(end)
        self._durable, self.held, self.committed = (
            position.cut(end) for position in (self._durable, self.held, self.committed)
        )
        self._plan_roll()
        if self._owner is not None:
            self._owner()
        return Cut(active, whole, gone)

    def take_index_writes(self) -> Callable[[], None] | None:
        """What brings the index files of the active segment up to date, if they are behind.

        It spares recovery the walk over everything below the recovery point. The flusher sees to sealed segments.
        """
        return None if self._active.indexes.are_written else self._active.take_index_writes()

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed since something was written that no round has covered."""
        due_ms = now_ms + self.config.flush_ms
        if self.log_end_offset == self._begun.end.offset:
            self._flush_due_ms = due_ms
        self._flush_due_ms = min(self._flush_due_ms, due_ms)  # the clock may have gone back, or the setting down
        return now_ms >= self._flush_due_ms

    def detach(self) -> None:
        """Refuse everything from now on: the log is being deleted or closed."""
        self.closed = True
        if self._owner is not None:
            self._owner()

    def finish(self) -> None:
        """Write what is only in memory; the log must be detached and all of it durable."""
        self._active.seal()
        self._plan.end = self.end_position()
        self._plan.finish(self.directory, self.epochs, self._active, self.producers)

    def close_files(self) -> None:
        """Close the files, whatever state they are in."""
        for segment in self.segments:
            segment.close()
