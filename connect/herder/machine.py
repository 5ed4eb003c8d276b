"""One worker's part of the work, as a machine

Hears what the topics say, what became of task processes and what time it is; says which processes to start and stop,
which task configurations and statuses to write, and when it wants to be woken. Pure: the same events give the same
actions, so a seed can replay a month of accidents.

The heart is `_reconcile`: compare what the config topic wants of a connector with what runs here, and close the gap.
Everything else only changes one side of that comparison and calls it. Rules it keeps:

- A task has at most one process. A new one starts only after the exit of the one before was heard.
- Every start has a new incarnation; events of an older one are ignored.
- FAILED stays FAILED until somebody restarts it. A process that was killed from outside did not fail: it is started
  again, after a back-off that doubles with every death and is forgotten after a quiet spell. So is a task that failed
  for a transient reason, if its connector wants that, for as often in a row as `RestartPolicy` has it.
- A connector's tasks come from its plugin. They are computed when the connector is new here, was changed or restarted,
  and written only if they differ from what the topic holds; also if it comes to hold others later, which a worker that
  had the connector before may have written late.
- A status is written by the worker that has the instance, and its last word when it ends. What nobody does any more is
  cleared by the leader.

Which instances are this worker's is told by `Assigned`; nobody else does them meanwhile, which is the group's business.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tidemill.connect.api import Json
from tidemill.connect.failure import Failure
from tidemill.connect.herder.commands import RestartPlan, plan_restart
from tidemill.connect.herder.events import (
    ERROR,
    WARNING,
    Action,
    Assigned,
    ConfigSeen,
    Event,
    ForgetTopics,
    Note,
    PauseTask,
    RestartConnector,
    RestartTask,
    ResumeTask,
    SetLevel,
    SpawnFailed,
    Split,
    SplitConnector,
    StartTask,
    StatusSeen,
    StopTask,
    TasksRefused,
    Tick,
    WakeAfter,
    WriteStatus,
    WriteTasks,
)
from tidemill.connect.herder.history import History
from tidemill.connect.herder.state import Config, ConfigState, StatusBoard
from tidemill.connect.herder.task_run import Phase, RestartPolicy, TaskRun, retriable
from tidemill.connect.problem import Problem, shortened
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceGone,
    InstanceStatus,
    LoggerLevel,
    RestartRequest,
    State,
    StatusRecord,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
    TasksFencing,
    TopicUnused,
    TopicUse,
)
from tidemill.connect.task_spec import (
    InitialState,
    TaskCompleted,
    TaskEvent,
    TaskExited,
    TaskFailed,
    TaskId,
    TaskPaused,
    TaskReport,
    TaskResumed,
    TaskStarted,
)
from tidemill.connect.traces import abridged, headline

COMPLETED = "The source has reached the end of its input."

NOT_WANTED = "it is no longer this worker's, or no longer wanted"
CHANGED = "its configuration has changed"
ANEW = "its plugin is asked for tasks anew"
STOPPED = "it was stopped or deleted"
RESTART = "a restart was asked for"
"""Why what runs is ended, for its history."""


class _Failed(NamedTuple):
    """Why a connector instance has failed."""

    trace: str
    failure: Failure


class HerderMachine:
    """State and rules of one worker."""

    def __init__(
        self,
        worker_id: str,
        policy: RestartPolicy | None = None,
        *,
        track_topics: bool = True,
        statuses_in_order: bool = False,
    ) -> None:
        self.state = ConfigState()
        self.board = StatusBoard(in_order=statuses_in_order)
        self.runs: dict[TaskId, TaskRun] = {}
        self.facts: dict[TaskId, dict[str, Json]] = {}  # what each task last reported
        self.problems: dict[TaskId, Problem] = {}  # what keeps a task of this worker from its work now
        self.restarts: dict[TaskId, int] = {}  # starts by itself, since this worker began
        self.history = History()
        self.startups: Counter[str] = Counter()  # of connectors and tasks, under Kafka Connect's metric names
        self._worker_id = worker_id
        self._track_topics = track_topics
        self._policy = policy or RestartPolicy()
        self._assigned: Assigned | None = None
        self._first_generation = 0  # of this life
        self._now_ms = 0  # for people
        self._up_ms = 0  # for whatever waits or is measured
        self._incarnation = 0
        self._split_at: dict[str, int] = {}  # config offset a connector was last split for
        self._splitting: dict[str, int] = {}  # config offset of the split that is under way
        self._unwritten: dict[str, WriteTasks] = {}  # tasks a plugin gave last, until the topic has them
        self._given: dict[str, tuple[Config, ...]] = {}  # tasks a plugin gave last
        self._versions: dict[str, str | None] = {}  # of connectors' plugins
        self._failures: dict[str, _Failed] = {}  # connectors whose split failed
        self._told = StatusBoard()  # what this worker said last, whether it has come back yet or not
        self._problem_said_ms: dict[TaskId, int] = {}  # when the status topic was last told of a task's problem
        self._used: dict[str, set[str]] = {}  # topics tasks have reported since the record was last emptied
        self._actions: list[Action] = []

    def step(self, event: Event) -> list[Action]:
        """Take in `event` and return what has to happen now, in order."""
        self._actions = []
        match event:
            case ConfigSeen(record=record, offset=offset):
                self._on_config(record, offset)
            case StatusSeen(record=record):
                self.board.apply(record)
                self._correct(record)
            case Assigned():
                self._on_assigned(event)
            case Tick(now_ms=now_ms, up_ms=up_ms):
                self._on_tick(now_ms, up_ms)
            case Split():
                self._on_split(event)
            case TasksRefused():
                self._on_tasks_refused(event)
            case RestartConnector(connector=connector):
                self._restart_connector(connector)
            case RestartTask(task=task):
                self._restart_task(task)
            case ForgetTopics(connector=connector):
                self._forget_topics(connector)
            case _:
                self._on_task(event)
        return self._actions

    @property
    def worker_id(self) -> str:
        """What statuses call this worker."""
        return self._worker_id

    def owns(self, connector: str, task: int | None = None) -> bool:
        """Whether the connector itself, or one of its tasks, is this worker's."""
        return self._assigned is not None and self._assigned.owns(connector, task)

    @property
    def assigned(self) -> tuple[int, int]:
        """How many connectors and tasks are this worker's."""
        names = self.state.names()
        connectors = sum(self.owns(name) for name in names)
        return connectors, sum(self.owns(name, task) for name in names for task in range(len(self.state.tasks(name))))

    def alive(self, connector: str | None = None) -> list[TaskId]:
        """Tasks that have a process, of one connector or of all."""
        return [run.task for run in self.runs.values() if run.alive and connector in (None, run.task.connector)]

    def _correct(self, record: StatusRecord | None) -> None:
        """Put right what somebody else says of an instance of this worker, or of one that there no longer is.

        The last words of a worker that was killed or lost its assignment may come after the first ones of this one. A
        tombstone does not say whose it is: what it took away is said again.
        """
        match record:
            case TopicUnused(connector=connector, topic=topic):
                self._used.get(connector, set()).discard(topic)
            case InstanceStatus() | InstanceGone():
                self._correct_status(record)
            case _:
                pass

    def _correct_status(self, record: InstanceStatus | InstanceGone) -> None:
        assigned, connector, task = self._assigned, record.connector, record.task
        if assigned is None:
            return
        status = record if isinstance(record, InstanceStatus) else None
        if status is None or self.board.takes_away(status):
            pass  # a tombstone, or what cannot be so
        elif self._is_mine(status) or status.generation > assigned.generation:
            return
        exists = self._exists(connector, task)
        told = self._told.instance(connector, task) if assigned.owns(connector, task) else None
        if exists and told is not None:
            self._write(replace(told, generation=assigned.generation))
        elif status is None and not exists:
            self._on_tombstone(record)
        elif status is not None and assigned.leads and not exists and not self._is_done(connector, task):
            self._write(InstanceGone(connector=connector, task=task))

    def _on_tombstone(self, record: StatusRecord) -> None:
        """By whoever had it before, of what there is no longer: what was said here may be written behind it."""
        assert self._assigned is not None and isinstance(record, InstanceStatus | InstanceGone)
        connector, task = record.connector, record.task
        said = self._told.instance(connector, task) is not None
        if said and (self._assigned.leads or self._assigned.owns(connector, task)):
            self._tell_gone(connector, task)
        else:  # somebody else's, who may know already that it is there again
            self._told.apply(record)

    def _is_mine(self, status: InstanceStatus) -> bool:
        return status.worker_id == self._worker_id and status.generation >= self._first_generation

    def _is_done(self, connector: str, task: int | None) -> bool:
        """Whether a worker may be doing this, or have its last words to say."""
        assert self._assigned is not None
        here = task is not None and TaskId(connector, task) in self.runs
        return here or (connector, task) in self._assigned.busy

    def _exists(self, connector: str, task: int | None) -> bool:
        if task is None:
            return self.state.submitted(connector) is not None
        stopped = self.state.target(connector) is TargetState.STOPPED
        return not stopped and task < len(self.state.tasks(connector))

    # ---------------------------------------------------------- what should be

    def _on_config(self, record: ConfigRecord | None, offset: int) -> None:
        self.state.apply(record, offset)
        if self._assigned is None:
            return
        match record:
            case RestartRequest(connector=connector):
                self._on_restart(plan_restart(self.state, self.board, record), connector)
            case ConnectorConfig(connector=connector, properties=properties):
                if properties is None:
                    self._forget(connector)
                self._reconcile(connector)
            case TasksCommit(connector=connector, tasks=tasks):
                task_set = self.state.task_set(connector)
                if task_set is not None and not task_set.consistent:
                    self._split_at.pop(connector, None)
                self._settle_write(connector)
                if tasks:  # a commit of none is the first half of a stop
                    self._keep_tasks(connector)
                self._reconcile(connector)
            case TargetStateChange(connector=connector):
                self._reconcile(connector)
            case LoggerLevel(logger=logger, level=level):
                self._actions.append(SetLevel(logger=logger, level=level))
            case TaskConfig() | TasksFencing() | None:
                pass

    def _on_assigned(self, assigned: Assigned) -> None:
        known = {*self.state.names(), *(task.connector for task in self.runs)}
        if self._assigned is None:
            self._first_generation = assigned.generation
            self.history.since_ms = self._now_ms
        if assigned.leads:
            known |= self._abandoned()
        self._assigned = assigned
        for connector in sorted(known):
            # Whoever decides may have died between the two halves of a stop, and nobody writes the second one.
            self._keep_tasks(connector)
            self._reconcile(connector)

    def _abandoned(self) -> set[str]:
        """Connectors that were deleted while nobody was there to clear their statuses."""
        return {status.connector for status in self.board.every() if self.state.submitted(status.connector) is None}

    def _on_tick(self, now_ms: int, up_ms: int) -> None:
        self._now_ms, self._up_ms = now_ms, max(self._up_ms, up_ms)
        for run in list(self.runs.values()):
            if run.phase is Phase.WAITING and run.start_at_ms <= self._up_ms:
                self._reconcile(run.task.connector)
            elif run.task in self._problem_said_ms:
                self._say_problem(run)

    def _forget(self, connector: str) -> None:
        self._drop_split(connector, STOPPED)
        self.history.forget(connector)
        for memory in (self._unwritten, self._versions):
            memory.pop(connector, None)

    def _drop_split(self, connector: str, because: str) -> None:
        """Forget what the plugin has said: it is to be asked anew."""
        self._over(connector, None, because)
        for memory in (self._split_at, self._splitting, self._failures, self._given):
            memory.pop(connector, None)

    # ----------------------------------------------------- closing the gap

    def _reconcile(self, connector: str) -> None:
        submitted = self.state.submitted(connector)
        assigned = self._assigned
        assert assigned is not None
        if submitted is not None and assigned.owns(connector):
            self._reconcile_connector(connector, submitted.config, submitted.offset)
        elif self._told.instance(connector) is not None:
            self._let_go(connector, exists=submitted is not None)
        self._reconcile_tasks(connector, assigned)
        if submitted is None and assigned.leads and not self.alive(connector):
            self._forget_topics(connector)
        if assigned.leads:
            self._clear_leftovers(connector)

    def _let_go(self, connector: str, *, exists: bool) -> None:
        """It is somebody else's, or nobody's: its tasks are computed anew should it come back."""
        self._drop_split(connector, NOT_WANTED)
        self._unwritten.pop(connector, None)
        if exists:
            self._say_once(connector, None, State.UNASSIGNED)
        elif not self.alive(connector):
            self._tell_gone(connector, None)

    def _reconcile_connector(self, connector: str, config: Config, offset: int) -> None:
        target = self.state.target(connector)
        if target is TargetState.STOPPED:
            # What it computes before it is started again would be thrown away.
            self._drop_split(connector, STOPPED)
            self._say_once(connector, None, State.STOPPED)
            return
        if self._split_at.get(connector) != offset:
            self._ask_for_tasks(connector, config, offset)
        elif connector in self._failures:
            self._say_once(connector, None, State.FAILED, *self._failures[connector])
        else:
            self._say_once(connector, None, State.PAUSED if target is TargetState.PAUSED else State.RUNNING)

    def _ask_for_tasks(self, connector: str, config: Config, offset: int) -> None:
        if self._splitting.get(connector) != offset:
            self._over(connector, None, ANEW)
            self._begun(connector, None)
            self._splitting[connector] = offset
            self._actions.append(SplitConnector(connector=connector, config=config, config_offset=offset))

    def _on_split(self, split: Split) -> None:
        connector = split.connector
        if self._splitting.get(connector) != split.config_offset:
            return  # overtaken by a change, a stop, a deletion or another assignment
        del self._splitting[connector]
        self._split_at[connector] = split.config_offset
        self._versions[connector] = split.version
        self.startups["connector-startup-attempts-total"] += 1
        self.startups[f"connector-startup-{'success' if split.trace is None else 'failure'}-total"] += 1
        if split.trace is not None:
            self._fail_connector(connector, split.trace, split.failure)
        else:
            self._failures.pop(connector, None)
            self._given[connector] = split.tasks
            self._write_tasks(connector, split.config_offset)
        self._reconcile(connector)

    def _fail_connector(self, connector: str, trace: str, failure: Failure) -> None:
        self._failures[connector] = _Failed(abridged(trace), failure)
        self._over(connector, None, trace, failure)
        self._note(ERROR, "connector failed", connector=connector, failure=failure.value, trace=abridged(trace))

    def _on_tasks_refused(self, refused: TasksRefused) -> None:
        if self._split_at.get(refused.connector) == refused.config_offset:
            self._fail_connector(refused.connector, refused.trace, Failure.CONFIGURATION)
            self._reconcile(refused.connector)

    def _write_tasks(self, connector: str, config_offset: int) -> None:
        tasks = self._given[connector]
        task_set = self.state.task_set(connector)
        stored = task_set is not None and task_set.consistent and list(task_set.configs) == list(tasks)
        if stored and connector not in self._unwritten:
            return
        records: list[ConfigRecord] = [
            TaskConfig(connector=connector, task=number, properties=config) for number, config in enumerate(tasks)
        ]
        records.append(TasksCommit(connector=connector, tasks=len(tasks)))
        write = WriteTasks(connector=connector, config_offset=config_offset, records=tuple(records))
        self._unwritten[connector] = write
        self._actions.append(write)

    def _settle_write(self, connector: str) -> None:
        write = self._unwritten.get(connector)
        if write is None:
            return
        wanted = [record.properties for record in write.records if isinstance(record, TaskConfig)]
        if wanted == list(self.state.tasks(connector)):
            del self._unwritten[connector]

    def _keep_tasks(self, connector: str) -> None:
        """Write the plugin's tasks again that somebody else has replaced, who had the connector before."""
        submitted, given = self.state.submitted(connector), self._given.get(connector)
        if submitted is None or given is None or connector in self._unwritten:
            return
        current = self._split_at.get(connector) == submitted.offset
        if current and self.owns(connector) and list(given) != list(self.state.tasks(connector)):
            self._write_tasks(connector, submitted.offset)

    def wants(self, action: "WriteTasks") -> bool:
        """Whether writing these tasks still makes sense; asked while nobody else may write the config topic."""
        if self._unwritten.get(action.connector) is not action:
            return False  # the plugin has been asked again since, and has said something else
        submitted = self.state.submitted(action.connector)
        current = submitted is not None and submitted.offset == action.config_offset
        return current and self.state.target(action.connector) is not TargetState.STOPPED

    def _reconcile_tasks(self, connector: str, assigned: Assigned) -> None:
        target = self.state.target(connector)
        configs = () if target is TargetState.STOPPED else self.state.tasks(connector)
        paused = target is TargetState.PAUSED
        for number, config in enumerate(configs):
            task = TaskId(connector, number)
            if assigned.owns(connector, number):
                self._want(task, config, paused=paused)
            else:
                self._unwant(task)
        for task in [task for task in self.runs if task.connector == connector and task.task >= len(configs)]:
            self._unwant(task)

    def _want(self, task: TaskId, config: Config, *, paused: bool) -> None:
        run = self.runs.get(task)
        if run is None:
            # While its plugin is being asked, the tasks of the topic may be about to be replaced.
            if task.connector not in self._splitting:
                self._start(task, config, paused=paused)
        elif run.phase is Phase.STOPPING:
            pass  # it starts again when it has ended
        elif run.config != config:
            self._replace(run, config, paused=paused)
        elif run.phase is Phase.WAITING:
            if run.start_at_ms <= self._up_ms and not run.alive:
                self.restarts[task] = self.restarts.get(task, 0) + 1
                self._start(task, config, paused=paused, after=run)
        elif run.alive and run.paused != paused:
            self.runs[task] = replace(run, paused=paused)
            self._actions.append(PauseTask(task=task) if paused else ResumeTask(task=task))

    def _replace(self, run: TaskRun, config: Config, *, paused: bool) -> None:
        if run.alive:
            self._stop(run, CHANGED)
        else:
            self._start(run.task, config, paused=paused)

    def _unwant(self, task: TaskId) -> None:
        run = self.runs.get(task)
        if run is not None and run.alive:
            self._stop(run, NOT_WANTED)
        elif run is not None:
            self._end(task)

    def _start(self, task: TaskId, config: Config, *, paused: bool, after: TaskRun | None = None) -> None:
        """Start it, by itself `after` a run that ended without having been asked to."""
        self._incarnation += 1
        self.startups["task-startup-attempts-total"] += 1
        self.problems.pop(task, None)
        self._begun(*task)
        self.runs[task] = TaskRun(
            task=task,
            incarnation=self._incarnation,
            config=config,
            phase=Phase.STARTING,
            alive=True,
            paused=paused,
            deaths=after.deaths if after else 0,
            tries=after.tries if after else 0,
            since_ms=self._up_ms,
        )
        initial_state = InitialState.PAUSED if paused else InitialState.STARTED
        self._actions.append(
            StartTask(task=task, incarnation=self._incarnation, config=config, initial_state=initial_state)
        )

    def _stop(self, run: TaskRun, because: str) -> None:
        if run.phase is not Phase.STOPPING:
            self.runs[run.task] = replace(run, phase=Phase.STOPPING, since_ms=self._up_ms, stopped_because=because)
            if run.phase is not Phase.WAITING:  # that was told when it began to wait
                self._actions.append(StopTask(task=run.task))

    def _end(self, task: TaskId) -> None:
        """Drop a task that has no process and should have none here."""
        self.runs.pop(task, None)
        self.facts.pop(task, None)
        self._forget_problem(task)
        configured = task.task < len(self.state.tasks(task.connector))
        if configured and self.state.target(task.connector) is not TargetState.STOPPED:
            self._say_once(task.connector, task.task, State.UNASSIGNED)
        else:
            self.restarts.pop(task, None)
            self._tell_gone(task.connector, task.task)

    def _clear_leftovers(self, connector: str) -> None:
        """Clear the statuses of what does not exist and nobody does any more; whoever does it clears its own."""
        for task in self._shown(connector):
            ends = task is not None or not self.alive(connector)
            if ends and not self._exists(connector, task) and not self._is_done(connector, task):
                self._tell_gone(connector, task)

    def _shown(self, connector: str) -> list[int | None]:
        """Instances of the connector the status topic speaks of, or will: what was said may not have come back yet."""
        statuses = [*self.board.instances(connector), *self._told.instances(connector)]
        return sorted({status.task for status in statuses}, key=str)

    def _tell_gone(self, connector: str, task: int | None) -> None:
        gone = InstanceGone(connector=connector, task=task)
        self._told.apply(gone)
        self._write(gone)

    # --------------------------------------------------------- what tasks say

    def _on_task(self, event: TaskEvent | SpawnFailed) -> None:
        run = self.runs.get(event.task)
        if run is None or run.incarnation != event.incarnation:
            return
        match event:
            case TaskStarted() if run.phase is Phase.STARTING:
                self.startups["task-startup-success-total"] += 1
                self._enter(run, Phase.RUNNING)
                self._say_running(run)
            case TaskPaused() | TaskResumed() if run.phase is Phase.RUNNING:
                self._say_running(run)
            case TaskFailed(trace=trace, failure=failure) if run.phase is not Phase.STOPPING:
                self._count_failed_start(run)
                self._on_failure(run, trace, failure)
            case TaskCompleted() if run.phase is not Phase.STOPPING:
                self._over(*run.task, COMPLETED)
                self._enter(run, Phase.COMPLETED)
                self._say(run.task.connector, run.task.task, State.STOPPED, COMPLETED)
            case TaskReport(facts=facts, problem=problem):
                self._on_report(run, facts)
                self._on_problem(run, problem)
            case SpawnFailed(trace=trace, failure=failure):
                self._on_exit(run, trace, failure)
            case TaskExited(reason=reason):
                self._on_exit(run, reason, Failure.KILLED if event.killed else Failure.BUG)
            case _:
                pass  # news of a task that is being stopped

    def _enter(self, run: TaskRun, phase: Phase) -> None:
        if phase is not Phase.RUNNING:
            self._forget_problem(run.task)
        self.runs[run.task] = replace(run, phase=phase, since_ms=self._up_ms)

    def _say_running(self, run: TaskRun) -> None:
        self._say(run.task.connector, run.task.task, State.PAUSED if run.paused else State.RUNNING)

    def _count_failed_start(self, run: TaskRun) -> None:
        self.startups["task-startup-failure-total"] += run.phase is Phase.STARTING

    def _on_exit(self, run: TaskRun, reason: str, failure: Failure) -> None:
        task = run.task
        self._count_failed_start(run)
        self.facts.pop(task, None)
        if run.phase is not Phase.WAITING:
            self._forget_problem(task)
        match run.phase:
            case Phase.STOPPING:
                # Gone; if it is still wanted, reconciling starts it anew.
                killed = failure is Failure.KILLED
                because = f"{run.stopped_because}; {reason}" if killed else run.stopped_because
                self._over(*task, because, failure if killed else None)
                self.runs[task] = replace(run, alive=False)
                self._settle(task)
            case Phase.FAILED | Phase.COMPLETED | Phase.WAITING:
                self.runs[task] = replace(run, alive=False)
                self._reconcile(task.connector)
            case _:
                self._on_failure(replace(run, alive=False), reason, failure)
                self._reconcile(task.connector)

    def _settle(self, task: TaskId) -> None:
        assert self._assigned is not None
        wanted = task.task < len(self.state.tasks(task.connector)) and self._assigned.owns(*task)
        if wanted and self.state.target(task.connector) is not TargetState.STOPPED:
            del self.runs[task]
        self._reconcile(task.connector)

    def _on_failure(self, run: TaskRun, trace: str, failure: Failure) -> None:
        """It has ended, or is about to: start it again where that is the rule, else leave it to somebody."""
        quiet = run.phase is Phase.RUNNING and self._up_ms - run.since_ms >= self._policy.quiet_ms
        deaths, tries = (0, 0) if quiet else (run.deaths, run.tries)
        tries += failure is not Failure.KILLED
        if self._policy.tries_again(failure, run.config, tries):
            self._wait(replace(run, deaths=deaths + 1, tries=tries), trace, failure)
            return
        if retriable(failure, run.config):
            trace = f"{trace.rstrip()}; not tried again, as it failed {tries} times in a row"
        self._over(*run.task, trace, failure)
        self._enter(run, Phase.FAILED)
        self._say(run.task.connector, run.task.task, State.FAILED, trace, failure)
        self._note(ERROR, "task failed", task=str(run.task), failure=failure.value, trace=abridged(trace))

    def _wait(self, run: TaskRun, trace: str, failure: Failure) -> None:
        """Until it is started again; its process may be there still, and is not waited for without being told to go."""
        task, trace = run.task, abridged(trace)
        delay_ms = self._policy.delay_ms(run.deaths)
        at_ms = self._now_ms + delay_ms
        self._over(*task, trace, failure, at_ms)
        self._enter(replace(run, start_at_ms=self._up_ms + delay_ms), Phase.WAITING)
        if run.alive:
            self._actions.append(StopTask(task=task))
        self.problems[task] = Problem(
            message=shortened(headline(trace)), since_ms=self._now_ms, attempts=run.deaths, next_try_ms=at_ms
        )
        told = self._policy.sentence(failure, run.deaths, run.tries)
        self._say(*task, State.RESTARTING, f"{trace.rstrip()}; {told}", failure)
        what = "task killed" if failure is Failure.KILLED else "task failed and tries again"
        self._note(WARNING, what, task=str(task), reason=trace, deaths=run.deaths, restart_in_ms=delay_ms)
        self._actions.append(WakeAfter(task=task, delay_ms=delay_ms))

    def _on_report(self, run: TaskRun, facts: Mapping[str, Json]) -> None:
        known = self.facts.setdefault(run.task, {})
        before, now = known.get("topics"), facts.get("topics")
        known.update(facts)
        if run.topics_closed or not self._track_topics or not isinstance(now, Mapping):
            return
        before = before if isinstance(before, Mapping) else {}
        used = self._used.setdefault(run.task.connector, set())
        for topic, uses in now.items():
            if topic not in used and uses != before.get(topic):
                used.add(topic)
                use = TopicUse(
                    connector=run.task.connector, topic=topic, task=run.task.task, discovered_ms=self._now_ms
                )
                self._write(use)

    def _on_problem(self, run: TaskRun, problem: Problem | None) -> None:
        if run.phase not in (Phase.STARTING, Phase.RUNNING):
            return
        if problem is None:
            self.problems.pop(run.task, None)
        else:
            self.problems[run.task] = problem
        self._say_problem(run)

    def _forget_problem(self, task: TaskId) -> None:
        self.problems.pop(task, None)
        self._problem_said_ms.pop(task, None)

    def _say_problem(self, run: TaskRun) -> None:
        """Let the status topic know of a problem that is new, different or over; not of every further attempt.

        A task that is still starting shows as running with it: its process runs and tries.
        """
        task = run.task
        if run.phase not in (Phase.STARTING, Phase.RUNNING):
            return
        said, problem = self._told.instance(*task), self.problems.get(task)
        if _matter(problem) == _matter(None if said is None else said.problem):
            return
        said_ms = self._problem_said_ms.get(task)
        if said_ms is not None and self._up_ms - said_ms < self._policy.problem_interval_ms:
            return  # a tick will come back to it
        self._problem_said_ms[task] = self._up_ms
        self._say_running(run)

    # --------------------------------------------------------------- restarts

    def _on_restart(self, plan: RestartPlan, connector: str) -> None:
        assert self._assigned is not None
        if plan.connector and self._exists(connector, None) and self._assigned.owns(connector):
            self._say(connector, None, State.RESTARTING)
            self._restart_connector(connector)
        for number in sorted(plan.tasks):
            self._restart_task(TaskId(connector, number))

    def _restart_connector(self, connector: str) -> None:
        assert self._assigned is not None
        if self.state.submitted(connector) is None or not self._assigned.owns(connector):
            return
        self._drop_split(connector, RESTART)
        self._reconcile(connector)

    def _restart_task(self, task: TaskId) -> None:
        run = self.runs.get(task)
        if run is None or run.phase is Phase.STOPPING:
            return
        self._say(task.connector, task.task, State.RESTARTING)
        if run.alive:
            self._stop(run, RESTART)
        else:
            del self.runs[task]
            self._reconcile(task.connector)

    # --------------------------------------------------------------- history

    def _begun(self, connector: str, task: int | None) -> None:
        assert self._assigned is not None
        self.history.started(connector, task, generation=self._assigned.generation, now_ms=self._now_ms)

    def _over(
        self,
        connector: str,
        task: int | None,
        reason: str,
        failure: Failure | None = None,
        next_try_ms: int | None = None,
    ) -> None:
        self.history.ended(connector, task, reason, now_ms=self._now_ms, failure=failure, next_try_ms=next_try_ms)

    # --------------------------------------------------------------- statuses

    def _say(
        self, connector: str, task: int | None, state: State, trace: str | None = None, failure: Failure | None = None
    ) -> None:
        assert self._assigned is not None
        shows_problem = task is not None and state in (State.RUNNING, State.PAUSED)
        problem = self.problems.get(TaskId(connector, task or 0)) if shows_problem else None
        status = InstanceStatus(
            connector=connector,
            task=task,
            state=state,
            worker_id=self._worker_id,
            generation=self._assigned.generation,
            trace=None if trace is None else abridged(trace),
            version=self._versions.get(connector),
            problem=problem,
            failure=failure,
        )
        self._told.apply(status)
        self._write(status)

    def _say_once(
        self, connector: str, task: int | None, state: State, trace: str | None = None, failure: Failure | None = None
    ) -> None:
        """Say it unless it is the last thing that was said, of the same version of the connector's plugin."""
        told = self._told.instance(connector, task)
        upgraded = told is not None and task is None and self._versions.get(connector) not in (None, told.version)
        if told is None or upgraded or (told.state, told.trace) != (state, trace):
            self._say(connector, task, state, trace, failure)

    def _forget_topics(self, connector: str) -> None:
        for topic in sorted({*self.board.topics(connector), *self._used.pop(connector, ())}):
            self._write(TopicUnused(connector=connector, topic=topic))
        for run in list(self.runs.values()):  # a task that is on its way out may have uses left to tell
            if run.task.connector == connector and run.phase is Phase.STOPPING:
                self.runs[run.task] = replace(run, topics_closed=True)

    def _write(self, record: StatusRecord) -> None:
        self._actions.append(WriteStatus(record=record))

    def _note(self, level: int, message: str, **facts: Json) -> None:
        self._actions.append(Note(message=message, facts=facts, level=level))


def _matter(problem: Problem | None) -> tuple[str, int] | None:
    """What makes a problem another one: further attempts do not."""
    return None if problem is None else (problem.message, problem.since_ms)
