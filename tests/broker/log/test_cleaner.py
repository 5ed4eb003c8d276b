"""The cleaner on a real folder: what readers, restarts, retention and deletion see of it"""

import asyncio
import errno
import itertools
import json
import random
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.broker.log.log_world import NOW_MS, look_up, read_all
from tidemill.broker.log import cleaner as cleaner_module
from tidemill.broker.log import swap
from tidemill.broker.log.checkpoints import CLEANED, read_offsets
from tidemill.broker.log.cleanable import CleanerMachine
from tidemill.broker.log.cleaner import CleanerSettings, LogCleaner
from tidemill.broker.log.cleaner_report import FAILURES
from tidemill.broker.log.compaction import CleaningFailed
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.log.store import LogStore
from tidemill.core.errors import OutOfOrderSequenceNumber
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.types import TopicPartition

CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=2000,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.1,
)
KEY = TopicPartition("t", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[LogStore]:
    store = opened(tmp_path, clock)
    yield store
    await store.close()


def opened(folder: Path, clock: ManualClock) -> LogStore:
    store = LogStore.at(str(folder), clock=clock, node_id=1)
    store.open_all(lambda _topic: CONFIG)
    return store


def cleaner_of(store: LogStore, clock: ManualClock, **settings: float) -> LogCleaner:
    return LogCleaner(store, clock, CleanerSettings(**settings))  # type: ignore[arg-type]


async def produce(
    log: PartitionLog, count: int, *, keys: int = 10, seed: int = 1, producer_id: int = -1, codec: str = "none"
) -> None:
    """Batches of one to three records with random keys; a tenth are tombstones."""
    rng = random.Random(seed)
    state = log.producers.get(producer_id)
    sequence = -1 if producer_id < 0 else 0 if state is None else state.last_sequence + 1
    for _ in range(count):
        records = [
            NewRecord(NOW_MS, b"k%d" % rng.randrange(keys), None if rng.random() < 0.1 else rng.randbytes(60))
            for _ in range(rng.randint(1, 3))
        ]
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=sequence,
        )
        sequence += len(records) if sequence >= 0 else 0
        await log.durable(log.append(batch, now_ms=NOW_MS).last_offset)


def records_of(log: PartitionLog) -> list[Record]:
    return [record for view in read_all(log) for record in decode_records(view)]


def expected(before: list[Record], cleaned_below: int) -> list[Record]:
    """The model: below the active segment only the last record of every key *there*, as the active one is not read."""
    last = {record.key: record.offset for record in before if record.offset < cleaned_below}
    return [record for record in before if record.offset >= cleaned_below or last[record.key] == record.offset]


async def clean_all(store: LogStore, clock: ManualClock) -> LogCleaner:
    await store.checkpoint()
    cleaner = cleaner_of(store, clock)
    while await cleaner.clean_dirtiest():
        pass
    cleaner.close()
    return cleaner


async def test_a_compacted_log_is_served_as_the_model_says_from_every_offset(
    store: LogStore, clock: ManualClock
) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 200, codec="lz4")
    before, end = records_of(log), log.log_end_offset
    await clean_all(store, clock)
    after = expected(before, log.active.base_offset)
    assert records_of(log) == after
    assert len(after) < len(before) / 4
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    offsets = [record.offset for record in after]
    for offset in range(end):
        data = bytes(log.read(offset, 1))
        found = [record.offset for record in decode_records(BatchView(data)) if record.offset >= offset]
        while not found:  # a batch whose records are all below: a consumer asks for what follows
            offset = BatchView(data).next_offset
            data = bytes(log.read(offset, 1))
            found = [record.offset for record in decode_records(BatchView(data)) if record.offset >= offset]
        assert found[0] == next(each for each in offsets if each >= offset)
    assert look_up(log, NOW_MS) is not None


async def test_a_cut_into_what_was_compacted_leaves_it_readable_after_a_restart(
    store: LogStore, clock: ManualClock, tmp_path: Path
) -> None:
    """Only after an unclean election: what is compacted has been committed."""
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 200, keys=60)
    await clean_all(store, clock)
    inside = log.segments[-5].next_offset - 2
    await store.truncate(log, inside, unclean=True)
    left = records_of(log)
    assert 2 < len(left) < log.log_end_offset, "there are gaps"
    await produce(log, 100, keys=50)
    before = records_of(log)
    assert before[: len(left)] == left
    shutil.copytree(tmp_path, tmp_path / "killed", ignore=shutil.ignore_patterns("*.deleted"))
    await store.close()
    for folder in (tmp_path / "killed", tmp_path):
        again = opened(folder, clock)
        found = again.get("t", 0)
        assert found is not None
        assert [segment.damaged for segment in found.segments] == [[]] * len(found.segments)
        assert records_of(found) == before
        await again.close()


async def test_segments_that_shrank_become_one_with_the_next_cleaning(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 200)
    await clean_all(store, clock)
    shrunk = len(log.segments)
    await produce(log, 50)
    before = records_of(log)
    grown = len(log.segments) - shrunk
    await clean_all(store, clock)
    assert records_of(log) == expected(before, log.active.base_offset)
    assert len(log.segments) <= grown + 2 < shrunk


async def test_only_what_a_start_would_trust_is_cleaned(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 50)
    cleaner = cleaner_of(store, clock)
    assert not await cleaner.clean_dirtiest(), "the recovery point has not been written yet"
    await store.checkpoint()
    assert await cleaner.clean_dirtiest()
    assert store.cleaned_offset(KEY) == log.active.base_offset
    assert read_offsets(store.directory, CLEANED) == {KEY: log.active.base_offset}
    assert not await cleaner.clean_dirtiest()
    cleaner.close()


async def test_other_topics_are_left_alone(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, LogConfig(segment_bytes=2000))
    await produce(log, 50)
    before = records_of(log)
    await clean_all(store, clock)
    assert records_of(log) == before
    assert store.cleaned_offset(KEY) is None


@pytest.mark.parametrize("clean_stop", [True, False])
async def test_a_restart_finds_what_the_cleaner_left_and_goes_on_from_there(
    tmp_path: Path, clock: ManualClock, clean_stop: bool
) -> None:
    store = opened(tmp_path, clock)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    for round_number in range(3):
        await produce(log, 80, seed=round_number, producer_id=5)
        await clean_all(store, clock)
        before = records_of(log)
        if not clean_stop:
            await store.checkpoint()
        await store.close()
        if not clean_stop:
            (tmp_path / ".kafka_cleanshutdown").unlink()
        store = opened(tmp_path, clock)
        found = store.get("t", 0)
        assert found is not None
        log = found
        assert records_of(log) == before
        assert [segment.damaged for segment in log.segments] == [[]] * len(log.segments)
        assert store.cleaned_offset(KEY) is not None
        assert not [path for path in (tmp_path / "t-0").iterdir() if path.suffix in (".deleted", ".swap", ".cleaned")]
    await store.close()


async def with_a_superseded_batch(tmp_path: Path, clock: ManualClock) -> tuple[LogStore, PartitionLog, bytes]:
    """A log in which everything that producer 9 has written so far, one batch, was written again by others."""
    store = opened(tmp_path, clock)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    first = build_batch([NewRecord(NOW_MS, b"k1", b"x")], producer_id=9, producer_epoch=0, base_sequence=0)
    await log.durable(log.append(first, now_ms=NOW_MS).last_offset)
    await produce(log, 100)
    return store, log, first


async def test_a_producer_whose_records_are_all_superseded_goes_on_with_its_sequence_after_a_crash(
    tmp_path: Path, clock: ManualClock
) -> None:
    store, log, first = await with_a_superseded_batch(tmp_path, clock)
    await clean_all(store, clock)
    assert 9 in [view.producer_id for view in read_all(log) if view.record_count == 0]
    await store.close()
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    store = opened(tmp_path, clock)
    found = store.get("t", 0)
    assert found is not None
    assert found.append(first, now_ms=NOW_MS).duplicate
    gap = build_batch([NewRecord(NOW_MS, b"k1", b"x")], producer_id=9, producer_epoch=0, base_sequence=2)
    with pytest.raises(OutOfOrderSequenceNumber):
        found.append(gap, now_ms=NOW_MS)
    await store.close()


async def test_a_producer_is_known_even_if_its_newest_batch_is_lost_after_a_cleaning(
    tmp_path: Path, clock: ManualClock
) -> None:
    store, log, first = await with_a_superseded_batch(tmp_path, clock)
    newest = build_batch([NewRecord(NOW_MS, b"k1", b"y")], producer_id=9, producer_epoch=0, base_sequence=1)
    end = log.append(newest, now_ms=NOW_MS).base_offset
    await clean_all(store, clock)
    assert log.segments[-1].base_offset <= end, "what is not settled is not compacted"
    await store.close()
    with (tmp_path / "t-0" / segment_name(log.segments[-1].base_offset)).open("r+b") as active:
        active.truncate(0)  # a power cut, before anybody was told that it is stored
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    store = opened(tmp_path, clock)
    found = store.get("t", 0)
    assert found is not None
    assert found.append(first, now_ms=NOW_MS).duplicate
    assert not found.append(newest, now_ms=NOW_MS).duplicate
    await store.close()


async def test_bytes_handed_out_before_stay_what_they_were(store: LogStore, clock: ManualClock) -> None:
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=400_000, file_delete_delay_ms=0)
    log = store.create("t", uuid.UUID(int=1), 0, config)
    for _ in range(40):
        batch = build_batch([NewRecord(NOW_MS, b"k", b"v" * 50_000)])
        await log.durable(log.append(batch, now_ms=NOW_MS).last_offset)
    view = log.read(0, 300_000)
    assert isinstance(view, memoryview), "large reads are mapped"
    copy = bytes(view)
    await clean_all(store, clock)
    await asyncio.sleep(0.05)  # the old files are unlinked now
    assert len(records_of(log)) < 10
    assert bytes(view) == copy


async def test_compact_and_delete_together_do_both(store: LogStore, clock: ManualClock) -> None:
    config = LogConfig(
        cleanup_policy=("compact", "delete"), segment_bytes=2000, retention_ms=5000, file_delete_delay_ms=0
    )
    log = store.create("t", uuid.UUID(int=1), 0, config)
    await produce(log, 100)
    await clean_all(store, clock)
    kept = records_of(log)
    await store.enforce_retention(NOW_MS + 4000)  # segments that the cleaner emptied may go
    assert records_of(log) == kept
    assert await store.enforce_retention(NOW_MS + 6000) > 0
    assert log.log_start_offset == log.log_end_offset
    await produce(log, 100)
    before = records_of(log)
    await clean_all(store, clock)
    assert records_of(log) == expected(before, log.active.base_offset)


async def test_tombstones_go_when_their_horizon_has_passed(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)

    async def write(key: bytes, value: bytes | None) -> None:
        await log.durable(log.append(build_batch([NewRecord(NOW_MS, key, value)]), now_ms=NOW_MS).last_offset)

    await write(b"gone", b"x")
    await write(b"gone", None)
    await produce(log, 60)
    await clean_all(store, clock)
    assert [record.value for record in records_of(log) if record.key == b"gone"] == [None]
    for elapsed_ms, left in ((CONFIG.delete_retention_ms - 1, 1), (1, 0)):
        clock.advance(elapsed_ms)
        await produce(log, 60)
        await clean_all(store, clock)
        assert len([record for record in records_of(log) if record.key == b"gone"]) == left


async def test_a_corrupt_batch_fences_its_log_visibly_and_is_tried_again(
    store: LogStore, clock: ManualClock, tmp_path: Path
) -> None:
    good, bad = (store.create(topic, uuid.UUID(int=1), 0, CONFIG) for topic in ("a", "b"))
    for log in (good, bad):
        await produce(log, 60)
    before = records_of(good)
    path = tmp_path / "b-0" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock)
    for _ in range(2):
        assert await cleaner.clean_dirtiest()
    assert not await cleaner.clean_dirtiest(), "not at once again"
    assert records_of(good) == expected(before, good.active.base_offset)
    failure = cleaner.failures[bad.topic_partition]
    assert failure.reason.startswith(f"corrupt: {segment_name(0)}, a batch that does not match its CRC")
    assert not list((tmp_path / "b-0").glob("*.cleaned"))
    assert path.read_bytes() == data, "nothing was replaced"
    (told,) = json.loads((tmp_path / FAILURES).read_text())["logs"]
    assert (told["topic"], told["partition"], told["attempts"]) == ("b", 0, 1)
    assert (told["reason"], told["retry_at_ms"]) == (failure.reason, NOW_MS + 15_000)
    data[200] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    clock.advance(15_000)
    with capture_logs() as lines:
        assert await cleaner.clean_dirtiest()
    assert ("a log can be compacted again", "b-0") in [(each["event"], each.get("partition")) for each in lines]
    assert cleaner.failures == {}
    assert not (tmp_path / FAILURES).exists()
    cleaner.close()


async def test_every_failure_is_logged_with_its_reason_its_next_attempt_and_how_many_there_were(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("a", "b"):
        await produce(store.create(topic, uuid.UUID(int=1), 0, CONFIG), 60)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock)

    def broken(*_: object) -> int:
        raise CleaningFailed("more keys than the map holds")

    monkeypatch.setattr(cleaner_module, "fill", broken)
    with capture_logs() as lines:
        for _ in range(2):
            while await cleaner.clean_dirtiest():
                pass
            clock.advance(15_000)
    told = [each for each in lines if each["log_level"] == "error"]
    assert {each["reason"] for each in told} == {"more keys than the map holds"}
    assert sorted((each["partition"], each["attempts"], each["retry_at_ms"] - NOW_MS) for each in told) == [
        ("a-0", 1, 15_000),
        ("a-0", 2, 45_000),
        ("b-0", 1, 15_000),
        ("b-0", 2, 45_000),
    ]
    assert [(each["logs_failing"], each["failures_total"]) for each in told] == [(1, 1), (2, 2), (2, 3), (2, 4)]
    cleaner.close()


async def test_a_log_that_cannot_even_be_looked_at_keeps_nobody_else_from_being_cleaned(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (store.create(topic, uuid.UUID(int=1), 0, CONFIG) for topic in ("a", "b"))
    for log in (bad, good):
        await produce(log, 60)
    await store.checkpoint()
    looks, real = [], LogStore.checkpointed_offset

    def look(store: LogStore, topic_partition: TopicPartition) -> int:
        looks.append(topic_partition.topic)
        if topic_partition == bad.topic_partition:
            raise OSError(errno.EIO, "Input/output error")
        return real(store, topic_partition)

    cleaner = cleaner_of(store, clock)
    with monkeypatch.context() as patch:
        patch.setattr(LogStore, "checkpointed_offset", look)
        while await cleaner.clean_dirtiest():
            pass
    assert store.cleaned_offset(good.topic_partition) == good.active.base_offset
    assert "Input/output error" in cleaner.failures[bad.topic_partition].reason
    assert looks.count("a") == 1, "it rests like any other that failed"
    clock.advance(15_000)
    assert await cleaner.clean_dirtiest()
    assert cleaner.failures == {}
    cleaner.close()


async def test_what_failed_is_forgotten_with_its_topic_and_with_the_start_of_a_broker(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await produce(store.create("t", uuid.UUID(int=1), 0, CONFIG), 60)
    await store.checkpoint()

    def broken(*_: object) -> int:
        raise CleaningFailed("no")

    monkeypatch.setattr(cleaner_module, "fill", broken)
    first = cleaner_of(store, clock)
    assert await first.clean_dirtiest()
    assert (tmp_path / FAILURES).exists()
    first.close()
    second = cleaner_of(store, clock)
    with monkeypatch.context() as patch:
        patch.setattr(CleanerMachine, "choose", lambda *_: None)
        await second.clean_dirtiest()
    assert not (tmp_path / FAILURES).exists(), "nothing has failed since this start"
    assert await second.clean_dirtiest()
    assert (tmp_path / FAILURES).exists()
    await store.delete("t")
    assert not await second.clean_dirtiest()
    assert second.failures == {}
    assert not (tmp_path / FAILURES).exists()
    second.close()


async def test_a_report_that_cannot_be_written_is_tried_again_and_stops_nothing(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await produce(store.create("t", uuid.UUID(int=1), 0, CONFIG), 60)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock)

    def broken(*_: object) -> int:
        raise CleaningFailed("no")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cleaner_module, "fill", broken)
    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(cleaner_module, "write_failures", full)
        assert await cleaner.clean_dirtiest()
    assert [each["log_level"] for each in lines] == ["error", "warning"]
    assert store.failure is None
    assert not await cleaner.clean_dirtiest()
    assert (tmp_path / FAILURES).exists()
    cleaner.close()


async def test_a_full_disk_leaves_everything_as_it_was(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 60)
    before, segments = records_of(log), list(log.segments)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock)
    calls = itertools.count()

    def full(self: OsDirectory, old: str, new: str) -> None:
        if next(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        (tmp_path / "t-0" / old).rename(tmp_path / "t-0" / new)

    with monkeypatch.context() as patch:
        patch.setattr(OsDirectory, "rename", full)
        assert await cleaner.clean_dirtiest()
    assert "No space left" in cleaner.failures[KEY].reason
    assert store.failure is None and log.segments == segments
    assert records_of(log) == before
    assert not [path for path in (tmp_path / "t-0").iterdir() if path.suffix in (".swap", ".cleaned")]
    clock.advance(15_000)
    assert await cleaner.clean_dirtiest()
    assert records_of(log) == expected(before, log.active.base_offset)
    cleaner.close()


async def test_a_failure_after_the_decision_ends_the_folder_and_the_next_start_finishes(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path, clock)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 60)
    before, active = records_of(log), log.active.base_offset
    await store.checkpoint()
    cleaner = cleaner_of(store, clock)

    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(swap, "finish", broken)
        await cleaner.clean_dirtiest()
    assert store.failure is not None and store.failure.errno == errno.EIO
    cleaner.close()
    await store.close()
    store = opened(tmp_path, clock)
    found = store.get("t", 0)
    assert found is not None
    after = records_of(found)
    assert set(expected(before, active)) <= set(after) and len(after) < len(before)
    await store.close()


async def test_retention_and_deletion_come_first(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = cleaner_module.compact
    loop = asyncio.get_running_loop()

    def with_interruption(*arguments: object) -> object:
        cleaned = real(*arguments)  # type: ignore[arg-type]
        asyncio.run_coroutine_threadsafe(interrupt(), loop).result()
        return cleaned

    monkeypatch.setattr(cleaner_module, "compact", with_interruption)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 60)

    async def delete_records() -> None:
        await store.delete_records(log, log.log_end_offset)

    interrupt = delete_records
    await clean_all(store, clock)
    assert [segment.base_offset for segment in log.segments] == [log.active.base_offset]
    assert not list((tmp_path / "t-0").glob("*.cleaned"))

    async def delete_topic() -> None:
        await store.delete("t")
        store.create("t", uuid.UUID(int=2), 0, CONFIG)

    interrupt = delete_topic
    await produce(log, 60)
    cleaner = await clean_all(store, clock)
    assert cleaner.failures == {}
    again = store.get("t", 0)
    assert again is not None and again is not log
    assert (again.log_end_offset, len(again.segments)) == (0, 1)
    assert store.cleaned_offset(KEY) is None
    assert read_offsets(store.directory, CLEANED) == {}
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


async def test_retention_while_the_cleaner_reads_is_no_failure(
    store: LogStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, loop = cleaner_module.fill, asyncio.get_running_loop()
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 60)
    middle = log.segments[len(log.segments) // 2].base_offset

    def with_interruption(*arguments: object) -> int:
        asyncio.run_coroutine_threadsafe(store.delete_records(log, middle), loop).result()
        return real(*arguments)  # type: ignore[arg-type]

    before = [record for record in records_of(log) if record.offset >= middle]
    with monkeypatch.context() as patch:
        patch.setattr(cleaner_module, "fill", with_interruption)
        await store.checkpoint()
        cleaner = cleaner_of(store, clock)
        assert await cleaner.clean_dirtiest()
    assert cleaner.failures == {}
    cleaner.close()
    await clean_all(store, clock)
    assert records_of(log) == expected(before, log.active.base_offset)


async def test_stopping_ends_the_work_at_once_and_the_next_start_removes_what_it_left(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = opened(tmp_path, clock)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 400)
    before = records_of(log)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock, io_bytes_per_second_max=1000, backoff_ms=1)
    async with asyncio.timeout(10):
        running = asyncio.ensure_future(cleaner.run())
        await asyncio.sleep(0.2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert records_of(log) == before
    await store.close()


async def until_compacted(store: LogStore, log: PartitionLog) -> None:
    async with asyncio.timeout(10):
        while store.cleaned_offset(KEY) != log.active.base_offset:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


async def test_a_shorter_backoff_ends_the_pause_that_a_longer_one_began(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    cleaner = cleaner_of(store, clock, backoff_ms=3_600_000)
    running = asyncio.ensure_future(cleaner.run())
    await asyncio.sleep(0.05)  # it has found nothing to do
    await produce(log, 100)
    await store.checkpoint()
    await asyncio.sleep(0.1)
    assert store.cleaned_offset(KEY) is None
    cleaner.settings = CleanerSettings(backoff_ms=20)
    await until_compacted(store, log)
    await produce(log, 100, seed=2)
    await store.checkpoint()
    await until_compacted(store, log)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_higher_rate_is_felt_by_the_round_that_is_going_on(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 600)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock, io_bytes_per_second_max=1)
    running = asyncio.ensure_future(cleaner.clean_dirtiest())
    await asyncio.sleep(0.2)
    assert not running.done(), "a day's work at this rate"
    cleaner.settings = CleanerSettings(io_bytes_per_second_max=1e9)
    async with asyncio.timeout(10):
        assert await running
    assert store.cleaned_offset(KEY) == log.active.base_offset
    cleaner.close()


async def test_the_size_of_the_map_holds_from_the_next_round_on(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await produce(log, 300, keys=1000)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock, dedupe_buffer_bytes=24 * 64)
    assert await cleaner.clean_dirtiest()
    first = store.cleaned_offset(KEY)
    assert first is not None and first < log.active.base_offset, "the map was full before the end"
    cleaner.settings = CleanerSettings(dedupe_buffer_bytes=2**20)
    assert await cleaner.clean_dirtiest()
    assert store.cleaned_offset(KEY) == log.active.base_offset
    cleaner.close()


async def test_a_map_that_was_too_small_is_made_larger_and_the_log_tried_at_once(
    store: LogStore, clock: ManualClock
) -> None:
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    batch = build_batch([NewRecord(NOW_MS, b"k%d" % number, b"x") for number in range(200)])
    for _ in range(5):
        await log.durable(log.append(batch, now_ms=NOW_MS).last_offset)
    await store.checkpoint()
    cleaner = cleaner_of(store, clock, dedupe_buffer_bytes=24 * 64)
    running = asyncio.ensure_future(cleaner.run())
    async with asyncio.timeout(10):
        while not cleaner.failures:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)
    cleaner.settings = CleanerSettings(dedupe_buffer_bytes=2**20)
    await until_compacted(store, log)
    assert cleaner.failures == {}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_change_in_the_middle_of_a_look_is_looked_at_too(store: LogStore, clock: ManualClock) -> None:
    cleaner = cleaner_of(store, clock, backoff_ms=3_600_000)
    again = asyncio.Event()

    async def look() -> bool:
        if cleaner.settings.dedupe_buffer_bytes == 2**20:
            again.set()
        cleaner.settings = CleanerSettings(backoff_ms=3_600_000, dedupe_buffer_bytes=2**20)
        return False

    cleaner.clean_dirtiest = look  # type: ignore[method-assign]
    running = asyncio.ensure_future(cleaner.run())
    async with asyncio.timeout(10):
        await again.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_no_backoff_at_all_leaves_the_event_loop_to_others(store: LogStore, clock: ManualClock) -> None:
    cleaner = cleaner_of(store, clock, backoff_ms=0)
    looks = 0
    real = cleaner.clean_dirtiest

    async def counted() -> bool:
        nonlocal looks
        looks += 1
        return await real()

    cleaner.clean_dirtiest = counted  # type: ignore[method-assign]
    running = asyncio.ensure_future(cleaner.run())
    await asyncio.sleep(0.2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert 1 <= looks <= 25
