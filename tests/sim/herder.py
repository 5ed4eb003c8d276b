"""Connect workers that come and go on the same topics, in one thread and from one seed

Everything between the machines is here and may misbehave within its rights: each worker follows the config topic and
every partition of the status topic at its own pace, writes wait and fail, plugins answer late, processes fail and are
killed, workers are killed between any two steps, stopped in order, or replaced by another one that may have the very
same name. What a worker was assigned another gets only when the first is gone or has ended it, as the group sees to
(`tests/sim/connect_group.py`); its words may come later than that. One worker has everything at a time, but now and
then everything moves.

What must hold is checked where it can be broken, and at the end of a life when everything has come to rest.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.connect.failure import Failure
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import (
    Command,
    Configure,
    Create,
    Delete,
    Refused,
    Restart,
    SetTarget,
    decide,
)
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.herder.state import ConfigState, StatusBoard
from tidemill.connect.herder.task_run import RESTART_TRANSIENT, Phase, RestartPolicy
from tidemill.connect.stores import (
    ConfigRecord,
    KeyValue,
    State,
    StatusRecord,
    TargetState,
    decode_config,
    decode_status,
    encode_config,
    encode_status,
)
from tidemill.connect.task_spec import (
    TaskCompleted,
    TaskExited,
    TaskFailed,
    TaskId,
    TaskPaused,
    TaskResumed,
    TaskStarted,
)

STATUS_PARTITIONS = 3
NAMES = "abc"
PARTS = "parts"  # the setting that says into how many tasks the plugin splits; "bad" fails

MakeMachine = Callable[[str], HerderMachine]
"""Makes the machine of a worker of this name."""


AGAIN = (Failure.KILLED, Failure.TRANSIENT)
"""After what a task may be started again by itself."""


class Broken(AssertionError):
    """An invariant did not hold."""


@dataclass
class Process:
    """A task process, alive until somebody ends it."""

    incarnation: int
    config: dict[str, str]
    started: bool = False
    ending: bool = False  # it will end by itself: asked to, failed or completed


@dataclass
class Cluster:
    """The two topics."""

    config: list[KeyValue] = field(default_factory=list)
    status: list[list[KeyValue]] = field(default_factory=lambda: [[] for _ in range(STATUS_PARTITIONS)])

    def write_status(self, record: StatusRecord) -> tuple[int, int]:
        """Append; the partition, chosen by the key alone, and the offset."""
        key, value = encode_status(record)
        partition = sum(key) % STATUS_PARTITIONS
        self.status[partition].append((key, value))
        return partition, len(self.status[partition]) - 1

    def board(self) -> StatusBoard:
        """What somebody knows who has read everything that compaction leaves."""
        board = StatusBoard()
        for partition in self.status:
            for key, value in dict(partition).items():
                board.apply(decode_status(key, value))
        return board


class SimWorker:
    """One life of one worker: the shell around a machine, slow in every way the real one can be."""

    def __init__(self, cluster: Cluster, name: str, make: MakeMachine, now_ms: int) -> None:
        self.machine = make(name)
        self.name = name
        self.cluster = cluster
        self.processes: dict[TaskId, Process] = {}
        self.splits: list[e.SplitConnector] = []
        self.writes: list[e.WriteTasks] = []
        self.commands: list[tuple[TaskId, int, bool]] = []  # task, incarnation, whether to pause
        self.statuses: dict[bytes, StatusRecord] = {}
        self.leaving = False
        self.owns = False
        self.generation = 0  # 0: it has not begun
        self._config_read = 0
        self._status_read = [0] * STATUS_PARTITIONS
        self._locked_until = 0  # a write of the config topic is under way up to this offset
        self.tell(e.Tick(now_ms=now_ms, up_ms=now_ms))
        self.catch_up()

    # -------------------------------------------------------------- the topics

    def lags(self) -> bool:
        """Whether there is something it has not read."""
        behind = [len(log) - read for log, read in zip(self.cluster.status, self._status_read, strict=True)]
        return self._config_read < len(self.cluster.config) or any(behind)

    def follow(self, rng: random.Random, most: int) -> None:
        """Read up to so many records of one topic partition, whichever comes first today."""
        which = rng.randrange(-1, STATUS_PARTITIONS)
        if which < 0:
            self._follow_config(most)
        else:
            self._follow_status(which, most)

    def catch_up(self) -> None:
        """Read everything there is."""
        for partition in range(STATUS_PARTITIONS):
            self._follow_status(partition, len(self.cluster.status[partition]))
        self._follow_config(len(self.cluster.config))

    def _follow_config(self, most: int) -> None:
        start = self._config_read
        for offset, (key, value) in enumerate(self.cluster.config[start : start + most], start):
            self._config_read = offset + 1
            self.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))

    def _follow_status(self, partition: int, most: int) -> None:
        start = self._status_read[partition]
        for key, value in self.cluster.status[partition][start : start + most]:
            self._status_read[partition] += 1
            self.tell(e.StatusSeen(record=decode_status(key, value)))

    def begin(self, generation: int, config_end: int) -> None:
        """Everything is its own; it has read the config topic as far as whoever decided that."""
        if self._config_read < config_end:
            self._follow_config(config_end - self._config_read)
        self.owns, self.generation = True, generation
        self.tell(e.Assigned(generation=generation))

    def give_up(self) -> None:
        """Nothing is its own any more."""
        self.owns = False
        self.tell(e.Assigned(generation=self.generation, connectors=frozenset(), tasks=frozenset(), leads=False))

    def append(self, records: tuple[ConfigRecord, ...]) -> None:
        """Write the config topic; the next write waits until these have come back."""
        self.cluster.config += [encode_config(record) for record in records]
        self._locked_until = len(self.cluster.config)

    @property
    def locked(self) -> bool:
        """Whether it waits for its own records."""
        return self._config_read < self._locked_until

    def write_statuses(self, rng: random.Random) -> None:
        """The writer's batch arrives, as a whole or up to where the broker went away."""
        batch = list(self.statuses.values())
        arrived = len(batch) if rng.random() < 0.8 else rng.randrange(len(batch) + 1)
        for record in batch[:arrived]:
            self.cluster.write_status(record)
        if arrived == len(batch):  # else all of it is written again
            self.statuses.clear()

    # ------------------------------------------------------------- the machine

    def tell(self, event: e.Event) -> None:
        """One step, and everything it asks for."""
        for action in self.machine.step(event):
            self._do(action)

    def _do(self, action: e.Action) -> None:
        if not self.owns and isinstance(action, e.StartTask | e.SplitConnector):
            raise Broken(f"{self.name} has nothing to do and still does {action}")
        match action:
            case e.StartTask(task=task, incarnation=incarnation, config=config):
                if task in self.processes:
                    raise Broken(f"{task} has two processes on {self.name}")
                self.processes[task] = Process(incarnation, dict(config))
            case e.StopTask(task=task):
                if task in self.processes:  # it may be gone without the machine having heard of it
                    self.processes[task].ending = True
            case e.PauseTask(task=task) | e.ResumeTask(task=task):
                if task in self.processes:
                    paused = isinstance(action, e.PauseTask)
                    self.commands.append((task, self.processes[task].incarnation, paused))
            case e.SplitConnector():
                self.splits.append(action)
            case e.WriteTasks():
                self.writes.append(action)
            case e.WriteStatus(record=record):
                key = encode_status(record)[0]
                self.statuses.pop(key, None)
                self.statuses[key] = record
            case _:
                pass

    def split(self, action: e.SplitConnector) -> None:
        """The plugin answers."""
        self.splits.remove(action)
        parts = action.config[PARTS]
        tasks = () if parts == "bad" else tuple({**action.config, "part": str(part)} for part in range(int(parts)))
        self.tell(
            e.Split(
                connector=action.connector,
                config_offset=action.config_offset,
                version="1",
                tasks=tasks,
                trace="cannot be split" if parts == "bad" else None,
            )
        )

    def write(self, action: e.WriteTasks) -> None:
        """Task configurations get their turn."""
        self.writes.remove(action)
        if self.machine.wants(action):
            self.append(action.records)

    def command(self, command: Command) -> None:
        """A REST request."""
        try:
            self.append(decide(self.machine.state, command).records)
        except Refused:
            return

    def obey(self) -> None:
        """The process that was told to pause or resume does so, if it is there."""
        task, incarnation, pause = self.commands.pop(0)
        process = self.processes.get(task)
        if process is not None and process.incarnation == incarnation and process.started and not process.ending:
            self.tell((TaskPaused if pause else TaskResumed)(task=task, incarnation=incarnation))

    def start(self, task: TaskId) -> None:
        """The plugin's `start` returned."""
        process = self.processes[task]
        process.started = True
        self.tell(TaskStarted(task=task, incarnation=process.incarnation, pid=1))

    def exit(self, task: TaskId, returncode: int, now_ms: int) -> None:
        """A process is gone."""
        process = self.processes.pop(task)
        self.tell(e.Tick(now_ms=now_ms, up_ms=now_ms))
        self.tell(TaskExited(task=task, incarnation=process.incarnation, returncode=returncode, reason="ended"))

    def leave(self) -> None:
        """It is told to stop, in order."""
        self.leaving = True
        if self.owns:
            self.give_up()

    @property
    def idle(self) -> bool:
        """Whether it is waiting for nothing but the outside."""
        waiting = [run for run in self.machine.runs.values() if run.phase is Phase.WAITING]
        busy = self.splits or self.writes or self.commands or self.statuses or waiting or self.lags()
        return not busy and all(process.started and not process.ending for process in self.processes.values())


class World:
    """Topics, the workers that live, and time."""

    def __init__(self, seed: int, make: MakeMachine) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster()
        self.workers: list[SimWorker] = []
        self.orphans: list[TaskId] = []  # processes whose worker was killed
        self.now_ms = 1_000_000
        self.trace: list[str] = []
        self._make = make
        self._lives = 0
        self._generation = 0
        self.start_worker()

    def start_worker(self) -> None:
        """One more worker, often under the name of one that is no more."""
        self._lives += 1
        used = {worker.name for worker in self.workers}
        name = self.rng.choice([name for name in ("w:1", "w:2", "w:3", "w:4", "w:5") if name not in used][:2])
        self.trace.append(f"start {name} as life {self._lives}")
        self.workers.append(SimWorker(self.cluster, name, self._make, self.now_ms))

    def assign(self) -> None:
        """Somebody gets everything, if nobody has any of it; whoever has a process has it still."""
        if any(worker.owns or worker.processes for worker in self.workers):
            return
        able = [worker for worker in self.workers if not worker.leaving]
        if able:
            self._generation += 1
            worker = self.rng.choice(able)
            self.trace.append(f"{worker.name} has everything in generation {self._generation}")
            worker.begin(self._generation, len(self.cluster.config) if self.rng.random() < 0.5 else 0)

    @property
    def owner(self) -> SimWorker | None:
        """Who has everything."""
        return next((worker for worker in self.workers if worker.owns), None)

    def live(self, steps: int) -> None:
        """So many random steps."""
        for _ in range(steps):
            self.now_ms += self.rng.choice([0, 1, 300, 5_000])
            if not self.workers or (len(self.workers) < 3 and self.rng.random() < 0.01):
                for _ in range(self.rng.choice([1, 1, 2])):  # two at the same moment know nothing of each other
                    self.start_worker()
            worker = self.rng.choice(self.workers)
            fate = self.rng.random()
            if fate < 0.006:
                self.kill(worker)
            elif fate < 0.01:
                self.trace.append(f"stop {worker.name}")
                worker.leave()
            elif fate < 0.014 and worker.owns:
                self.trace.append(f"everything is taken from {worker.name}")
                worker.give_up()
            else:
                self.step(worker)
            self.reap()
            if self.rng.random() < 0.3:
                self.assign()

    def kill(self, worker: SimWorker) -> None:
        """kill -9."""
        self.trace.append(f"kill {worker.name} of generation {worker.generation}")
        self.workers.remove(worker)
        self.orphans += worker.processes

    def reap(self) -> None:
        """Workers that have stopped everything end."""
        for worker in list(self.workers):
            stopped = worker.leaving and not worker.processes and not worker.statuses
            if stopped:
                self.trace.append(f"end of {worker.name}, generation {worker.generation}")
                self.kill(worker)

    def step(self, worker: SimWorker) -> None:
        """Something happens to a worker."""
        rng = self.rng
        moves: list[Callable[[], None]] = [
            lambda: worker.follow(rng, rng.randrange(1, 4)),
            lambda: worker.follow(rng, rng.randrange(1, 4)),
            lambda: worker.tell(e.Tick(now_ms=self.now_ms, up_ms=self.now_ms)),
        ]
        if worker.splits:
            moves.append(lambda: worker.split(rng.choice(worker.splits)))
        if worker.writes and not worker.locked and rng.random() < 0.3:  # a slow broker: others are made meanwhile
            moves.append(lambda: worker.write(worker.writes[-1 if rng.random() < 0.5 else 0]))
        if worker.commands:
            moves.append(worker.obey)
        if worker.statuses:
            moves += [lambda: worker.write_statuses(rng)] * 2
        if worker.owns and not worker.locked:
            moves.append(lambda: self.request(worker))
        if worker.processes:
            moves += [lambda: self.process(worker)] * 2
        rng.choice(moves)()

    def request(self, worker: SimWorker) -> None:
        """Somebody uses the REST API."""
        name = self.rng.choice(NAMES)
        config = {
            "name": name,
            PARTS: self.rng.choice(["0", "1", "2", "3", "bad"]),
            "v": self.rng.choice("12"),
            RESTART_TRANSIENT: self.rng.choice(["true", "false"]),
        }
        target = self.rng.choice(list(TargetState))
        only_failed, include_tasks = self.rng.random() < 0.5, self.rng.random() < 0.5
        request: Command | e.RestartTask | e.RestartConnector = self.rng.choice(
            [
                Create(connector=name, config=config, initial_state=self.rng.choice([None, target])),
                Create(connector=name, config=config),
                *[Configure(connector=name, config=config)] * 3,
                SetTarget(connector=name, target=target),
                Delete(connector=name),
                Restart(connector=name, include_tasks=include_tasks, only_failed=only_failed),
                e.RestartTask(task=TaskId(name, self.rng.randrange(3))),
                e.RestartConnector(connector=name),
            ]
        )
        self.trace.append(f"{worker.name}: {request}")
        if isinstance(request, e.RestartTask | e.RestartConnector):
            worker.tell(request)
        else:
            worker.command(request)

    def process(self, worker: SimWorker) -> None:
        """Something happens to a task process."""
        task = self.rng.choice(sorted(worker.processes))
        process = worker.processes[task]
        what = self.rng.choice(["start", "start", "fail", "complete", "kill", "exit"])
        if what == "start" and not process.started:
            worker.start(task)
        elif what in ("fail", "complete") and process.started and not process.ending and self.rng.random() < 0.3:
            process.ending = True
            failure = self.rng.choice([Failure.TRANSIENT, Failure.TRANSIENT, Failure.BUG, Failure.POISON])
            failed = TaskFailed(task=task, incarnation=process.incarnation, trace="no luck", failure=failure)
            worker.tell(failed if what == "fail" else TaskCompleted(task=task, incarnation=process.incarnation))
        elif what == "kill" and self.rng.random() < 0.3:
            worker.exit(task, -9, self.now_ms)
        elif what == "exit" and process.ending:
            worker.exit(task, 0, self.now_ms)

    def settle(self) -> SimWorker:
        """Nothing new happens and all that is under way does; the worker that has everything."""
        for _ in range(20_000):
            self.reap()
            if not any(not worker.leaving for worker in self.workers):
                self.start_worker()
            self.assign()
            self.now_ms += 1_000
            busy = [worker for worker in self.workers if not worker.idle or worker.leaving]
            if not busy and self.owner is not None:
                break
            if not busy:
                continue
            self._finish(self.rng.choice(busy))
        else:
            raise Broken("it never comes to rest\n" + "\n".join(self.trace))
        self.orphans.clear()
        assert self.owner is not None
        return self.owner

    def _finish(self, worker: SimWorker) -> None:
        worker.catch_up()
        worker.tell(e.Tick(now_ms=self.now_ms, up_ms=self.now_ms))
        for action in list(worker.splits):
            worker.split(action)
        if worker.writes and not worker.locked:
            worker.write(worker.writes[0])
        if worker.commands:
            worker.obey()
        if worker.statuses:
            worker.write_statuses(self.rng)
        for task, process in list(worker.processes.items()):
            if process.ending:
                worker.exit(task, 0, self.now_ms)
            elif not process.started:
                worker.start(task)


def check(world: World, worker: SimWorker) -> None:
    """Everything at rest: the wanted processes, no others, and a status of exactly what there is."""
    state = ConfigState()
    for offset, (key, value) in enumerate(world.cluster.config):
        state.apply(decode_config(key, value), offset)
    resting = {task for task, run in worker.machine.runs.items() if run.phase in (Phase.FAILED, Phase.COMPLETED)}
    wanted = {
        TaskId(name, task)
        for name in state.names()
        if state.target(name) is not TargetState.STOPPED
        for task in range(len(state.tasks(name)))
    }
    if set(worker.processes) != wanted - resting:
        raise Broken(f"runs {sorted(worker.processes)}, wanted are {sorted(wanted - resting)}")
    for task, process in worker.processes.items():
        if process.config != dict(state.tasks(task.connector)[task.task]):
            raise Broken(f"{task} runs with a configuration of before: {process.config}")
    for name in state.names():
        for number, runs in worker.machine.history.of(name).items():
            goes_on = number is None or TaskId(name, number) in worker.processes
            if any(run.next_try_ms is not None and run.failure not in AGAIN for run in runs):
                raise Broken(f"{name} {number} was tried again after what does not pass by itself: {runs}")
            if any(run.ended_ms is None for run in runs[:-1]) or (runs[-1].ended_ms is None and not goes_on):
                raise Broken(f"the history of {name} {number} knows no end of what has ended: {runs}")
    for task in worker.processes:
        if worker.machine.history.of(task.connector)[task.task][-1].ended_ms is not None:
            raise Broken(f"the history of {task} says that it has ended")
    board = world.cluster.board()
    told = {(status.connector, status.task) for status in board.every()}
    there = {(name, None) for name in state.names()} | {(task.connector, task.task) for task in wanted}
    if told != there:
        raise Broken(f"statuses without instance {told - there}, instances without status {there - told}")
    for status in board.every():
        run = None if status.task is None else worker.machine.runs[TaskId(status.connector, status.task)]
        wanted = run is not None and run.config[RESTART_TRANSIENT] == "true" and status.failure is Failure.TRANSIENT
        if wanted and run is not None and run.tries < RestartPolicy().transient_max:
            raise Broken(f"{run} was not tried again")
        if (status.worker_id, status.generation) != (worker.name, worker.generation):
            raise Broken(f"{status} is of somebody else than {worker.name}, generation {worker.generation}")
        for other in world.workers:
            if other.machine.board.instance(status.connector, status.task) != status:
                raise Broken(f"{other.name} shows something else than {status}")
        expected = _expected(state, worker, status.connector, status.task)
        if status.state is not expected:
            raise Broken(f"{status.connector} {status.task} is {status.state}, expected {expected}")
    for name in state.names():
        if state.target(name) is TargetState.STOPPED and state.tasks(name):
            raise Broken(f"{name} is stopped and has tasks: {state.tasks(name)}")
        config = dict(state.submitted(name).config)  # type: ignore[union-attr]
        if config[PARTS] != "bad" and state.target(name) is not TargetState.STOPPED:
            made = [{**config, "part": str(part)} for part in range(int(config[PARTS]))]
            if [dict(task) for task in state.tasks(name)] != made:
                raise Broken(f"{name} has tasks of another configuration: {state.tasks(name)}")


def _expected(state: ConfigState, worker: SimWorker, connector: str, task: int | None) -> State:
    target = state.target(connector)
    submitted = state.submitted(connector)
    if task is not None:
        phase = worker.machine.runs[TaskId(connector, task)].phase
        if phase in (Phase.FAILED, Phase.COMPLETED):
            return State.FAILED if phase is Phase.FAILED else State.STOPPED
    elif target is TargetState.STOPPED:
        return State.STOPPED
    elif submitted is not None and submitted.config[PARTS] == "bad":
        return State.FAILED
    return State.PAUSED if target is TargetState.PAUSED else State.RUNNING
