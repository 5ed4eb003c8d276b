"""The worker's side of task processes: start, supervise, stop

One process per task, forked by a nursery under the eyes of the worker's guardian (see `guarded`), and a pair of
sockets to speak to it. The host passes commands on, turns what the processes say into events, and adds what only the
kernel knows: exit codes, signals, memory and processor time. Tasks that ask for it share processes (see `seating`).

Whatever a process does, its end is certain. `stop_task` asks first and kills the process and all it started when the
grace period is over, with the tasks that share it; leaving the host's context does the same for every task; and if the
worker itself is killed, the guardian sees its socket end (see `guardian`). `TaskExited` is the last event of every
start, exactly once.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

import orjson
import structlog
from google.protobuf.message import DecodeError

from tidemill.connect.api import InvalidConfig
from tidemill.connect.failure import Failure, class_named
from tidemill.connect.problem import Problem, shortened
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote import seating, standstill
from tidemill.connect.remote.cgroups import Cgroups
from tidemill.connect.remote.event_feed import EventFeed
from tidemill.connect.remote.frames import FrameError, FrameReader
from tidemill.connect.remote.guarded import LAST_OUTPUT_S, Guardians, lines
from tidemill.connect.remote.messages import PROTOCOL_VERSION, problem_from_message, spec_to_message
from tidemill.connect.remote.process_facts import (
    Census,
    FamilyFacts,
    children_of,
    family_facts,
    proportional_bytes,
)
from tidemill.connect.remote.task_process import LESS_MEMORY, Seat, TaskProcess, failed_with
from tidemill.connect.task_isolation import ISOLATION, TASKS_MAX, is_shared
from tidemill.connect.task_limits import CPU_MAX, DELEGATE, HANG_MAX, MEMORY_MAX, TaskLimits, task_limits
from tidemill.connect.task_spec import (
    PluginFailed,
    SettingProblem,
    TaskCompleted,
    TaskEvent,
    TaskExited,
    TaskFailed,
    TaskId,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskStarted,
)
from tidemill.core.runtime.clock import Clock, SystemClock

log = structlog.get_logger("tidemill.connect.host")
task_log = structlog.get_logger("tidemill.connect.task")

ATTACH_TIMEOUT_S = 60.0  # for the process to call back, a first import of everything included, under full load
KILL_TIMEOUT_S = 8.0  # for the guardian to kill everything before it is killed itself, and nurseries before that
END_TIMEOUT_S = 30.0  # for a process that has closed its stream to end, with its threads and what it does at exit
ANSWERED_S = 2.0  # the same for one that has answered a question, which somebody waits for
SAMPLE_INTERVAL_S = 2.0  # between looks at memory and processor time
LIMIT_INTERVAL_S = 0.25  # between those at a task that may not use all the memory there is
SHUTDOWN_GRACE_S = 5.0  # Kafka Connect's task.shutdown.graceful.timeout.ms
CANNOT_SHARE = (
    "the plugin's environment brings a tidemill that cannot run several tasks in a process: upgrade it there, or set "
    f"{ISOLATION}=process"
)
NOT_FACTS = frozenset(
    {"level", "self", "exc_info", "stack_info"}
)  # of a logged line: they ask the logger for something


class TaskHost:
    """Runs tasks in processes of their own; use it as an asynchronous context manager."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        sample_interval_s: float = SAMPLE_INTERVAL_S,
        environ: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
        cgroups: Cgroups | None = None,
        shared_max: int = TASKS_MAX,
    ) -> None:
        self._inherited = tuple(inherited)  # open files that whatever is started here keeps open
        self._cgroups = cgroups
        self._clock = clock or SystemClock()
        self._sample_interval_s = sample_interval_s
        self._environ = dict(os.environ if environ is None else environ)
        self._by_task: dict[TaskId, Seat] = {}
        self._running: set[TaskProcess] = set()  # with tasks in them
        self._shared: dict[int, TaskProcess] = {}
        self._seating = seating.Seating(shared_max)
        self._seat_numbers = itertools.count(1)
        self._finding_a_seat = asyncio.Lock()
        self._preflights: set[TaskProcess] = set()
        self._feed = EventFeed()
        self._stack = contextlib.AsyncExitStack()
        self._tasks: asyncio.TaskGroup
        self._guardians: Guardians

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._guardians = Guardians(self._environ, self._tasks, self._inherited)
        self._stack.push_async_callback(self._guardians.close)
        warming = self._tasks.create_task(self._warm(), name="warm")
        self._stack.callback(warming.cancel)
        sampling = self._tasks.create_task(self._sample(), name="sample")
        self._stack.callback(sampling.cancel)
        self._stack.push_async_callback(self.stop_all)
        return self

    async def __aexit__(self, *failure: object) -> None:
        try:
            await self._stack.__aexit__(*failure)  # type: ignore[arg-type]  # the three of any exception, or None
        finally:
            self._feed.close()

    # ------------------------------------------------------------------ public

    async def start_task(self, spec: TaskSpec) -> None:
        """Start a process for the task; what becomes of it arrives as events."""
        if spec.task in self._by_task:
            raise ValueError(f"task {spec.task} is still running on this worker")
        limits = task_limits(spec.config)
        if limits.cpu_cores and self._cgroups is None:
            raise InvalidConfig(
                CPU_MAX, f"{CPU_MAX} cannot be kept by worker {spec.worker_id}.", f"Remove it, or {DELEGATE}."
            )
        if is_shared(spec.config):
            async with self._finding_a_seat:
                await self._start_beside_others(spec)
            return
        order = pb.ToTask(start=spec_to_message(spec))
        process = await self._spawn(str(spec.task), spec.plugin, order, spec.environment, limits)
        self._take(Seat(spec, process))

    async def stop_task(self, task: TaskId, grace_s: float) -> None:
        """Ask a task to end, kill it when `grace_s` is over, and return once its process is gone."""
        seat = self._by_task.get(task)
        if seat is None:
            return
        process = seat.process
        late = "was stopped before it had started"
        if process.attached.is_set():
            late = "did not stop within its grace period"
            process.send(pb.ToTask(seat=seat.number, stop=pb.Stop(grace_ms=int(grace_s * 1000))))
            if await _within(seat.gone, grace_s):
                return
            log.warning("task did not stop in time and is killed", task=str(task), grace_s=grace_s)
        elif process.shared:
            self._over(seat, -signal.SIGKILL, f"killed: it {late}")
            return
        process.stop_requested = True
        who = f"task {task}" if process.shared else "it"
        process.kill(f"{who} {late}", blameless=True)
        await seat.gone.wait()

    async def stop_all(self, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Stop every task at the same time."""
        async with asyncio.TaskGroup() as stops:
            for task in list(self._by_task):
                stops.create_task(self.stop_task(task, grace_s))
            for process in list(self._preflights):
                process.kill("the worker is shutting down")
                stops.create_task(_wait(process.gone))
            for process in list(self._shared.values()):
                stops.create_task(_within(process.gone, grace_s + SHUTDOWN_GRACE_S))

    async def pause_task(self, task: TaskId) -> None:
        """Tell a task to stop reading; `TaskPaused` confirms it."""
        await self._command(task, pb.ToTask(pause=pb.Pause()))

    async def resume_task(self, task: TaskId) -> None:
        """Tell a task to read on; `TaskResumed` confirms it."""
        await self._command(task, pb.ToTask(resume=pb.Resume()))

    def lease(self, until_s: float) -> None:
        """Have tasks killed at this time, in seconds since boot, and none started later, be this process alive or not.

        Before the first lease they run for as long as they like.
        """
        self._guardians.lease(until_s)

    def let_go(self, environment: str) -> None:
        """Have nothing stay ready in an environment that runs no task."""
        self._guardians.let_go(environment)

    def events(self) -> AsyncIterator[TaskEvent]:
        """Everything that happens to tasks, in order; ends with the host. One reader."""
        return self._feed.read()

    async def validate(
        self, plugin: str, config: Mapping[str, str], *, timeout_s: float = 30.0, environment: str = ""
    ) -> tuple[SettingProblem, ...]:
        """Run a plugin's preflight in a process of its own; what it has against the configuration."""
        order = pb.ToTask(check=pb.Check(plugin=plugin, config=dict(config)))
        try:
            process = await self._consult(f"preflight of {plugin}", plugin, order, timeout_s, environment)
        except TimeoutError:
            return (
                SettingProblem(
                    "",
                    f"the preflight of {plugin} gave no answer within {timeout_s:g} s: "
                    "is the system it connects to reachable from this worker?",
                ),
            )
        if process.checked is None:
            return (SettingProblem("", f"the preflight of {plugin} ended without an answer: {process.reason()}"),)
        return tuple(SettingProblem(each.setting, each.message) for each in process.checked.problems)

    async def ask(
        self,
        about: str,
        plugin: str,
        config: Mapping[str, str],
        *,
        timeout_s: float,
        tasks_max: int = 1,
        environment: str = "",
    ) -> Any:
        """What a plugin answers in a process of its own; raises PluginFailed or TimeoutError."""
        question = pb.Question(plugin=plugin, config=dict(config), about=about, tasks_max=tasks_max)
        order = pb.ToTask(question=question)
        process = await self._consult(f"{about} of {plugin}", plugin, order, timeout_s, environment)
        if process.answer is None:
            raise PluginFailed(f"{plugin} ended without an answer: {process.reason()}", Failure.KILLED)
        if not process.answer.json:
            raise PluginFailed(process.answer.trace, class_named(process.answer.failure))
        return orjson.loads(process.answer.json)

    async def _consult(
        self, label: str, plugin: str, order: pb.ToTask, timeout_s: float, environment: str
    ) -> TaskProcess:
        """A process that was given an order and has ended; raises TimeoutError."""
        process = await self._spawn(label, plugin, order, environment)
        self._preflights.add(process)
        try:
            async with asyncio.timeout(timeout_s):
                await process.told.wait()
            await _within(process.gone, ANSWERED_S)
        finally:
            process.kill("it ran out of time")
        return process

    async def _command(self, task: TaskId, message: pb.ToTask) -> None:
        seat = self._by_task.get(task)
        if seat is not None and await _within(seat.process.attached, ATTACH_TIMEOUT_S):
            message.seat = seat.number
            seat.process.send(message)

    # --------------------------------------------------------------- processes

    async def _warm(self) -> None:
        """Import what tasks need before there is one; whoever wants a task first is told if that is not possible."""
        with contextlib.suppress(OSError):
            await self._guardians.ready()

    async def _spawn(
        self,
        label: str,
        plugin: str,
        order: pb.ToTask,
        environment: str,
        limits: TaskLimits | None = None,
        shared: int = 0,
    ) -> TaskProcess:
        """Start a process, of tasks if there are limits."""
        leased = limits is not None
        process = TaskProcess(
            label=label,
            order=order,
            limits=limits or TaskLimits(),
            shared=shared,
            closing=lambda: self._settle(seating.Closing(shared)),
            process=await self._guardians.start(label, plugin, leased=leased, environment=environment),
        )
        if leased:
            self._running.add(process)
        self._tasks.create_task(self._supervise(process))
        return process

    async def _start_beside_others(self, spec: TaskSpec) -> None:
        """Have a process run the task that others share, or may later."""
        number = next(self._seat_numbers)
        place = seating.Place(spec.environment, spec.plugin)
        for action in self._seating.step(seating.Wanted(number, spec.task, place), self._clock.monotonic()):
            match action:
                case seating.Open(process):
                    await self._open(process, spec)
                case seating.Sit(process):
                    seat = Seat(spec, self._shared[process], number)
                    self._take(seat)
                    if seat.process.attached.is_set():
                        seat.process.send(seat.order)

    async def _open(self, number: int, spec: TaskSpec) -> None:
        """Start a process for several tasks; the first of them is to be seated before anything else happens."""
        label, order = f"tasks {number} of {spec.plugin}", pb.ToTask(share=pb.Share())
        try:
            process = await self._spawn(label, spec.plugin, order, spec.environment, task_limits({}), number)
        except BaseException:
            self._settle(seating.Gone(number, blameless=True))
            raise
        self._shared[number] = process

    def _take(self, seat: Seat) -> None:
        seat.process.seats[seat.number] = seat
        self._by_task[seat.spec.task] = seat

    def _settle(self, event: seating.Event) -> None:
        """Tell who has gone; a process that nobody is left in ends."""
        for action in self._seating.step(event, self._clock.monotonic()):
            if isinstance(action, seating.Dismiss):
                self._shared[action.process].dismissed.set()

    def _over(self, seat: Seat, returncode: int, reason: str, *, with_others: bool = False) -> None:
        """Nothing of a task runs any more."""
        process, spec = seat.process, seat.spec
        del process.seats[seat.number], self._by_task[spec.task]
        log.debug("task ended", task=str(spec.task), reason=reason)  # the herder knows what it means
        self._feed.put(
            TaskExited(
                task=spec.task,
                incarnation=spec.incarnation,
                returncode=returncode,
                reason=reason,
                with_others=with_others,
            )
        )
        seat.gone.set()
        if process.shared:
            self._settle(seating.Left(seat.number))

    async def _confine(self, process: TaskProcess) -> None:
        """Put it into a group of its own, before it does anything; raises OSError if it cannot do without."""
        if self._cgroups is None:
            return
        try:
            process.cgroup = self._cgroups.new()
            process.cgroup.limit(process.limits)
            await self._cgroups.move(process.cgroup, process.pid)
        except OSError as error:
            if process.limits.memory_bytes or process.limits.cpu_cores:
                raise
            log.warning("task without a control group", task=process.label, reason=str(error))

    async def _supervise(self, process: TaskProcess) -> None:
        """One process from hand-over to exit; whatever goes wrong here, it does not outlive its supervision."""
        try:
            await self._accompany(process)
        except Exception:
            log.exception("supervision failed", task=process.label)
            process.kill("the worker lost control of it")
            if not await _within(process.process.gone, KILL_TIMEOUT_S):  # who is told of the end may start it again
                process.process.kill_guardian()
                await process.process.gone.wait()
        finally:
            process.process.kill()
            process.process.writer.close()
            self._forget(process)

    async def _accompany(self, process: TaskProcess) -> None:
        child = process.process
        async with asyncio.TaskGroup() as helpers:
            watchers = [
                helpers.create_task(self._expect_attachment(process)),
                helpers.create_task(self._enforce_kill(process)),
                helpers.create_task(self._expect_end(process)),
                helpers.create_task(self._dismiss(process)),
            ]
            last_words = [
                helpers.create_task(self._relay_output(process)),
                helpers.create_task(self._serve(process)),
            ]
            await child.gone.wait()
            # Both end with the last process that can write to them, which the guardian has seen to.
            await asyncio.wait(last_words, timeout=LAST_OUTPUT_S)
            for helper in (*watchers, *last_words):
                helper.cancel()

    def _forget(self, process: TaskProcess) -> None:
        self._preflights.discard(process)
        self._running.discard(process)
        seats = [(seat, process.reason(seat)) for seat in process.seats.values()]
        if process.cgroup is not None and self._cgroups is not None:
            self._cgroups.give_up(process.cgroup)
        returncode = process.process.returncode
        if process.shared:
            blameless = process.blameless or bool(process.process.reason)  # the guardian had a reason of its own
            self._settle(seating.Gone(process.shared, blameless))
            self._shared.pop(process.shared, None)
        for seat, reason in seats:
            with_others = process.shared > 0
            self._over(seat, -signal.SIGKILL if returncode is None else returncode, reason, with_others=with_others)
        process.gone.set()
        process.told.set()

    async def _expect_attachment(self, process: TaskProcess) -> None:
        if not await _within(process.attached, ATTACH_TIMEOUT_S):
            process.kill(f"it did not call back within {ATTACH_TIMEOUT_S:g} s")

    async def _expect_end(self, process: TaskProcess) -> None:
        """Nobody hears of it any more, nor does it hear: threads of its plugin keep it, or it has become a program."""
        await process.silent.wait()
        await asyncio.sleep(END_TIMEOUT_S)
        process.kill(f"it had closed its stream to the worker and did not end within {END_TIMEOUT_S:g} s")

    async def _dismiss(self, process: TaskProcess) -> None:
        """End a process that several tasks have shared when none is left."""
        await process.dismissed.wait()
        if process.attached.is_set():
            process.send(pb.ToTask(stop=pb.Stop()))
            await asyncio.sleep(SHUTDOWN_GRACE_S)
        process.kill("none of its tasks was left")

    async def _enforce_kill(self, process: TaskProcess) -> None:
        """Kill the guardian itself when it does not do its work; the kernel then kills all tasks."""
        await process.killing.wait()
        await asyncio.sleep(KILL_TIMEOUT_S)
        process.process.kill_guardian()

    async def _relay_output(self, process: TaskProcess) -> None:
        """Log what the task logs or prints, with its name, and remember the end of it."""
        async for line in lines(process.process.output):
            level, event, facts = parse_line(line)
            process.tail.append(" ".join([event, *(f"{name}={value}" for name, value in facts.items())]))
            if not process.shared or "task" not in facts:
                facts["task"] = process.label
            with contextlib.suppress(OSError, ValueError):  # nobody reads the worker's output any more
                task_log.bind(**facts).log(level, event)  # bound: a fact may have the name of a parameter

    async def _sample(self) -> None:
        """Report memory and processor time; kill a task that uses more memory than it may, its children's included."""
        report_at, census = 0.0, Census(clock=self._clock)
        while True:
            running = [each for each in self._running if each.attached.is_set()]
            limited = [each for each in running if each.is_watched]
            due = self._clock.monotonic() >= report_at
            if due:
                report_at = self._clock.monotonic() + self._sample_interval_s
            watched = running if due else limited
            if watched:
                table = census.look()
                children = children_of(table)
                for process in watched:
                    family = family_facts(table, children, process.pid)  # what has cut all ties to it is below it, too
                    if family is not None:
                        self._look_at(process, family, report=due)
                    if due:
                        stopped = process.pid in table and table[process.pid].stopped
                        self._look_for_standstill(process, stopped=stopped)
            limits = any(each.is_watched for each in self._running)
            await asyncio.sleep(min(self._sample_interval_s, LIMIT_INTERVAL_S) if limits else self._sample_interval_s)

    def _look_at(self, process: TaskProcess, family: FamilyFacts, *, report: bool) -> None:
        found = process.facts(family)
        if report and process.cgroup is not None and process.limits.cpu_cores:
            found["process-cpu-throttled-seconds"] = round(process.cgroup.throttled_s, 2)
        for seat in process.seats.values():
            if report and not found.items() <= seat.facts.items():  # nothing of most of those that rest
                seat.facts.update(found)
                self._feed.put(seat.report)
        if process.is_watched and process.limits.memory_bytes < family.rss_bytes:
            shared_once = proportional_bytes(family.pids)  # the most of a small task is shared with all others
            used = family.rss_bytes if shared_once is None else shared_once
            if used > process.limits.memory_bytes:
                limit = f"{MEMORY_MAX}={process.limits.memory_bytes}"
                process.kill(f"it used {used} bytes of memory, more than {limit}: {LESS_MEMORY}")

    def _look_for_standstill(self, process: TaskProcess, *, stopped: bool) -> None:
        """Whether anything runs in it; nobody in there could say that nothing does."""
        now_s = self._clock.monotonic()
        found = process.stands.look(process.pid, process.standstill_fd, now_s, stopped=stopped)
        if stopped:
            text = f"somebody has stopped its process (SIGSTOP); `kill -CONT {process.pid}` lets it go on"
            self._stands_still(process, text, 0.0)
        elif found is not None:
            place, limit_ms = standstill.place(found.text), process.limits.hang_ms
            if process.standing_still is None:
                log.warning("task stands still", task=process.label, place=place, exception=found.text)
            text = f"code of C keeps the interpreter, or there is no processor for it; it is at {place}"
            self._stands_still(process, text, found.still_s)
            if limit_ms and found.still_s * 1000 > limit_ms:
                limit = f"{HANG_MAX}={limit_ms}"
                process.kill(
                    f"nothing of it had run for {found.still_s:.0f} s, longer than {limit} allows; it was at {place}"
                )
        elif process.standing_still is not None:
            process.standing_still = None
            self._report_all(process)

    def _stands_still(self, process: TaskProcess, text: str, for_s: float) -> None:
        """Tell it once; nobody is put beside those in it, to stand still with them."""
        if process.standing_still is None:
            process.closing()
            message = shortened(f"nothing of the task runs: {text}")
            process.standing_still = Problem(message=message, since_ms=self._clock.now_ms() - int(for_s * 1000))
            self._report_all(process)

    def _report_all(self, process: TaskProcess) -> None:
        for seat in process.seats.values():
            self._feed.put(seat.report)

    # ------------------------------------------------------------------ stream

    async def _serve(self, process: TaskProcess) -> None:
        """Hear one process to its end."""
        frames, reader = FrameReader(), process.process.reader
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    for each in frames.take(data):
                        message = pb.FromTask.FromString(each)
                        if process.attached.is_set():
                            self._hear(process, message)
                        else:
                            await self._attach(process, message)
        except (FrameError, DecodeError) as error:
            process.kill(f"it says what is not of the protocol: {error}")
        finally:
            process.process.writer.close()  # it waits for that, so that its last words are not lost
            process.silent.set()
            process.closing()

    async def _attach(self, process: TaskProcess, first: pb.FromTask) -> None:
        """A process says that it is there: tell it what to do."""
        version = first.hello.protocol_version
        if version != PROTOCOL_VERSION:
            process.kill(f"it speaks version {version} of the protocol, not {PROTOCOL_VERSION}")
            return
        if process.shared and not first.hello.shares:
            for seat in process.seats.values():
                self._feed.put(_failed(seat, CANNOT_SHARE, Failure.CONFIGURATION))
            process.kill("it cannot run several tasks", blameless=True)
            return
        process.pid, process.standstill_fd = first.hello.pid, first.hello.standstill_fd
        try:
            await self._confine(process)
        except OSError as error:
            process.kill(f"it could not be put into a control group, which keeps its limits: {error.strerror}")
            return
        process.send(process.order)
        process.attached.set()
        if process.stop_requested:
            process.kill("it was stopped before it had started")
        if process.shared:
            for seat in process.seats.values():  # in one go: what is said to them from here on comes behind
                process.send(seat.order)

    def _hear(self, process: TaskProcess, message: pb.FromTask) -> None:
        kind = message.WhichOneof("message")
        if kind == "checked":
            process.checked = message.checked
            process.told.set()
            return
        if kind == "answer":
            process.answer = message.answer
            process.told.set()
            return
        seat = process.seats.get(message.seat)
        if seat is None:
            return
        task, incarnation = seat.spec.task, seat.spec.incarnation
        match kind:
            case "started":
                self._feed.put(TaskStarted(task=task, incarnation=incarnation, pid=process.pid))
            case "failed":
                seat.explained = True
                self._feed.put(_failed(seat, message.failed.trace, class_named(message.failed.failure)))
            case "completed":
                seat.explained = True
                self._feed.put(TaskCompleted(task=task, incarnation=incarnation))
            case "paused":
                self._feed.put(TaskPaused(task=task, incarnation=incarnation))
            case "resumed":
                self._feed.put(TaskResumed(task=task, incarnation=incarnation))
            case "overdue":
                process.kill(message.overdue.message)
            case "report":
                seat.facts.update(orjson.loads(message.report.facts_json))
                seat.problem = problem_from_message(message.report)
                self._feed.put(seat.report)
            case "ended":
                code = message.ended.code
                self._over(seat, code, failed_with(code) if code else "ended by itself")
            case _:
                log.warning("a message this worker does not know", task=process.label, message=kind)


def _failed(seat: Seat, trace: str, failure: Failure) -> TaskFailed:
    return TaskFailed(task=seat.spec.task, incarnation=seat.spec.incarnation, trace=trace, failure=failure)


def parse_line(line: str) -> tuple[int, str, dict[str, Any]]:
    """Level, event and facts of a line: of our own loggers in a task process it is JSON, of anybody else it is text.

    >>> parse_line('{"event": "topic created", "level": "warning", "topic": "t"}')
    (30, 'topic created', {'topic': 't'})
    >>> parse_line("hello")
    (20, 'hello', {})
    """
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            found = orjson.loads(line)
            event, level = found.pop("event", None), logging.getLevelNamesMapping().get(str(found.get("level")).upper())
            if isinstance(event, str) and level is not None:
                return level, event, {name: value for name, value in found.items() if name not in NOT_FACTS}
    return logging.INFO, line, {}


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
