"""Replacing segments with the power cut at every step: the newest record of every key is always there"""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.broker.log.compaction_world import NewBatch, World, newest
from tests.broker.log.log_world import NOW_MS
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tidemill.broker.log import swap
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.recovery import load
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.record import Record, decode_records

CHANGES = ("rename", "remove", "sync", "create")


class PowerCut(Exception):
    """No step after this one."""


class Fused:
    """A directory that lets so many changes through."""

    def __init__(self, directory: SimulatedDirectory, steps: int) -> None:
        self._directory = directory
        self.left = steps

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._directory, name)
        if name not in CHANGES:
            return method

        def counted(*arguments: str) -> Any:
            if self.left == 0:
                raise PowerCut
            self.left -= 1
            return method(*arguments)

        return counted


def dirty_log() -> tuple[SimulatedDisk, World, list[Record], Segment]:
    """Three durable segments, an active one behind them, and what is to replace the three."""
    disk = SimulatedDisk()
    world = World(disk.root)
    world.write([NewBatch([(1, b"a"), (2, b"b")], "none", 1, False), NewBatch([(3, b"c")], "lz4", -1, False)])
    world.write([NewBatch([(2, None), (4, b"d")], "none", 1, False)])
    world.write([NewBatch([(1, b"e")], "none", -1, False), NewBatch([(5, b"f")], "none", -1, False)])
    active = Segment.create(disk.root, world.offset)
    active.file.sync()
    active.close()
    disk.root.sync()
    before = world.records()
    _, cleaned = world.compact(0, NOW_MS)
    return disk, world, before, cleaned


def read(disk: SimulatedDisk, end: int) -> list[Record]:
    """The log as a start finds it."""
    config = LogConfig(cleanup_policy=("compact",))
    loaded = load(
        disk.root, config, clean=False, recovery_point=end, log_start_offset=0, now_ms=NOW_MS, cleaned_offset=0
    )
    records = []
    for segment, following in pairwise([*loaded.segments, None]):
        assert segment is not None
        assert following is None or segment.next_offset == following.base_offset
        offset = segment.base_offset
        while data := segment.read(offset, 1 << 20, segment.size_bytes):
            for view in iter_batches(bytes(data)):
                records += decode_records(view)
                offset = view.next_offset
        assert segment.damaged == []
        segment.close()
    return records


def check(disk: SimulatedDisk, before: list[Record], end: int) -> list[Record]:
    """Everything a start promises after a crash."""
    found = read(disk, end)
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    assert set(found) <= set(before)
    assert set(newest(before).values()) <= set(found)
    assert not [name for name in disk.root.list() if name.endswith((".cleaned", ".swap", ".deleted"))]
    return found


def replace(directory: SimulatedDirectory | Fused, world: World) -> None:
    swap.decide(directory, 0)  # type: ignore[arg-type]
    swap.finish(directory, 0, [source.base_offset for source in world.sources])  # type: ignore[arg-type]


def steps_of(work: Callable[[Fused], None], directory: SimulatedDirectory) -> int:
    fused = Fused(directory, 10**6)
    work(fused)
    return 10**6 - fused.left


def test_what_was_replaced_is_gone_and_what_replaced_it_is_served() -> None:
    disk, world, before, cleaned = dirty_log()
    replace(disk.root, world)
    assert segment_name(3) + ".deleted" in disk.root.list()
    swap.remove_replaced(disk.root, 0, [source.base_offset for source in world.sources])
    assert not [name for name in disk.root.list() if name.endswith(".deleted")]
    names = [name for name in disk.root.list() if name.endswith(".log")]
    assert names == [segment_name(0), segment_name(world.offset)]
    assert check(disk, before, world.offset) == sorted(newest(before).values(), key=lambda record: record.offset)
    cleaned.close()


def test_the_power_may_go_at_every_step_and_again_while_a_start_repairs_it() -> None:
    disk, world, _, _ = dirty_log()
    steps = steps_of(lambda fused: replace(fused, world), disk.root)
    assert steps > 10
    decided = undecided = 0
    for step in range(steps + 1):
        for seed in range(4):
            for step_of_repair in (None, *range(12)):
                rng = random.Random(f"{step} {seed} {step_of_repair}")
                disk, world, before, cleaned = dirty_log()
                try:
                    replace(Fused(disk.root, step), world)
                except PowerCut:
                    disk.crash(rng)
                if step_of_repair is not None:
                    try:
                        swap.recover(Fused(disk.root, step_of_repair))  # type: ignore[arg-type]
                    except PowerCut:
                        disk.crash(rng)
                after = check(disk, before, world.offset)
                cleaned.close()
                decided += after != before
                undecided += after == before
    assert min(decided, undecided) > 100, "both outcomes must have been seen"


def test_a_segment_that_will_not_be_used_leaves_nothing_behind() -> None:
    disk, world, before, cleaned = dirty_log()
    cleaned.close()
    swap.discard(disk.root, 0)
    assert not [name for name in disk.root.list() if name.endswith(".cleaned")]
    disk, world, before, cleaned = dirty_log()
    swap.decide(disk.root, 0)
    swap.discard(disk.root, 0)
    assert check(disk, before, world.offset) == before


@pytest.mark.parametrize("name", ["x.log.swap", "00000000000000000000.index.swap", "00000000000000000099.log.cleaned"])
def test_names_that_decide_nothing_are_removed(name: str) -> None:
    disk, world, before, cleaned = dirty_log()
    cleaned.close()
    swap.discard(disk.root, 0)
    disk.root.create(name).close()
    assert check(disk, before, world.offset) == before
