"""A herder machine, and what it asks of others done as it should be"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.connect.failure import Failure
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import Configure, Create, Delete, Restart, SetTarget, decide
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.herder.task_run import Phase
from tidemill.connect.stores import (
    ConfigRecord,
    State,
    TargetState,
    decode_config,
    decode_status,
    encode_config,
    encode_status,
)
from tidemill.connect.task_spec import (
    TaskExited,
    TaskFailed,
    TaskId,
    TaskPaused,
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
    version: str = "1.0"  # of the plugin
    splits: list[e.SplitConnector] = field(default_factory=list)
    writes: list[e.WriteTasks] = field(default_factory=list)
    notes: list[e.Note] = field(default_factory=list)
    commands: list[tuple[TaskId, int, bool]] = field(default_factory=list)  # task, incarnation, whether to pause
    now_ms: int = 1_000_000
    set_back_ms: int = 0  # what somebody has set the wall clock back by
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
            case e.WakeAfter() | e.SetLevel():
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
        answer = e.Split(connector=action.connector, config_offset=action.config_offset, version=self.version)
        if wanted == "bad":
            answer = e.Split(
                connector=action.connector, config_offset=action.config_offset, version=None, trace="cannot split"
            )
        else:
            tasks = tuple({**action.config, "part": str(part)} for part in range(int(wanted)))
            answer = e.Split(
                connector=action.connector, config_offset=action.config_offset, version=self.version, tasks=tasks
            )
        self.tell(answer)

    def write(self, action: e.WriteTasks) -> None:
        self.writes.remove(action)
        if self.machine.wants(action):
            self.append(action.records)

    def exit(self, task: TaskId, returncode: int, reason: str = "ended") -> None:
        process = self.processes.pop(task)
        self.tell(
            e.Tick(now_ms=self.now_ms - self.set_back_ms, up_ms=self.now_ms),
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
                self.tell(e.Tick(now_ms=self.now_ms - self.set_back_ms, up_ms=self.now_ms))
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


def config(tasks: str = "2", **more: str) -> dict[str, str]:
    return {"name": "c", "connector.class": "X", SPLITS: tasks, **more}


def create(world: World, tasks: str = "2", state: TargetState | None = None) -> None:
    world.command(Create(connector="c", config=config(tasks), initial_state=state))
    world.settle()


ONE, TWO = TaskId("c", 0), TaskId("c", 1)


def fails(world: World, failure: Failure = Failure.TRANSIENT) -> None:
    """The task says why it gives up, and its process ends."""
    world.tell(e.Tick(now_ms=world.now_ms, up_ms=world.now_ms))
    incarnation = world.processes[ONE].incarnation
    world.tell(TaskFailed(task=ONE, incarnation=incarnation, trace="it hung up", failure=failure))
    world.exit(ONE, 1, "ended with code 1 after it failed")
