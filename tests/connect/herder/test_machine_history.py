"""What the herder machine remembers of starts and ends"""

from tests.connect.herder.machine_world import (
    ONE,
    World,
    config,
    create,
)
from tidemill.connect.failure import Failure
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import Configure, Delete, SetTarget
from tidemill.connect.stores import (
    TargetState,
)
from tidemill.connect.task_spec import (
    TaskCompleted,
    TaskFailed,
)


def lived(world: World, task: int | None) -> list[tuple[str | None, Failure | None]]:
    """How the runs of an instance ended, the oldest first; None for one that goes on."""
    return [(run.reason, run.failure) for run in world.machine.history.of("c").get(task, ())]


def test_the_history_tells_every_start_and_why_it_ended(world: World) -> None:
    assert world.machine.history.since_ms == world.now_ms
    create(world, "1")
    assert (lived(world, None), lived(world, 0)) == ([(None, None)], [(None, None)])
    (first,) = world.machine.history.of("c")[0]
    assert (first.generation, first.started_ms) == (1, world.now_ms)
    world.now_ms += 70_000
    world.exit(ONE, -9, "killed by SIGKILL: the machine ran out of memory")
    world.settle()
    world.now_ms += 1_000
    world.exit(ONE, -9, "killed by SIGKILL")
    killed = world.machine.history.of("c")[0]
    assert [run.failure for run in killed] == [Failure.KILLED, Failure.KILLED]
    assert killed[0].ended_ms == 1_070_000 and killed[0].next_try_ms == 1_070_000, "the first time at once"
    assert killed[1].next_try_ms == world.machine.runs[ONE].start_at_ms
    world.settle()
    incarnation = world.processes[ONE].incarnation
    world.tell(TaskFailed(task=ONE, incarnation=incarnation, trace="row 7", failure=Failure.POISON))
    world.exit(ONE, 1, "ended with code 1 after it failed")
    world.settle()
    assert lived(world, 0)[-1] == ("row 7", Failure.POISON)
    world.tell(e.RestartTask(task=ONE))
    world.settle()
    world.tell(e.RestartTask(task=ONE))
    world.settle()
    world.tell(TaskCompleted(task=ONE, incarnation=world.processes[ONE].incarnation))
    world.exit(ONE, 0, "ended by itself")
    assert lived(world, 0)[-2:] == [
        ("a restart was asked for", None),
        ("The source has reached the end of its input.", None),
    ]
    assert lived(world, None) == [(None, None)], "the connector itself ran on"


def test_the_history_tells_why_what_ran_was_ended(world: World) -> None:
    create(world, "1")
    world.command(Configure(connector="c", config=config("1", v="2")))
    world.settle()
    assert lived(world, 0) == [("its configuration has changed", None), (None, None)]
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.exit(ONE, -9, "killed: it did not stop within its grace period")
    world.settle()
    reason, failure = lived(world, 0)[-1]
    assert reason is not None and reason.endswith("; killed: it did not stop within its grace period")
    assert failure is Failure.KILLED
    assert lived(world, None)[-1] == ("it was stopped or deleted", None)
    world.command(SetTarget(connector="c", target=TargetState.STARTED))
    world.settle()
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset(), leads=False))
    world.settle()
    assert lived(world, 0)[-1] == ("it is no longer this worker's, or no longer wanted", None)
    assert lived(world, None)[-1] == ("it is no longer this worker's, or no longer wanted", None)
    world.tell(e.Assigned(generation=3))
    world.settle()
    assert [run.generation for run in world.machine.history.of("c")[0]] == [1, 1, 1, 3]


def test_the_history_tells_of_connectors_that_cannot_be_split(world: World) -> None:
    create(world, "bad")
    world.tell(e.RestartConnector(connector="c"))
    world.settle()
    world.command(Configure(connector="c", config=config("1")))
    world.settle()
    assert lived(world, None) == [("cannot split", Failure.BUG), ("cannot split", Failure.BUG), (None, None)]


def test_the_history_of_a_connector_goes_with_it(world: World) -> None:
    create(world)
    world.command(Delete(connector="c"))
    world.settle()
    assert world.machine.history.of("c") == {}
    create(world, "1")
    assert lived(world, 0) == [(None, None)]
