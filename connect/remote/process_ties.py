"""What ties processes together, asked of the kernel

A process can be made to die with the one that started it (parent-death signal), and to become the parent of whatever
below it has lost its own (subreaper). Both are Linux's; elsewhere they do nothing, and the task itself watches for the
end of its stream. Nothing is imported here that the smallest of our processes would not need.
"""

import contextlib
import ctypes
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence, Set
from signal import SIGKILL

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
M_ARENA_MAX = -8
TREES_S = 1.0  # for all that is below processes to be killed; there is no end of it where one may not be, and forks
EMPTY_LOOKS = 2
SWEEPS = 10  # through all processes: what is not found gone by then cannot be killed, or begets faster than we kill
PAUSE_S = 0.005  # between them
NICE = 5
"""Of a task, on top of its worker's: a third of the weight. A worker then answers in time beside ten that spin, and a
task that has the machine for itself has all of it."""

OOM_SCORE = 500
"""Of a task, for the kernel's choice when the machine runs out of memory: it, before a worker or a broker."""

PF_EXITING = 0x4  # of the kernel's flags of a process
LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")  # not every kernel does
GONE = (b"Z", b"X")  # states of what holds nothing any more

EXIT_LOST_PARENT = 75  # as task_spec.EXIT_LOST_WORKER, which is not imported: the guardian stays small

NAME_ROOM = "tidemill" + " " * 120
"""An argument to start a program with that is to rename itself, and what it starts: its room for the new name."""


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose parent has ended."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which has just started it, ends; for processes of one thread."""
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(EXIT_LOST_PARENT)


def end(pid: int) -> None:
    """Kill a process; one that has changed its user, as `sudo` does, cannot be and is let be."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, SIGKILL)


def end_trees(pids: Set[int]) -> None:
    """Kill processes and all that is below them, whatever the kernel does; returns within TREES_S or a little later.

    It tells the children of a process of its end when that is gone, which a file system that does not answer may hold
    up. Children are looked for before and after the kill: with that, some are handed to another at once, and a fork
    that it does not break off has come to its end by then. While a look goes on a child may be handed to somebody who
    was looked at already, so the last look is one that nothing has changed before.
    """
    there: set[int] = set()
    new = set(pids)
    empty_looks = 0
    until_s = time.monotonic() + TREES_S
    while empty_looks < EMPTY_LOOKS:
        below = children_of(new)
        for each in new:
            end(each)
        there = {each for each in there | new if os.path.exists(f"/proc/{each}")}  # else its number may be another's
        new = (below | children_of(there)) - there
        empty_looks = 0 if new else empty_looks + 1
        if time.monotonic() > until_s:
            for each in new:
                end(each)
            return


def children() -> set[int]:
    """The children of this process, where /proc tells; those that are dead and not collected included."""
    return children_of({os.getpid()})


def children_of(processes: Set[int]) -> set[int]:
    """The children of any of these processes, as `children`."""
    if not processes:
        return set()
    if not LISTS_CHILDREN:
        return _children_by_parent(processes)
    found: set[int] = set()
    for pid in processes:
        with contextlib.suppress(OSError):  # gone meanwhile
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    found.update(map(int, file.read().split()))
    return found


def _children_by_parent(processes: Set[int]) -> set[int]:
    """The same where the kernel lists no children: all processes are asked for their parents."""
    found = set()
    for pid in _processes():
        with contextlib.suppress(OSError, ValueError, IndexError):  # gone meanwhile
            if int(_stat(f"/proc/{pid}")[1]) in processes:
                found.add(pid)
    return found


def marked(mark: str) -> Iterator[int]:
    """Processes that were started with `mark` (NAME=value) in their environment, and what these have started."""
    wanted = mark.encode()
    for pid in _processes():
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if wanted in _environment(pid):
                yield pid


def dying() -> Iterator[int]:
    """Processes that run no more and are not gone: the kernel takes their memory first, then what they have open.

    The last of their threads has that; the first, which stands for the process, may have ended long before.
    """
    for pid in _processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _stat(f"/proc/{pid}")
            has_others = fields[0] in GONE and int(fields[17]) > 1
            if _exits(fields) or (has_others and any(map(_thread_exits, _other_threads(pid)))):
                yield pid


def _processes() -> Iterator[int]:
    with contextlib.suppress(OSError):  # there is no /proc
        yield from [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _other_threads(pid: int) -> Iterator[str]:
    """Where /proc tells of the threads of a process but the first."""
    folder = f"/proc/{pid}/task"
    for name in os.listdir(folder):
        if name != str(pid):
            yield f"{folder}/{name}"


def _environment(pid: int) -> list[bytes]:
    """What a process was started with; none if it is being taken apart, or somebody else's."""
    for folder in itertools.chain([f"/proc/{pid}"], _other_threads(pid)):  # the first thread may have ended
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"{folder}/environ", "rb") as file:
            if found := file.read():
                return found.split(b"\0")
    return []


def _stat(folder: str) -> list[bytes]:
    """State and numbers of a process or a thread, from the state on."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _exits(fields: Sequence[bytes]) -> bool:
    return fields[0] not in GONE and bool(int(fields[6]) & PF_EXITING)


def _thread_exits(folder: str) -> bool:
    try:
        return _exits(_stat(folder))
    except OSError:
        return False  # gone meanwhile


class Remains:
    """What was started with `mark` (NAME=value) in its environment, to be killed until it is gone."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._dying: set[int] | None = None  # that may be of these, since none of them was seen to run

    def end(self) -> bool:
        """Kill what runs; whether all is gone, with its connections and locks.

        What a process was started with cannot be asked any more once the kernel has begun to take it apart, which may
        last for as long as there is no processor for that. So whatever is in that state is waited for.
        """
        running = list(marked(self._mark))
        if running:
            for pid in running:
                end(pid)
            self._dying = None
            return False
        found = set(dying())
        self._dying = found if self._dying is None else self._dying & found
        return not self._dying


def end_marked(mark: str) -> bool:
    """Kill whatever has `mark` in its environment; whether it is all gone."""
    remains = Remains(mark)
    for _ in range(SWEEPS):
        if remains.end():
            return True
        time.sleep(PAUSE_S)
    return False


def collect_adopted() -> None:
    """Let go of dead children that this process has as a subreaper, and not because it started them.

    Those that it started, somebody in it waits for. A child that is in a session which is neither this process's nor
    its own was born to another: it is a daemon. An orphan that stayed in the session cannot be told from a child, and
    stays in the kernel's list until this process ends.
    """
    if not hasattr(os, "waitid"):
        return
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    except ChildProcessError:
        return
    ours = os.getsid(0)
    for pid in children():
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
            if state == b"Z" and int(session) not in (ours, pid):
                os.waitpid(pid, os.WNOHANG)


def threads() -> int:
    """How many threads this process has, those that Python knows nothing of included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def rename(name: str) -> None:
    """Show as `name` in lists of processes: of a forked process they would show its parent's command line."""
    if sys.platform != "linux":
        return
    data = name.encode()
    _prctl(PR_SET_NAME, ctypes.create_string_buffer(data[:15]))
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:  # there is no /proc
        return
    begin, end = int(fields[45]), int(fields[46])
    room = end - begin
    if 0 < room < 1 << 20:
        ctypes.memmove(begin, data[: room - 1].ljust(room, b"\0"), room)


def yield_to_others() -> None:
    """Have whoever started this process, and other programs, go first where there is too little of something.

    Where each session is a group of its own for the scheduler, niceness counts within that only, and the group has its
    own. What is started from here inherits all of it.
    """
    with contextlib.suppress(OSError, AttributeError):
        _write("/proc/self/autogroup", os.nice(NICE))
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "rb") as file:
        if int(file.read()) < OOM_SCORE:
            _write("/proc/self/oom_score_adj", OOM_SCORE)


def _write(path: str, number: int) -> None:
    with open(path, "wb") as file:
        file.write(b"%d" % number)


def share_memory_arenas() -> None:
    """Have all threads of this process, and of what it forks, allocate from two arenas: each would begin its own."""
    if sys.platform == "linux" and hasattr(_LIBRARY, "mallopt"):  # musl has one arena for all
        _LIBRARY.mallopt(M_ARENA_MAX, 2)


_LIBRARY = ctypes.CDLL(None, use_errno=True)  # once: every one is a class, which a task would have for itself


def _prctl(option: int, value: object) -> None:
    if sys.platform != "linux":
        return
    if _LIBRARY.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
