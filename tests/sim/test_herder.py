"""Herders that come and go: what is wanted runs once, and the status says so; planted faults are seen"""

import pytest

from tests.sim.herder import Broken, World, check
from tidemill.connect.herder import events as e
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.stores import InstanceGone, InstanceStatus, WorkerClaim
from tidemill.connect.task_spec import TaskExited

SEEDS = range(300)


def sound(name: str, life: str) -> HerderMachine:
    return HerderMachine(name, life=life)


def run(seed: int, make: type[HerderMachine] | None = None) -> None:
    """A life from a seed; raises Broken."""
    world = World(seed, sound if make is None else lambda name, life: make(name, life=life))
    try:
        for _ in range(3):
            world.live(150)
            check(world, world.settle())
    except Broken as error:
        raise Broken(f"seed {seed}: {error}\n" + "\n".join(world.trace[-40:])) from None


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_wanted_runs_once(seed: int) -> None:
    run(seed)


# -------------------------------------------------------------- planted faults


class Deaf(HerderMachine):
    """Does not hear of claims: two workers of one name never notice each other."""

    def step(self, event: e.Event) -> list[e.Action]:
        if isinstance(event, e.StatusSeen) and isinstance(event.record, WorkerClaim):
            return []
        return super().step(event)


class Hurried(HerderMachine):
    """Is content with a claim as high as that of another worker that started at the same moment."""

    def holds(self, claim: WorkerClaim) -> bool:
        return self.board.generation() <= claim.generation


class Greedy(HerderMachine):
    """Writes tasks that were computed for a configuration of before."""

    def wants(self, action: e.WriteTasks) -> bool:
        return True


class Hasty(HerderMachine):
    """Takes a process for gone when it has been told to end."""

    def step(self, event: e.Event) -> list[e.Action]:
        actions = super().step(event)
        for action in list(actions):
            if isinstance(action, e.StopTask):
                run = self.runs[action.task]
                gone = TaskExited(task=run.task, incarnation=run.incarnation, returncode=0, reason="ended")
                actions = actions + super().step(gone)
        return actions


class Forgetful(HerderMachine):
    """Leaves the statuses of what is gone where they are."""

    def step(self, event: e.Event) -> list[e.Action]:
        return [
            action
            for action in super().step(event)
            if not (isinstance(action, e.WriteStatus) and isinstance(action.record, InstanceGone))
        ]


class Stubborn(HerderMachine):
    """Goes on saying things after it has been overtaken."""

    def step(self, event: e.Event) -> list[e.Action]:
        actions = super().step(event)
        if self.superseded and isinstance(event, e.StatusSeen):
            status = InstanceStatus(connector="a", task=None, state="RUNNING", worker_id="w", generation=0)  # type: ignore[arg-type]
            actions.append(e.WriteStatus(record=status))
        return actions


class Loyal(HerderMachine):
    """Keeps the tasks of a connector that was deleted."""

    def step(self, event: e.Event) -> list[e.Action]:
        return [action for action in super().step(event) if not isinstance(action, e.StopTask)]


@pytest.mark.parametrize("fault", [Deaf, Hurried, Greedy, Hasty, Forgetful, Stubborn, Loyal])
def test_a_planted_fault_is_seen(fault: type[HerderMachine]) -> None:
    assert any(breaks(seed, fault) for seed in range(100))


def breaks(seed: int, fault: type[HerderMachine]) -> bool:
    """Whether the fault shows in this life."""
    try:
        run(seed, fault)
    except Broken:
        return True
    return False
