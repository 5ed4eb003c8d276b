"""A log reopened is the log loaded; whatever is not as the stop left it is loaded."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.broker.log.log_world import NOW_MS, TOPIC_ID, batch, look_up, payload, read_all
from tidemill.broker.folders import set_aside
from tidemill.broker.log import reopening
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN, CLEANED, LEADER_EPOCHS, RECOVERY_POINTS
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.log.stopped_logs import LOGS_AT_STOP
from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.errors import CorruptMessage, KafkaStorageError
from tidemill.core.records.batch import iter_batches
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.disk import OsDirectory

CONFIG = LogConfig(segment_bytes=3_000, index_interval_bytes=200)
IMAGE = cast(ClusterImage, SimpleNamespace(topics={"t": SimpleNamespace(topic_id=TOPIC_ID, partitions=[0])}))


def start(folder: Path) -> tuple[LogStore, PartitionLog]:
    """As a broker does; the log was reopened if its indexes are still a claim."""
    known = set_aside(OsDirectory(folder), IMAGE, set(), lambda: TOPIC_ID).known
    store = LogStore.at(str(folder), clock=ManualClock(NOW_MS), node_id=1, flush_policy="os")
    store.open_all(lambda _topic: CONFIG, known)
    log = store.get("t", 0) or store.create("t", TOPIC_ID, 0, CONFIG)
    return store, log


def append(log: PartitionLog, number: int) -> None:
    data = batch(3, value_bytes=100, timestamp=NOW_MS + 10 * number, producer=(5, 0, 3 * number))
    log.append(data, now_ms=NOW_MS, leader_epoch=number // 4)


@pytest.fixture
async def stopped(tmp_path: Path) -> Path:
    """A folder after a stop in order; its log has several segments, leader epochs and a producer."""
    folder = tmp_path / "data"
    store, log = start(folder)
    for number in range(12):
        append(log, number)
    assert len(log.segments) > 1
    assert log.active.size_bytes
    await store.close()
    return folder


def facts(log: PartitionLog) -> object:
    segments = [(each.base_offset, each.size_bytes, each.next_offset, each.dense) for each in log.segments]
    told = (log.log_start_offset, log.log_end_offset, log.held, log.recovery_point, log.topic_id, log.size_bytes)
    found = [look_up(log, NOW_MS + 10 * number) for number in range(13)]
    return segments, told, found, log.epochs.entries(), log.producers.states(), log.active.latest, list(read_all(log))


async def test_a_reopened_log_is_what_a_loaded_one_is(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "other")
    (tmp_path / "other" / LOGS_AT_STOP).unlink()
    (store, reopened), (other, loaded) = start(stopped), start(tmp_path / "other")
    assert reopened.active.claim is not None
    assert loaded.active.claim is None
    assert [payload(each) for each in read_all(reopened)] == [payload(each) for each in read_all(loaded)]
    assert repr(facts(reopened)).split("BatchView")[0] == repr(facts(loaded)).split("BatchView")[0]
    await store.close()
    await other.close()


async def test_it_goes_on_where_it_was_over_many_restarts(stopped: Path) -> None:
    for number in range(12, 18):
        store, log = start(stopped)
        assert log.active.claim is not None
        append(log, number)
        append(log, number)  # recognised as sent before
        assert log.log_end_offset == 3 * number + 3
        await store.close()
        _, times = log.active.index, log.active.times
        folder = stopped / "t-0"
        assert (folder / segment_name(log.active.base_offset, ".index")).read_bytes() == log.active.index.to_bytes()
        assert (folder / segment_name(log.active.base_offset, ".timeindex")).read_bytes() == times.to_bytes()
        bases = {each.base_offset for each in log.segments}
        assert {int(each.stem) for each in folder.glob("*.snapshot")} <= bases | {log.log_end_offset}
    (stopped / LOGS_AT_STOP).unlink()
    store, log = start(stopped)
    assert log.active.claim is None
    assert [each.base_offset for each in read_all(log)] == list(range(0, 54, 3))
    await store.close()


async def test_restarts_that_nobody_uses_change_nothing(stopped: Path) -> None:
    for _ in range(3):
        store, log = start(stopped)
        assert log.active.claim is not None
        await store.close()
    store, log = start(stopped)
    assert len(read_all(log)) == 12
    await store.close()


async def test_an_empty_log_takes_records(tmp_path: Path) -> None:
    store, _ = start(tmp_path)
    await store.close()
    store, log = start(tmp_path)
    assert not log.segments[0].indexes.from_files
    append(log, 0)
    assert len(read_all(log)) == 1
    await store.close()


def _append_bytes(folder: Path) -> None:
    with max((folder / "t-0").glob("*.log")).open("ab") as file:
        file.write(b"torn")


def _cut(folder: Path) -> None:
    log = max((folder / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])


def _lose_epochs(folder: Path) -> None:
    (folder / "t-0" / LEADER_EPOCHS).unlink()
    os.utime(folder / "t-0", (0, NOW_MS))  # a clock tick later than the stop


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / CLEAN_SHUTDOWN).unlink(),
    lambda folder: (folder / CLEAN_SHUTDOWN).write_text('{"version": 0, "brokerEpoch": 12}'),
    lambda folder: (folder / RECOVERY_POINTS).unlink(),
    _lose_epochs,
    _append_bytes,
    _cut,
]


@pytest.mark.parametrize("change", CHANGES)
async def test_what_was_touched_since_the_stop_is_looked_at(stopped: Path, change: Callable[[Path], object]) -> None:
    change(stopped)
    store, log = start(stopped)
    assert log.active.claim is None
    assert log.log_end_offset == 36
    append(log, 12)
    assert [each.base_offset for each in iter_batches(bytes(log.read(36, 1000)))] == [36]
    await store.close()


async def test_a_stop_is_believed_once(stopped: Path) -> None:
    mark, said = (stopped / CLEAN_SHUTDOWN).read_bytes(), (stopped / LOGS_AT_STOP).read_bytes()
    store, log = start(stopped)
    assert not (stopped / LOGS_AT_STOP).exists()
    append(log, 12)
    killed = stopped.with_name("killed")
    shutil.copytree(stopped, killed)
    await store.close()
    (killed / LOGS_AT_STOP).write_bytes(said)
    known = set_aside(OsDirectory(killed), IMAGE, set(), lambda: TOPIC_ID).known
    assert [each.stopped for each in known.values()] == [None]
    (killed / CLEAN_SHUTDOWN).write_bytes(mark)  # even somebody who puts everything back cannot hide the record
    store, log = start(killed)
    assert log.log_end_offset == 39
    await store.close()


async def test_index_files_that_are_not_those_of_the_stop_are_made_anew(stopped: Path) -> None:
    index = max((stopped / "t-0").glob("*.timeindex"))
    data = bytearray(index.read_bytes())
    data[-6] ^= 0x40  # of the last timestamp
    with index.open("r+b") as file:
        file.write(data)
    store, log = start(stopped)
    assert log.active.claim is not None
    assert log.active.latest[0] == NOW_MS + 112
    append(log, 12)
    assert log.active.latest[0] == NOW_MS + 122
    assert not log.active.indexes.from_files
    await store.close()


async def test_index_files_that_could_not_be_read_have_to_be_those_of_the_stop_all_the_same(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log = start(stopped)
    index = stopped / "t-0" / segment_name(log.active.base_offset, ".timeindex")
    index.write_bytes(index.read_bytes()[:-12])
    with monkeypatch.context() as once:
        once.setattr(OsDirectory, "read", _out_of_descriptors)
        with pytest.raises(KafkaStorageError):
            log.read(log.log_end_offset - 1, 100)
    append(log, 11)  # recognised as sent before
    assert log.read(log.log_end_offset - 1, 100)
    assert log.active.latest[0] == NOW_MS + 112
    assert not log.active.indexes.from_files
    await store.close()


def _out_of_descriptors(_directory: OsDirectory, _name: str) -> bytes:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_a_large_segment_is_looked_at_by_the_start(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index files may be wrong, and to make them anew it has to be read from end to end."""
    monkeypatch.setattr(reopening, "ACTIVE_BYTES_MAX", 100)
    store, _ = start(stopped)
    await store.close()
    store, log = start(stopped)
    assert log.active.claim is None
    await store.close()


async def test_a_log_whose_folder_goes_at_the_stop_is_left_out(stopped: Path) -> None:
    store, log = start(stopped)
    store.create("u", TOPIC_ID, 0, CONFIG)
    await store.close()
    shutil.rmtree(stopped / "t-0")
    assert reopening.describe(log, OsDirectory(stopped)) is None


async def test_a_batch_that_has_changed_is_not_served(stopped: Path) -> None:
    with max((stopped / "t-0").glob("*.log")).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    store, log = start(stopped)
    with pytest.raises(CorruptMessage):
        log.read(log.log_end_offset - 1, 100)
    assert log.log_end_offset == 36
    await store.close()


async def test_large_indexes_and_left_over_files_are_for_the_start(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log = start(stopped)
    (stopped / "t-0" / (segment_name(0) + ".cleaned")).touch()
    await store.close()
    store, log = start(stopped)
    assert log.active.claim is None
    assert not (stopped / "t-0" / (segment_name(0) + ".cleaned")).exists()
    monkeypatch.setattr(reopening, "INDEX_ENTRIES_MAX", 1)
    await store.close()
    store, log = start(stopped)
    assert log.active.claim is None
    await store.close()


async def test_where_the_cleaner_was_gaps_are_expected(stopped: Path) -> None:
    (stopped / CLEANED).write_text("0\n1\nt 0 3\n")
    store, log = start(stopped)
    assert log.active.claim is not None
    assert [segment.dense for segment in log.segments[:-1]] == [False] * (len(log.segments) - 1)
    assert log.active.dense
    await store.close()
