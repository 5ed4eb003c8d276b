"""What a task process runs

It says that it is there, is told what to run, and runs it on its main thread. Two more threads serve it: one hears the
worker's commands, one reports. Neither is needed for the process to end when the worker does: the guardian and the
kernel see to that. Still, a lost stream ends the process at once, so that a task does not work on under a worker that
has given it up. How several tasks share a process is said in `shared_process`.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import orjson
import structlog
from pydantic import BaseModel

from tidemill.connect.api import Fatal, InvalidConfig, JobTask, Json, Plugin, PluginKind
from tidemill.connect.failure import classify
from tidemill.connect.loader import GROUP, Plugins
from tidemill.connect.remote import log_lines
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.link import Link, pass_on
from tidemill.connect.remote.messages import spec_from_message
from tidemill.connect.remote.process_ties import collect_adopted
from tidemill.connect.remote.shared_process import SharedProcess
from tidemill.connect.remote.voice import EXIT_DONE, EXIT_FAILED, REPORT_INTERVAL_S, Voice, trace
from tidemill.connect.settings import model_problems, parse_settings, valid_settings
from tidemill.connect.task_isolation import ISOLATION, job_refused
from tidemill.connect.task_limits import CALL_MAX, task_limits
from tidemill.connect.task_spec import InitialState, TaskSpec
from tidemill.connect.tasks.control import TaskControl
from tidemill.core.runtime.clock import SystemClock

log = structlog.get_logger("tidemill.connect.task")


def run(stream: socket.socket) -> int:
    """Do what the worker at the other end says; the exit code of the process."""
    log_lines.configure(sys.stderr)
    link = Link(stream)
    order = link.first_order()
    match order.WhichOneof("message"):
        case "start":
            return _run_task(link, spec_from_message(order.start))
        case "share":
            return SharedProcess(link, partial(_work, alone=False)).run()
        case "check":
            return _run_check(link, order.check)
        case "question":
            return _run_question(link, order.question)
        case other:
            log.error("the worker's first order was neither to start nor a question", order=other)
            return EXIT_FAILED


def _run_task(link: Link, spec: TaskSpec) -> int:
    voice = Voice(link.say)
    control = TaskControl(voice.announce, paused=spec.initial_state is InitialState.PAUSED)
    _hear(link, control)
    ended = threading.Event()
    call_max_s = task_limits(spec.config).call_ms / 1000
    threads = (link, voice, control, ended, call_max_s)
    reporter = threading.Thread(target=_report, args=threads, name="reporter", daemon=True)
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
        voice.failed(error)
    last_report()
    link.farewell()
    return exit_code


def _hear(link: Link, control: TaskControl) -> None:
    """Pass on the orders that follow."""
    threading.Thread(target=_listen, args=(link, control), name="orders", daemon=True).start()


def _listen(link: Link, control: TaskControl) -> None:
    for order in link.orders:
        pass_on(order, control)
    link.over()


def _work(spec: TaskSpec, control: TaskControl, *, alone: bool = True) -> None:
    plugin = find_plugin(spec.plugin)
    settings = valid_settings(plugin, spec.config)
    clock = SystemClock()
    # Each loop brings its own client library; a task imports only the one it needs.
    if _is_job(plugin, settings):
        if not alone:
            raise InvalidConfig(ISOLATION, job_refused(plugin.name))
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
        log_lines.tell_more_of(name)
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


def _report(link: Link, voice: Voice, control: TaskControl, ended: threading.Event, call_max_s: float) -> None:
    clock = SystemClock()
    looked = clock.monotonic()
    while True:
        link.standstill.beat()
        control.wait_for_news(REPORT_INTERVAL_S)
        pause_s = looked + REPORT_INTERVAL_S - clock.monotonic()
        over = ended.wait(pause_s) if pause_s > 0 else ended.is_set()
        looked = clock.monotonic()
        collect_adopted()
        voice.report(control)
        if call_max_s and (overdue := control.overdue(call_max_s)):
            link.say(pb.FromTask(overdue=pb.Overdue(message=f"{overdue}, longer than {CALL_MAX} allows")))
        if over:
            link.standstill.rest()
            return


def _run_check(link: Link, order: pb.Check) -> int:
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


def _answered(link: Link, answer: pb.FromTask) -> int:
    link.say(answer)
    _hear(link, TaskControl(lambda news: None))
    link.farewell()
    return EXIT_DONE


def _run_question(link: Link, order: pb.Question) -> int:
    answer = pb.Answer()
    try:
        plugin = find_plugin(order.plugin)
        settings = valid_settings(plugin, dict(order.config))
        answer.json = orjson.dumps(_ask(plugin, settings, order))
    except (Exception, SystemExit) as error:
        answer.trace, answer.failure = trace(error), classify(error).value
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
