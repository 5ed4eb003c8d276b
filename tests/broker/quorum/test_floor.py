"""What a node has once had on its disk, written down beside it"""

import random

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.quorum.floor import DURABLE_END, UNREADABLE, DurableFloor


def loaded(disk: SimulatedDisk) -> DurableFloor:
    floor = DurableFloor(disk.root)
    floor.load()
    return floor


def test_it_is_what_was_noted_last_after_a_kill_and_what_was_synced_after_a_power_cut() -> None:
    for seed in range(30):
        disk = SimulatedDisk()
        floor = loaded(disk)
        assert floor.offset == 0
        for offset in (5, 9, 12):
            floor.note(offset)
        disk.kill()
        floor = loaded(disk)
        assert floor.offset == 12
        floor.note(13)
        floor.sync()
        floor.note(20)
        floor.note(30)
        disk.crash(random.Random(seed))
        assert loaded(disk).offset in (13, 20, 30)


def test_it_goes_down_durably_and_never_up_by_that() -> None:
    disk = SimulatedDisk()
    floor = loaded(disk)
    floor.note(10)
    floor.sync()
    floor.lower(12)
    assert floor.offset == 10
    floor.lower(4)
    disk.crash(random.Random(1))
    assert loaded(disk).offset == 4


def test_a_power_cut_damages_one_place_at_most_however_often_it_was_noted_since() -> None:
    for seed in range(300):
        disk = SimulatedDisk()
        floor = loaded(disk)
        if seed % 3:
            floor.note(5)
            floor.sync()
        if seed % 3 == 2:
            floor.note(6)
            disk.kill()
            floor = loaded(disk)
        for offset in (7, 8, 9):
            floor.note(offset)
        disk.crash(random.Random(seed))
        assert loaded(disk).offset in ((0, 7, 8, 9), (5, 7, 8, 9), (6, 7, 8, 9))[seed % 3]


@pytest.mark.parametrize("place", [0, 4096])
def test_one_place_that_is_damaged_leaves_the_other(place: int) -> None:
    disk = SimulatedDisk()
    floor = loaded(disk)
    floor.note(7)
    floor.sync()
    floor.note(8)
    disk.root.open(DURABLE_END).write_at(place, b"\xff" * 20)
    assert loaded(disk).offset in (7, 8)
    disk.root.open(DURABLE_END).write_at(4096 - place, b"\xff" * 20)
    floor = loaded(disk)
    assert floor.offset == UNREADABLE, "nobody knows what was promised"
    floor.lower(3)
    assert loaded(disk).offset == 3


def test_a_full_disk_has_no_floor_until_there_is_room() -> None:
    disk = SimulatedDisk(capacity_bytes=0)
    floor = loaded(disk)
    floor.note(7)
    floor.sync()
    assert floor.offset == 0
    disk.capacity_bytes = None
    floor = loaded(disk)
    floor.note(7)
    assert loaded(disk).offset == 7
