"""A replica on a real log: what is shown, what is waited for, who is woken"""

import asyncio
from collections.abc import Callable

import pytest

from tests.broker.log.log_world import NOW_MS, LogWorld, batch
from tests.broker.replication.replica_world import image, led
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.markers import Marker
from tidemill.broker.replication.actions import Follow, LogStartMoved, ProposeIsr, Truncate
from tidemill.broker.replication.replica import ACKS_LEADER, Replica
from tidemill.core.errors import (
    KafkaStorageError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord


def world(*, group_commit: bool = True) -> LogWorld:
    return LogWorld(SimulatedDisk().root, group_commit=group_commit)


def append(replica: Replica, count: int = 1) -> int:
    """So many batches of two records; the last offset."""
    for _ in range(count):
        result = replica.log.append(batch(2), now_ms=NOW_MS)
    return result.last_offset


async def durable(replica: Replica) -> None:
    await replica.log.durable(replica.log.log_end_offset - 1)


def offsets(replica: Replica) -> list[int]:
    return [view.base_offset for view in iter_batches(replica.read(0, 10**6))]


def fetched(replica: Replica, follower: int, offset: int) -> None:
    """A follower holds everything below `offset`."""
    end = replica.log.log_end_offset
    replica.take(
        replica.machine.fetched(follower, offset, leader_epoch=replica.machine.leader_epoch, log_end=end, now_ms=0)
    )


# --- by itself


async def test_alone_it_shows_what_is_durable_and_waits_for_the_round() -> None:
    replica = led(world().open())
    woken: list[int] = []
    wake: Callable[[], None] = lambda: woken.append(replica.high_watermark)  # noqa: E731
    replica.wait_for_data(wake)
    last = append(replica)
    assert (replica.high_watermark, replica.last_stable_offset, offsets(replica)) == (0, 0, [])
    pending = replica.pending(last)
    assert pending is replica.log.flusher.next_round(), "which all partitions share"
    await pending
    assert (replica.high_watermark, offsets(replica), woken) == (2, [0], [2])
    assert replica.pending(last) is None
    replica.stop_waiting(wake)
    append(replica)
    await durable(replica)
    assert (woken, replica.waiting, replica.log.committed_offset) == ([2], 0, 4)


async def test_from_the_page_cache_everything_is_shown_at_once() -> None:
    replica = led(world(group_commit=False).open())
    assert replica.pending(append(replica)) is None
    assert (replica.high_watermark, offsets(replica)) == (2, [0])


async def test_what_was_there_before_is_shown_from_the_start() -> None:
    place = world()
    log = place.open()
    await log.durable(log.append(batch(2), now_ms=NOW_MS).last_offset)
    assert led(place.open()).high_watermark == 2


async def test_a_closed_log_wakes_and_refuses() -> None:
    replica = led(world().open())
    last = append(replica)
    woken: list[bool] = []
    replica.wait_for_data(lambda: woken.append(replica.closed))
    replica.log.detach()
    assert woken == [True]
    with pytest.raises(KafkaStorageError):
        replica.pending(last)
    with pytest.raises(KafkaStorageError):
        replica.read(0, 1)


# --- with others


async def test_what_others_in_sync_do_not_hold_is_neither_shown_nor_acknowledged() -> None:
    replica = led(world().open(), image(isr=(1, 2), version=1))
    last = append(replica, 2)
    leader_only = replica.pending(last, ACKS_LEADER)
    first, second = replica.pending(1), replica.pending(last)
    assert leader_only is not None and first is not None and second is not None
    assert replica.pending(last) is second, "one for all that wait for the same"
    await leader_only
    assert (replica.pending(last, ACKS_LEADER), replica.high_watermark, second.done()) == (None, 0, False)
    fetched(replica, 2, 2)
    assert (first.done(), second.done(), offsets(replica)) == (True, False, [0])
    with pytest.raises(OffsetOutOfRange):
        replica.read(3, 100)
    fetched(replica, 2, 4)
    assert (second.done(), offsets(replica), replica.log.committed_offset) == (True, [0, 2], 4)


async def test_a_high_watermark_inside_of_a_batch_shows_none_of_it() -> None:
    replica = led(world().open(), image(isr=(1, 2), version=1))
    append(replica, 2)
    await durable(replica)
    fetched(replica, 2, 3)
    assert (replica.high_watermark, offsets(replica)) == (3, [0])


async def test_who_leads_no_more_refuses_those_who_wait_and_wakes_those_who_read() -> None:
    wishes: list[ProposeIsr | Follow | Truncate] = []
    replica = led(world().open(), image(isr=(1, 2), version=1), wishes)
    last = append(replica)
    pending = replica.pending(last)
    assert pending is not None
    woken: list[bool] = []
    replica.wait_for_data(lambda: woken.append(True))
    replica.assign(image(leader=2, isr=(1, 2), epoch=1, version=2), now_ms=0)
    with pytest.raises(NotLeaderOrFollower):
        await pending
    assert (woken, wishes) == ([True], [Follow(leader=2, leader_epoch=1)])
    for refused in (lambda: replica.pending(last), lambda: replica.append_own(batch(1), now_ms=NOW_MS)):
        with pytest.raises(NotLeaderOrFollower):
            refused()


async def test_an_isr_that_becomes_too_small_refuses_those_who_wait() -> None:
    replica = led(world().open(), image(isr=(1, 2), version=1))
    replica.log.config = replica.log.config.__class__(min_insync_replicas=2)
    replica.configure(lag_max_ms=1000)
    pending = replica.pending(append(replica))
    assert pending is not None
    replica.assign(image(isr=(1,), version=2), now_ms=0)
    with pytest.raises(NotEnoughReplicasAfterAppend):
        await pending


async def test_a_round_that_was_waited_for_keeps_its_word_while_somebody_joins() -> None:
    wishes: list[ProposeIsr | Follow | Truncate] = []
    replica = led(world().open(), image(version=1), wishes)
    last = append(replica)
    pending = replica.pending(last)
    fetched(replica, 2, 0)
    fetched(replica, 2, 2)  # of what is not durable here yet
    assert (replica.machine.alone, wishes) == (False, [])
    later = replica.pending(append(replica))
    assert pending is not None and later is not None and later is not pending
    await asyncio.shield(pending)
    await durable(replica)
    assert (replica.high_watermark, later.done()) == (2, False)
    fetched(replica, 2, 2)
    assert [wish.isr for wish in wishes if isinstance(wish, ProposeIsr)] == [(1, 2)]


async def test_what_a_coordinator_appends_has_the_newest_epoch() -> None:
    replica = led(world().open(), image(isr=(1,), epoch=4, version=1))
    replica.append_own(batch(1), now_ms=NOW_MS)
    assert (replica.log.leader_epoch, replica.leader_epoch) == (4, 4)


async def test_what_is_not_decided_is_not_stable() -> None:
    log = world().open()
    replica = led(log)
    append(replica)
    data = build_batch(
        [NewRecord(NOW_MS, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append(data, now_ms=NOW_MS)
    await durable(replica)
    assert (replica.high_watermark, replica.last_stable_offset) == (3, 2)
    log.append_marker(Marker(True, 0), producer_id=7, producer_epoch=0, now_ms=NOW_MS)
    assert (replica.high_watermark, replica.last_stable_offset) == (3, 2)
    await durable(replica)
    assert (replica.high_watermark, replica.last_stable_offset) == (4, 4)


async def test_a_log_whose_end_was_cut_off_shows_no_more_than_it_has() -> None:
    log = world().open()
    replica = led(log)
    append(replica, 2)
    await durable(replica)
    assert replica.high_watermark == 4
    cut = log.cut(3)
    assert (replica.high_watermark, replica.machine.held, log.committed_offset) == (2, 2, 2)
    assert offsets(replica) == [0], "also before the disk has done its part"
    cut.active.file.truncate(cut.active.size_bytes)
    append(replica)
    assert offsets(replica) == [0]
    await durable(replica)
    assert offsets(replica) == [0, 2]


async def test_what_the_leader_before_had_committed_is_forgotten_with_the_end_that_was_cut_off() -> None:
    log = world().open()
    replica = led(log, image(leader=2, isr=(1, 2), version=1))
    append(replica, 2)  # not held yet
    replica.machine.answered(0, high_watermark=4, divergence=None, epochs=log.epochs, log_end=4)
    cut = log.cut(2)
    cut.active.file.truncate(cut.active.size_bytes)
    append(replica)
    await durable(replica)
    assert (replica.machine.held, replica.high_watermark) == (4, 2)


async def test_answers_that_are_waited_for_come_in_whatever_order_they_were_asked_for() -> None:
    replica = led(world().open(), image(isr=(1, 2), version=1))
    last = append(replica, 4)
    waiting = {offset: replica.pending(offset) for offset in (5, last, 1, 3)}
    again = [replica.pending(offset) for offset in (3, 5)]
    assert [again[0], again[1]] == [waiting[3], waiting[5]]
    await durable(replica)
    fetched(replica, 2, 4)
    assert [offset for offset, answer in waiting.items() if answer is not None and answer.done()] == [1, 3]
    fetched(replica, 2, 8)
    assert all(answer is not None and answer.done() for answer in waiting.values())


async def test_who_wants_to_know_at_once_does_and_the_newest_first() -> None:
    """A connection that has several answers to give sends them when the first of them is there."""
    replica = led(world().open(), image(isr=(1, 2), version=1))
    append(replica, 3)
    told: list[int] = []
    for offset in (1, 3, 5):
        answer = replica.pending(offset, at_once=True)
        assert answer is not None
        assert replica.pending(offset, at_once=True) is answer
        answer.add_done_callback(lambda _done, offset=offset: told.append(offset))
    task_can_wait = replica.pending(3)
    assert task_can_wait is replica.pending(3)
    await durable(replica)
    fetched(replica, 2, 4)
    assert told == [3, 1]
    assert task_can_wait is not None
    await task_can_wait
    replica.assign(image(leader=2, isr=(2,), epoch=1, version=2), now_ms=0)
    assert told == [3, 1], "a refusal comes a little later"
    await asyncio.sleep(0)
    assert told == [3, 1, 5]


async def test_many_that_are_refused_do_not_take_one_turn() -> None:
    replica = led(world().open(), image(isr=(1, 2), version=1))
    append(replica, 120)
    told: list[int] = []
    for offset in range(240):
        answer = replica.pending(offset, at_once=True)
        assert answer is not None
        answer.add_done_callback(lambda done, offset=offset: told.append(offset if done.exception() else -1))
    replica.assign(image(leader=2, isr=(2,), epoch=1, version=2), now_ms=0)
    seen = [len(told)]
    for _ in range(5):
        await asyncio.sleep(0)
        seen.append(len(told))
    assert seen == [0, 50, 100, 150, 200, 240]
    assert told == list(range(240))


async def test_who_copies_hears_that_there_is_nothing_more_to_copy_here() -> None:
    woken: list[str] = []
    wake: Callable[[], None] = lambda: woken.append("follower")  # noqa: E731
    replica = led(world().open(), image(isr=(1, 2), version=1))
    replica.watch(wake)
    replica.assign(image(leader=2, isr=(1, 2), epoch=1, version=2), now_ms=0)
    assert woken == ["follower"]
    replica.log.detach()
    assert woken == ["follower", "follower"]


async def test_what_is_appended_wakes_those_who_copy_it_and_nobody_else() -> None:
    replica = led(world().open(), image(isr=(1, 2), version=1))
    woken: list[str] = []
    follower: Callable[[], None] = lambda: woken.append("follower")  # noqa: E731
    consumer: Callable[[], None] = lambda: woken.append("consumer")  # noqa: E731
    replica.watch(follower)
    replica.wait_for_data(consumer)
    append(replica)
    assert woken == ["follower"], "nothing is committed yet"
    replica.stop_waiting(follower)
    append(replica)
    assert (woken, replica.log.on_append) == (["follower"], None)
    await durable(replica)
    fetched(replica, 2, 2)
    assert woken == ["follower", "consumer"]


async def test_a_log_that_begins_elsewhere_wakes_those_who_copy_it_and_is_told() -> None:
    wishes: list[ProposeIsr | Follow | Truncate | LogStartMoved] = []
    replica = led(world().open(), image(isr=(1, 2), version=1), wishes)
    append(replica)
    await durable(replica)
    fetched(replica, 2, 2)
    woken: list[str] = []
    follower: Callable[[], None] = lambda: woken.append("follower")  # noqa: E731
    consumer: Callable[[], None] = lambda: woken.append("consumer")  # noqa: E731
    replica.watch(follower)
    replica.wait_for_data(consumer)
    wishes.clear()
    replica.log.advance_log_start(1)
    assert (woken, wishes, replica.machine.log_start) == (["follower"], [LogStartMoved()], 1)
    replica.log.advance_log_start(1)
    assert woken == ["follower"], "it begins there already"


async def test_where_a_log_begins_is_known_from_the_start_and_after_a_cut() -> None:
    log = world().open()
    log.append(batch(3), now_ms=NOW_MS)
    await log.durable(2)
    log.advance_log_start(2)
    replica = led(log, image(leader=2, isr=(2,), version=1))
    assert replica.machine.log_start == 2
    log.cut(0)
    assert replica.machine.log_start == 0


async def test_no_epoch_goes_back_in_a_log_whatever_the_image_says() -> None:
    log = world().open()
    log.append(batch(1), now_ms=NOW_MS, leader_epoch=5)
    replica = led(log, image(isr=(1,), epoch=3, version=1))
    log.append(batch(1), now_ms=NOW_MS, leader_epoch=replica.machine.leader_epoch)
    log.append_marker(Marker(True, 0), producer_id=7, producer_epoch=0, now_ms=NOW_MS, leader_epoch=3)
    await durable(replica)
    assert [view.leader_epoch for view in iter_batches(replica.read(0, 10**6))] == [5, 5, 5]


async def test_a_high_watermark_that_lies_in_a_damaged_batch_shows_what_is_before_that() -> None:
    disk = SimulatedDisk()
    place = LogWorld(disk.root, LogConfig(segment_bytes=300))
    log = place.open()
    for _ in range(8):
        await log.durable(log.append(batch(2), now_ms=NOW_MS).last_offset)
    assert len(log.segments) > 2
    segment = log.segments[1]
    segment.file.write_at(0, bytes(segment.size_bytes))
    log = place.open(clean=True)
    high_watermark = segment.base_offset + 1
    replica = led(log, image(leader=2, isr=(1, 2), version=1), high_watermark=high_watermark)
    assert replica.machine.high_watermark == high_watermark
    assert replica.high_watermark == segment.base_offset == log.committed_offset
    assert offsets(replica)[0] == 0
