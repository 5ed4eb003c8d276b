"""The herder machine: scenarios in words, then whole lives from seeds"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tidemill.connect.failure import Failure
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import Configure, Create, Delete, Refused, Restart, SetTarget, decide
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.herder.state import ConfigState, StatusBoard
from tidemill.connect.herder.task_run import RESTART_TRANSIENT, Phase
from tidemill.connect.problem import Problem
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceGone,
    InstanceStatus,
    State,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
    WorkerClaim,
    decode_config,
    decode_status,
    encode_config,
    encode_status,
)
from tidemill.connect.task_spec import (
    EXIT_LOST_WORKER,
    InitialState,
    TaskCompleted,
    TaskExited,
    TaskFailed,
    TaskId,
    TaskPaused,
    TaskReport,
    TaskResumed,
    TaskStarted,
)

SPLITS = "tasks"  # the setting that says into how many tasks the simulated plugin splits; "bad" fails


@dataclass
class Process:
    incarnation: int
    config: dict[str, str]
    started: bool = False
    stopping: bool = False
    failing: bool = False


@dataclass
class World:
    """Everything around one machine; what it asks for waits here until the test lets it happen."""

    machine: HerderMachine = field(default_factory=lambda: HerderMachine("w:1"))
    config_log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    status_log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    statuses_seen: int = 0
    processes: dict[TaskId, Process] = field(default_factory=dict)
    splits: list[e.SplitConnector] = field(default_factory=list)
    writes: list[e.WriteTasks] = field(default_factory=list)
    notes: list[e.Note] = field(default_factory=list)
    commands: list[tuple[TaskId, int, bool]] = field(default_factory=list)  # task, incarnation, whether to pause
    now_ms: int = 1_000_000
    incarnations: dict[TaskId, int] = field(default_factory=dict)

    def tell(self, event: e.Event) -> list[e.Action]:
        """One step; its actions take place or are put aside."""
        actions = self.machine.step(event)
        for action in actions:
            self.do(action)
        return actions

    def do(self, action: e.Action) -> None:
        match action:
            case e.StartTask(task=task, incarnation=incarnation, config=config):
                assert task not in self.processes, f"{task} has two processes"
                assert incarnation > self.incarnations.get(task, 0)
                self.incarnations[task] = incarnation
                self.processes[task] = Process(incarnation, dict(config))
            case e.StopTask(task=task):
                assert task in self.processes and not self.processes[task].stopping, f"nothing to stop: {task}"
                self.processes[task].stopping = True
            case e.PauseTask(task=task) | e.ResumeTask(task=task) if self.processes[task].stopping:
                raise AssertionError(f"{task} is being stopped and told to pause or resume")
            case e.PauseTask(task=task):
                self.commands.append((task, self.processes[task].incarnation, True))
            case e.ResumeTask(task=task):
                self.commands.append((task, self.processes[task].incarnation, False))
            case e.SplitConnector():
                self.splits.append(action)
            case e.WriteTasks():
                self.writes.append(action)
            case e.WriteStatus(record=record):
                self.status_log.append(encode_status(record))
            case e.Note():
                self.notes.append(action)
            case e.WakeAt() | e.SetLevel():
                pass

    def append(self, records: Iterable[ConfigRecord]) -> None:
        """Write to the config topic, as REST commands and the machine itself do, and let the machine read it."""
        for record in records:
            key, value = encode_config(record)
            self.config_log.append((key, value))
            self.tell(e.ConfigSeen(record=decode_config(key, value), offset=len(self.config_log) - 1))

    def command(self, command: Create | Configure | Delete | SetTarget | Restart) -> None:
        self.append(decide(self.machine.state, command).records)

    def see_statuses(self) -> None:
        while self.statuses_seen < len(self.status_log):
            key, value = self.status_log[self.statuses_seen]
            self.statuses_seen += 1
            self.tell(e.StatusSeen(record=decode_status(key, value)))

    def split(self, action: e.SplitConnector) -> None:
        self.splits.remove(action)
        wanted = action.config[SPLITS]
        answer = e.Split(connector=action.connector, config_offset=action.config_offset, version="1.0")
        if wanted == "bad":
            answer = e.Split(
                connector=action.connector, config_offset=action.config_offset, version=None, trace="cannot split"
            )
        else:
            tasks = tuple({**action.config, "part": str(part)} for part in range(int(wanted)))
            answer = e.Split(connector=action.connector, config_offset=action.config_offset, version="1.0", tasks=tasks)
        self.tell(answer)

    def write(self, action: e.WriteTasks) -> None:
        self.writes.remove(action)
        if self.machine.wants(action):
            self.append(action.records)

    def exit(self, task: TaskId, returncode: int, reason: str = "ended") -> None:
        process = self.processes.pop(task)
        self.tell(
            e.Tick(now_ms=self.now_ms),
        )
        self.tell(TaskExited(task=task, incarnation=process.incarnation, returncode=returncode, reason=reason))

    def started(self, task: TaskId) -> None:
        process = self.processes[task]
        process.started = True
        self.tell(TaskStarted(task=task, incarnation=process.incarnation, pid=1))

    def obey(self) -> None:
        """The process that was told to pause or resume does so, unless it is gone or has not started."""
        task, incarnation, pause = self.commands.pop(0)
        process = self.processes.get(task)
        if process is not None and process.incarnation == incarnation and process.started:
            kind = TaskPaused if pause else TaskResumed
            self.tell(kind(task=task, incarnation=incarnation))

    def settle(self) -> None:
        """Let everything that is under way happen, time included, until nothing is."""
        for _ in range(1_000):
            self.see_statuses()
            if self.splits:
                self.split(self.splits[0])
            elif self.writes:
                self.write(self.writes[0])
            elif self.commands:
                self.obey()
            elif stopping := [task for task, process in self.processes.items() if process.stopping]:
                self.exit(stopping[0], 0)
            elif failing := [task for task, process in self.processes.items() if process.failing]:
                self.exit(failing[0], 1)
            elif fresh := [task for task, process in self.processes.items() if not process.started]:
                self.started(fresh[0])
            elif waiting := [run for run in self.machine.runs.values() if run.phase is Phase.WAITING]:
                self.now_ms = max(self.now_ms, waiting[0].start_at_ms)
                self.tell(e.Tick(now_ms=self.now_ms))
            elif self.statuses_seen == len(self.status_log):
                return
        raise AssertionError("it never comes to rest")

    def state(self, connector: str, task: int | None = None) -> State | None:
        status = self.machine.board.instance(connector, task)
        return None if status is None else status.state

    def failure(self, connector: str, task: int | None = None) -> Failure | None:
        status = self.machine.board.instance(connector, task)
        return None if status is None else status.failure

    def trace(self, connector: str, task: int | None = None) -> str | None:
        status = self.machine.board.instance(connector, task)
        return None if status is None else status.trace


@pytest.fixture
def world() -> World:
    world = World()
    world.tell(e.Tick(now_ms=world.now_ms))
    world.tell(e.Assigned(generation=1))
    return world


def config(tasks: str = "2", **more: str) -> dict[str, str]:
    return {"name": "c", "connector.class": "X", SPLITS: tasks, **more}


def create(world: World, tasks: str = "2", state: TargetState | None = None) -> None:
    world.command(Create(connector="c", config=config(tasks), initial_state=state))
    world.settle()


ONE, TWO = TaskId("c", 0), TaskId("c", 1)


def test_a_created_connector_runs_its_tasks(world: World) -> None:
    create(world)
    assert set(world.processes) == {ONE, TWO}
    assert [process.config["part"] for process in world.processes.values()] == ["0", "1"]
    assert world.state("c") is State.RUNNING
    assert [world.state("c", task) for task in (0, 1)] == [State.RUNNING, State.RUNNING]
    status = world.machine.board.instance("c", 0)
    assert status is not None and (status.worker_id, status.generation, status.version) == ("w:1", 1, "1.0")


def test_nothing_happens_before_the_assignment() -> None:
    world = World()
    world.append(decide(world.machine.state, Create(connector="c", config=config())).records)
    assert not world.splits and not world.processes
    world.tell(e.Assigned(generation=1))
    world.settle()
    assert set(world.processes) == {ONE, TWO}


def test_a_restarted_worker_starts_what_the_topic_says_without_writing_it_again(world: World) -> None:
    create(world)
    later = World(config_log=list(world.config_log))
    for offset, (key, value) in enumerate(world.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    for key, value in world.status_log:
        later.tell(e.StatusSeen(record=decode_status(key, value)))
    later.tell(e.Assigned(generation=2))
    assert not later.processes  # the plugin is asked first
    later.settle()
    assert set(later.processes) == {ONE, TWO}
    assert len(later.config_log) == len(world.config_log)
    status = later.machine.board.instance("c", 0)
    assert status is not None and status.generation == 2


def test_an_unchanged_configuration_leaves_running_tasks_alone(world: World) -> None:
    create(world)
    before = {task: process.incarnation for task, process in world.processes.items()}
    world.command(Configure(connector="c", config=config()))
    world.settle()
    assert {task: process.incarnation for task, process in world.processes.items()} == before


def test_a_changed_configuration_replaces_tasks_one_process_at_a_time(world: World) -> None:
    create(world)
    world.command(Configure(connector="c", config=config("1", colour="red")))
    world.split(world.splits[0])
    world.write(world.writes[0])
    assert world.processes[ONE].stopping and world.processes[TWO].stopping
    world.settle()
    assert set(world.processes) == {ONE}
    assert world.processes[ONE].config["colour"] == "red"
    assert world.state("c", 1) is None


def test_pause_and_resume_keep_the_process(world: World) -> None:
    create(world, "1")
    before = world.processes[ONE].incarnation
    world.command(SetTarget(connector="c", target=TargetState.PAUSED))
    world.settle()
    assert (world.state("c"), world.state("c", 0)) == (State.PAUSED, State.PAUSED)
    world.command(SetTarget(connector="c", target=TargetState.STARTED))
    world.settle()
    assert (world.state("c"), world.state("c", 0)) == (State.RUNNING, State.RUNNING)
    assert world.processes[ONE].incarnation == before


def test_a_connector_created_paused_starts_paused(world: World) -> None:
    world.command(Create(connector="c", config=config("1"), initial_state=TargetState.PAUSED))
    world.split(world.splits[0])
    (write,) = world.writes
    world.writes.clear()
    actions = []
    for record in write.records:
        key, value = encode_config(record)
        world.config_log.append((key, value))
        actions += world.tell(e.ConfigSeen(record=record, offset=len(world.config_log) - 1))
    assert [action.initial_state for action in actions if isinstance(action, e.StartTask)] == [InitialState.PAUSED]


def test_stop_ends_every_task_and_resume_computes_them_anew(world: World) -> None:
    create(world)
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.settle()
    assert not world.processes and not world.machine.state.tasks("c")
    assert world.state("c") is State.STOPPED
    assert world.state("c", 0) is None and world.state("c", 1) is None
    world.command(SetTarget(connector="c", target=TargetState.STARTED))
    world.settle()
    assert set(world.processes) == {ONE, TWO}


def test_a_stop_overtakes_tasks_that_are_being_computed(world: World) -> None:
    world.command(Create(connector="c", config=config()))
    world.split(world.splits[0])
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.settle()
    assert not world.machine.state.tasks("c") and not world.processes


def test_delete_ends_tasks_and_clears_statuses(world: World) -> None:
    create(world)
    world.tell(TaskReport(task=ONE, incarnation=world.processes[ONE].incarnation, facts={"topics": {"t": 1}}))
    world.see_statuses()
    assert world.machine.board.topics("c") == ["t"]
    world.command(Delete(connector="c"))
    world.settle()
    assert not world.processes
    assert not world.machine.board.instances("c") and not world.machine.board.topics("c")


def test_topics_come_back_only_when_they_are_used_again(world: World) -> None:
    create(world)
    incarnation = world.processes[ONE].incarnation

    def report(uses: int) -> list[str]:
        world.tell(TaskReport(task=ONE, incarnation=incarnation, facts={"topics": {"t": uses}}))
        world.see_statuses()
        return world.machine.board.topics("c")

    assert report(1) == ["t"]
    world.tell(e.ForgetTopics(connector="c"))
    assert report(1) == []
    assert report(2) == ["t"]
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.tell(e.ForgetTopics(connector="c"))
    assert report(3) == []  # the last words of a task that is being stopped


def report(world: World, problem: Problem | None, *, at_ms: int = 0) -> None:
    if at_ms:
        world.now_ms = at_ms
        world.tell(e.Tick(now_ms=at_ms))
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
    world.tell(e.Tick(now_ms=2_200_000))
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
    world.tell(e.Tick(now_ms=problem.next_try_ms))
    assert ONE not in world.machine.problems


def fails(world: World, failure: Failure = Failure.TRANSIENT) -> None:
    """The task says why it gives up, and its process ends."""
    world.tell(e.Tick(now_ms=world.now_ms))
    incarnation = world.processes[ONE].incarnation
    world.tell(TaskFailed(task=ONE, incarnation=incarnation, trace="it hung up", failure=failure))
    world.exit(ONE, 1, "ended with code 1 after it failed")


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
    world.tell(e.Tick(now_ms=world.now_ms))
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
        world.tell(e.Tick(now_ms=world.now_ms))
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
    world.tell(e.Tick(now_ms=world.now_ms))
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


# --------------------------------------------------------------------- history


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


def test_restart_of_what_has_failed_only(world: World) -> None:
    create(world)
    world.tell(TaskFailed(task=TWO, incarnation=world.processes[TWO].incarnation, trace="boom"))
    world.exit(TWO, 1)
    world.settle()
    healthy = world.processes[ONE].incarnation
    world.command(Restart(connector="c", include_tasks=True, only_failed=True))
    world.settle()
    assert world.processes[ONE].incarnation == healthy
    assert world.state("c", 1) is State.RUNNING


def test_restart_of_everything(world: World) -> None:
    create(world)
    before = {task: process.incarnation for task, process in world.processes.items()}
    world.command(Restart(connector="c", include_tasks=True, only_failed=False))
    assert all(process.stopping for process in world.processes.values())
    world.settle()
    assert all(world.processes[task].incarnation > incarnation for task, incarnation in before.items())
    assert world.state("c") is State.RUNNING


def test_leaving_stops_everything_and_says_so(world: World) -> None:
    create(world)
    world.tell(e.Assigned(generation=1, connectors=frozenset(), tasks=frozenset()))
    world.settle()
    assert not world.processes and not world.machine.alive()
    assert {world.state("c"), world.state("c", 0), world.state("c", 1)} == {State.UNASSIGNED}


def test_an_assignment_of_a_part_runs_that_part() -> None:
    world = World()
    world.tell(e.Assigned(generation=1))
    create(world)
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset({TWO})))
    world.settle()
    assert set(world.processes) == {TWO}
    assert world.state("c", 0) is State.UNASSIGNED and world.state("c", 1) is State.RUNNING


def test_statuses_of_connectors_deleted_meanwhile_are_cleared(world: World) -> None:
    create(world, "1")
    world.command(Delete(connector="c"))
    # The worker dies before it can write the tombstones.
    later = World()
    for offset, (key, value) in enumerate(world.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    for key, value in world.status_log:
        record = decode_status(key, value)
        if value is not None:
            later.tell(e.StatusSeen(record=record))
    later.tell(e.Assigned(generation=2))
    later.settle()
    assert not later.machine.board.instances("c")


def test_what_a_worker_that_lost_a_task_says_late_does_not_count() -> None:
    world, later = World(), World(machine=HerderMachine("w:2"))
    world.tell(e.Assigned(generation=1))
    create(world)
    later.config_log, later.status_log = world.config_log, world.status_log
    for offset, (key, value) in enumerate(world.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    later.see_statuses()
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset(), leads=False))
    for task in list(world.processes):
        world.exit(task, 0)
    later.tell(e.Assigned(generation=3))
    later.settle()
    assert later.state("c", 0) is State.RUNNING
    late = InstanceStatus(connector="c", task=0, state=State.UNASSIGNED, worker_id="w:1", generation=2)
    later.status_log.append(encode_status(late))
    later.see_statuses()
    world.see_statuses()
    for each in (world, later):
        shown = each.machine.board.instance("c", 0)
        assert shown is not None and (shown.worker_id, shown.state) == ("w:2", State.RUNNING)
    assert decode_status(*later.status_log[-1]) == shown, "and it is not what the topic ends with"


@pytest.mark.parametrize(
    ("worker_id", "generation", "corrected"),
    [
        ("w:1", 1, False),  # its own
        ("w:1", 0, True),  # its own, of an earlier life
        ("w:1", 9, False),  # of a later assignment, which this worker is about to hear of
        ("w:2", 2, False),
        ("w:2", 1, True),
        ("w:2", 0, True),
    ],
)
def test_whose_word_is_put_right(world: World, worker_id: str, generation: int, corrected: bool) -> None:
    create(world)
    written = len(world.status_log)
    status = InstanceStatus(connector="c", task=0, state=State.PAUSED, worker_id=worker_id, generation=generation)
    world.tell(e.StatusSeen(record=status))
    assert (len(world.status_log) > written) is corrected


def test_only_who_leads_clears_what_nobody_does() -> None:
    gone = told("w:0", 7)
    for leads, busy, cleared in ((True, False, True), (True, True, False), (False, False, False)):
        world = World()
        world.tell(e.Assigned(generation=1))
        create(world)
        others = frozenset({("c", 7)}) if busy else frozenset()
        tasks = frozenset({ONE, TWO})
        world.tell(e.Assigned(generation=2, connectors=frozenset({"c"}), tasks=tasks, leads=leads, busy=others))
        world.settle()
        world.status_log.append(encode_status(gone.record))
        world.see_statuses()
        world.settle()
        assert (world.state("c", 7) is None) is cleared, (leads, busy)
        if busy:  # until its worker is known to be gone
            world.tell(e.Assigned(generation=3, connectors=frozenset({"c"}), tasks=tasks))
            world.settle()
            assert world.state("c", 7) is None


def test_a_worker_clears_the_statuses_of_its_own_when_they_are_deleted() -> None:
    world = World()
    world.tell(e.Assigned(generation=1))
    create(world)
    world.tell(e.Assigned(generation=2, connectors=frozenset({"c"}), tasks=frozenset({ONE, TWO}), leads=False))
    world.command(Delete(connector="c"))
    world.settle()
    assert not world.processes and not world.machine.board.instances("c")


def test_tasks_that_a_worker_before_has_written_late_are_replaced(world: World) -> None:
    create(world)
    late: list[ConfigRecord] = [TaskConfig(connector="c", task=0, properties={"old": "1"})]
    world.append([*late, TasksCommit(connector="c", tasks=1)])
    world.settle()
    assert set(world.processes) == {ONE, TWO} and "old" not in world.processes[ONE].config


def test_a_restart_of_a_connector_reaches_only_who_has_it() -> None:
    world = World()
    world.tell(e.Assigned(generation=1))
    create(world)
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset({TWO}), leads=False))
    world.settle()
    world.command(Restart(connector="c", include_tasks=True, only_failed=False))
    assert not world.splits and world.processes[TWO].stopping
    world.settle()
    assert world.state("c") is State.UNASSIGNED and world.state("c", 1) is State.RUNNING


def told(worker_id: str, task: int | None, state: State = State.RUNNING) -> e.StatusSeen:
    return e.StatusSeen(record=InstanceStatus(connector="c", task=task, state=state, worker_id=worker_id, generation=0))


def test_late_words_of_a_worker_that_is_gone_are_put_right(world: World) -> None:
    create(world)
    written = len(world.status_log)
    world.tell(told("w:0", 0, State.UNASSIGNED))
    world.tell(told("w:0", None, State.UNASSIGNED))
    world.tell(told("w:0", 7))  # a task there no longer is
    world.tell(e.StatusSeen(record=InstanceGone(connector="c", task=1)))
    world.settle()
    assert [world.state("c", task) for task in (None, 0, 1, 7)] == [State.RUNNING] * 3 + [None]
    assert len(world.status_log) == written + 4


@pytest.mark.parametrize("stopped", [False, True])
def test_statuses_of_tasks_that_went_while_nobody_was_there_are_cleared(world: World, stopped: bool) -> None:
    create(world, tasks="2")
    later = World(status_log=list(world.status_log))
    records: list[ConfigRecord] = [ConnectorConfig(connector="c", properties=config("1"))]
    records += [TaskConfig(connector="c", task=0, properties={}), TasksCommit(connector="c", tasks=1)]
    records += [TargetStateChange(connector="c", state=TargetState.STOPPED)] if stopped else []
    later.append(records)
    later.see_statuses()
    later.tell(e.Assigned(generation=2))
    later.settle()
    assert later.state("c", 0) is (None if stopped else State.RUNNING)
    assert later.state("c", 1) is None


def test_claims_of_workers_of_before_are_nothing_but_a_generation(world: World) -> None:
    world.tell(e.StatusSeen(record=WorkerClaim(worker_id="w:1", generation=7, life="another", group="g")))
    create(world)
    assert world.machine.board.generation == 7 and set(world.processes) == {ONE, TWO}


@pytest.mark.parametrize(
    ("said", "kept"), [("short", "short"), ("x" * 1_500_000, "characters left out"), ("no \udcff", "no ?")]
)
def test_error_texts_fit_into_a_record(world: World, said: str, kept: str) -> None:
    create(world)
    world.tell(TaskFailed(task=ONE, incarnation=world.processes[ONE].incarnation, trace=said))
    world.see_statuses()
    assert kept in (world.trace("c", 0) or "")
    assert max(len(value or b"") for _, value in world.status_log) < 400_000
    world.exit(TWO, -9, reason=said)
    world.see_statuses()
    assert kept in (world.trace("c", 1) or "")
    assert max(len(str(note.facts)) for note in world.notes) < 400_000


def test_tasks_that_cannot_be_written_fail_the_connector_until_it_is_changed(world: World) -> None:
    world.command(Create(connector="c", config=config()))
    world.split(world.splits[0])
    (write,) = world.writes
    world.writes.clear()
    world.tell(e.TasksRefused(connector="c", config_offset=write.config_offset, trace="too large"))
    world.settle()
    assert world.state("c") is State.FAILED and world.trace("c") == "too large"
    world.command(Configure(connector="c", config=config("1")))
    world.settle()
    assert world.state("c") is State.RUNNING and set(world.processes) == {ONE}
    world.tell(e.TasksRefused(connector="c", config_offset=write.config_offset, trace="too late"))
    world.settle()
    assert world.state("c") is State.RUNNING


def test_tasks_computed_earlier_are_not_written_after_later_ones(world: World) -> None:
    """The broker is away while the plugin, asked again, answers otherwise: what it said first has its turn last."""
    world.command(Create(connector="c", config=config()))
    (asked,) = world.splits
    answer = e.Split(connector="c", config_offset=asked.config_offset, version="1", tasks=({"part": "old"},))
    world.splits.clear()
    world.tell(answer)
    (old,) = world.writes
    world.writes.clear()
    world.tell(e.RestartConnector(connector="c"))
    world.splits.clear()
    world.tell(replace(answer, tasks=({"part": "new"},)))
    (new,) = world.writes
    assert world.machine.wants(new) and not world.machine.wants(old)
    world.append(new.records)
    assert not world.machine.wants(old)


def test_tasks_are_written_again_over_others_that_are_on_their_way(world: World) -> None:
    world.command(Create(connector="c", config=config()))
    (asked,) = world.splits
    answer = e.Split(connector="c", config_offset=asked.config_offset, version="1", tasks=({"part": "1"},))
    for part, written in (("1", True), ("2", True), ("1", True), ("1", False)):
        world.splits.clear()
        world.tell(replace(answer, tasks=({"part": part},)))
        assert bool(world.writes) is written
        if world.writes and part == "1":
            world.append(world.writes[0].records)  # those of part 2 are still under way
        world.writes.clear()
        world.tell(e.RestartConnector(connector="c"))


# ------------------------------------------------------------------ from seeds


class Life:
    """Random commands and accidents for a worker, events in any order that the real world allows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.world.tell(e.Tick(now_ms=self.world.now_ms))
        self.world.tell(e.Assigned(generation=1))
        self.log: list[str] = []

    def live(self, turns: int) -> None:
        for _ in range(turns):
            moves = [self.command] * 2 + [self.time]
            for waiting, move in (
                (self.world.splits, self.split),
                (self.world.writes, self.write),
                (self.world.commands, self.world.obey),
                (self.world.processes, self.process),
                (self.world.statuses_seen < len(self.world.status_log), self.world.see_statuses),
            ):
                moves += [move] * 3 if waiting else []
            self.random.choice(moves)()

    def command(self) -> None:
        name = self.random.choice("abc")
        settings = {
            "name": name,
            SPLITS: self.random.choice(["0", "1", "2", "3", "bad"]),
            "v": self.random.choice("12"),
        }
        target = self.random.choice(list(TargetState))
        tasks = [TaskId(name, task) for task in range(3)]
        command = self.random.choice(
            [
                Create(connector=name, config=settings, initial_state=self.random.choice([None, target])),
                Configure(connector=name, config=settings),
                SetTarget(connector=name, target=target),
                Delete(connector=name),
                Restart(connector=name, include_tasks=self.flip(), only_failed=self.flip()),
                e.RestartTask(task=self.random.choice(tasks)),
                e.RestartConnector(connector=name),
            ]
        )
        self.log.append(str(command))
        if isinstance(command, e.RestartTask | e.RestartConnector):
            self.world.tell(command)
            return
        try:
            self.world.command(command)
        except Refused:
            self.log.append("refused")

    def flip(self) -> bool:
        return self.random.random() < 0.5

    def time(self) -> None:
        self.world.now_ms += self.random.choice([1, 400, 2_000, 70_000])
        self.world.tell(e.Tick(now_ms=self.world.now_ms))

    def split(self) -> None:
        self.world.split(self.random.choice(self.world.splits))

    def write(self) -> None:
        self.world.write(self.random.choice(self.world.writes))

    def process(self) -> None:
        task = self.random.choice(sorted(self.world.processes))
        process = self.world.processes[task]
        what = self.random.choice(["start", "fail", "complete", "kill", "exit", "report"])
        self.log.append(f"{task} {what}")
        if what == "start" and not process.started:
            self.world.started(task)
        elif what == "fail" and not process.failing:
            process.failing = True
            self.world.tell(TaskFailed(task=task, incarnation=process.incarnation, trace="bad luck"))
        elif what == "complete" and not process.failing:
            process.failing = True  # its exit follows
            self.world.tell(TaskCompleted(task=task, incarnation=process.incarnation))
        elif what == "kill":
            self.world.exit(task, -9, "killed")
        elif what == "exit" and (process.stopping or process.failing):
            self.world.exit(task, 0)
        elif what == "report":
            self.world.tell(TaskReport(task=task, incarnation=process.incarnation, facts={"topics": {"t": 1}}))


GOING_ON = (State.RUNNING, State.PAUSED)


def wanted(world: World) -> set[TaskId]:
    state = world.machine.state
    return {
        TaskId(name, task)
        for name in state.names()
        if state.target(name) is not TargetState.STOPPED
        for task in range(len(state.tasks(name)))
    }


def replayed(log: Iterable[tuple[int, bytes, bytes | None]]) -> ConfigState:
    state = ConfigState()
    for offset, key, value in log:
        state.apply(decode_config(key, value), offset)
    return state


def meaning(state: ConfigState) -> dict[str, tuple[dict[str, str], TargetState, list[dict[str, str]]]]:
    return {
        name: (dict(state.submitted(name).config), state.target(name), [dict(task) for task in state.tasks(name)])  # type: ignore[union-attr]
        for name in state.names()
    }


@pytest.mark.parametrize("seed", range(150))
def test_any_life_ends_with_exactly_the_wanted_processes(seed: int) -> None:
    life = Life(seed)
    world = life.world
    life.live(150)
    world.settle()
    history = "\n".join(life.log)
    resting = {task for task, run in world.machine.runs.items() if run.phase in (Phase.FAILED, Phase.COMPLETED)}
    assert set(world.processes) == wanted(world) - resting, history
    assert set(world.machine.alive()) == set(world.processes), history
    for name in world.machine.state.names():
        target = world.machine.state.target(name)
        if target is TargetState.STOPPED:
            assert world.state(name) is State.STOPPED, history
            assert not world.machine.state.tasks(name), history
        elif world.machine.state.submitted(name).config[SPLITS] == "bad":  # type: ignore[union-attr]
            assert world.state(name) is State.FAILED, history
        else:
            paused = target is TargetState.PAUSED
            assert world.state(name) is (State.PAUSED if paused else State.RUNNING), history
            for task in set(world.processes) - resting:
                if task.connector == name:
                    assert world.state(*task) is (State.PAUSED if paused else State.RUNNING), history
        for task, runs in world.machine.history.of(name).items():
            going_on = [run.ended_ms is None for run in runs]
            runs_on = TaskId(name, task) in world.processes if task is not None else world.state(name) in GOING_ON
            assert going_on == [False] * (len(runs) - 1) + [runs_on], history
    for task in world.processes:
        assert task.task in world.machine.history.of(task.connector), history
    board = StatusBoard()
    for key, value in world.status_log:
        board.apply(decode_status(key, value))
    known = {status.connector for status in board.every()}
    assert known <= set(world.machine.state.names()), history


@pytest.mark.parametrize("seed", range(150))
def test_replay_tells_what_was_lived_and_compaction_loses_no_wish(seed: int) -> None:
    life = Life(seed)
    life.live(120)
    life.world.settle()
    log = [(offset, key, value) for offset, (key, value) in enumerate(life.world.config_log)]
    live = meaning(life.world.machine.state)
    assert meaning(replayed(log)) == live
    last = {key: offset for offset, key, _ in log}
    compacted = [(offset, key, value) for offset, key, value in log if last[key] == offset]
    without_tombstones = [each for each in compacted if each[2] is not None]
    for survivors in (compacted, without_tombstones):
        # Compaction may cost the tasks of a connector that was changed after its commit; its plugin is asked again.
        later = World(now_ms=life.world.now_ms)
        for offset, key, value in survivors:
            later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
        for name, (config, target, tasks) in meaning(later.machine.state).items():
            assert (config, target) == live[name][:2]
            assert tasks in ([], live[name][2])
        later.config_log = [(b"", None)] * len(log)
        later.tell(e.Assigned(generation=2))
        later.settle()
        for name, told in meaning(later.machine.state).items():
            assert told == live[name] or told[0][SPLITS] == "bad"
        assert later.machine.state.names() != [] or not live


@pytest.mark.parametrize("seed", range(60))
def test_a_worker_that_dies_anywhere_is_taken_over(seed: int) -> None:
    life = Life(seed)
    life.live(100)
    old = life.world
    later = World(config_log=list(old.config_log), status_log=list(old.status_log), now_ms=old.now_ms)
    for offset, (key, value) in enumerate(old.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    later.see_statuses()
    later.tell(e.Tick(now_ms=later.now_ms))
    later.tell(e.Assigned(generation=2))
    later.settle()
    assert set(later.processes) == wanted(later)
    for name in later.machine.state.names():
        if later.machine.state.submitted(name).config[SPLITS] == "bad":  # type: ignore[union-attr]
            continue
        if later.machine.state.target(name) is not TargetState.STOPPED:
            split_into = int(later.machine.state.submitted(name).config[SPLITS])  # type: ignore[union-attr]
            assert len(later.machine.state.tasks(name)) == split_into
