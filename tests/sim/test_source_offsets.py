"""A source task that crashes again and again loses nothing

One thread, one seed: a source with several partitions, a broker that acknowledges late and out of order across topic
partitions, crashes that throw away everything in flight. What the broker took before a crash it keeps, acknowledged
or not. At the end every record is in the broker's log.
"""

import random

import pytest

from tidemill.connect.tasks.source_machine import (
    Delivered,
    NotifyCommitted,
    OffsetsStored,
    Polled,
    Produce,
    SourceMachine,
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
