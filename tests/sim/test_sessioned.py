"""Workers that share a group by Kafka's protocol: what is wanted runs once, wherever; planted faults are seen

The world is that of `connect_group`, and what was lost with its lease is killed at once, as the guardian does it: in
this protocol nobody waits for its end.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.connect_group import MEMBERS, Broken, Make, Worker, World
from tidemill.connect.group import machine as g
from tidemill.connect.group.incremental import Assignor, Changes, Round
from tidemill.connect.group.sessioned import SessionedMachine
from tidemill.connect.herder.placement import Instance
from tidemill.core.client.membership import MemberMachine

DELAY_MS = 20_000


class Sessioned(Worker):
    """A worker with the machine of that protocol."""

    machine_of: Callable[[str, Any], SessionedMachine] = SessionedMachine

    def makes_group(self, url: str, assignor: Any, **_: object) -> SessionedMachine:  # type: ignore[override]
        return type(self).machine_of(url, assignor)

    def said_to_run(self) -> frozenset[Instance]:
        return self.world.runs_elsewhere(self)

    def act(self, action: g.Action) -> None:
        super().act(action)
        if isinstance(action, g.EndAll) and self.stops_when_lost:
            for instance in list(self.processes):
                self.world.unsay(self, instance, self.processes.pop(instance))


def sound(_: object = ()) -> Any:
    return made(Assignor)


def made(kind: type[Assignor], delay_max_ms: int = DELAY_MS) -> Assignor:
    return kind(delay_max_ms, lease_ms=MEMBERS.session_timeout_ms, rebalance_timeout_ms=MEMBERS.rebalance_timeout_ms)


def run(seed: int, make: Make = sound, worker: type[Sessioned] = Sessioned) -> World:
    """The world after a life from a seed; raises Broken."""
    world = World(seed, make, worker)
    try:
        world.want(2, 3)
        for url in ("w1", "w2", "w3"):
            world.start(url)
        for _ in range(2):
            for _ in range(8):
                world.run(world.now_ms + world.rng.choice([500, 3_000, 12_000]))
                world.misfortune()
            world.settle()
    except Broken as error:
        raise Broken(f"seed {seed}: {error}\n" + "\n".join(world.trace[-40:])) from None
    return world


@pytest.mark.parametrize("seed", range(40))
def test_what_is_wanted_runs_once(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_wanted_runs_once_where_nobody_is_waited_for(seed: int) -> None:
    run(seed, lambda _: made(Assignor, 0))


def quiet(*urls: str, make: Make = sound, seed: int = 1) -> World:
    """A world in which nothing happens but what a test does; it has come to rest."""
    world = World(seed, make, Sessioned)
    world.faults = False
    world.want(4, 3)
    for url in urls:
        world.start(url)
    world.run(60_000)
    return world


def test_a_worker_that_is_killed_is_waited_for_and_then_replaced() -> None:
    world = quiet("w1", "w2", "w3")
    follower = next(worker for worker in world.workers if not worker.group.leads)
    work = set(follower.processes)
    others = [worker for worker in world.workers if worker is not follower]
    stopped = [len(worker.stops) for worker in others]
    world.kill(follower)
    world.run(world.now_ms + DELAY_MS)
    assert not work & {instance for worker in others for instance in worker.processes}
    world.run(world.now_ms + MEMBERS.session_timeout_ms + 2_000)
    assert work <= {instance for worker in others for instance in worker.processes}
    assert [len(worker.stops) for worker in others] == stopped, "and nothing else moves"


@pytest.mark.parametrize("seed", range(5))
def test_a_round_whose_time_has_come_waits_for_no_heartbeat(seed: int) -> None:
    """All know when it is, wherever between two heartbeats that falls."""
    delay_ms = DELAY_MS + 400
    world = quiet("w1", "w2", "w3", make=lambda _: made(Assignor, delay_ms), seed=seed)
    generation = world.coordinator.generation
    world.kill(next(worker for worker in world.workers if not worker.group.leads))
    while world.coordinator.generation == generation or world.coordinator.state != "stable":
        world.run(world.now_ms + 1)
    world.run(world.now_ms + delay_ms + 100)
    running = [instance for worker in world.workers for instance in worker.processes]
    assert sorted(running) == sorted(world.topic.wanted[-1])


def test_a_leader_that_is_killed_is_replaced_at_once() -> None:
    world = quiet("w1", "w2", "w3")
    leader = next(worker for worker in world.workers if worker.group.leads)
    world.kill(leader)
    world.run(world.now_ms + MEMBERS.session_timeout_ms + 2 * MEMBERS.heartbeat_interval_ms + 500)
    running = [instance for worker in world.workers for instance in worker.processes]
    assert sorted(running) == sorted(world.topic.wanted[-1])


def test_a_worker_that_is_restarted_gets_as_much_as_it_had_and_nothing_else_moves() -> None:
    world = quiet("w1", "w2", "w3")
    follower = next(worker for worker in world.workers if not worker.group.leads)
    work = set(follower.processes)
    others = [worker for worker in world.workers if worker is not follower]
    stopped = [len(worker.stops) for worker in others]
    follower.stop()
    while not follower.left:
        world.run(world.now_ms + 100)
    world.start(follower.url)
    world.run(world.now_ms + DELAY_MS + 2_000)
    assert set(world.workers[-1].processes) == work
    assert [len(worker.stops) for worker in others] == stopped


def test_what_moves_to_a_worker_that_joins_is_stopped_once() -> None:
    """However long each takes to end, and whoever asks for rounds meanwhile."""
    world = quiet("w1", "w2", "w3", "w4")
    world.want(5, 4)
    world.run(world.now_ms + 10_000)
    givers = list(world.workers)
    before = [len(worker.stops) for worker in givers]
    world.start("w5")
    world.run(world.now_ms + 30_000)
    stops = [each for worker, count in zip(givers, before, strict=True) for each in worker.stops[count:]]
    assert len(stops) > 3 and sorted(stops) == sorted(world.workers[-1].processes)


# -------------------------------------------------------------- planted faults


class Blind(Assignor):
    """Gives away in one round what it revokes."""

    def decide(self, now: Round) -> Changes:
        changes = super().decide(now)
        revoked = frozenset[Instance]().union(*changes.revoked.values()) & now.wanted
        taker = min(changes.owned, key=lambda each: len(changes.owned[each]))
        assigned = {**changes.assigned, taker: changes.assigned[taker] | (revoked - now.holds[taker])}
        return replace(changes, assigned=assigned)


class Forgetful(SessionedMachine):
    """Does not say that it still does what was revoked."""

    def _speak(self, facts: g.Facts) -> None:
        super()._speak(replace(facts, running=frozenset()))


class Hasty(SessionedMachine):
    """Asks for another round before what was revoked has ended, and does not say that it still does it."""

    def _speak(self, facts: g.Facts) -> None:
        super()._speak(replace(facts, running=frozenset()))

    def _ask(self, facts: g.Facts, now_ms: int) -> None:
        super()._ask(replace(facts, running=frozenset()), now_ms)


class WithForgetful(Sessioned):
    machine_of = Forgetful


class WithHasty(Sessioned):
    machine_of = Hasty


class Stubborn(Sessioned):
    """Goes on after its lease is over."""

    stops_when_lost = False


class Trusting(Sessioned):
    """Believes its lease to be longer than it is."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        class Late(MemberMachine):
            def _renew(self, sent_ms: int) -> None:
                super()._renew(sent_ms + 20_000)

        self.machine.__class__ = Late


def breaks(seed: int, make: Make = sound, worker: type[Sessioned] = Sessioned) -> bool:
    """Whether the fault shows in this life."""
    try:
        run(seed, make, worker)
    except Broken:
        return True
    return False


def test_a_planted_fault_of_the_assignor_is_seen() -> None:
    assert any(breaks(seed, make=lambda _: made(Blind)) for seed in range(100))


@pytest.mark.parametrize("worker", [WithForgetful, WithHasty, Stubborn, Trusting])
def test_a_planted_fault_of_a_worker_is_seen(worker: type[Sessioned]) -> None:
    assert any(breaks(seed, worker=worker) for seed in range(100))
