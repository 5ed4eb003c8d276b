"""A process whose interpreter stands still, and where

Code of C that keeps the interpreter's lock and does not return stops every thread of its process: the task neither
tells nor hears anything, though it is there. So each task has a file without a name, which the worker reads by way of
/proc, and in which a number rises as long as the interpreter runs. The worker goes by its own looks: what neither of
them has seen, because the process or the worker itself was stopped, does not count. Only when it has seen no beat for
long does it ask where all threads are, by a signal that `faulthandler` answers without the interpreter, into the same
file. That reads the frames of threads that may run meanwhile, which can end a process that is well, and ends a sleep
of C: so nobody is asked who may be.

Linux has such files; elsewhere nobody is told.
"""

import faulthandler
import os
import re
import signal
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

TOLD_S = 12.0
"""A standstill by then is told. There is a beat every seven seconds at least, later where there is no processor for
it."""

LOOK_MAX_S = 5.0
"""More than that between two looks does not count: the worker did not look."""

ASK = getattr(signal, "SIGRTMAX", 64) - 3
"""The signal by which a process is asked where its threads are; nobody else is likely to use it."""

BEAT_BYTES = 8
RESTING = bytes(BEAT_BYTES)
TEXT_MAX = 64 * 1024
PLACES_MAX = 4  # functions told of a thread, the innermost first
NAME = "tidemill-standstill"  # of the file, for those who look at what a process has open
NONE = 0  # the descriptor of no file: that one is standard input

SERVICE = ("remote/sdk.py", "remote/link.py", "remote/shared_process.py")
SERVING = ("_listen", "_report")  # where threads live that do not run the plugin

_Place: TypeAlias = tuple[str, str, str]
_PLACE = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class Standstill:
    """That of this process; one, as `faulthandler` has one."""

    def __init__(self) -> None:
        self.descriptor = _file()
        facts = _facts(self.descriptor)
        self._identity = None if facts is None else _identity(facts)
        self._beats = 0
        if self.descriptor != NONE:
            os.lseek(self.descriptor, BEAT_BYTES, os.SEEK_SET)
            faulthandler.register(ASK, file=self.descriptor, all_threads=True)
        self.beat()  # at once: a plugin may keep the interpreter before any other thread has had it

    def beat(self) -> None:
        """Say that the interpreter runs."""
        facts = self._facts()
        if facts is not None:
            self._beats += 1
            os.pwrite(self.descriptor, self._beats.to_bytes(BEAT_BYTES, "little"), 0)
            if facts.st_size > BEAT_BYTES:  # where it stood still once
                os.ftruncate(self.descriptor, BEAT_BYTES)
                os.lseek(self.descriptor, BEAT_BYTES, os.SEEK_SET)

    def rest(self) -> None:
        """No beat is to be expected any more."""
        if self._facts() is not None:
            os.pwrite(self.descriptor, RESTING, 0)

    def _facts(self) -> os.stat_result | None:
        """Of our file; none once a plugin has closed it, and may have a file of its own there."""
        facts = _facts(self.descriptor)
        return facts if facts is not None and _identity(facts) == self._identity else None


class Found(NamedTuple):
    """What is told of a process that stands still."""

    still_s: float  # for so long
    text: str  # where every thread is; empty where it does not say


class Watch:
    """What a worker has seen of one process."""

    def __init__(self) -> None:
        self._beat = RESTING
        self._looked_s = 0.0
        self._still_s = 0.0
        self._asked = False

    def look(self, pid: int, descriptor: int, now_s: float, *, stopped: bool) -> Found | None:
        """Whether a process stands still by a clock that never goes back; None also where nobody can tell."""
        elapsed_s, self._looked_s = min(now_s - self._looked_s, LOOK_MAX_S), now_s
        beat, text = _read(pid, descriptor)
        if stopped or beat in (RESTING, b"") or beat != self._beat:
            self._beat, self._still_s, self._asked = beat, 0.0, False
            return None
        self._still_s += elapsed_s
        if self._still_s < TOLD_S:
            return None
        if not self._asked:
            self._asked = True
            _ask(pid)
            return None
        return Found(self._still_s, text)


def _read(pid: int, descriptor: int) -> tuple[bytes, str]:
    """The number and what is told beside it; empty if it is not there."""
    if descriptor == NONE:
        return b"", ""
    path = f"/proc/{pid}/fd/{descriptor}"
    try:
        if NAME not in os.readlink(path):
            return b"", ""
        file = os.open(path, os.O_RDONLY)  # without what a file object asks beside it: it is looked at all the time
        try:
            found = os.read(file, TEXT_MAX)
        finally:
            os.close(file)
    except OSError:  # gone meanwhile
        return b"", ""
    return found[:BEAT_BYTES], found[BEAT_BYTES:].decode("utf-8", "replace")


def _ask(pid: int) -> None:
    try:
        os.kill(pid, ASK)
    except OSError:  # gone meanwhile, or another user's by now
        return


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


def _facts(descriptor: int) -> os.stat_result | None:
    try:
        return None if descriptor == NONE else os.fstat(descriptor)
    except OSError:
        return None


def _identity(facts: os.stat_result) -> tuple[int, int]:
    """Which file it is."""
    return facts.st_dev, facts.st_ino


def _file() -> int:
    try:
        return os.memfd_create(NAME) if hasattr(os, "memfd_create") else NONE
    except OSError:
        return NONE
