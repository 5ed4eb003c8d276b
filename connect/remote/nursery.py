"""A process that has imported what tasks need, and forks them

What it has imported, its children share with it, page by page until one of them writes: a task costs what it does, not
what it is made of, and begins in milliseconds. That needs two things of this file. Nothing here may start a thread or
a client before a fork, for only the thread that forks lives on in the child. And the collector of garbage is kept from
writing to every object there is (`gc.freeze`).

A root imports the runtime of tasks; forked from it, a nursery for each plugin imports that. It takes orders from
the guardian, tells it who has died, and decides nothing. A plugin whose files have changed since they were imported is
not forked: somebody else is to import it anew.

What a fork hands down beside pages is what the plugin did at import: opened files, patched modules, handlers. The
random numbers of `random`, OpenSSL and NumPy begin anew in every child; others' may not. What `weakref.finalize` is to
do at the end of the process that made something (temporary folders rely on it) no child does: its siblings use it, too.
What was given to `atexit`, every child does.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from tidemill.connect.environments import in_use
from tidemill.connect.remote.line_output import LineOutput
from tidemill.connect.remote.orders import Line, OrderSocket, close_files
from tidemill.connect.remote.process_ties import (
    adopt_orphans,
    die_with_parent,
    end_trees,
    rename,
    share_memory_arenas,
    threads,
    yield_to_others,
)

LIFELINE_FD = 0
POLL_MS = 5_000  # the longest that a lost wake-up can delay anything
EXIT_UNFIT = 1
REASON_CHARS_MAX = 4_096  # the guardian reads it at once, or not at all if the root's word of the end comes first
SEVERAL = "tasks "  # as the label of a process begins that several share
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Stamp(NamedTuple):
    path: str
    mtime_ns: int
    size: int


def main(environment: str = "") -> NoReturn:
    """A root, of an environment or of the worker's own."""
    die_with_parent(os.getppid())
    if environment:
        in_use.hold(environment)  # for as long as this process, or anything forked from it, is there
    rename(f"tidemill: nursery of tasks{f' in {os.path.basename(environment)}' if environment else ''}")
    share_memory_arenas()
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    guardian = OrderSocket(socket.socket(fileno=os.dup(LIFELINE_FD)))
    _close_standard_input()
    from tidemill.core.runtime import lean_structlog

    lean_structlog.load()  # before all else that a task imports
    for module in ("remote.sdk", "tasks.source", "tasks.sink", "tasks.job"):
        importlib.import_module(f"tidemill.connect.{module}")
    Nursery(guardian, always=True).run()


class Nursery:
    """Carries out the guardian's orders."""

    def __init__(self, guardian: OrderSocket, watched: Sequence[_Stamp] = (), *, always: bool = False) -> None:
        self._guardian = guardian
        self._watched = watched
        self._always = always  # nobody else would fork
        self._children: dict[int, int] = {}  # process → number
        self._pids: dict[int, int] = {}  # number → process

    def run(self) -> NoReturn:
        """Fork until the guardian is gone."""
        if (number := threads()) != 1:
            if not self._always:
                self._guardian.send({"said": "unfit", "reason": f"it has started {number - 1} threads"})
                os._exit(EXIT_UNFIT)
            print(f"tasks are forked from a process with {number} threads: something starts them with the interpreter")
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # the plugin may have had other plans
        gc.collect()
        gc.freeze()
        poll = select.poll()
        poll.register(self._guardian.fileno(), select.POLLIN | select.POLLHUP)
        poll.register(self._wake, select.POLLIN)
        self._say({"said": "ready"})
        while True:
            ready = {fd for fd, _ in poll.poll(POLL_MS)}
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
            self._collect()
            if self._guardian.fileno() in ready:
                self._hear()

    def _hear(self) -> None:
        lines = self._guardian.receive()
        if lines is None:
            os._exit(0)  # the kernel kills what was forked here
        waiting = list(lines)
        while waiting:
            self._obey(waiting.pop(0), waiting)

    def _obey(self, line: Line, others: Sequence[Line]) -> None:
        facts, files = line
        number = facts["number"]
        match facts["do"]:
            case "kill":
                self._kill(number)
            case "fork" if self._is_stale():
                self._say({"said": "stale", "number": number}, files)
            case _:
                self._fork(line, others)
        close_files(files)

    def _fork(self, line: Line, others: Sequence[Line]) -> None:
        number, me = line.facts["number"], os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            reason = f"it could not be started: {error.strerror}"
            self._say({"said": "died", "number": number, "status": int(signal.SIGKILL), "reason": reason})
            return
        if pid == 0:
            _live(line, lambda: self._leave(me, others))  # never returns
        self._children[pid], self._pids[number] = number, pid

    def _leave(self, parent: int, others: Sequence[Line]) -> None:
        """In the child: let go of what is the nursery's."""
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if self._always:
            importlib.invalidate_caches()  # the plugin is still to be imported, and may be new
        self._guardian.close()
        close_files((self._wake, self._waker, *(file for line in others for file in line.files)))
        for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # a copy: it may lose some
            each.atexit = False  # such as to remove a temporary folder: the nursery's other tasks use it, too

    def _kill(self, number: int) -> None:
        pid = self._pids.get(number)
        if pid is None:
            return
        end_trees({pid})
        _kill_group(pid)  # where nobody tells what is below it
        self._say({"said": "killed", "number": number})

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                number = self._children.pop(pid, None)
                if number is None:
                    continue  # the plugin started it at import
                del self._pids[number]
                if number > 0:
                    _kill_group(pid)
                self._say({"said": "died", "number": number, "status": status})

    def _say(self, facts: dict[str, object], files: Sequence[int] = ()) -> None:
        try:
            self._guardian.send(facts, files)
        except OSError:
            os._exit(0)

    def _is_stale(self) -> bool:
        return any(_stamp(each.path) != each for each in self._watched)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


# ---------------------------------------------------------------- the children


def _live(line: Line, leave: Callable[[], None]) -> NoReturn:
    """Become what was ordered; never returns."""
    code = EXIT_UNFIT
    try:
        leave()
        if line.facts["do"] == "nursery":
            _be_nursery(line.facts["plugin"], line.files[0])
        code = _be_task(line.facts["label"], *line.files)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else EXIT_UNFIT
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _exit(code)


def _be_nursery(plugin: str, end: int) -> NoReturn:
    """Import a plugin and fork its tasks."""
    guardian = OrderSocket(socket.socket(fileno=end))
    module, separator, _ = plugin.partition(":")
    rename(f"tidemill: nursery of {plugin}")
    before = set(sys.modules)
    try:
        if not separator:
            raise ImportError(f"{plugin!r} does not say which module it is in")
        importlib.import_module(module)
    except BaseException as error:
        guardian.send({"said": "unfit", "reason": f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]})
        os._exit(EXIT_UNFIT)
    Nursery(guardian, tuple(_stamps(before))).run()


def _stamps(before: set[str]) -> Iterator[_Stamp]:
    """What the files of modules are like that were imported since."""
    for name in set(sys.modules) - before:
        path = getattr(sys.modules[name], "__file__", None)
        stamp = _stamp(path) if isinstance(path, str) else None
        if stamp is not None:
            yield stamp


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Stamp(path, found.st_mtime_ns, found.st_size)


def _be_task(label: str, output: int, stream: int) -> int:
    os.setsid()
    adopt_orphans()
    yield_to_others()
    rename(f"tidemill: {label}" if label.startswith(SEVERAL) else f"tidemill: task {label}")
    for each in (1, 2):
        os.dup2(output, each)
    os.close(output)
    sys.stdout, sys.stderr = LineOutput(1), LineOutput(2)
    # A stop of the whole service signals every process of it; the worker alone then decides when a task stops. A
    # handler, unlike SIG_IGN, is not passed on to programs that the task starts.
    for number in SIGNALS:
        signal.signal(number, _leave_it_to_the_worker)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    from tidemill.connect.remote.sdk import run

    return run(socket.socket(fileno=stream))


def _leave_it_to_the_worker(signal_number: int, frame: FrameType | None) -> None:
    """A signal that is meant for the worker."""


def _close_standard_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, LIFELINE_FD)
    os.close(nothing)


def _exit(code: int) -> NoReturn:
    """End as an interpreter does, but take nothing apart: that would write to every page it shares."""
    import atexit
    import threading

    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an interpreter does
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
