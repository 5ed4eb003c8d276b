"""What a task process runs

It says that it is there, is told what to run, and runs it on its main thread. Two more threads serve it: one hears the
worker's commands, one reports. Neither is needed for the process to end when the worker does: the guardian and the
kernel see to that. Still, a lost stream ends the process at once, so that a task does not work on under a worker that
has given it up.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

import orjson
import structlog
from pydantic import BaseModel

from tidemill.connect.api import Fatal, InvalidConfig, JobTask, Json, Plugin, PluginKind
from tidemill.connect.failure import classify, trace_of
from tidemill.connect.loader import GROUP, Plugins
from tidemill.connect.problem import Problem
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader, frame
from tidemill.connect.remote.messages import PROTOCOL_VERSION, report_to_message, spec_from_message
from tidemill.connect.remote.process_ties import collect_adopted
from tidemill.connect.remote.standstill import Standstill
from tidemill.connect.settings import model_problems, parse_settings, valid_settings
from tidemill.connect.task_limits import CALL_MAX, task_limits
from tidemill.connect.task_spec import EXIT_LOST_WORKER, InitialState, TaskSpec
from tidemill.connect.tasks.control import News, TaskControl
from tidemill.core.runtime.clock import SystemClock

log = structlog.get_logger("tidemill.connect.task")

EXIT_DONE = 0
EXIT_FAILED = 1

REPORT_INTERVAL_S = 2.0  # at most; as often as the worker looks at memory and processor time
TRACE_MAX = 64 * 1024  # characters: an error may quote a record, and a status has to fit into one
FACTS_BYTES_MAX = 2 << 20
FAREWELL_TIMEOUT_S = 2.0  # for the last words to reach the worker

_NEWS = {
    News.STARTED: pb.FromTask(started=pb.Started()),
    News.PAUSED: pb.FromTask(paused=pb.Paused()),
    News.RESUMED: pb.FromTask(resumed=pb.Resumed()),
    News.COMPLETED: pb.FromTask(completed=pb.Completed()),
}


def run(stream: socket.socket) -> int:
    """Do what the worker at the other end says; the exit code of the process."""
    # One JSON object a line, whatever the worker's own format: it reads them and logs them again as its own.
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    link = _Link(stream)
    order = link.first_order()
    match order.WhichOneof("message"):
        case "start":
            return _run_task(link, spec_from_message(order.start))
        case "check":
            return _run_check(link, order.check)
        case "question":
            return _run_question(link, order.question)
        case other:
            log.error("the worker's first order was neither to start nor a question", order=other)
            return EXIT_FAILED


class _Link:
    """The stream to the worker."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._orders = self._read()
        self._saying = threading.Lock()
        self._closing = False
        self._ended = threading.Event()
        self.control: TaskControl | None = None
        self.standstill = Standstill()
        facts = pb.Hello(protocol_version=PROTOCOL_VERSION, pid=os.getpid(), standstill_fd=self.standstill.descriptor)
        self.say(pb.FromTask(hello=facts))

    def first_order(self) -> pb.ToTask:
        """Wait for what to run; later orders go to `control`."""
        order = next(self._orders, None)
        if order is None:
            _leave()
        return order

    def listen(self, control: TaskControl) -> None:
        """Pass on the orders that follow."""
        self.control = control
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def say(self, message: pb.FromTask) -> None:
        """Send a message, after those before it."""
        data = frame(message)
        with self._saying:
            try:
                self._stream.sendall(data)
            except OSError:
                _leave()

    def farewell(self) -> None:
        """End the stream and give the worker a moment to hear the last words."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)
        self._ended.wait(FAREWELL_TIMEOUT_S)

    def _read(self) -> Iterator[pb.ToTask]:
        frames = FrameReader()
        with contextlib.suppress(OSError):
            while data := self._stream.recv(1 << 16):
                for each in frames.take(data):
                    yield pb.ToTask.FromString(each)

    def _listen(self) -> None:
        assert self.control is not None
        for order in self._orders:
            match order.WhichOneof("message"):
                case "stop":
                    self.control.request_stop(order.stop.grace_ms)
                case "pause":
                    self.control.request_pause()
                case "resume":
                    self.control.request_resume()
        if not self._closing:
            _leave()
        self._ended.set()


def _leave() -> NoReturn:
    """End now, whatever the other threads are doing."""
    os._exit(EXIT_LOST_WORKER)


def _run_task(link: _Link, spec: TaskSpec) -> int:
    control = TaskControl(lambda news: link.say(_NEWS[news]), paused=spec.initial_state is InitialState.PAUSED)
    link.listen(control)
    ended = threading.Event()
    call_max_s = task_limits(spec.config).call_ms / 1000
    reporter = threading.Thread(target=_report, args=(link, control, ended, call_max_s), name="reporter", daemon=True)
    reporter.start()
    exit_code, me = EXIT_DONE, os.getpid()

    def last_report() -> None:
        ended.set()
        control.call_reporter()
        reporter.join()

    try:
        _work(spec, control)
    except (Exception, SystemExit) as error:  # a plugin that calls sys.exit() has failed, whatever status it gives
        if os.getpid() != me:
            raise  # a child that the plugin has forked: the task is not over, and the stream not the child's
        exit_code = EXIT_FAILED
        last_report()
        link.say(pb.FromTask(failed=pb.Failed(trace=_trace(error), failure=classify(error).value)))
    last_report()
    link.farewell()
    return exit_code


def _work(spec: TaskSpec, control: TaskControl) -> None:
    plugin = find_plugin(spec.plugin)
    settings = valid_settings(plugin, spec.config)
    clock = SystemClock()
    # Each loop brings its own client library; a task imports only the one it needs.
    if _is_job(plugin, settings):
        from tidemill.connect.tasks.job import JobRunner

        JobRunner(plugin, settings, spec, control, clock).run()
    elif plugin.kind is PluginKind.SOURCE:
        from tidemill.connect.tasks.source import SourceRunner

        SourceRunner(plugin, settings, spec, control, clock).run()
    else:
        from tidemill.connect.tasks.sink import SinkRunner

        SinkRunner(plugin, settings, spec, control, clock).run()


def _is_job(plugin: Plugin, settings: BaseModel) -> bool:
    return isinstance(plugin.task(settings), JobTask)


def find_plugin(name: str) -> Plugin:
    """The installed plugin of that name, or the one at `module:attribute`, for plugins under development."""
    if ":" in name:
        plugin = EntryPoint(name=name, value=name, group=GROUP).load()
        if not isinstance(plugin, Plugin):
            raise Fatal(f"{name} is a {type(plugin).__name__}, not a plugin")
        return plugin
    return _installed(name) or Plugins.installed().find(name)


def _installed(name: str) -> Plugin | None:
    """The plugin with exactly this name; those after it are not loaded, each would cost memory and time."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        with contextlib.suppress(Exception):  # whoever needs that plugin is told what is wrong with it
            plugin = point.load()
            if isinstance(plugin, Plugin) and plugin.name == name:
                return plugin
    return None


def _trace(error: BaseException) -> str:
    text = trace_of(error).encode("utf-8", "replace").decode()
    if len(text) <= TRACE_MAX:
        return text
    half = TRACE_MAX // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _report(link: _Link, control: TaskControl, ended: threading.Event, call_max_s: float) -> None:
    last: tuple[bytes, Problem | None] = (b"{}", None)
    clock = SystemClock()
    looked = clock.monotonic()
    while True:
        link.standstill.beat()
        control.wait_for_news(REPORT_INTERVAL_S)
        over = ended.wait(max(0.0, looked + REPORT_INTERVAL_S - clock.monotonic()))
        looked = clock.monotonic()
        collect_adopted()
        news = (_facts(control), control.current_problem())
        if news != last:
            link.say(pb.FromTask(report=report_to_message(*news)))
            last = news
        if call_max_s and (overdue := control.overdue(call_max_s)):
            link.say(pb.FromTask(overdue=pb.Overdue(message=f"{overdue}, longer than {CALL_MAX} allows")))
        if over:
            link.standstill.rest()
            return


def _facts(control: TaskControl) -> bytes:
    reported = dict(control.facts)
    try:
        facts = orjson.dumps(reported, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # one of them is no JSON, such as a very large number: the others are told
        facts = orjson.dumps(
            {name: fact for name, fact in reported.items() if _is_json(name, fact)},
            default=str,
            option=orjson.OPT_NON_STR_KEYS,
        )
    if len(facts) <= FACTS_BYTES_MAX:
        return facts
    return orjson.dumps({"facts-too-large": len(facts)})


def _is_json(name: str, fact: Json) -> bool:
    try:
        orjson.dumps({name: fact}, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return False
    return True


def _run_check(link: _Link, order: pb.Check) -> int:
    problems: list[pb.Problem] = []
    try:
        plugin, config = find_plugin(order.plugin), dict(order.config)
        found = model_problems(plugin, config)
        problems += [pb.Problem(setting=name, message=text) for name, texts in found.items() for text in texts]
        if plugin.check is not None and not found:
            problems += objections(plugin.check, parse_settings(plugin, config))
    except InvalidConfig as error:
        problems.append(pb.Problem(setting=error.field_name, message=str(error)))
    except Exception as error:
        log.exception("the preflight failed", plugin=order.plugin)
        problems.append(pb.Problem(message=f"{type(error).__name__}: {error}"))
    return _answered(link, pb.FromTask(checked=pb.Checked(problems=problems)))


def _answered(link: _Link, answer: pb.FromTask) -> int:
    link.say(answer)
    link.listen(TaskControl(lambda news: None))
    link.farewell()
    return EXIT_DONE


def _run_question(link: _Link, order: pb.Question) -> int:
    answer = pb.Answer()
    try:
        plugin = find_plugin(order.plugin)
        settings = valid_settings(plugin, dict(order.config))
        answer.json = orjson.dumps(_ask(plugin, settings, order))
    except (Exception, SystemExit) as error:
        answer.trace, answer.failure = _trace(error), classify(error).value
    return _answered(link, pb.FromTask(answer=answer))


def _ask(plugin: Plugin, settings: BaseModel, order: pb.Question) -> list[Json]:
    match order.about:
        case "split" if plugin.split is not None:
            return [dict(each) for each in plugin.split(settings, order.tasks_max)]
        case "left_behind" if plugin.left_behind is not None:
            return list(plugin.left_behind(settings))
    raise Fatal(f"{plugin.name} has nothing to say about {order.about}")


def objections(check: Callable[[BaseModel], None], settings: BaseModel) -> list[pb.Problem]:
    """What a plugin's check has against its settings: one thing, or several in a group."""
    found: list[pb.Problem] = []
    try:
        check(settings)
    except* InvalidConfig as refused:
        groups: list[BaseExceptionGroup[InvalidConfig]] = [refused]
        for group in groups:  # grows while it is read
            for each in group.exceptions:
                if isinstance(each, BaseExceptionGroup):
                    groups.append(each)
                else:
                    found.append(pb.Problem(setting=each.field_name, message=str(each)))
    return found
