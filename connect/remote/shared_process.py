"""Several tasks in one process, each in threads of its own

The main thread hears the worker's orders for all of them, one more reports for all; a task has a thread that runs it,
and those that its client and its plugin start. So an order reaches its task whatever the others do, as long as none
keeps the interpreter. A task that fails, or is stopped, ends with its thread; its neighbours go on. What such a task
leaves behind in the process, nobody can find: threads of its plugin that did not end, or programs that it had started.

The worker ends the process, when nothing runs in it any more or one of its tasks does not obey.
"""

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable

from structlog.contextvars import bind_contextvars

from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.link import Link, leave, pass_on
from tidemill.connect.remote.messages import spec_from_message
from tidemill.connect.remote.process_ties import collect_adopted
from tidemill.connect.remote.voice import EXIT_DONE, EXIT_FAILED, REPORT_INTERVAL_S, Voice
from tidemill.connect.task_spec import InitialState, TaskSpec
from tidemill.connect.tasks.control import PATIENCE_S, TaskControl
from tidemill.core.runtime.clock import SystemClock


class SharedProcess:
    """Has `work` done for each task that it is told to run, until it is told to end."""

    def __init__(self, link: Link, work: Callable[[TaskSpec, TaskControl], None]) -> None:
        self._link = link
        self._work = work
        self._controls: dict[int, tuple[TaskControl, Voice]] = {}  # by seat; one thread takes out what another put in
        self._news = threading.Event()
        self._clock = SystemClock()

    def run(self) -> int:
        """Hear orders; the exit code of the process."""
        threading.Thread(target=self._report, name="reporter", daemon=True).start()
        self._listen()
        self._link.standstill.rest()
        self._link.close()
        return EXIT_DONE

    def _listen(self) -> None:
        for order in self._link.orders:
            kind = order.WhichOneof("message")
            if kind == "stop" and not order.seat:
                return
            if kind == "start":
                self._start(order)
            elif found := self._controls.get(order.seat):  # else it has ended meanwhile
                pass_on(order, found[0])
        leave()

    def _start(self, order: pb.ToTask) -> None:
        voice = Voice(self._link.say, order.seat)
        paused = order.start.initial_state == InitialState.PAUSED.value
        control = TaskControl(voice.announce, paused=paused, news=self._news)
        self._controls[order.seat] = control, voice
        name = f"{order.start.connector}-{order.start.task}"
        try:
            threading.Thread(target=self._live, args=(order,), name=name, daemon=True).start()
        except RuntimeError as error:  # the machine has no more threads
            self._last_words(order.seat, error)
            self._end(order.seat, EXIT_FAILED)

    def _live(self, order: pb.ToTask) -> None:
        code = EXIT_FAILED
        try:
            code = self._run_task(order)
        finally:  # also where an error cannot even be told: a task that nobody runs must not seem to
            self._end(order.seat, code)

    def _run_task(self, order: pb.ToTask) -> int:
        me, code = os.getpid(), EXIT_DONE
        control, _ = self._controls[order.seat]
        try:
            spec = spec_from_message(order.start)
            bind_contextvars(task=str(spec.task))  # of what this thread logs
            self._work(spec, control)
        except BaseException as error:
            if os.getpid() != me:
                _leave_fork(error)
            code = EXIT_FAILED
            self._last_words(order.seat, error)
        if os.getpid() != me:
            _leave_fork(None)
        with contextlib.suppress(Exception):  # whatever the plugin has made of them
            for each in (sys.stdout, sys.stderr):
                each.flush()  # a line that this thread has begun, and nobody else would end
        # Clients know who listens to them, and so hold one another: with their threads and connections they would be
        # there until something has them looked for, beside those of the next start.
        gc.collect()
        return code

    def _last_words(self, seat: int, error: BaseException) -> None:
        control, voice = self._controls[seat]
        voice.report(control, last=True)
        voice.failed(error)

    def _end(self, seat: int, code: int) -> None:
        control, voice = self._controls[seat]
        voice.report(control, last=True)
        del self._controls[seat]
        voice.ended(code)

    def _report(self) -> None:
        """For all tasks, no more often than for one alone."""
        looked = self._clock.monotonic()
        while True:
            self._link.standstill.beat()
            waits = [control.look_again_s(REPORT_INTERVAL_S) for control, _ in list(self._controls.values())]
            self._news.wait(min(waits, default=PATIENCE_S))
            time.sleep(max(0.0, looked + REPORT_INTERVAL_S - self._clock.monotonic()))
            looked = self._clock.monotonic()
            self._news.clear()
            collect_adopted()
            for control, voice in list(self._controls.values()):
                voice.report(control)


def _leave_fork(error: BaseException | None) -> None:
    """End a child that a plugin has forked, as a program would: its task goes on, and the stream is not the child's."""
    code = EXIT_DONE
    try:
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else EXIT_DONE if error.code is None else EXIT_FAILED
        elif error is not None:
            code = EXIT_FAILED
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
