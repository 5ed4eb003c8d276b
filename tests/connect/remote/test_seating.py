"""Which process takes a task that shares one"""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.remote.seating import (
    QUIET_S,
    REMEMBERED_S,
    Action,
    Closing,
    Dismiss,
    Gone,
    Left,
    Open,
    Place,
    Seating,
    Sit,
    Wanted,
)

FILES, TABLES = Place("", "files"), Place("", "tables")


class World:
    """A machine, and who sits where by what it has said."""

    def __init__(self, most: int) -> None:
        self.machine = Seating(most)
        self.now = 0.0
        self.open: dict[int, Place] = {}
        self.seats: dict[int, int] = {}
        self.last = 0

    def want(self, task: str, place: Place = FILES) -> int:
        """The process that takes the task."""
        self.last += 1
        self.obey(self.machine.step(Wanted(self.last, task, place), self.now))
        assert self.open[self.seats[self.last]] == place
        return self.seats[self.last]

    def leave(self, seat: int) -> None:
        del self.seats[seat]
        self.obey(self.machine.step(Left(seat), self.now))

    def die(self, process: int, *, blameless: bool = False) -> None:
        del self.open[process]
        self.seats = {seat: each for seat, each in self.seats.items() if each != process}
        self.obey(self.machine.step(Gone(process, blameless), self.now))

    def obey(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Open(process, place):
                    assert process not in self.open
                    self.open[process] = place
                case Sit(process, seat):
                    assert process in self.open
                    self.seats[seat] = process
                case Dismiss(process):
                    assert process not in self.seats.values()
                    del self.open[process]


def test_a_process_is_filled_before_another_is_opened() -> None:
    world = World(3)
    assert [world.want(f"t{n}") for n in range(7)] == [1, 1, 1, 2, 2, 2, 3]


def test_tasks_of_two_plugins_never_share() -> None:
    world = World(3)
    assert [world.want("a"), world.want("b", TABLES), world.want("c", Place("/env", "files")), world.want("d")] == [
        1,
        2,
        3,
        1,
    ]


def test_the_fullest_is_filled_up_so_that_others_run_empty() -> None:
    world = World(3)
    for n in range(6):
        world.want(f"t{n}")
    world.leave(1)
    world.leave(4)
    world.leave(5)
    assert world.want("new") == 1
    world.leave(6)
    assert set(world.open) == {1}, "the other was dismissed"


def test_one_that_is_ending_takes_nobody() -> None:
    world = World(3)
    world.want("a")
    world.machine.step(Closing(1), 0.0)
    assert world.want("b") == 2
    world.die(1)
    assert world.want("a") == 2


def test_who_goes_down_twice_sits_alone_and_so_the_others_are_rid_of_it() -> None:
    world = World(3)
    for process in (1, 2):
        assert [world.want(each) for each in "abc"] == [process] * 3
        world.die(process)
        world.now += 1
    alone = [world.want(each) for each in "abc"]
    assert len(set(alone)) == 3
    assert world.want("d") not in alone, "nor does anybody come to sit with them"


def test_a_task_that_leaves_by_itself_begins_anew() -> None:
    world = World(3)
    for _ in range(2):
        process = world.want("a")
        world.die(process)
    world.want("a")
    world.leave(world.last)
    assert world.want("a") == world.want("b")


def test_going_down_after_a_quiet_spell_is_not_counted_on() -> None:
    world = World(3)
    for _ in range(5):
        process = world.want("a")
        world.now += QUIET_S
        world.die(process)
    assert world.want("a") == world.want("b")


def test_what_is_long_ago_is_forgotten() -> None:
    world = World(3)
    for _ in range(2):
        world.die(world.want("a"))
    world.now += REMEMBERED_S + 1
    assert world.want("a") == world.want("b")


def test_an_end_that_nobody_in_it_is_to_blame_for_counts_for_nothing() -> None:
    world = World(3)
    for _ in range(5):
        world.die(world.want("a"), blameless=True)
    assert world.want("a") == world.want("b")


def test_what_is_told_too_late_does_nothing() -> None:
    machine = Seating(2)
    assert [machine.step(each, 0.0) for each in (Left(7), Gone(7), Closing(7))] == [[], [], []]


@given(
    most=st.integers(1, 5),
    steps=st.lists(
        st.tuples(st.sampled_from(["want", "leave", "die", "close", "wait"]), st.integers(0, 11)), max_size=80
    ),
)
def test_whatever_happens_nobody_is_crowded_or_forgotten(most: int, steps: list[tuple[str, int]]) -> None:
    world, closing = World(most), set[int]()
    places = [FILES, TABLES, Place("/env", "files")]
    for what, number in steps:
        running = sorted(world.seats)
        if what == "want":
            process = world.want(f"{number}", places[number % 3])
            assert process not in closing
        elif what == "wait":
            world.now += 10 * number
        elif running and what == "leave":
            world.leave(running[number % len(running)])
        elif running:
            process = world.seats[running[number % len(running)]]
            if what == "die":
                world.die(process)
            else:
                world.machine.step(Closing(process), world.now)
                closing.add(process)
        sitting = list(world.seats.values())
        assert set(sitting) == set(world.open), "a process without a task is dismissed"
        assert all(sitting.count(process) <= most for process in world.open)


@given(most=st.integers(1, 20), tasks=st.integers(0, 60))
def test_there_are_no_more_processes_than_needed(most: int, tasks: int) -> None:
    world = World(most)
    for n in range(tasks):
        world.want(f"t{n}")
    assert len(world.open) == ceil(tasks / most)
