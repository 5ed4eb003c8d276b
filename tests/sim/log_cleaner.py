"""The log simulation with compacted topics and a cleaner at work among everything else

The cleaner's thread is stepped like the others, so that its copies, swaps and checkpoints stand between appends, rounds
of fsync, retention, deletions and power cuts in every order. After each start the newest record of every key is there,
at its offset and with its value, nothing is there that was not written, and the last batch of every producer is known;
so are they when the end of a log, never committed, was cut off.
"""

from tests.broker.log.log_world import NOW_MS, payload, read_all
from tests.sim.log_store import Appended, FitfulClock, LogSimulation, Promises, SteppedStore, SteppedThread
from tidemill.broker.log.cleaner import CleanerSettings, LogCleaner
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.core.errors import KafkaStorageError, NotLeaderOrFollower
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records

KEYS = 12


class CleaningSimulation(LogSimulation):
    """One machine through several lives, its topics compacted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.config = LogConfig(
            cleanup_policy=rng.choice((("compact",), ("compact",), ("compact", "delete"))),
            segment_bytes=rng.choice((600, 1500, 5000)),
            index_interval_bytes=rng.choice((100, 400)),
            file_delete_delay_ms=0,
            retention_bytes=rng.choice((-1, 3000)),
            min_cleanable_dirty_ratio=rng.choice((0.0, 0.3)),
        )
        self.replacements = self.failures = 0
        self._cleaner: LogCleaner | None = None
        self._cleaned_store: SteppedStore | None = None
        self._steps = SteppedThread()

    def _act(self, store: SteppedStore) -> None:
        if self._cleaned_store is not store:
            self._begin_cleaner(store)
        choice = self.rng.random()
        if choice < 0.08:
            self._background(self._clean())
        elif choice < 0.22:
            self._steps.work()
        elif choice < 0.36:
            self._steps.notice()
        elif choice < 0.40:
            self._background(store.checkpoint())
        elif choice < 0.48:
            self._turn_threads(store)
        else:
            super()._act(store)

    def _begin_cleaner(self, store: SteppedStore) -> None:
        self._cleaned_store, self._steps = store, SteppedThread()
        settings = CleanerSettings(dedupe_buffer_bytes=1)
        self._cleaner = LogCleaner(store, FitfulClock(self.rng), settings, thread=self._steps)
        self._cleaning = False
        replace = store.replace_segments

        async def counted(*arguments: object) -> bool:
            replaced = await replace(*arguments)  # type: ignore[arg-type]
            self.replacements += replaced
            return replaced

        store.replace_segments = counted  # type: ignore[method-assign,assignment]

    async def _clean(self) -> None:
        """One cleaning at a time, as `LogCleaner.run` has it."""
        if self._cleaning:
            return
        self._cleaning = True
        try:
            assert self._cleaner is not None
            await self._cleaner.clean_dirtiest()
            self.failures += len(self._cleaner.failures)
        finally:
            self._cleaning = False

    def _turn_threads(self, store: SteppedStore) -> None:  # type: ignore[override]
        super()._turn_threads(store)
        if self._cleaned_store is store:
            self._steps.work()
            self._steps.notice()

    def _truncate(self, store: SteppedStore) -> None:
        """What was never committed only: the cleaner counts on the rest, and nothing tells it of an unclean leader."""
        found = self._log(store)
        if found is not None:
            self._background(self._cut(store, *found, unclean=False))

    def _append_replicated(self, store: SteppedStore) -> None:
        """Not here: `tests/sim/log_store.py` is about what a leader sends."""

    def _append(self, store: SteppedStore) -> None:
        found = self._log(store)
        if found is None:
            return
        log, owed = found
        rng = self.rng
        producer = rng.randrange(1, 4)
        sequence = owed.sequences.get(producer, 0)
        records = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self.numbers += 1
            value = None if rng.random() < 0.1 else b"%d " % self.numbers * rng.choice((1, 10, 60, 60))
            records.append(NewRecord(NOW_MS + self.numbers, b"k%d" % rng.randrange(KEYS), value))
        data = build_batch(
            records,
            codec=rng.choice(("none", "none", "lz4")),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        epoch = len(owed.batches) // 10
        try:
            result = log.append(data, now_ms=NOW_MS, leader_epoch=epoch)
        except (KafkaStorageError, NotLeaderOrFollower):
            self.refused += 1
            return
        assert not result.duplicate
        owed.sequences[producer] = sequence + len(records)
        view = BatchView(data)
        batch = Appended(result.base_offset, result.last_offset + 1, payload(view), (producer, sequence), data, epoch)
        owed.batches.append(batch)
        try:
            pending = log.pending(result.last_offset)
        except KafkaStorageError:
            return
        cuts = owed.cuts
        if pending is None:
            self._acknowledge(owed, batch, cuts)
        else:
            pending.add_done_callback(lambda done: done.exception() is None and self._acknowledge(owed, batch, cuts))

    def _check_log(self, log: PartitionLog, owed: Promises) -> None:
        assert log.topic_id == owed.topic_id
        end = log.log_end_offset
        if self.flush_policy == "group":
            assert end >= owed.end_owed, f"the log ends at {end}, {owed.end_owed} was acknowledged or seen"
        else:  # what is in the page cache may go, but only from the end
            owed.start_promised = min(owed.start_promised, end)
        assert owed.start_promised <= log.log_start_offset <= max(owed.start_highest, owed.start_promised)
        kept = [batch for batch in owed.batches if batch.next_offset <= end]
        written = [
            record._replace(offset=batch.base_offset + number)
            for batch in kept
            for number, record in enumerate(decode_records(BatchView(batch.data)))
        ]
        found = [record for view in read_all(log) if _is_sound(view) for record in decode_records(view)]
        assert all(segment.damaged == [] for segment in log.segments)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert set(found) <= set(written)
        newest: dict[bytes | None, Record] = {record.key: record for record in written}
        owed_now = {record for record in newest.values() if record.offset >= log.log_start_offset}
        assert owed_now <= set(found), f"missing {sorted(owed_now - set(found))}"
        self._check_states(log, owed, kept)
        owed.batches, owed.cutting_at = kept, None
        owed.acknowledged_end = owed.seen_end = end
        owed.start_promised = owed.start_highest = log.log_start_offset
        owed.sequences = {}
        for batch in kept:
            producer, sequence = batch.producer
            owed.sequences[producer] = sequence + BatchView(batch.data).record_count

    def _check_states(self, log: PartitionLog, owed: Promises, kept: list[Appended]) -> None:
        """A retry of a producer's last batch is known, even when nothing but its header was kept; so are the epochs.

        Of what the cleaner has taken an epoch may be said that is too new, never one that is too old.
        """
        first = log.segments[0].base_offset
        last = {batch.producer[0]: batch for batch in kept}
        for batch in last.values():
            if batch.base_offset >= first:
                again = log.judge(batch.data, now_ms=NOW_MS)
                assert again is not None and again.base_offset == batch.base_offset, f"forgotten: {batch.producer}"
        for batch in kept:
            if batch.base_offset >= log.log_start_offset:
                assert log.epochs.epoch_at(batch.base_offset) >= batch.epoch, f"too old at {batch.base_offset}"
        for view in read_all(log):
            first = max(view.base_offset, log.log_start_offset)
            assert log.epochs.epoch_at(first) == view.leader_epoch, f"of another epoch: {first}"

    def check(self, store: LogStore) -> None:
        """Every promise is kept, and no file of a replacement is left."""
        super().check(store)
        for log in store:
            names = log.directory.list()
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))], names


def _is_sound(view: BatchView) -> bool:
    assert view.verify_crc()
    return True
