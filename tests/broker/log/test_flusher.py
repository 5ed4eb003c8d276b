"""Rounds of fsync: who is in them, when they start, what a failure does"""

import asyncio
import errno
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from tidemill.broker.log.flusher import WHOLE_FROM_FILES, Disk, Flusher, FlushWork
from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.file_system_sync import Sync


class GatedLog:
    """A log whose fsync waits until it is let go."""

    def __init__(self) -> None:
        self.appended = self.frozen = self.durable = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: OSError | None = None

    def begin_flush(self) -> FlushWork:
        self.frozen = self.appended
        return FlushWork([self], [])

    def sync(self) -> None:
        self.gate.wait(10)
        if self.error is not None:
            raise self.error

    def end_flush(self) -> None:
        self.durable = self.frozen


@pytest.fixture
def failures() -> list[OSError]:
    return []


@pytest.fixture
async def flusher(failures: list[OSError]) -> Flusher:
    return Flusher(ThreadPoolExecutor(1), failures.append)


async def begun(disk: GatedLog) -> None:
    """Let the round that was asked for begin; its fsync is still under way."""
    await asyncio.sleep(0)
    assert disk.frozen == disk.appended
    assert disk.durable < disk.appended


async def test_a_round_covers_all_that_was_added_before_it_began(flusher: Flusher) -> None:
    disk = GatedLog()
    disk.appended = 3
    flusher.add(disk)
    await flusher.next_round()
    assert (disk.durable, flusher.rounds) == (3, 1)


async def test_what_arrives_during_a_round_shares_the_next_one(flusher: Flusher) -> None:
    disk, other = GatedLog(), GatedLog()
    disk.gate.clear()
    disk.appended = 1
    flusher.add(disk)
    first = flusher.next_round()
    await begun(disk)
    for _ in range(5):
        disk.appended += 1
        flusher.add(disk)
    other.appended = 1
    flusher.add(other)
    second = flusher.next_round()
    assert second is not first
    disk.gate.set()
    await first
    assert (disk.durable, other.durable) == (1, 0)
    assert (disk.frozen, other.frozen) == (6, 1), "the disk is at work again before anybody answers"
    await second
    assert (disk.durable, other.durable, flusher.rounds) == (6, 1, 2)


async def test_with_nothing_to_do_there_is_nothing_to_wait_for(flusher: Flusher) -> None:
    assert flusher.next_round().done()
    await flusher.drain()
    assert flusher.rounds == 0


async def test_a_round_in_work_is_joined_when_nothing_was_added_since(flusher: Flusher) -> None:
    disk = GatedLog()
    disk.gate.clear()
    disk.appended = 1
    flusher.add(disk)
    await begun(disk)
    joined = flusher.next_round()
    assert not joined.done()
    disk.gate.set()
    await joined
    assert flusher.rounds == 1


async def test_a_waiter_that_is_cancelled_takes_nobody_with_it(flusher: Flusher) -> None:
    disk = GatedLog()
    disk.gate.clear()
    disk.appended = 1
    flusher.add(disk)
    waiting = flusher.next_round()

    async def wait() -> None:
        await asyncio.shield(waiting)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    disk.gate.set()
    await waiting
    assert disk.durable == 1


async def test_a_failure_is_final(flusher: Flusher, failures: list[OSError]) -> None:
    disk = GatedLog()
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.appended = 1
    flusher.add(disk)
    with pytest.raises(KafkaStorageError):
        await flusher.next_round()
    assert [failure.errno for failure in failures] == [errno.EIO]
    disk.error = None
    with pytest.raises(KafkaStorageError):
        await flusher.next_round()
    with pytest.raises(KafkaStorageError):
        await flusher.drain()
    assert disk.durable == 0
    flusher.add(disk)  # as a job does that knows nothing of it
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert (disk.durable, flusher.rounds) == (0, 1), "a second fsync that succeeds proves nothing"


class BuggyLog(GatedLog):
    """A log that stumbles at the begin or at the end of a round."""

    stumbles_at = ""

    def begin_flush(self) -> FlushWork:
        if self.stumbles_at == "begin":
            raise RuntimeError("a bug")
        return super().begin_flush()

    def end_flush(self) -> None:
        super().end_flush()
        if self.stumbles_at == "end":
            raise RuntimeError("a bug")


async def test_a_bug_at_the_end_of_a_round_keeps_nobody_waiting(flusher: Flusher, failures: list[OSError]) -> None:
    buggy, other = BuggyLog(), GatedLog()
    buggy.stumbles_at = "end"
    for number in (1, 2):
        for disk in (buggy, other):
            disk.appended += 1
            flusher.add(disk)
        await asyncio.wait_for(flusher.next_round(), 10)
        assert (buggy.durable, other.durable, failures) == (number, number, [])


class EagerLog(GatedLog):
    """A log whose owner appends as soon as it hears that something is durable."""

    def __init__(self, flusher: Flusher) -> None:
        super().__init__()
        self.flusher = flusher

    def end_flush(self) -> None:
        super().end_flush()
        if self.appended < 5:
            self.appended += 1
            self.flusher.add(self)


async def test_who_appends_when_he_hears_of_a_round_is_in_the_next_one(flusher: Flusher) -> None:
    disk = EagerLog(flusher)
    disk.appended = 1
    flusher.add(disk)
    await asyncio.wait_for(flusher.drain(), 10)
    assert (disk.durable, flusher.rounds) == (5, 5)


async def test_a_round_that_cannot_begin_is_refused(flusher: Flusher, failures: list[OSError]) -> None:
    buggy = BuggyLog()
    buggy.stumbles_at, buggy.appended = "begin", 1
    flusher.add(buggy)
    with pytest.raises(KafkaStorageError, match="a bug"):
        await asyncio.wait_for(flusher.next_round(), 10)
    assert (buggy.durable, len(failures)) == (0, 1)


async def test_no_round_begins_once_the_folder_is_closed(failures: list[OSError]) -> None:
    executor = ThreadPoolExecutor(1)
    flusher, disk = Flusher(executor, failures.append), GatedLog()
    disk.appended = 1
    flusher.add(disk)
    waiting = flusher.next_round()
    flusher.end()
    executor.shutdown()
    with pytest.raises(KafkaStorageError, match="it is closed"):
        await waiting
    assert (disk.frozen, failures) == (0, [])


async def test_a_round_that_was_under_way_is_the_last_one(failures: list[OSError]) -> None:
    executor = ThreadPoolExecutor(1)
    flusher, disk = Flusher(executor, failures.append), GatedLog()
    disk.gate.clear()
    disk.appended = 1
    flusher.add(disk)
    waiting = flusher.next_round()
    await begun(disk)
    disk.appended = 2
    flusher.add(disk)
    too_late = flusher.next_round()
    flusher.end()
    assert too_late.done()
    disk.gate.set()
    executor.shutdown()
    await waiting
    with pytest.raises(KafkaStorageError, match="it is closed"):
        await too_late
    assert (disk.durable, disk.frozen, failures) == (1, 1, [])


async def test_a_removed_log_is_left_out_and_its_files_are_closed_between_rounds(flusher: Flusher) -> None:
    disk, order = GatedLog(), list[str]()
    disk.gate.clear()
    disk.appended = 1
    flusher.add(disk)
    await begun(disk)
    disk.appended = 2
    flusher.add(disk)
    flusher.remove(disk)

    closing = asyncio.ensure_future(flusher.between_rounds(lambda: order.append("closed")))
    await asyncio.sleep(0)
    assert order == []
    disk.gate.set()
    await closing
    await flusher.drain()
    assert (order, disk.durable) == (["closed"], 1)


async def test_draining_ends_when_the_only_log_of_the_next_round_has_been_removed(flusher: Flusher) -> None:
    disk = GatedLog()
    flusher.add(disk)
    flusher.remove(disk)
    assert not flusher.next_round().done()  # it never lets the event loop go on if there is nothing to wait for
    await flusher.drain()
    assert flusher.rounds == 1


async def test_nobody_waits_for_a_round_whose_only_log_was_removed_during_the_one_before(flusher: Flusher) -> None:
    disk, gone = GatedLog(), GatedLog()
    disk.gate.clear()
    disk.appended = 1
    flusher.add(disk)
    first = flusher.next_round()
    await begun(disk)
    gone.appended = 1
    flusher.add(gone)
    second = flusher.next_round()  # for `disk` or for `gone`, the round does not know
    assert second is not first
    flusher.remove(gone)
    await asyncio.sleep(0)
    assert not second.done(), "what `disk` waits for is still being done"
    disk.gate.set()
    await asyncio.wait_for(second, 10)
    assert (disk.durable, gone.durable, flusher.rounds) == (1, 0, 1)


async def test_what_waits_for_the_next_round_is_refused_with_this_one(flusher: Flusher) -> None:
    disk = GatedLog()
    disk.gate.clear()
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.appended = 1
    flusher.add(disk)
    first = flusher.next_round()
    await begun(disk)
    disk.appended = 2
    flusher.add(disk)
    second = flusher.next_round()
    assert second is not first
    disk.gate.set()
    for waiting in (first, second):
        with pytest.raises(KafkaStorageError, match="Input/output error"):
            await asyncio.wait_for(waiting, 10)
    flusher.end()
    assert flusher.failure is disk.error


class NoThreads(Executor):
    """As a system answers that lets this process have no more of them."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        raise RuntimeError("can't start new thread")


async def test_a_thread_that_cannot_be_had_fails_the_folder_and_keeps_nobody_waiting(failures: list[OSError]) -> None:
    flusher, disk = Flusher(NoThreads(), failures.append), GatedLog()
    disk.appended = 1
    flusher.add(disk)
    with pytest.raises(KafkaStorageError, match="new thread"):
        await asyncio.wait_for(flusher.next_round(), 10)
    with pytest.raises(KafkaStorageError, match="new thread"):
        await asyncio.wait_for(flusher.drain(), 10)
    assert (len(failures), disk.durable) == (1, 0)


async def test_a_round_that_is_taken_from_its_thread_is_refused(failures: list[OSError]) -> None:
    executor, gate = ThreadPoolExecutor(1), threading.Event()
    executor.submit(gate.wait, 10)
    flusher, disk = Flusher(executor, failures.append), GatedLog()
    disk.appended = 1
    flusher.add(disk)
    waiting = flusher.next_round()
    await begun(disk)
    executor.shutdown(wait=False, cancel_futures=True)
    gate.set()
    with pytest.raises(KafkaStorageError, match="taken away"):
        await asyncio.wait_for(waiting, 10)
    assert (len(failures), disk.durable) == (1, 0)


class Stopwatch:
    """Syncs that take a known time on a clock of their own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.file_cost, self.whole_cost = 1.0, 2.0
        self.files = self.wholes = 0

    def sync(self) -> None:
        self.files += 1
        self.now += self.file_cost

    def sync_everything(self, sync_one: Sync) -> None:
        self.wholes += 1
        self.now += self.whole_cost

    def disk(self) -> Disk:
        """One that may sync everything."""
        return Disk(lambda: self.now, self.sync_everything)

    def round(self, disk: Disk, count: int) -> None:
        disk.sync([FlushWork([self], []) for _ in range(count)])


def test_few_files_are_synced_by_themselves_and_many_at_once() -> None:
    watch = Stopwatch()
    disk = watch.disk()
    watch.round(disk, WHOLE_FROM_FILES - 1)
    assert (watch.files, watch.wholes) == (WHOLE_FROM_FILES - 1, 0)
    for _ in range(6):
        watch.round(disk, 20)
    assert (watch.files, watch.wholes) == (WHOLE_FROM_FILES - 1 + 20, 5), "each way is tried once"


@pytest.mark.parametrize("whole_cost", [100.0, 100_000.0])
@pytest.mark.parametrize("idle", [0.0, 1000.0])
def test_a_twentieth_of_the_work_is_lost_with_a_file_system_that_is_slow_to_sync(
    whole_cost: float, idle: float
) -> None:
    """However much there is to do, and how often."""
    watch = Stopwatch()
    watch.file_cost, watch.whole_cost = whole_cost / 400, whole_cost
    disk = watch.disk()
    for _ in range(1000):
        watch.round(disk, 3)
        watch.round(disk, 20)
        watch.now += idle
    assert watch.wholes == 4  # at first, once more soon after, and for each 400 rounds by the files


def test_once_it_is_quick_again_it_is_used_again() -> None:
    watch = Stopwatch()
    watch.whole_cost = 100.0
    disk = watch.disk()
    watch.round(disk, 20)
    watch.round(disk, 20)
    assert watch.wholes == 1
    watch.whole_cost = 2.0
    for _ in range(150):
        watch.round(disk, 20)
    assert watch.wholes > 30


def test_one_slow_round_of_files_is_not_held_against_them() -> None:
    watch = Stopwatch()
    watch.file_cost, watch.whole_cost = 10.0, 5.0
    disk = watch.disk()
    watch.round(disk, 20)
    watch.round(disk, 20)
    watch.file_cost = 0.1
    for _ in range(2000):
        watch.round(disk, 20)
    assert 700 < watch.wholes < 900, "20 times the 200 s that the files took once"
    before = watch.wholes
    for _ in range(1000):
        watch.round(disk, 20)
    assert watch.wholes - before < 30


def test_what_a_few_take_says_nothing_of_many() -> None:
    """Together many are not so many times as dear as one."""
    watch = Stopwatch()
    disk = Disk(lambda: watch.now, watch.sync_everything, lambda files: watch.sync())
    for _ in range(100):
        watch.round(disk, 1)
        watch.round(disk, 20)
        watch.round(disk, 100)
    assert watch.wholes < 15, "1 s against 2"


def test_many_are_not_tried_by_themselves_where_a_few_were_far_dearer() -> None:
    watch = Stopwatch()
    disk = watch.disk()
    watch.round(disk, 20)
    watch.round(disk, 20)
    assert (watch.wholes, watch.files) == (1, 20)
    watch.round(disk, 1000)
    assert (watch.wholes, watch.files) == (2, 20), "up to 640 s against 2"
    watch.round(disk, 40)
    assert (watch.wholes, watch.files) == (2, 60), "40 s are worth it to know"


def test_a_few_tell_what_many_would_take() -> None:
    watch = Stopwatch()
    disk = watch.disk()
    watch.round(disk, 1000)
    for _ in range(50):
        watch.round(disk, 1)
    watch.round(disk, 1000)
    assert (watch.wholes, watch.files) == (2, 50)


def test_what_many_took_once_is_not_held_against_some_for_good() -> None:
    """They took 250 s one by one, when everything took 1; now everything takes 10, and these would take 2."""
    watch = Stopwatch()
    watch.file_cost, watch.whole_cost = 0.25, 1.0
    disk = watch.disk()
    watch.round(disk, 1000)
    watch.round(disk, 1000)
    assert (watch.wholes, watch.files) == (1, 1000)
    watch.file_cost, watch.whole_cost = 0.2, 10.0
    for _ in range(2000):
        watch.round(disk, 10)
    assert watch.wholes < 600


def test_what_was_tried_is_not_tried_again_at_once() -> None:
    watch = Stopwatch()
    disk = watch.disk()
    for _ in range(5000):
        watch.round(disk, 20)
    assert watch.files // 20 < 50


def test_what_a_thousand_take_at_once_is_not_held_against_ten() -> None:
    watch = Stopwatch()
    disk = watch.disk()
    best_s = 0.0
    for _ in range(2000):
        for count in (10, 10, 10, 10, 1000):
            watch.file_cost, watch.whole_cost = 1.5, 2 + 0.03 * count
            best_s += watch.whole_cost
            watch.round(disk, count)
    assert watch.now < 1.15 * best_s


@pytest.mark.parametrize(("file_cost", "whole_cost"), [(0.7, 2.0), (0.1, 50.0)])
@pytest.mark.parametrize(("stalls", "when"), [("file_cost", 100), ("whole_cost", 100), ("whole_cost", 0)])
def test_a_disk_that_stalls_once_is_not_held_against_the_way_of_that_round(
    file_cost: float, whole_cost: float, stalls: str, when: int
) -> None:
    watch = Stopwatch()
    watch.file_cost, watch.whole_cost = file_cost, whole_cost
    disk = watch.disk()
    before = {"file_cost": file_cost, "whole_cost": whole_cost}[stalls]
    for number in range(20_000):
        setattr(watch, stalls, 30_000.0 / 100 if number == when else before)
        watch.round(disk, 100)
    best_s = 20_000 * min(100 * file_cost, whole_cost)
    assert watch.now < 1.15 * best_s + 30_000


def test_where_there_is_no_such_call_files_are_synced_one_by_one() -> None:
    watch = Stopwatch()
    watch.round(Disk(lambda: watch.now, None), 50)
    assert (watch.files, watch.wholes) == (50, 0)


def test_files_of_a_round_are_synced_together_where_the_folder_can() -> None:
    watch, together = Stopwatch(), list[int]()
    disk = Disk(lambda: watch.now, None, lambda files: together.append(len(files)))
    watch.round(disk, 5)
    assert (together, watch.files) == ([5], 0)


def test_calls_are_made_whatever_way_files_are_synced() -> None:
    made: list[int] = []
    watch = Stopwatch()
    disk = watch.disk()
    for count in (1, 30):
        disk.sync([FlushWork([watch], [lambda count=count: made.append(count)]) for _ in range(count)])  # type: ignore[misc]
    disk.sync([FlushWork([], [lambda: made.append(0)])])
    assert made == [1] + [30] * 30 + [0]
