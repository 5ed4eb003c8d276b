"""What becomes of what fails, dies, or waits for something"""

from dataclasses import replace
from typing import Any

import pytest

from tests.connect.herder.machine_world import (
    ONE,
    TWO,
    World,
    config,
    create,
    fails,
)
from tidemill.connect.failure import Failure
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import Configure, Create, Delete, SetTarget
from tidemill.connect.herder.task_run import RESTART_TRANSIENT, Phase
from tidemill.connect.problem import Problem
from tidemill.connect.stores import (
    State,
    TargetState,
)
from tidemill.connect.task_spec import (
    EXIT_LOST_WORKER,
    TaskCompleted,
    TaskExited,
    TaskFailed,
    TaskReport,
)


def report(world: World, problem: Problem | None, *, at_ms: int = 0) -> None:
    if at_ms:
        world.now_ms = at_ms
        world.tell(e.Tick(now_ms=at_ms, up_ms=at_ms))
    world.tell(TaskReport(task=ONE, incarnation=world.processes[ONE].incarnation, facts={}, problem=problem))
    world.see_statuses()


def shown(world: World) -> Problem | None:
    status = world.machine.board.instance("c", 0)
    assert status is not None
    return status.problem


AWAY = Problem(message="no database", since_ms=5, attempts=1, next_try_ms=9)


def test_a_problem_is_told_at_once_and_so_is_its_end(world: World) -> None:
    create(world, "1")
    report(world, AWAY, at_ms=2_000_000)
    assert world.state("c", 0) is State.RUNNING
    assert shown(world) == AWAY
    report(world, None, at_ms=2_100_000)
    assert shown(world) is None and world.state("c", 0) is State.RUNNING


def test_further_attempts_write_nothing(world: World) -> None:
    create(world, "1")
    report(world, AWAY, at_ms=2_000_000)
    written = len(world.status_log)
    report(world, replace(AWAY, attempts=2, next_try_ms=99), at_ms=2_100_000)
    assert len(world.status_log) == written
    assert world.machine.problems[ONE].attempts == 2, "the worker itself knows"


def test_a_problem_that_comes_and_goes_is_written_now_and_then(world: World) -> None:
    create(world, "1")
    written = len(world.status_log)
    for second in range(100):
        at_ms = 2_000_000 + second * 1_000
        report(world, replace(AWAY, since_ms=at_ms) if second % 2 else None, at_ms=at_ms)
    assert len(world.status_log) - written <= 11
    world.tell(e.Tick(now_ms=2_200_000, up_ms=2_200_000))
    world.see_statuses()
    last = world.machine.problems.get(ONE)
    assert last is not None and shown(world) == last, "the last one is not forgotten"


def test_a_task_that_cannot_start_shows_why(world: World) -> None:
    world.command(Create(connector="c", config=config("1")))
    world.split(world.splits[0])
    world.write(world.writes[0])
    assert world.state("c", 0) is None
    report(world, AWAY, at_ms=2_000_000)
    assert world.state("c", 0) is State.RUNNING and shown(world) == AWAY


def test_a_failure_ends_the_problem(world: World) -> None:
    create(world, "1")
    report(world, AWAY, at_ms=2_000_000)
    world.tell(TaskFailed(task=ONE, incarnation=world.processes[ONE].incarnation, trace="gone"))
    world.see_statuses()
    assert world.state("c", 0) is State.FAILED
    assert shown(world) is None and ONE not in world.machine.problems


def test_a_killed_task_waits_for_its_next_start(world: World) -> None:
    create(world, "1")
    world.exit(ONE, -9, "killed by SIGKILL")
    assert ONE in world.processes, "the first time at once"
    world.exit(ONE, -9, "killed by SIGKILL")
    assert ONE not in world.processes
    problem = world.machine.problems[ONE]
    assert problem.message == "killed by SIGKILL" and problem.attempts == 2
    assert problem.next_try_ms == world.machine.runs[ONE].start_at_ms
    world.tell(e.Tick(now_ms=problem.next_try_ms, up_ms=problem.next_try_ms))
    assert ONE not in world.machine.problems


@pytest.mark.parametrize("set_back_ms", [3_600_000, -3_600_000])
def test_pauses_are_as_long_as_they_are_whoever_sets_the_wall_clock(world: World, set_back_ms: int) -> None:
    create(world, "1")
    for _ in range(3):
        world.exit(ONE, -9, "killed by SIGKILL")
        world.settle()
    world.exit(ONE, -9, "killed by SIGKILL")
    wall_ms = world.now_ms - set_back_ms
    world.tell(e.Tick(now_ms=wall_ms + 1_999, up_ms=world.now_ms + 1_999))
    assert ONE not in world.processes
    world.tell(e.Tick(now_ms=wall_ms + 2_000, up_ms=world.now_ms + 2_000))
    assert ONE in world.processes
    world.now_ms, world.set_back_ms = world.now_ms + 2_000, set_back_ms
    world.started(ONE)
    world.exit(ONE, -9, "killed by SIGKILL")
    assert world.machine.runs[ONE].deaths == 5, "a clock that was set is no quiet spell"
    assert world.machine.problems[ONE].next_try_ms == world.now_ms - set_back_ms + 4_000, "people read the wall clock"


def test_what_may_pass_by_itself_is_tried_again_where_that_is_wanted(world: World) -> None:
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    fails(world)
    assert ONE in world.processes, "the first time at once"
    world.started(ONE)
    fails(world)
    world.see_statuses()
    assert (world.state("c", 0), world.failure("c", 0)) == (State.RESTARTING, Failure.TRANSIENT)
    assert world.trace("c", 0) == "it hung up; tried again in 0.5 s, 2 of 10"
    problem = world.machine.problems[ONE]
    assert (problem.message, problem.attempts, problem.next_try_ms) == ("it hung up", 2, world.now_ms + 500)
    assert world.machine.history.of("c")[0][-1].next_try_ms == world.now_ms + 500
    assert ONE not in world.processes
    world.settle()
    assert (world.state("c", 0), world.trace("c", 0)) == (State.RUNNING, None)
    assert ONE not in world.machine.problems


def test_a_task_that_tries_again_starts_when_its_process_is_gone_and_not_before(world: World) -> None:
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    process = world.processes[ONE]
    failed = TaskFailed(task=ONE, incarnation=process.incarnation, trace="away", failure=Failure.TRANSIENT)
    world.tell(failed)
    world.now_ms += 1_000_000
    world.tell(e.Tick(now_ms=world.now_ms, up_ms=world.now_ms))
    assert world.processes == {ONE: process} and world.machine.alive() == [ONE]
    world.exit(ONE, -9, "killed by SIGKILL")
    assert world.processes[ONE].incarnation > process.incarnation
    assert world.machine.runs[ONE].deaths == 1, "it ended once"
    assert world.machine.restarts[ONE] == 1


def test_a_process_that_stays_when_its_task_has_failed_is_told_to_go_if_there_is_another_try(world: World) -> None:
    """A thread of the plugin that nobody ends keeps it; the next try would wait for that for ever."""
    world.command(Create(connector="c", config=config("2", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    for task, failure in ((ONE, Failure.TRANSIENT), (TWO, Failure.BUG)):
        incarnation = world.processes[task].incarnation
        world.tell(TaskFailed(task=task, incarnation=incarnation, trace="away", failure=failure))
    assert world.processes[ONE].stopping and not world.processes[TWO].stopping
    world.settle()
    assert world.state("c", 0) is State.RUNNING and world.machine.runs[ONE].deaths == 1


@pytest.mark.parametrize(
    ("act", "state"),
    [
        (e.RestartTask(task=ONE), State.RUNNING),
        (SetTarget(connector="c", target=TargetState.PAUSED), State.PAUSED),
        (Configure(connector="c", config=config("1")), State.RUNNING),
        (SetTarget(connector="c", target=TargetState.STOPPED), None),
        (Delete(connector="c"), None),
    ],
)
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_task_that_waits_for_its_next_try_does_as_it_is_told(
    world: World, act: Any, state: State | None, is_gone: bool
) -> None:
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    fails(world)
    world.started(ONE)
    incarnation = world.processes[ONE].incarnation
    world.tell(TaskFailed(task=ONE, incarnation=incarnation, trace="away", failure=Failure.TRANSIENT))
    world.processes[ONE].failing = True
    if is_gone:
        world.exit(ONE, 1)
    if isinstance(act, e.RestartTask):
        world.tell(act)
    else:
        world.command(act)
    world.settle()
    assert world.state("c", 0) is state
    assert set(world.processes) == (set() if state is None else {ONE})


def test_tries_end_with_the_budget_and_a_quiet_spell_renews_it(world: World) -> None:
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    for _ in range(10):
        fails(world)
        world.settle()
        assert world.state("c", 0) is State.RUNNING
    world.now_ms += 60_000
    fails(world)
    world.see_statuses()
    assert "1 of 10" in (world.trace("c", 0) or "")
    world.settle()
    for _ in range(9):
        fails(world)
        world.settle()
    fails(world)
    world.settle()
    assert (world.state("c", 0), world.failure("c", 0)) == (State.FAILED, Failure.TRANSIENT)
    assert world.trace("c", 0) == "it hung up; not tried again, as it failed 11 times in a row"
    world.tell(e.RestartTask(task=ONE))
    world.settle()
    fails(world)
    world.see_statuses()
    assert "1 of 10" in (world.trace("c", 0) or ""), "somebody has looked after it"


def test_kills_do_not_use_up_the_tries(world: World) -> None:
    """Whoever is killed again and again for want of memory has not tried to reach anything."""
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    for _ in range(30):
        world.exit(ONE, -9, "killed by SIGKILL")
        world.settle()
    fails(world)
    world.see_statuses()
    assert world.trace("c", 0) == "it hung up; tried again in 60 s, 1 of 10", "and waits as long as who keeps dying"
    world.settle()
    for tries in range(2, 11):
        world.exit(ONE, -9, "killed by SIGKILL")
        world.settle()
        fails(world)
        world.see_statuses()
        assert f"{tries} of 10" in (world.trace("c", 0) or "")
        world.settle()
    fails(world)
    world.settle()
    assert (world.state("c", 0), world.failure("c", 0)) == (State.FAILED, Failure.TRANSIENT)


def test_a_start_that_takes_long_and_fails_is_no_quiet_spell(world: World) -> None:
    """Connections are given up after two minutes: every try would be the first, at once and without an end."""
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.split(world.splits[0])
    world.write(world.writes[0])
    for deaths in range(1, 11):
        world.now_ms += 127_000
        fails(world)
        assert world.machine.runs[ONE].deaths == deaths
        world.now_ms += 60_000
        world.tell(e.Tick(now_ms=world.now_ms, up_ms=world.now_ms))
    world.now_ms += 127_000
    fails(world)
    world.see_statuses()
    assert world.state("c", 0) is State.FAILED


@pytest.mark.parametrize("failure", sorted(set(Failure) - {Failure.KILLED, Failure.TRANSIENT}))
def test_what_does_not_pass_by_itself_is_not_tried_again(world: World, failure: Failure) -> None:
    world.command(Create(connector="c", config=config("1", **{RESTART_TRANSIENT: "true"})))
    world.settle()
    fails(world, failure)
    world.settle()
    assert (world.state("c", 0), world.trace("c", 0)) == (State.FAILED, "it hung up")


def test_by_default_nothing_that_failed_is_tried_again(world: World) -> None:
    create(world, "1")
    fails(world)
    world.settle()
    assert (world.state("c", 0), world.failure("c", 0)) == (State.FAILED, Failure.TRANSIENT)


def test_a_task_that_lost_its_worker_is_started_again(world: World) -> None:
    """So is one that its guardian killed because the worker said so, for its memory."""
    create(world, "1")
    world.exit(ONE, EXIT_LOST_WORKER, "killed: it used too much")
    assert world.machine.runs[ONE].phase is Phase.STARTING
    world.see_statuses()
    assert world.state("c", 0) is State.RESTARTING
    assert "it used too much" in (world.trace("c", 0) or "")
    assert world.failure("c", 0) is Failure.KILLED
    world.settle()
    assert (world.state("c", 0), world.failure("c", 0)) == (State.RUNNING, None)


def test_a_connector_created_again_waits_for_its_old_tasks_to_end(world: World) -> None:
    create(world, "1")
    world.command(Delete(connector="c"))
    world.command(Create(connector="c", config=config("1", colour="blue")))
    world.split(world.splits[0])
    world.write(world.writes[0])
    assert world.processes[ONE].stopping
    world.settle()
    assert world.processes[ONE].config["colour"] == "blue"
    assert world.state("c", 0) is State.RUNNING


def test_a_failed_task_stays_failed_until_it_is_restarted(world: World) -> None:
    create(world)
    incarnation = world.processes[ONE].incarnation
    world.tell(TaskFailed(task=ONE, incarnation=incarnation, trace="boom"))
    world.exit(ONE, 1)
    world.settle()
    world.now_ms += 10_000_000
    world.tell(e.Tick(now_ms=world.now_ms, up_ms=world.now_ms))
    world.command(SetTarget(connector="c", target=TargetState.PAUSED))
    world.command(SetTarget(connector="c", target=TargetState.STARTED))
    world.settle()
    assert set(world.processes) == {TWO}
    assert (world.state("c", 0), world.trace("c", 0)) == (State.FAILED, "boom")
    world.tell(e.RestartTask(task=ONE))
    assert world.state("c", 0) is State.FAILED  # the board follows the topic
    world.settle()
    assert (world.state("c", 0), world.trace("c", 0)) == (State.RUNNING, None)
    assert world.processes[ONE].incarnation > incarnation


def test_a_task_that_ends_without_being_asked_has_failed(world: World) -> None:
    create(world, "1")
    world.exit(ONE, 0, "ended by itself")
    world.settle()
    assert (world.state("c", 0), world.trace("c", 0)) == (State.FAILED, "ended by itself")
    assert world.failure("c", 0) is Failure.BUG


def test_a_killed_task_is_started_again_with_growing_delays(world: World) -> None:
    create(world, "1")
    delays = []
    for _ in range(4):
        world.exit(ONE, -9, "killed by SIGKILL")
        world.see_statuses()
        assert world.state("c", 0) is State.RESTARTING
        assert "killed by SIGKILL" in (world.trace("c", 0) or "")
        waits = ONE not in world.processes
        delays.append(world.machine.runs[ONE].start_at_ms - world.now_ms if waits else 0)
        world.settle()
        assert world.state("c", 0) is State.RUNNING
    assert delays == [0, 500, 1_000, 2_000]
    assert world.machine.restarts[ONE] == 4
    world.now_ms += 60_000  # a quiet minute
    world.exit(ONE, -9, "killed by SIGKILL")
    assert ONE in world.processes


def test_a_restart_request_skips_the_wait(world: World) -> None:
    create(world, "1")
    world.exit(ONE, -9)
    world.exit(ONE, -9)
    world.tell(e.RestartTask(task=ONE))
    assert ONE in world.processes


def test_a_completed_source_is_not_started_again(world: World) -> None:
    create(world, "1")
    world.tell(TaskCompleted(task=ONE, incarnation=world.processes[ONE].incarnation))
    world.exit(ONE, 0)
    world.settle()
    assert not world.processes
    assert world.state("c", 0) is State.STOPPED


def test_last_words_of_an_earlier_process_are_ignored(world: World) -> None:
    create(world, "1")
    old = world.processes[ONE].incarnation
    world.tell(e.RestartTask(task=ONE))
    world.exit(ONE, 0)
    world.settle()
    assert world.processes[ONE].incarnation > old
    world.tell(TaskFailed(task=ONE, incarnation=old, trace="too late"))
    world.tell(TaskExited(task=ONE, incarnation=old, returncode=1, reason="too late"))
    world.settle()
    assert world.state("c", 0) is State.RUNNING


def test_a_process_that_cannot_be_made_fails_the_task(world: World) -> None:
    create(world, "1")
    world.tell(e.RestartTask(task=ONE))
    world.exit(ONE, 0)
    process = world.processes.pop(ONE)
    refused = e.SpawnFailed(
        task=ONE, incarnation=process.incarnation, trace="no such plugin", failure=Failure.CONFIGURATION
    )
    world.tell(refused)
    world.settle()
    assert (world.state("c", 0), world.trace("c", 0)) == (State.FAILED, "no such plugin")
    assert world.failure("c", 0) is Failure.CONFIGURATION


def test_a_connector_that_cannot_be_split_has_failed_until_changed(world: World) -> None:
    create(world, "bad")
    assert (world.state("c"), world.trace("c")) == (State.FAILED, "cannot split")
    assert not world.processes
    world.command(Configure(connector="c", config=config("1")))
    world.settle()
    assert (world.state("c"), world.trace("c")) == (State.RUNNING, None)
    assert set(world.processes) == {ONE}


@pytest.mark.parametrize("failure", sorted(set(Failure) - {Failure.KILLED}))
def test_the_class_of_a_failure_is_in_the_status_and_the_log(world: World, failure: Failure) -> None:
    world.command(Create(connector="c", config=config("1")))
    asked = world.splits.pop()
    answer = e.Split(connector="c", config_offset=asked.config_offset, version="1", trace="no", failure=failure)
    world.tell(answer)
    world.settle()
    assert (world.state("c"), world.failure("c")) == (State.FAILED, failure)
    world.command(Configure(connector="c", config=config("1", v="2")))
    world.settle()
    assert (world.state("c"), world.failure("c")) == (State.RUNNING, None)
    incarnation = world.processes[ONE].incarnation
    world.tell(TaskFailed(task=ONE, incarnation=incarnation, trace="boom", failure=failure))
    world.exit(ONE, 1, "ended with code 1 after it failed")
    world.settle()
    assert (world.state("c", 0), world.failure("c", 0)) == (State.FAILED, failure)
    assert [note.facts["failure"] for note in world.notes] == [failure.value, failure.value]


def test_tasks_that_no_topic_takes_are_a_matter_of_configuration(world: World) -> None:
    world.command(Create(connector="c", config=config("1")))
    offset = world.splits[0].config_offset
    world.split(world.splits[0])
    world.tell(e.TasksRefused(connector="c", config_offset=offset, trace="too large"))
    world.see_statuses()
    assert (world.state("c"), world.failure("c")) == (State.FAILED, Failure.CONFIGURATION)


def test_a_failed_split_keeps_the_tasks_of_the_configuration_before(world: World) -> None:
    create(world, "1")
    world.command(Configure(connector="c", config=config("bad")))
    world.settle()
    assert world.state("c") is State.FAILED
    assert set(world.processes) == {ONE}
