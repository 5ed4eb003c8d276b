"""Herders that come and go: what is wanted runs once, and the status says so; planted faults are seen"""

from dataclasses import replace

import pytest

from tests.sim.herder import Broken, World, check
from tidemill.connect.failure import Failure
from tidemill.connect.herder import events as e
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.herder.state import Config
from tidemill.connect.herder.task_run import Phase, RestartPolicy
from tidemill.connect.stores import InstanceGone, InstanceStatus
from tidemill.connect.task_spec import TaskExited, TaskFailed

SEEDS = range(300)
KEPT = (6962, 7146, 7212, 8182, 9064, 9835, 708710)
"""They once broke: a connector that is deleted and at once made again, or restarted, had no status or one too many."""


def sound(name: str) -> HerderMachine:
    return HerderMachine(name)


def run(seed: int, make: type[HerderMachine] | None = None) -> None:
    """A life from a seed; raises Broken."""
    world = World(seed, sound if make is None else make)
    try:
        for _ in range(3):
            world.live(150)
            check(world, world.settle())
    except Broken as error:
        raise Broken(f"seed {seed}: {error}\n" + "\n".join(world.trace[-40:])) from None


@pytest.mark.parametrize("seed", [*SEEDS, *KEPT])
def test_what_is_wanted_runs_once(seed: int) -> None:
    run(seed)


# -------------------------------------------------------------- planted faults


class Trusting(HerderMachine):
    """Takes whatever was said last of its instances for right."""

    def _correct_status(self, record: InstanceStatus | InstanceGone) -> None:
        pass


class Early(HerderMachine):
    """Begins what it is told in a later assignment with the generation of the first."""

    def step(self, event: e.Event) -> list[e.Action]:
        if isinstance(event, e.Assigned):
            event = replace(event, generation=1)
        return super().step(event)


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


class Loyal(HerderMachine):
    """Keeps the tasks of a connector that was deleted."""

    def step(self, event: e.Event) -> list[e.Action]:
        return [action for action in super().step(event) if not isinstance(action, e.StopTask)]


class Stubborn(RestartPolicy):
    """Tries everything again."""

    def tries_again(self, failure: Failure, config: Config, deaths: int) -> bool:
        return True


class Eager(HerderMachine):
    """Starts a task again whatever it failed of."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(worker_id, Stubborn())


class Tired(HerderMachine):
    """Does not try again what its connector wants to be tried again."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(worker_id, RestartPolicy(transient_max=0))


class Impatient(HerderMachine):
    """Takes the process of a task that is to try again for gone when it has said that it fails."""

    def step(self, event: e.Event) -> list[e.Action]:
        actions = super().step(event)
        if isinstance(event, TaskFailed) and self.runs[event.task].phase is Phase.WAITING:
            gone = TaskExited(task=event.task, incarnation=event.incarnation, returncode=1, reason="ended")
            actions = actions + super().step(gone)
        return actions


@pytest.mark.parametrize("fault", [Trusting, Early, Greedy, Hasty, Forgetful, Loyal, Eager, Tired, Impatient])
def test_a_planted_fault_is_seen(fault: type[HerderMachine]) -> None:
    assert any(breaks(seed, fault) for seed in range(100))


def breaks(seed: int, fault: type[HerderMachine]) -> bool:
    """Whether the fault shows in this life."""
    try:
        run(seed, fault)
    except Broken:
        return True
    return False
