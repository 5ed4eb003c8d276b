"""One partition in one leadership: answers wait for the log, what fails leaves no trace in memory."""

import asyncio

import pytest

from tests.broker.coordination.counters import FAILED, LEASE_MS, CounterWorld, image
from tests.broker.coordination.shared_log import full_disk
from tidemill.broker.coordination.leaderships import ShardState
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
)
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord


async def test_an_answer_waits_until_its_record_is_committed_and_what_is_known_does_not() -> None:
    world = CounterWorld(nodes=2)
    world.lead()
    asked = asyncio.ensure_future(world.add())
    await asyncio.sleep(0)
    assert (world.totals(), world.shared[0].committed) == ({"a": 1}, 0)
    assert not asked.done()
    world.shared[0].replicate(2)
    assert await asked == 1


async def test_an_append_that_is_refused_did_not_happen() -> None:
    world = CounterWorld()
    world.lead()
    world.logs[0].refuses = full_disk()
    assert await world.add() is FAILED
    assert (world.totals(), world.runtime.trouble("a", 1000)) == ({}, "no room")
    world.logs[0].refuses = None
    assert await world.add() == 1
    world.clock.advance(1000)
    assert world.runtime.trouble("a", 1000) is None
    world.logs[0].refuses = MessageTooLarge("too much")
    assert await world.add() is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert world.runtime.trouble("a", 1000) is None, "others are fine"


async def test_an_append_that_fails_and_leaves_a_record_ends_the_shard() -> None:
    world = CounterWorld()
    world.lead()
    await world.add()
    world.logs[0].breaks = ZeroDivisionError()
    assert await world.add() is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(CoordinatorNotAvailable, match="not without a trace"):
        await world.add()
    assert "not without a trace" in (world.runtime.trouble("a", 1000) or "")
    world.logs[0].breaks = None
    await world.runtime.load()
    assert world.totals() == {"a": 2}, "what the log says"
    assert await world.add() == 3


async def test_who_waits_for_a_shard_that_ends_is_told() -> None:
    world = CounterWorld(nodes=2)
    world.lead()
    asked = asyncio.ensure_future(world.add())
    await asyncio.sleep(0)
    (shard,) = world.runtime.active()
    durable = asyncio.ensure_future(shard.durable())
    await asyncio.sleep(0)
    world.runtime.image_changed(image([(2, 1)]), frozenset())
    with pytest.raises(NotCoordinator):
        await asked
    assert not durable.done()
    world.shared[0].replicate(2)
    with pytest.raises(NotCoordinator):
        await durable
    with pytest.raises(NotCoordinator):
        await world.add()


async def test_a_leadership_that_the_log_knows_to_be_over_is_given_up() -> None:
    world = CounterWorld()
    world.lead()
    await world.add()
    world.logs[0].led_epoch = 7  # the log has heard of it first
    with pytest.raises(NotCoordinator):
        await world.add()
    assert world.totals() == {}
    await world.runtime.load()
    assert world.totals() == {}, "not in the epoch that is over"
    world.logs[0].led_epoch = -1
    world.runtime.image_changed(image([(1, 8)]), frozenset())
    world.logs[0].hears(8)
    await world.runtime.load()
    assert world.totals() == {"a": 1}


async def test_what_was_found_and_is_not_committed_is_told_to_nobody() -> None:
    world = CounterWorld(nodes=2)
    world.shared[0].elect(1)
    log = world.logs[0]
    log.hears(0)
    log.append_own(build_batch([NewRecord(0, b"a", b"5")]), now_ms=0, leader_epoch=0)
    world.lead()
    await world.runtime.load()
    assert world.totals() == {"a": 5}
    asked = asyncio.ensure_future(world.add("a", 0))
    (shard,) = world.runtime.active()
    durable = asyncio.ensure_future(shard.durable())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asked.done() and not durable.done()
    world.shared[0].replicate(2)
    assert await asked == 5
    await durable


async def test_records_that_cannot_be_read_are_passed_over() -> None:
    world = CounterWorld()
    world.shared[0].elect(1)
    world.logs[0].hears(0)
    for key, value in ((b"a", b"no number"), (b"a later kind", b"x"), (None, b"x"), (b"b", b"2")):
        data = build_batch([NewRecord(timestamp=0, key=key, value=value)])
        world.logs[0].append_own(data, now_ms=0, leader_epoch=0)
    world.lead()
    assert await world.runtime.load() is None
    assert world.totals() == {"b": 2}


async def test_time_moves_one_shard_and_the_machine_hears_the_image() -> None:
    world = CounterWorld()
    world.lead(["a"])
    await world.add("a")
    await world.add("b")
    world.runtime.image_changed(image([(1, 0)]), frozenset({"a"}))
    assert world.totals() == {"b": 1}
    assert world.runtime.next_deadline_ms() == LEASE_MS
    world.clock.advance(LEASE_MS)
    world.runtime.tick()
    assert (world.totals(), world.runtime.next_deadline_ms()) == ({}, None)


async def test_a_client_that_goes_away_does_no_harm() -> None:
    world = CounterWorld(nodes=2)
    world.lead()
    asked = asyncio.ensure_future(world.add())
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.sleep(0)
    world.shared[0].replicate(2)
    await asyncio.sleep(0)
    assert await world.add("a", 0) == 1


async def test_each_state_has_its_answer() -> None:
    world = CounterWorld()
    world.shared[0].elect(1)
    world.runtime.image_changed(image([(1, 0)]), frozenset())
    with pytest.raises(CoordinatorLoadInProgress):
        await world.add()
    world.logs[0].hears(0)
    world.runtime.take_up()
    (shard,) = world.runtime.active()
    assert await world.add() == 1
    shard.fail("a reason")
    with pytest.raises(CoordinatorNotAvailable, match="a reason"):
        await world.add()
    assert shard.state is ShardState.FAILED
