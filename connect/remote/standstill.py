"""A process whose interpreter stands still, and where

Code of C that keeps the interpreter's lock and does not return stops every thread of its process: the task neither
tells nor hears anything, though it is there. What goes on is what needs no interpreter. `faulthandler` has a watchdog
of that kind, which writes down where all threads are unless it is put off in time. It writes into a file without a name
that the worker reads by way of /proc, and whoever puts it off empties that: what stands in it is so now.

A child that is forked has no watchdog, and would wait for one at its end. So it rests while there is a fork.

Linux has such files; elsewhere nobody is told.
"""

import faulthandler
import fcntl
import os
import re
import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

TOLD_S = 12.0
"""A standstill by then is told. It is put off every seven seconds at most, later where there is no processor for it."""

TEXT_MAX = 64 * 1024
PLACES_MAX = 4  # functions told of a thread, the innermost first
NAME = "tidemill-standstill"  # of the file, for those who look at what a process has open
NONE = 0  # the descriptor of no file: that one is standard input

SERVICE, SERVING = "remote/sdk.py", ("_listen", "_report")  # where threads live that do not run the plugin

_Place: TypeAlias = tuple[str, str, str]
_PLACE = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class Standstill:
    """The watchdog of this process; one, as `faulthandler` has one."""

    def __init__(self) -> None:
        self.descriptor = _file()
        self._identity = _identity(self.descriptor)
        self._changing = threading.Lock()
        self._on = False
        if self.descriptor != NONE:
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._in_parent, after_in_child=self._in_child
            )

    def put_off(self) -> None:
        """Say that the interpreter runs."""
        with self._changing:
            self._on = self.descriptor != NONE
            self._watch()

    def rest(self) -> None:
        """Watch no more."""
        with self._changing:
            self._on = False
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        if not self._on:
            return
        if _identity(self.descriptor) != self._identity:  # a plugin has closed it, and may have a file of its own there
            faulthandler.cancel_dump_traceback_later()
            return
        if os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, 0)
        faulthandler.dump_traceback_later(TOLD_S, file=self.descriptor)

    def _before_fork(self) -> None:
        self._changing.acquire()
        faulthandler.cancel_dump_traceback_later()

    def _in_parent(self) -> None:
        self._watch()
        self._changing.release()

    def _in_child(self) -> None:
        self._on = False
        self._changing.release()


class Found(NamedTuple):
    """What is told of a process that stands still."""

    since_ms: int  # since 1970, UTC
    text: str  # where every thread is


def look(pid: int, descriptor: int) -> Found | None:
    """Whether a process stands still; None also where nobody can tell."""
    if descriptor == NONE:
        return None
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        facts = os.stat(path)
        if not facts.st_size or NAME not in os.readlink(path):
            return None
        with open(path, "rb") as file:
            text = file.read(TEXT_MAX).decode("utf-8", "replace")
    except OSError:  # gone meanwhile
        return None
    return Found(int((facts.st_mtime - TOLD_S) * 1000), text)


def place(text: str) -> str:
    """Where the thread is that most likely keeps the interpreter, and who called that.

    The dump does not tell which it is. The first thread runs the plugin; when it waits for another, that one has it,
    and of several the youngest. Functions of C show as the line that called them.
    """
    threads = [found for block in text.split("\n\n") if (found := _PLACE.findall(block))]
    first = threads[-1:]  # the last that is told is the first that there was
    suspects = [each for each in (*first, *threads[:-1]) if not _waits(each) and not _serves(each)]
    told = [f"{os.path.basename(file)}:{line} in {function}" for file, line, function in (suspects or first or [[]])[0]]
    return ", called from ".join(told[:PLACES_MAX]) or "a place that is not told"


def _waits(places: Sequence[_Place]) -> bool:
    return os.path.basename(places[0][0]) == "threading.py"


def _serves(places: Sequence[_Place]) -> bool:
    """Whether it is a thread of ours, which waits for the worker or for the time to report."""
    return any(file.endswith(SERVICE) for file, _, function in places if function in SERVING)


def _identity(descriptor: int) -> tuple[int, int] | None:
    """Which file it is."""
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _file() -> int:
    if not hasattr(os, "memfd_create"):
        return NONE
    try:
        descriptor = os.memfd_create(NAME)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    except OSError:
        return NONE
    return descriptor
