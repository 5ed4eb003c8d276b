"""The worker's herder: the machine, its topics and its processes, joined

Everything the machine hears arrives here (records of the topics, news of task processes, the clock) and everything it
says is carried out here: processes through the task host, records through the topic logs, plugin code on a thread with
a deadline. One event is one `step`, taken on the event loop without a pause in between, so the machine's state can be
read at any time and is never half changed; the REST API reads it directly and never waits for a slow connector.

Writes of the REST API are serialised by the office around *decide, append, applied*: a decision is made in office, on
the state it will be appended to. It is held for round trips to the broker, never while a plugin is asked something.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

import structlog

from tidemill.connect.client_settings import translate, with_prefix
from tidemill.connect.config import WorkerConfig, converter
from tidemill.connect.failure import Failure, classify, trace_of
from tidemill.connect.group.alone import Alone
from tidemill.connect.group.claim import GroupClaim
from tidemill.connect.group.lives import Life, LifeFacts
from tidemill.connect.group.machine import Allow
from tidemill.connect.group.seat import GroupRefused, GroupSettings, Seat
from tidemill.connect.group.sessioned_words import PROTOCOL as SESSIONED
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import STALE, Command, Conflict, Decision, decide
from tidemill.connect.herder.lanes import Lanes, Work
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.herder.office import NotInOffice, Office, OfficeSettings
from tidemill.connect.herder.offsets import OffsetBook
from tidemill.connect.herder.placement import CONNECTOR, Instance
from tidemill.connect.herder.plugin_calls import SPLIT_TIMEOUT_S, Asked, PluginCalls
from tidemill.connect.herder.state import Submitted
from tidemill.connect.herder.task_run import Phase
from tidemill.connect.loader import Plugins
from tidemill.connect.peer_client import PeerClient
from tidemill.connect.problem import Problem
from tidemill.connect.stand_in import environment_of
from tidemill.connect.stores import (
    InstanceStatus,
    KeyValue,
    State,
    StatusRecord,
    TargetState,
    TaskConfig,
    WorkerClaim,
    decode_status,
    encode_status,
)
from tidemill.connect.task_spec import (
    PluginFailed,
    TaskEvent,
    TaskExited,
    TaskFailed,
    TaskId,
    TaskSpec,
    TaskStarted,
)
from tidemill.connect.task_submission import NeverTaken, NotTaken, TaskSubmission
from tidemill.connect.topic_log import LogRecord, RecordTooLarge, TopicLog, TopicLogError
from tidemill.connect.topic_positions import TopicPositions
from tidemill.connect.topic_watch import TopicIds, TopicWatch
from tidemill.connect.unsupported import refuse_unsupported
from tidemill.connect.whereabouts import Whereabouts
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.herder")

START_TIMEOUT_S = 60.0
"""How long reading the three topics may take at the start."""

JOIN_TIMEOUT_S = 60.0
"""How long it may take at the start to become a member of the group; a member that has died is waited for meanwhile."""

STARTS_MAX = 8
"""Processes that start at the same time: each costs most of a second of processor time, and hundreds at once would all
miss the deadline for their first word."""

START_SLOT_S = 10.0
"""How long a starting process counts as one of them."""

KILL_TIMEOUT_S = 10.0
"""How long the end of a task may take that did not end within its grace period."""

CATCH_UP_S = 20.0
"""How long the offsets topic may take to be read to its end before offsets are written; no other write goes on then."""

LAST_WORDS_TIMEOUT_S = 3.0
"""How long a stopping worker tries to say that its tasks are no longer assigned."""

NO_ROOM = (
    "The error text is too long for the status topic; the worker's log has it. Raise the topic's max.message.bytes."
)

GOODBYE_TIMEOUT_S = 5.0
"""How long a stopping worker tries to tell its group; else its session ends by itself."""

TAKEN_OVER = (
    "Another worker took over the group while the offsets were written: it may have started the connector before. "
    "Look at the offsets and the connector's state, then ask again."
)

NOT_CONFIRMED = (
    "The offsets are written, and whether another worker had taken over the group before cannot be told, as the config "
    "topic cannot be written ({error}). Look at the offsets and the connector's state, then ask again."
)

MAY_RUN = (State.RUNNING, State.PAUSED, State.RESTARTING, State.FAILED)
"""Statuses of what somebody may be doing."""

RETRY_S = 1.0
"""Pause before a write that the broker did not take is tried again."""


class Host(Asked, Protocol):
    """What the herder needs of a task host; `tidemill.connect.remote.host.TaskHost` is the real one."""

    async def start_task(self, spec: TaskSpec) -> None: ...
    def stop_task(self, task: TaskId, grace_s: float) -> Work: ...
    def pause_task(self, task: TaskId) -> Work: ...
    def resume_task(self, task: TaskId) -> Work: ...
    def events(self) -> AsyncIterator[TaskEvent]: ...
    def lease(self, until_s: float) -> None: ...


class Alarm(Protocol):
    """Calls back once, after so long; the same name again moves it."""

    def __call__(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a herder works with."""

    config: WorkerConfig
    worker_id: str
    plugins: Plugins
    host: Host
    clock: Clock
    alarm: Alarm
    set_level: Callable[[str, str], None]
    group: GroupSettings
    life: Life | None = None  # of this worker, where lives are kept
    over: tuple[LifeFacts, ...] = ()  # lives on this machine of which nothing runs any more


class Herder:
    """One worker's herder; an async context manager that is ready when it has read its topics and begun its work."""

    def __init__(self, around: Surroundings) -> None:
        config = around.config
        self._is_mixed = around.group.protocol == SESSIONED  # Apache's workers may be in the group
        self.machine = HerderMachine(
            around.worker_id, track_topics=config.topic_tracking, statuses_in_order=self._is_mixed
        )
        self.offsets = OffsetBook()
        self.calls = PluginCalls(around.host, around.plugins)
        self._around = around
        self.seat = self._new_seat()
        self._group_claim = GroupClaim(
            around.group.group,
            around.worker_id,
            self.machine.board,
            self._claim,
            lambda: self._generation if self.seat.is_leader else None,
        )
        self.peers = PeerClient()
        self._statuses: dict[bytes, StatusRecord] = {}  # waiting to be written; the last word on a key replaces others
        self._status_waits = asyncio.Event()
        self._stack = AsyncExitStack()
        self._owned: set[asyncio.Task[None]] = set()
        self._lanes = Lanes(self._spawn)
        self._starts = asyncio.Semaphore(STARTS_MAX)
        self._starting: set[int] = set()  # incarnations that hold one of its slots
        self._leaving = False
        self._generation = 0  # of this worker's assignment; 0 before it has one
        self._wanted: tuple[int, frozenset[Instance]] = (-1, frozenset())  # with the end of what was read
        self._unwritten = False  # the last write to a topic failed
        self._ended = asyncio.Event()  # while leaving: no task has a process
        self._written = asyncio.Event()  # and nothing is left to say

        def follow(
            topic: str, on_records: Callable[[Sequence[LogRecord]], None], *, may_begin_anew: bool = False
        ) -> TopicLog:
            return TopicLog(
                topic,
                config.client,
                on_records,
                start_timeout_s=START_TIMEOUT_S,
                append_timeout_s=config.request_timeout_ms / 1000,
                may_begin_anew=may_begin_anew,
            )

        self._config_log = follow(config.config_topic.name, self._on_config_records)
        self._status_log = follow(config.status_topic.name, self._on_status_records)
        # Tasks that run go on from what they know and write it again; to end them would make each begin anew.
        self._offset_log = follow(config.offset_topic.name, self._on_offset_records, may_begin_anew=True)
        self._logs = (self._config_log, self._status_log, self._offset_log)
        self._topic_ids = TopicIds(config.client)
        give_up = {each.topic: each.give_up for each in (self._config_log, self._status_log)}
        self._topic_watch = TopicWatch(self._topic_ids, {self._offset_log.topic: None, **give_up}, self.now_ms)
        self.positions = TopicPositions(config=self._config_log, offset=self._offset_log)
        in_office = OfficeSettings(
            life=uuid.uuid4().hex,
            key=config.inter_worker.key,
            leads=lambda: self.seat.is_leader,
            clock=around.clock,
            afresh=self._is_mixed,
        )
        self.office = Office(self._config_log, asyncio.Lock(), in_office)
        self.whereabouts = Whereabouts(self.seat, self.office, self.seat.url)
        self._submission = TaskSubmission(
            group=self.whereabouts,
            peers=self.peers,
            key=lambda: self.session_key,
            algorithm=config.inter_worker.signature,
        )

    def _new_seat(self) -> Seat | Alone:
        around = self._around
        if around.group.alone_because:
            return Alone(around.group, self, self._claim, lambda: self.machine.board.claim, around.group.alone_because)
        joined = None if around.life is None else around.life.is_member
        return Seat(around.group, self, over=around.over, joined=joined)

    async def _claim(self, claim: WorkerClaim) -> None:
        await self._status_log.append([encode_status(claim)])

    async def __aenter__(self) -> Self:
        self._stack.callback(self._topic_ids.close)
        try:
            await self._topic_watch.begin()
            async with asyncio.TaskGroup() as starts:
                for topic_log in self._logs:
                    starts.create_task(self._open(topic_log), name=f"read {topic_log.topic}")
            self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
            self._spawn(self._hear_tasks(), "task events")
            self._spawn(self._write_statuses(), "status writer")
            for topic_log in self._logs:
                self._spawn(self._give_up_with(topic_log), f"watch {topic_log.topic}")
            self._spawn(self._topic_watch.keep(), "watch topics")
            self.tick()
            self._spawn(self.office.keep(), "office")
            self._spawn(self.seat.run(), "seat in the group")
            if isinstance(self.seat, Seat):
                self._spawn(self._group_claim.keep(), "claim of the group")
            await self._take_seat()
        except BaseException as error:
            for task in list(self._owned):
                task.cancel()
            # Where it is a task of ours that failed, this raises what it said.
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _take_seat(self) -> None:
        """Wait for the first assignment."""
        group = self._around.group.group
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await self.seat.seated.wait()
        except TimeoutError:
            reason = self.seat.trouble[0] or "its members do not come together"
            raise GroupRefused(f"group {group!r} was not joined within {JOIN_TIMEOUT_S:g} s: {reason}") from None
        log.info("group joined", group=group, workers=len(self.seat.workers), leader=self.seat.leader_url)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None:
            await self._leave()
        for task in list(self._owned):
            task.cancel()
        self.peers.close()
        return await self._stack.__aexit__(kind, error, trace)

    async def _open(self, topic_log: TopicLog) -> None:
        await self._stack.enter_async_context(topic_log)

    def _spawn(self, work: Work, name: str) -> None:
        """Run `work` as a task of this herder's group; it ends with the herder."""
        task = self._tasks.create_task(work, name=name)
        self._owned.add(task)
        task.add_done_callback(self._owned.discard)

    async def _leave(self) -> None:
        """Stop every task and say so, within the time tasks are given."""
        self._leaving = True
        grace_s = self._around.config.task_shutdown_ms / 1000
        self.seat.stop()
        self._notice_idle()
        for event, what, limit_s in (
            (self._ended, "tasks not ended", grace_s + KILL_TIMEOUT_S),
            (self._written, "statuses not written", LAST_WORDS_TIMEOUT_S),
            (self.seat.left, "group not left", GOODBYE_TIMEOUT_S),
        ):
            try:
                async with asyncio.timeout(limit_s):
                    await event.wait()
            except TimeoutError:
                log.warning("left early", reason=what, tasks=[str(task) for task in self.machine.alive()])

    def _notice_idle(self) -> None:
        if self._leaving and not self.machine.alive():
            self._ended.set()
            if not self._statuses:
                self._written.set()

    @property
    def health(self) -> str:
        """Whether it can do its work: healthy, starting or unhealthy."""
        if self._generation == 0:
            return "starting"
        impaired = self._unwritten or self.topic_problem is not None or not self.seat.holds_lease
        return "unhealthy" if impaired else "healthy"

    @property
    def topic_problem(self) -> Problem | None:
        """What is wrong with the topics themselves."""
        return self._topic_watch.problem

    @property
    def known_urls(self) -> frozenset[str]:
        """Where workers of the group answer, as far as this one knows.

        By Kafka's protocol only the leader is told who the others are; the rest know those that do something, by the
        statuses that they have written.
        """
        known = {*self.seat.workers.values()}
        if self._is_mixed and not self.seat.is_leader:
            busy = (each.worker_id for each in self.machine.board.every() if each.state is not State.UNASSIGNED)
            known |= {url for url in (self.seat.leader_url, *(f"http://{worker_id}" for worker_id in busy)) if url}
        return frozenset(url.rstrip("/") for url in known)  # Apache's workers end theirs with a slash

    # ------------------------------------------------------- what the seat asks

    @property
    def config_offset(self) -> int:
        """How far the config topic was read."""
        return self.machine.state.end_offset

    @property
    def generation_heard(self) -> int:
        """The highest generation that the status topic tells of."""
        return self.machine.board.generation

    def wanted(self) -> frozenset[Instance]:
        """Everything that the config topic wants somebody to do."""
        state = self.machine.state
        if self._wanted[0] != state.end_offset:
            connectors = (Instance(name, CONNECTOR) for name in state.names())
            tasks = (
                Instance(name, task)
                for name in state.names()
                if state.target(name) is not TargetState.STOPPED
                for task in range(len(state.tasks(name)))
            )
            self._wanted = (state.end_offset, frozenset((*connectors, *tasks)))
        return self._wanted[1]

    def running(self) -> frozenset[Instance]:
        """What has a process here, or may have one."""
        return frozenset(Instance(*task) for task in self.machine.alive())

    def said_to_run(self) -> frozenset[Instance]:
        """What the status topic says to run, but for what is known to have ended: here, or with a life that is over."""
        over: dict[str, int] = {}
        for life in self._around.over:
            over[life.worker_id] = max(life.generation, over.get(life.worker_id, -1))
        said = {
            Instance(status.connector, CONNECTOR if status.task is None else status.task): status
            for status in self.machine.board.every()
            if status.state in MAY_RUN and status.generation > over.get(status.worker_id, -1)
        }
        running = self.running()
        return frozenset(
            instance
            for instance, status in said.items()
            if instance in running or status.worker_id != self._around.worker_id or status.generation > self._generation
        )

    def has(self, connector: str, task: int | None = None) -> bool:
        """Whether the connector itself, or one of its tasks, is this worker's."""
        return self.machine.owns(connector, task)

    def now_ms(self) -> int:
        """Wall-clock time."""
        return self._around.clock.now_ms()

    def allow(self, allowed: Allow) -> None:
        """Do this, and nothing else."""
        self.office.look()
        self._generation = allowed.generation
        self._group_claim.look()
        self.tick()
        instances = allowed.instances
        self.tell(
            e.Assigned(
                generation=allowed.generation,
                connectors=frozenset(each.connector for each in instances if each.task == CONNECTOR),
                tasks=frozenset(TaskId(*each) for each in instances if each.task != CONNECTOR),
                leads=allowed.leads,
                busy=frozenset(
                    (each.connector, None if each.task == CONNECTOR else each.task) for each in allowed.busy
                ),
            )
        )

    def lease(self, until_s: float) -> None:
        """Have all tasks killed at this time, whatever becomes of this process until then."""
        self._around.host.lease(until_s)

    # ------------------------------------------------------------- events in

    def tell(self, event: e.Event) -> None:
        """Let the machine take in an event and carry out what it says."""
        for action in self.machine.step(event):
            self._do(action)
        if isinstance(event, TaskExited | e.SpawnFailed):
            self.seat.look()  # whether somebody else may have it now
        self._notice_idle()

    def look_around(self) -> None:
        """Tell everybody the time, even if nothing happens."""
        self.tick()
        self.seat.look()
        self.office.look()
        self._group_claim.look()

    def tick(self) -> None:
        """Tell the machine the time."""
        clock = self._around.clock
        self.tell(e.Tick(now_ms=clock.now_ms(), up_ms=int(clock.monotonic() * 1000)))

    def _on_config_records(self, records: Sequence[LogRecord]) -> None:
        self.tick()
        for record in records:
            self.tell(e.ConfigSeen(record=self.office.take(record), offset=record.offset))
        self.seat.look()

    def _on_status_records(self, records: Sequence[LogRecord]) -> None:
        claim = self.machine.board.claim
        for record in records:
            self.tell(e.StatusSeen(record=decode_status(record.key, record.value)))
        if self.machine.board.claim is not claim:
            self.seat.look()
            self._group_claim.look()

    def _on_offset_records(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if not self.offsets.apply(record.key, record.value):
                log.warning("not a source offset", key=repr(record.key), offset=record.offset)

    async def _hear_tasks(self) -> None:
        async for event in self._around.host.events():
            self.tick()
            if isinstance(event, TaskStarted | TaskFailed | TaskExited):
                self._has_started(event.incarnation)
            self.tell(event)

    async def _give_up_with(self, topic_log: TopicLog) -> None:
        raise await topic_log.failure()

    # ----------------------------------------------------------- actions out

    def _do(self, action: e.Action) -> None:
        match action:
            case e.StartTask(task=task):
                self._lanes.put(task, lambda: self._start(action))
            case e.StopTask(task=task):
                self._lanes.put(task, lambda: self._stop(task))
            case e.PauseTask(task=task):
                self._lanes.put(task, lambda: self._command(self._around.host.pause_task, task))
            case e.ResumeTask(task=task):
                self._lanes.put(task, lambda: self._command(self._around.host.resume_task, task))
            case e.SplitConnector():
                self._spawn(self._split(action), f"split {action.connector}")
            case e.WriteTasks():
                self._spawn(self._write_tasks(action), f"write tasks of {action.connector}")
            case e.WriteStatus(record=record):
                key = encode_status(record)[0]
                self._statuses.pop(key, None)  # to the end of the queue
                self._statuses[key] = record
                self._status_waits.set()
            case e.WakeAfter(task=task, delay_ms=delay_ms):
                self._around.alarm(f"restart {task}", delay_ms, self.tick)
            case e.SetLevel(logger=logger, level=level):
                self._around.set_level(logger, level)
            case e.Note(message=message, facts=facts, level=level):
                shown = dict(facts)
                if "\n" in str(shown.get("trace", "")).strip():
                    shown["exception"] = shown.pop("trace")  # lines as they are, not one line with their escapes
                log.log(level, message, **shown)

    async def _start(self, action: e.StartTask) -> None:
        await self._starts.acquire()
        self._starting.add(action.incarnation)
        run = self.machine.runs.get(action.task)
        if run is None or run.incarnation != action.incarnation or run.phase is Phase.STOPPING:
            self._has_started(action.incarnation)
            reason = "stopped before it was started"
            self.tell(TaskExited(task=action.task, incarnation=action.incarnation, returncode=0, reason=reason))
            return
        self._spawn(self._started_in_time(action.incarnation), f"start {action.task}")
        try:
            await self._around.host.start_task(self.spec(action))
        except Exception as error:
            self._has_started(action.incarnation)
            trace, failure = trace_of(error), classify(error)
            self.tell(e.SpawnFailed(task=action.task, incarnation=action.incarnation, trace=trace, failure=failure))

    async def _started_in_time(self, incarnation: int) -> None:
        """A plugin that takes long to start makes room for the others meanwhile."""
        await asyncio.sleep(START_SLOT_S)
        self._has_started(incarnation)

    def _has_started(self, incarnation: int) -> None:
        if incarnation in self._starting:
            self._starting.discard(incarnation)
            self._starts.release()

    async def _stop(self, task: TaskId) -> None:
        await self._guarded(self._around.host.stop_task(task, self._around.config.task_shutdown_ms / 1000), task)

    async def _command(self, command: Callable[[TaskId], Work], task: TaskId) -> None:
        # Not awaited in the lane: a stop must not queue behind a pause that waits for a slow start.
        self._spawn(self._guarded(command(task), task), f"command {task}")

    async def _guarded(self, work: Work, task: TaskId) -> None:
        """A task that cannot be commanded is a line in the log, not the end of the worker."""
        try:
            await work
        except Exception as error:
            log.exception("task not reached", task=str(task), reason=str(error))

    def spec(self, action: e.StartTask) -> TaskSpec:
        """Everything the task's process has to know."""
        worker, config = self._around.config, self._complete(action)
        plugin = self._around.plugins.of(config)
        refuse_unsupported(plugin, config)
        if not worker.topic_creation:
            config = {name: value for name, value in config.items() if not name.startswith("topic.creation.")}
        return TaskSpec(
            task=action.task,
            incarnation=action.incarnation,
            plugin=self._around.plugins.target(plugin),
            environment=environment_of(plugin),
            kind=plugin.kind,
            config=config,
            bootstrap_servers=worker.bootstrap_servers,
            key_converter=converter(config, "key") or worker.key_converter,
            value_converter=converter(config, "value") or worker.value_converter,
            offsets_topic=worker.offset_topic.name,
            worker_id=self._around.worker_id,
            client_config={name: value for name, value in worker.client.items() if name != "bootstrap.servers"},
            producer_config={**worker.producer, **_overrides(config, "producer")},
            consumer_config={**worker.consumer, **_overrides(config, "consumer")},
            offset_flush_interval_ms=worker.offset_flush_interval_ms,
            offset_flush_timeout_ms=worker.offset_flush_timeout_ms,
            initial_state=action.initial_state,
        )

    def _complete(self, action: e.StartTask) -> Mapping[str, str]:
        """A task's configuration; what a connector on a worker of Java's has made lacks what is the connector's."""
        submitted = self.machine.state.submitted(action.task.connector)
        if "connector.class" in action.config or submitted is None:
            return action.config
        return {**submitted.config, **action.config}

    async def _split(self, action: e.SplitConnector) -> None:
        version: str | None = None
        tasks: tuple[Mapping[str, str], ...] = ()
        trace: str | None = None
        failure = Failure.BUG
        try:
            plugin = self._around.plugins.of(action.config)
            version = plugin.version
            refuse_unsupported(plugin, action.config)
            tasks = await self.calls.tasks(plugin, action.config, for_java=self._is_mixed)
        except PluginFailed as error:
            trace, failure = error.trace, error.failure
        except TimeoutError as error:
            trace, failure = f"The plugin did not say within {SPLIT_TIMEOUT_S:g} s what its tasks are.", classify(error)
        except Exception as error:
            trace, failure = trace_of(error), classify(error)
        self.tick()
        self.tell(
            e.Split(
                connector=action.connector,
                config_offset=action.config_offset,
                version=version,
                tasks=tasks,
                trace=trace,
                failure=failure,
            )
        )

    async def _write_tasks(self, action: e.WriteTasks) -> None:
        while self.machine.wants(action):
            try:
                if self.seat.is_leader:
                    async with self.office.deciding():
                        if self.machine.wants(action):
                            await self.office.append(action.records)
                else:
                    tasks = [record.properties for record in action.records if isinstance(record, TaskConfig)]
                    await self._submission.submit(action.connector, tasks, action.config_offset)
                return
            except (RecordTooLarge, NeverTaken) as error:
                self.tell(_tasks_refused(action, error))
                return
            except (TopicLogError, NotInOffice, NotTaken) as error:
                log.warning("task configurations not written yet", connector=action.connector, reason=str(error))
            await asyncio.sleep(RETRY_S)

    async def _write_statuses(self) -> None:
        while True:
            await self._status_waits.wait()
            self._status_waits.clear()
            while self._statuses:
                batch = self._batch()
                if not batch:
                    continue
                try:
                    await self._status_log.append([encode_status(record) for record in batch.values()])
                except RecordTooLarge as error:
                    self._make_smaller(error, batch)
                    continue
                except TopicLogError as error:
                    self._unwritten = True
                    log.warning("statuses not written yet", reason=str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                self._unwritten = False
                for key, record in batch.items():
                    if self._statuses.get(key) is record:
                        del self._statuses[key]
            self._notice_idle()

    def _batch(self) -> dict[bytes, StatusRecord]:
        """What is to be written, less what another has taken over while it waited: Apache's say nothing twice."""
        taken = [key for key, record in self._statuses.items() if self.machine.board.takes_away(record)]
        for key in taken:
            del self._statuses[key]
        return dict(self._statuses)

    def _make_smaller(self, refused: RecordTooLarge, batch: Mapping[bytes, StatusRecord]) -> None:
        """Keep a status that the topic does not take from standing in the way of all others."""
        record = batch[refused.key]
        if self._statuses.get(refused.key) is not record:
            return  # something else has been said meanwhile
        del self._statuses[refused.key]
        log.error("status too large for its topic", key=repr(refused.key), reason=str(refused))
        if isinstance(record, InstanceStatus) and record.trace not in (None, NO_ROOM):
            self._statuses[refused.key] = replace(record, trace=NO_ROOM)

    # ------------------------------------------------------------ for the API

    async def command(self, command: Command) -> Decision:
        """Carry out a write of the REST API; returns when it is in force.

        Raises Refused, NotInOffice or TopicLogError.
        """
        async with self.office.deciding():
            decision = decide(self.machine.state, command)
            await self.office.append(decision.records)
            return decision

    @property
    def session_key(self) -> bytes | None:
        """What the workers of the group sign with, None until it is known."""
        return None if self.office.key is None else self.office.key.key

    def knows(self, connector: str, task: int | None) -> bool:
        """Whether there is such a task or, with None, such a connector."""
        state = self.machine.state
        return state.submitted(connector) is not None and (task is None or task < len(state.tasks(connector)))

    async def quiet(self, connector: str, timeout_s: float) -> bool:
        """Wait until the connector has no process left anywhere; false if it may still have one after `timeout_s`.

        Only the leader knows.
        """
        if not self.seat.is_leader:
            raise NotInOffice("this worker does not lead its group")
        deadline = self._around.clock.monotonic() + timeout_s
        while self.machine.alive(connector) or self.seat.others_hold(connector):
            if self._around.clock.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def write_offsets(
        self, connector: str, submitted: Submitted, change: Callable[[], Sequence[KeyValue]]
    ) -> None:
        """Rewrite source offsets of a connector that is stopped and has no task left.

        `submitted` is what was asked about, since another of that name may be there by now; `change` says what to write
        when nobody can decide or write anything else any more. Raises Conflict, NotInOffice or TopicLogError.
        """
        async with self.office.deciding():
            self._insist_stopped(connector, submitted)
            await self._offset_log.catch_up(CATCH_UP_S)  # what its tasks wrote last may not have come by
            await self.office.confirm()  # that took its time
            self._insist_stopped(connector, submitted)
            await self._offset_log.append(change())
            try:
                await self.office.confirm()
            except NotInOffice:
                raise TopicLogError(TAKEN_OVER) from None
            except TopicLogError as error:
                raise TopicLogError(NOT_CONFIRMED.format(error=error)) from None

    def _insist_stopped(self, connector: str, submitted: Submitted) -> None:
        state = self.machine.state
        same = state.submitted(connector) == submitted and state.target(connector) is TargetState.STOPPED
        if not same or self.machine.alive(connector) or self.seat.others_hold(connector):
            raise Conflict(STALE)


def _tasks_refused(action: e.WriteTasks, error: RecordTooLarge | NeverTaken) -> e.TasksRefused:
    trace = f"{error}: a task's configuration must fit into one record; raise max.message.bytes of the config topic"
    return e.TasksRefused(connector=action.connector, config_offset=action.config_offset, trace=trace)


def _overrides(config: Mapping[str, str], client: str) -> dict[str, str]:
    return dict(translate(with_prefix(config, f"{client}.override.")).settings)
