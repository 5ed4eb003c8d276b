"""All shards of a node: which there are, when they are loaded, who may ask."""

import asyncio
import gc
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker.coordination.counters import LEASE_MS, TOPIC, Add, Counters, CounterWorld, image
from tests.broker.coordination.shared_log import full_disk
from tidemill.broker.coordination.contract import ImageChanged, Instant, Replayed, Tick
from tidemill.broker.coordination.leaderships import ShardState
from tidemill.broker.coordination.runtime import LOAD_PAUSE_S, partition_of
from tidemill.broker.log import turns
from tidemill.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    NotCoordinator,
)
from tidemill.core.runtime.virtual_time import VirtualLoop


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    # from java.lang.String.hashCode
    [("", 50, 0), ("a", 50, 47), ("hello", 50, 22), ("polygenelubricants", 50, 0), ("é", 50, 33), ("😀", 50, 49)],
)
def test_keys_hash_as_in_kafka(key: str, count: int, partition: int) -> None:
    assert partition_of(key, count) == partition


async def test_without_the_topic_nobody_coordinates() -> None:
    world = CounterWorld()
    with pytest.raises(CoordinatorNotAvailable, match="not there yet"):
        await world.add()
    assert "not there yet" in (world.runtime.trouble("a", 1000) or "")
    assert (world.runtime.partition_count, list(world.runtime.all_loaded())) == (0, [])


async def test_a_key_of_another_broker_is_refused() -> None:
    world = CounterWorld(partitions=2)
    epochs = [each.elect(1) for each in world.shared]
    world.runtime.image_changed(image([(1, epochs[0]), (2, 0)]), frozenset())
    for log in world.logs:
        log.hears(0)
    world.runtime.take_up()
    mine, theirs = (next(key for key in "abcdef" if partition_of(key, 2) == number) for number in (0, 1))
    assert await world.add(mine) == 1
    with pytest.raises(NotCoordinator):
        await world.add(theirs)


async def test_a_partition_is_taken_up_when_its_log_is_here_and_led() -> None:
    world = CounterWorld()
    epoch = world.shared[0].elect(1)
    world.runtime.image_changed(image([(1, epoch)]), frozenset())
    world.runtime.take_up()
    with pytest.raises(CoordinatorLoadInProgress):
        await world.add()
    with pytest.raises(CoordinatorLoadInProgress):
        world.runtime.all_loaded()
    assert (list(world.runtime.active()), world.runtime.trouble("a", 1000)) == ([], None)
    world.logs[0].hears(epoch)
    world.runtime.take_up()
    assert await world.add() == 1
    assert len(list(world.runtime.all_loaded())) == 1


async def filled(world: CounterWorld, count: int) -> None:
    """Lead, add, and lead no more."""
    world.lead()
    for _ in range(count):
        await world.add()
    world.shared[0].leader_epoch += 1
    world.runtime.image_changed(image([(2, world.shared[0].leader_epoch)]), frozenset())
    world.logs[0].hears(-1)


async def test_a_load_gives_way_and_ends_when_the_leadership_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)  # every step is too long
    world = CounterWorld()
    await filled(world, 5)
    world.lead()
    loading = asyncio.ensure_future(world.runtime.load())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoadInProgress):
        await world.add()
    world.runtime.image_changed(image([(2, 9)]), frozenset())
    await loading
    assert world.totals() == {}
    with pytest.raises(NotCoordinator):
        await world.add()
    world.shared[0].leader_epoch = 9
    world.lead()
    await world.runtime.load()
    assert world.totals() == {"a": 5}


async def test_the_machine_is_told_the_image_there_is_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)
    world = CounterWorld()
    await filled(world, 3)
    world.lead()
    loading = asyncio.ensure_future(world.runtime.load())
    await asyncio.sleep(0)
    later = image([(1, world.shared[0].leader_epoch)], ["t"])
    world.runtime.image_changed(later, frozenset())
    await loading
    (shard,) = world.runtime.active()
    assert shard.machine.image is later


async def test_a_start_loads_at_once_and_goes_on_without_a_partition_that_cannot_be_read() -> None:
    world = CounterWorld()
    await filled(world, 4)
    world.lead()
    assert world.runtime.load_now() == 4
    assert (world.totals(), world.runtime.load_now()) == ({"a": 4}, 0)
    again = CounterWorld(partitions=2)
    await filled(again, 1)
    again.lead()
    again.logs[1].read_fails = again.logs[0].read_fails = CorruptMessage("a corrupt batch")
    broken, sound = "a", "b"
    assert {partition_of(sound, 2), partition_of(broken, 2)} == {0, 1}
    again.logs[partition_of(sound, 2)].read_fails = None
    again.runtime.load_now()
    await again.runtime.shard_of(sound).ask(Add(request_id=7, name=sound))
    with pytest.raises(CoordinatorNotAvailable, match="a corrupt batch"):
        again.runtime.shard_of(broken)
    assert "a corrupt batch" in (again.runtime.trouble(broken, 1000) or "")
    assert again.runtime.states() == {ShardState.LOADING: 0, ShardState.ACTIVE: 1, ShardState.FAILED: 1}


async def test_a_batch_whose_bytes_changed_is_not_believed() -> None:
    world = CounterWorld()
    await filled(world, 3)
    stored = world.logs[0].batches[1]
    data = bytearray(stored.data)
    data[data.rindex(b"2")] = ord("7")
    world.logs[0].batches[1] = stored._replace(data=bytes(data))
    world.lead()
    await world.runtime.load()
    with pytest.raises(CoordinatorNotAvailable, match="does not match its checksum"):
        await world.add()


async def test_a_log_that_ends_in_the_middle_of_a_batch_is_not_taken_for_whole() -> None:
    world = CounterWorld()
    await filled(world, 2)
    stored = world.logs[0].batches[1]
    world.logs[0].batches[1] = stored._replace(data=stored.data[:-1])
    world.lead()
    await world.runtime.load()
    with pytest.raises(CoordinatorNotAvailable, match="ends inside a batch"):
        await world.add()


@pytest.mark.parametrize("event", [Replayed, Tick])
async def test_a_machine_that_stumbles_is_taken_up_anew(event: type, monkeypatch: pytest.MonkeyPatch) -> None:
    world = CounterWorld()
    await filled(world, 2)
    step, stumbles = Counters.step, True

    def stumble(machine: Counters, heard: Any, now: Instant) -> list[Any]:
        if stumbles and isinstance(heard, event):
            raise LookupError("a bug")
        return step(machine, heard, now)

    monkeypatch.setattr(Counters, "step", stumble)
    world.lead()
    await world.runtime.load()
    world.clock.advance(LEASE_MS)
    world.runtime.tick()
    with pytest.raises(CoordinatorNotAvailable, match="a bug"):
        await world.add()
    stumbles = False
    await world.runtime.load()
    assert await world.add() == 3


def test_a_load_that_fails_is_tried_again_and_time_goes_on_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = VirtualLoop()

    async def live() -> None:
        world = CounterWorld()
        await filled(world, 2)
        running = asyncio.ensure_future(world.runtime.run())
        await asyncio.sleep(0)
        world.logs[0].read_fails = full_disk()
        world.lead()
        await asyncio.sleep(LOAD_PAUSE_S * 3.5)
        assert 3 <= world.logs[0].reads <= 5, "about once a pause"
        with pytest.raises(CoordinatorNotAvailable, match="no room"):
            await world.add()
        world.logs[0].read_fails = None
        await asyncio.sleep(LOAD_PAUSE_S)
        assert await world.add() == 3
        world.clock.advance(LEASE_MS)
        world.runtime.tick()
        assert world.totals() == {}
        running.cancel()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(live())


async def test_a_bug_about_one_shard_does_not_stop_the_clock_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CounterWorld(partitions=2)
    world.lead()
    keys = [next(key for key in "abcdef" if partition_of(key, 2) == number) for number in (0, 1)]
    for key in keys:
        await world.add(key)
    real = Counters.step

    def step(self: Counters, *arguments: object) -> list[object]:
        if keys[0] in self.totals:
            raise ZeroDivisionError
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Counters, "step", step)
    world.clock.advance(LEASE_MS)
    world.runtime.tick()
    assert world.totals() == {}
    with pytest.raises(CoordinatorNotAvailable, match="stumbled over Tick"):
        await world.add(keys[0])
    assert await world.add(keys[1]) == 1


async def test_a_shard_that_cannot_follow_an_image_is_taken_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CounterWorld(partitions=2)
    world.lead()
    keys = [next(key for key in "abcdef" if partition_of(key, 2) == number) for number in (0, 1)]
    for key in keys:
        await world.add(key)
    real = Counters.step

    def step(self: Counters, *arguments: object) -> list[object]:
        if keys[0] in self.totals and isinstance(arguments[0], ImageChanged):
            raise ZeroDivisionError
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Counters, "step", step)
    world.runtime.image_changed(image([(1, 0), (1, 0)]), frozenset(keys[1:]))
    assert world.totals() == {}
    with pytest.raises(CoordinatorNotAvailable, match="stumbled over ImageChanged"):
        await world.add(keys[0])
    await world.runtime.load()
    assert world.totals() == {keys[0]: 1}


async def test_a_request_that_stumbles_keeps_nobody_waiting_and_the_partition_is_taken_up_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = CounterWorld(nodes=2)
    world.lead()
    waiting = asyncio.ensure_future(world.add())
    await asyncio.sleep(0)
    real = Counters.step

    def step(self: Counters, event: Any, now: Instant) -> list[Any]:
        if isinstance(event, Add) and event.name == "poison":
            self.totals["half"] = 1
            raise ZeroDivisionError("a bug")
        return real(self, event, now)

    monkeypatch.setattr(Counters, "step", step)
    with pytest.raises(ZeroDivisionError):
        await world.add("poison")
    with pytest.raises(CoordinatorNotAvailable, match="a bug"):
        await waiting
    gc.collect()
    assert not caplog.records, "an exception that asyncio tells of as lost"
    world.shared[0].replicate(2)
    await world.runtime.load()
    assert world.totals() == {"a": 1}, "what the log says"


async def test_a_partition_that_cannot_be_read_is_told_of_once_and_has_its_reason_while_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)
    world = CounterWorld()
    await filled(world, 3)
    stored = world.logs[0].batches[1]
    data = bytearray(stored.data)
    data[-1] ^= 1
    world.logs[0].batches[1] = stored._replace(data=bytes(data))
    world.lead()
    with capture_logs() as lines:
        for _ in range(50):
            loading = asyncio.ensure_future(world.runtime.load())
            while not loading.done():
                await asyncio.sleep(0)
                if lines:
                    assert world.runtime.states()[ShardState.FAILED] == 1
                    assert "checksum" in (world.runtime.trouble("a", 1000) or "")
            world.clock.advance(1000)
    assert [line["event"] for line in lines] == ["not loaded"]
    world.clock.advance(20_000)
    with capture_logs() as lines:
        await world.runtime.load()
    assert [(line["event"], line["untold"]) for line in lines] == [("not loaded", 49)]
    world.logs[0].batches[1] = stored
    await world.runtime.load()
    assert world.runtime.trouble("a", 1000) is None
    assert await world.add() == 4


async def test_a_topic_made_anew_begins_with_nothing() -> None:
    world = CounterWorld()
    world.lead()
    await world.add()
    world.runtime.image_changed(image([]), frozenset({TOPIC}))
    assert world.totals() == {}
    with pytest.raises(CoordinatorNotAvailable):
        await world.add()
