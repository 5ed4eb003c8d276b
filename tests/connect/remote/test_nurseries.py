"""Which nursery forks what, decided without a process"""

from typing import Any

import pytest

from tidemill.connect.remote import nurseries as n
from tidemill.connect.remote.host import ATTACH_TIMEOUT_S, KILL_TIMEOUT_S

A, B = "package:a", "package:b"


class World:
    """Nurseries with a clock."""

    def __init__(self) -> None:
        self.machine = n.Nurseries()
        self.now = 0.0

    def tell(self, event: n.Event) -> list[n.Action]:
        return self.machine.step(event, self.now)

    def wait(self, seconds: float) -> list[n.Action]:
        self.now += seconds
        return self.tell(n.Tick())


@pytest.fixture
def world() -> World:
    """The first nursery is there."""
    found = World()
    assert found.tell(n.Begun()) == [n.StartRoot(n.FIRST)]
    assert found.tell(n.Ready(n.FIRST)) == []
    return found


@pytest.fixture
def forking(world: World) -> World:
    """A nursery of plugin A, -1, which has forked 1 and 2."""
    assert world.tell(n.Wanted(1, A)) == [n.ForkNursery(-1, A)]
    assert world.tell(n.Wanted(2, A)) == [], "it waits for the nursery"
    assert world.tell(n.Ready(-1)) == [n.Fork(-1, 1), n.Fork(-1, 2)]
    return world


def test_whoever_comes_early_waits() -> None:
    world = World()
    assert world.tell(n.Wanted(1, A)) == [n.StartRoot(n.FIRST)]
    assert world.tell(n.Wanted(2, B)) == []
    assert not world.machine.idle
    assert world.tell(n.Ready(n.FIRST)) == [n.ForkNursery(-1, A), n.ForkNursery(-2, B)]
    assert world.tell(n.Ready(-2)) == [n.Fork(-2, 2)]


def test_a_plugin_is_imported_once(forking: World) -> None:
    assert forking.tell(n.Wanted(3, A)) == [n.Fork(-1, 3)]
    assert forking.tell(n.Wanted(4, B)) == [n.ForkNursery(-2, B)]


@pytest.fixture
def leased(world: World) -> World:
    """A nursery has forked 1, which is leased, and 2, which is not; the lease ends at 10."""
    world.tell(n.Leased(10.0))
    world.tell(n.Wanted(1, A, leased=True))
    world.tell(n.Wanted(2, A))
    assert world.tell(n.Ready(-1)) == [n.Fork(-1, 1), n.Fork(-1, 2)]
    return world


def test_what_is_leased_ends_with_the_lease(leased: World) -> None:
    assert leased.machine.lease_end == 10.0
    assert leased.wait(9.9) == []
    assert leased.wait(0.1) == [n.Kill(-1, 1)]
    assert leased.machine.lease_end is None, "nothing is left to wait for"
    assert leased.tell(n.Died(1, n.KILLED)) == [n.TellDied(1, n.KILLED, n.LEASE_OVER)]


def test_a_lease_is_renewed_and_taken_away(leased: World) -> None:
    leased.wait(9.9)
    leased.tell(n.Leased(20.0))
    assert leased.wait(5.0) == []
    assert leased.tell(n.Leased(0.0)) == [n.Kill(-1, 1)]


def test_nothing_leased_starts_without_a_lease(leased: World) -> None:
    leased.wait(11.0)
    assert leased.tell(n.Wanted(3, A, leased=True)) == [n.TellDied(3, n.KILLED, n.LEASE_OVER)]
    assert leased.tell(n.Wanted(4, A)) == [n.Fork(-1, 4)], "a preflight needs none"


def test_what_waits_for_its_nursery_is_not_forked_after_the_lease(world: World) -> None:
    world.tell(n.Leased(1.0))
    world.tell(n.Wanted(1, A, leased=True))
    assert world.wait(1.0) == [n.TellDied(1, n.KILLED, n.LEASE_OVER)]
    assert world.tell(n.Ready(-1)) == []


def test_without_a_word_of_a_lease_there_is_no_end(world: World) -> None:
    world.tell(n.Wanted(1, A, leased=True))
    world.tell(n.Ready(-1))
    assert world.machine.lease_end is None and n.Kill(-1, 1) not in world.wait(1e9)


def test_an_end_is_told_once(forking: World) -> None:
    assert forking.tell(n.Died(1, 256)) == [n.TellDied(1, 256)]
    assert forking.tell(n.Died(1, 256)) == []
    assert forking.tell(n.Unwanted(1)) == []


@pytest.mark.parametrize("event", [n.Unfit(-1, "it has started 1 threads"), n.Lost(-1), n.Died(-1, 11)])
def test_a_plugin_that_cannot_be_imported_ahead_is_imported_by_its_tasks(world: World, event: n.Event) -> None:
    world.tell(n.Wanted(1, A))
    done = [action for action in world.tell(event) if not isinstance(action, n.Note)]
    assert n.Fork(n.FIRST, 1) in done
    assert world.tell(n.Wanted(2, A)) == [n.Fork(n.FIRST, 2)]
    assert world.tell(n.Wanted(3, B)) == [n.ForkNursery(-2, B)], "others have nothing to do with it"
    world.now += n.UNFIT_S + 1
    assert world.tell(n.Wanted(4, A)) == [n.ForkNursery(-3, A)], "it may have been mended"


def test_a_plugin_that_takes_too_long_to_import_is_not_waited_for(world: World) -> None:
    world.tell(n.Wanted(1, A))
    assert world.wait(n.IMPORT_S - 1) == []
    found = world.wait(2)
    assert n.Kill(n.FIRST, -1) in found and n.Fork(n.FIRST, 1) in found
    assert world.tell(n.Ready(-1)) == [], "too late"


def test_a_plugin_that_has_changed_is_imported_anew(forking: World) -> None:
    assert forking.tell(n.Wanted(3, A)) == [n.Fork(-1, 3)]
    assert forking.tell(n.Stale(-1, 3)) == [n.ForkNursery(-2, A)]
    assert forking.tell(n.Ready(-2)) == [n.Fork(-2, 3)]
    assert forking.tell(n.Died(1, 0)) == [n.TellDied(1, 0)]
    assert forking.tell(n.Died(2, 0)) == [n.TellDied(2, 0), n.Release(-1)], "the old one ends with its last process"
    assert forking.tell(n.Wanted(4, A)) == [n.Fork(-2, 4)]


def test_an_idle_nursery_that_is_stale_ends_at_once(world: World) -> None:
    world.tell(n.Wanted(1, A))
    world.tell(n.Ready(-1))
    assert world.tell(n.Stale(-1, 1)) == [n.Release(-1), n.ForkNursery(-2, A)]


def test_what_is_not_wanted_any_more_is_not_forked(world: World) -> None:
    world.tell(n.Wanted(1, A))
    assert world.tell(n.Unwanted(1)) == [n.TellDied(1, n.KILLED)]
    assert world.tell(n.Ready(-1)) == []


def test_a_kill_that_comes_while_the_plugin_is_found_changed(forking: World) -> None:
    assert forking.tell(n.Unwanted(2)) == [n.Kill(-1, 2)]
    assert n.TellDied(2, n.KILLED) in forking.tell(n.Stale(-1, 2))


def test_a_process_stuck_in_the_kernel_is_given_up_alone(forking: World) -> None:
    assert forking.tell(n.Unwanted(1)) == [n.Kill(-1, 1)]
    assert forking.tell(n.Unwanted(1)) == [], "asked once"
    forking.tell(n.Killed(1))
    assert forking.wait(n.DEATH_S - 0.1) == []
    (told,) = forking.wait(0.2)
    assert isinstance(told, n.TellDied) and "stuck" in told.reason
    assert forking.tell(n.Died(1, 9)) == [], "told before"
    assert forking.machine.idle


def test_what_a_killed_nursery_had_forked_has_ended_when_it_has(forking: World) -> None:
    forking.tell(n.Unwanted(1))
    assert n.Kill(n.FIRST, -1) in forking.wait(n.ANSWER_S + 0.1)
    assert not forking.machine.idle
    assert forking.wait(1.0) == [], "asked once"
    assert forking.tell(n.Killed(-1)) == []
    assert forking.tell(n.Wanted(3, A)) == [n.ForkNursery(-2, A)], "another forks meanwhile"
    found = forking.tell(n.Died(-1, n.KILLED))
    assert found == [n.TellDied(1, n.KILLED), n.TellDied(2, n.KILLED), n.Release(-1)]


def test_a_nursery_stuck_in_the_kernel_is_given_up_alone(forking: World) -> None:
    forking.tell(n.Unwanted(1))
    forking.wait(n.ANSWER_S + 0.1)
    forking.tell(n.Killed(-1))
    assert forking.wait(n.DEATH_S - 0.1) == []
    told, other, *_ = forking.wait(0.2)
    assert isinstance(told, n.TellDied) and isinstance(other, n.TellDied) and "stuck" in told.reason
    assert forking.tell(n.Wanted(3, B)) == [n.ForkNursery(-2, B)], "the root has nothing to do with it"


def test_a_root_that_does_not_kill_a_nursery_is_killed_with_it(forking: World) -> None:
    forking.tell(n.Unwanted(1))
    forking.wait(n.ANSWER_S + 0.1)
    assert forking.wait(n.ROOT_ANSWER_S - 0.1) == []
    assert n.KillRoot(n.FIRST) in forking.wait(0.2)
    assert n.KillRoot(n.FIRST) not in forking.wait(0.1), "once"
    found = forking.tell(n.Lost(n.FIRST))
    assert found == [n.Release(n.FIRST), n.TellDied(1, n.KILLED), n.TellDied(2, n.KILLED), n.Release(-1)]


def test_a_root_that_does_not_kill_what_takes_too_long_to_import_is_killed(world: World) -> None:
    world.tell(n.Wanted(1, A))
    assert n.Kill(n.FIRST, -1) in world.wait(n.IMPORT_S + 1)
    assert not world.machine.idle
    assert n.KillRoot(n.FIRST) in world.wait(n.ROOT_ANSWER_S + 0.1)


def test_a_late_answer_leaves_the_kernel_its_time(forking: World) -> None:
    forking.tell(n.Unwanted(1))
    assert forking.wait(n.ANSWER_S - 0.1) == []
    forking.tell(n.Killed(1))
    assert forking.wait(n.DEATH_S - 0.1) == [], "it is being killed only now"
    (told,) = forking.wait(0.2)
    assert isinstance(told, n.TellDied) and "stuck" in told.reason


def test_no_root_answers_for_the_one_before(forking: World) -> None:
    forking.tell(n.Lost(n.FIRST))
    assert forking.tell(n.Wanted(3, B)) == [n.StartRoot(-2)], "whose number is another"
    forking.tell(n.Ready(-2))
    forking.tell(n.Unwanted(1))
    assert n.Kill(n.FIRST, -1) in forking.wait(n.ANSWER_S + 0.1), "nobody is there who could"
    found = forking.wait(n.DEATH_S + 0.1)
    assert {told.start for told in found if isinstance(told, n.TellDied)} == {1, 2}
    assert not [action for action in found if isinstance(action, n.KillRoot)]


def test_all_that_a_lost_nursery_has_forked_has_ended(forking: World) -> None:
    forking.tell(n.Wanted(3, B))
    forking.tell(n.Ready(-2))
    assert forking.tell(n.Lost(-1)) == [n.Kill(n.FIRST, -1)], "which has closed its line, and may live for a moment"
    found = forking.tell(n.Died(-1, n.KILLED))
    assert found == [n.TellDied(1, n.KILLED), n.TellDied(2, n.KILLED), n.Release(-1)]
    assert forking.tell(n.Wanted(4, A)) == [n.ForkNursery(-3, A)]
    assert forking.tell(n.Died(3, 0)) == [n.TellDied(3, 0)]


def test_without_the_first_nursery_there_will_be_another(forking: World) -> None:
    assert forking.tell(n.Lost(n.FIRST)) == [n.Release(n.FIRST)]
    assert forking.tell(n.Lost(-1)) == [n.TellDied(1, n.KILLED), n.TellDied(2, n.KILLED), n.Release(-1)]
    assert forking.tell(n.Wanted(3, A)) == [n.StartRoot(-2)]


def test_a_first_nursery_that_cannot_start_is_not_tried_for_ever() -> None:
    world = World()
    world.tell(n.Wanted(1, A))
    told, *_ = world.tell(n.Lost(n.FIRST))
    assert isinstance(told, n.TellDied) and "did not start" in told.reason
    assert world.tell(n.Wanted(2, A)) == [n.StartRoot(-1)]
    assert world.wait(n.IMPORT_S + 1) == [], "nobody can do without it, so it has as long as a task has to call back"
    assert n.FIRST_S < ATTACH_TIMEOUT_S
    assert world.wait(n.FIRST_S - n.IMPORT_S) == [n.KillRoot(-1)]


def test_one_that_is_slow_to_answer_is_not_killed_with_all_its_tasks(forking: World) -> None:
    """It may be forking many, on a machine that has much to do; the worker waits for twice as long."""
    forking.tell(n.Unwanted(1))
    assert forking.wait(3.5) == []
    assert n.ANSWER_S + max(n.DEATH_S, n.ROOT_ANSWER_S) < KILL_TIMEOUT_S, "and kills the guardian, with all there is"


E, F = "/plugins/a-1", "/plugins/a-2"


def test_every_environment_has_a_root_of_its_own_from_when_it_is_wanted(world: World) -> None:
    assert world.tell(n.Wanted(1, A, environment=E)) == [n.StartRoot(-1, E)]
    assert world.tell(n.Wanted(2, A)) == [n.ForkNursery(-2, A)], "the worker's own is another"
    assert world.tell(n.Wanted(3, A, environment=F)) == [n.StartRoot(-3, F)]
    assert world.tell(n.Ready(-1)) == [n.ForkNursery(-4, A, -1)]
    assert world.tell(n.Ready(-4)) == [n.Fork(-4, 1)]
    assert world.tell(n.Ready(-3)) == [n.ForkNursery(-5, A, -3)]
    assert world.tell(n.Ready(-5)) == [n.Fork(-5, 3)]
    assert world.tell(n.Ready(-2)) == [n.Fork(-2, 2)]
    assert world.tell(n.Wanted(4, A, environment=F)) == [n.Fork(-5, 4)]
    assert world.tell(n.Unwanted(4)) == [n.Kill(-5, 4)]


@pytest.fixture
def elsewhere(world: World) -> World:
    """The environment E has a root, -1, and a nursery of plugin A, -2, which has forked 1."""
    world.tell(n.Wanted(1, A, environment=E))
    world.tell(n.Ready(-1))
    assert world.tell(n.Ready(-2)) == [n.Fork(-2, 1)]
    return world


def test_an_environment_that_nobody_uses_is_let_go_after_a_while(elsewhere: World) -> None:
    assert elsewhere.wait(10 * n.IDLE_S) == [], "it is used"
    elsewhere.tell(n.Died(1, 0))
    assert elsewhere.wait(n.IDLE_S - 1) == []
    elsewhere.tell(n.Wanted(2, A, environment=E))
    elsewhere.tell(n.Died(2, 0))
    assert elsewhere.wait(n.IDLE_S - 1) == [], "it was used again"
    assert elsewhere.wait(2) == [n.Release(-2), n.Release(-1)], "what the root has forked goes before it"
    assert elsewhere.wait(10 * n.IDLE_S) == [], "the worker's own stays"
    assert elsewhere.tell(n.Wanted(3, A, environment=E)) == [n.StartRoot(-3, E)]


def test_an_environment_that_is_not_needed_is_let_go_at_once_unless_it_is_used(elsewhere: World) -> None:
    assert elsewhere.tell(n.Unneeded(E)) == [], "it is used"
    assert elsewhere.tell(n.Died(1, 0)) == [n.TellDied(1, 0)]
    assert elsewhere.tell(n.Unneeded(E)) == [n.Release(-2), n.Release(-1)]
    assert elsewhere.tell(n.Unneeded(E)) == elsewhere.tell(n.Unneeded(F)) == []
    assert elsewhere.tell(n.Unneeded(n.WORKERS_OWN)) == []
    assert elsewhere.tell(n.Wanted(2, A, environment=E)) == [n.StartRoot(-3, E)]
    assert elsewhere.tell(n.Ready(-3)) == [n.ForkNursery(-4, A, -3)], "it stays as long as any other"


def test_an_environment_whose_root_does_not_start_takes_its_own_tasks_only(world: World) -> None:
    world.tell(n.Wanted(1, A, environment=E))
    world.tell(n.Wanted(2, A, environment=F))
    told, released = world.tell(n.Lost(-1))
    assert isinstance(told, n.TellDied) and told.start == 1
    assert told.reason.endswith(f"did not start in the plugin environment {E}")
    assert released == n.Release(-1)
    assert world.tell(n.Ready(-2)) == [n.ForkNursery(-3, A, -2)]
    assert world.wait(n.IMPORT_S + 1)[-1] == n.Fork(-2, 2), "unfit: its tasks come from the environment's root"
    assert world.tell(n.Wanted(3, A)) == [n.ForkNursery(-4, A)], "which says nothing of the same plugin elsewhere"


def test_a_root_of_an_environment_that_hangs_is_killed_alone(elsewhere: World) -> None:
    elsewhere.tell(n.Wanted(2, B, environment=E))
    elsewhere.tell(n.Unfit(-3, "threads"))
    elsewhere.tell(n.Unwanted(2))
    assert n.KillRoot(-1) in elsewhere.wait(n.ANSWER_S + 1)
    assert elsewhere.tell(n.Lost(-1)) == [n.TellDied(2, n.KILLED), n.Release(-1)]


def test_every_process_asked_for_ends_once_whatever_comes() -> None:
    """All orders of a few events: nothing is told twice, and nobody is forked twice without being given back."""
    import random

    for seed in range(300):
        chance, world = random.Random(seed), World()
        told: list[int] = []
        forked: dict[int, int] = {}
        wanted = iter(range(1, 100))
        alive: set[int] = set()
        for _ in range(120):
            event = _some_event(chance, wanted, forked, alive, world)
            for action in world.tell(event):
                match action:
                    case n.TellDied(start):
                        told.append(start)
                        forked.pop(start, None)
                    case n.Fork(nursery, start):
                        assert start not in forked, (seed, event)
                        assert nursery in alive, (seed, event)
                        forked[start] = nursery
                    case n.Release(nursery):
                        assert nursery not in forked.values(), (seed, event)
                        alive.discard(nursery)
        assert len(told) == len(set(told)), seed


def _some_event(chance: Any, wanted: Any, forked: dict[int, int], alive: set[int], world: World) -> n.Event:
    world.now += chance.choice([0.0, 0.0, 0.5, 5.0])
    match chance.randrange(9):
        case 0:
            nursery = chance.choice([0, -1, -2, -3])
            alive.add(nursery)
            return n.Ready(nursery)
        case 1 if forked:
            start = chance.choice(list(forked))
            return n.Died(start, 0)
        case 2 if forked:
            start = chance.choice(list(forked))
            nursery = forked[start]
            if nursery == n.FIRST:
                return n.Tick()
            del forked[start]
            return n.Stale(nursery, start)
        case 3 if chance.random() < 0.3:
            nursery = chance.choice([0, -1, -2, -3])
            alive.discard(nursery)
            for start in [start for start, each in forked.items() if each == nursery]:
                forked.pop(start)
            return n.Lost(nursery)
        case 4:
            return n.Unwanted(chance.randrange(1, 20))
        case 5:
            return n.Tick()
        case 8:
            return n.Unneeded(E)
        case _:
            return n.Wanted(next(wanted), chance.choice([A, B]), environment=chance.choice(["", "", E]))
