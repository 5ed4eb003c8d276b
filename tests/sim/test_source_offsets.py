"""A source task that crashes again and again loses nothing

One thread, one seed: a source with several partitions, a broker that acknowledges late and out of order across topic
partitions, crashes that throw away everything in flight. What the broker took before a crash it keeps, acknowledged
or not. At the end every record is in the broker's log.
"""

import random

import pytest

from tidemill.connect.tasks.source_machine import (
    Abandon,
    Delivered,
    DeliveryFailed,
    Drained,
    NotifyCommitted,
    OffsetsStored,
    Polled,
    Produce,
    SourceMachine,
    Stop,
    StoreOffsets,
    Tick,
)

PARTITIONS = (b"a", b"b", b"c")
RECORDS_EACH = 40


class World:
    """The broker's log, the offsets topic and what is on its way to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log: list[tuple[bytes, int]] = []
        self.offsets: dict[bytes, int] = {}
        self.confirmed: dict[bytes, int] = dict.fromkeys(PARTITIONS, 0)
        self.now_ms = 0

    def life(self, turns: int) -> bool:
        """One life of the task; True when it had read and stored everything."""
        machine = SourceMachine(flush_interval_ms=5, in_flight_bytes_max=1 << 30, in_flight_records_max=30)
        position = {partition: self.offsets.get(partition, 0) for partition in PARTITIONS}
        runs: dict[int, list[tuple[bytes, int]]] = {}
        flush: StoreOffsets | None = None
        for turn in range(turns):
            self.now_ms += self.random.randrange(3)
            actions = machine.step(Tick(now_ms=self.now_ms))
            if machine.accepts_more:
                partition = self.random.choice(PARTITIONS)
                start = position[partition]
                end = min(RECORDS_EACH, start + self.random.randrange(5))
                position[partition] = end
                runs[turn] = [(partition, number) for number in range(start, end)]
                offset = {"next": end} if self.random.random() < 0.8 else None
                event = Polled(token=turn, partition=partition, offset=offset, records=end - start, size_bytes=1)
                actions += machine.step(event)
            for token in self.random.sample(sorted(runs), k=self.random.randrange(len(runs) + 1)):
                run = runs[token]
                count = self.random.randrange(len(run) + 1)
                self.log += run[:count]
                runs[token] = run[count:]
                # The broker has it; whether the task hears of that before it dies is another matter.
                if count and (self.random.random() < 0.9 or turn < turns - 1):
                    actions += machine.step(Delivered(token=token, records=count))
            runs = {token: run for token, run in runs.items() if run}
            for action in actions:
                if isinstance(action, StoreOffsets):
                    flush = action
                assert isinstance(action, StoreOffsets | Produce | NotifyCommitted)
            if flush is not None and self.random.random() < 0.5:
                self.offsets |= {partition: offset["next"] for partition, offset in flush.offsets}
                for told in machine.step(OffsetsStored(flush=flush.flush)):
                    assert isinstance(told, NotifyCommitted)
                    self.confirmed[told.partition] = max(self.confirmed[told.partition], told.offset["next"])
                flush = None
            self.check()
        return all(self.offsets.get(partition) == RECORDS_EACH for partition in PARTITIONS)

    def check(self) -> None:
        """What was stored, and what the source was told, is in the log."""
        present = set(self.log)
        for partition in PARTITIONS:
            assert self.confirmed[partition] <= self.offsets.get(partition, 0)
            for number in range(self.offsets.get(partition, 0)):
                assert (partition, number) in present, f"{partition!r} {number} was skipped"


@pytest.mark.parametrize("seed", range(40))
def test_no_record_is_lost(seed: int) -> None:
    world = World(seed)
    lives = 0
    while not world.life(turns=world.random.randrange(1, 60)):
        lives += 1
        assert lives < 1000, "it must get there"
    assert set(world.log) == {(partition, number) for partition in PARTITIONS for number in range(RECORDS_EACH)}


def fail(world: World, machine: SourceMachine, runs: dict[int, list[tuple[bytes, int]]]) -> None:
    """The end of a task that has failed: some more is acknowledged, then what is acknowledged is stored."""
    pending = list(machine.step(Stop()))
    for token in world.random.sample(sorted(runs), k=world.random.randrange(len(runs) + 1)):
        world.log += runs[token]
        pending += machine.step(Delivered(token=token, records=len(runs.pop(token))))
    pending += machine.step(Abandon())
    drained = False
    while pending:
        match pending.pop(0):
            case StoreOffsets(flush=flush, offsets=offsets):
                world.offsets |= {partition: offset["next"] for partition, offset in offsets}
                pending += machine.step(OffsetsStored(flush=flush))
            case Drained():
                drained = True
    assert drained, "it must not wait for what will never come"
    world.check()


@pytest.mark.parametrize("seed", range(40))
def test_a_failure_stores_what_is_acknowledged_and_nothing_else(seed: int) -> None:
    world = World(seed)
    for _ in range(20):
        machine = SourceMachine(flush_interval_ms=1 << 40, in_flight_bytes_max=1 << 30, in_flight_records_max=1 << 30)
        position = {partition: world.offsets.get(partition, 0) for partition in PARTITIONS}
        before = dict(position)
        runs: dict[int, list[tuple[bytes, int]]] = {}
        acknowledged: set[int] = set()
        order: dict[bytes, list[tuple[int, int]]] = {partition: [] for partition in PARTITIONS}
        for token in range(world.random.randrange(1, 12)):
            partition = world.random.choice(PARTITIONS)
            start, end = position[partition], min(RECORDS_EACH, position[partition] + 1 + world.random.randrange(3))
            if start == end:
                continue
            position[partition] = end
            runs[token] = [(partition, number) for number in range(start, end)]
            order[partition].append((token, end))
            machine.step(
                Polled(token=token, partition=partition, offset={"next": end}, records=end - start, size_bytes=1)
            )
        bad = world.random.choice(sorted(runs)) if runs else None
        if bad is not None:
            machine.step(DeliveryFailed(token=bad, reason="refused"))
            doomed = runs.pop(bad)
            kept = dict(runs)
            fail(world, machine, runs)
            acknowledged = kept.keys() - runs.keys()
            assert doomed
        for partition, sent in order.items():
            expected = before[partition]
            for token, end in sent:
                if token not in acknowledged:
                    break
                expected = end
            assert world.offsets.get(partition, 0) == expected
