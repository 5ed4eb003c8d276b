"""Control groups for a worker and its tasks, where it may make them

What the kernel alone can do: keep a task with all that it started below a share of processors, end it as one in the
moment it wants more memory than it may have, and give each task the same weight, however many threads it spins in. That
needs a part of cgroup v2's tree which is the worker's own: the group it was started in, if nobody else is in there
(systemd's `Delegate=`), or one that its settings name. Whether there is one is found out by taking it, when the worker
starts.

    own part                 controllers handed down: cpu, memory
    ├─ worker-PID            the worker, its guardian, what tasks are forked from: ten times the weight of
    └─ tasks-PID             all tasks together
       ├─ 1                  a task, from before its plugin runs until it is gone
       └─ 2

A group with processes hands nothing down, so the worker has to leave the part's root for a leaf. Memory is counted for
who asked for it first: what a task shares with those it was forked from is not in its account.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tidemill.connect.task_limits import TaskLimits

AUTO: Final = "auto"
NONE: Final = "none"
NEEDED: Final = ("cpu", "memory")
PERIOD_US: Final = 100_000  # the kernel's own choice
WORKER_WEIGHT: Final = 1_000  # the kernel's choice for all others is 100
PROC: Final = Path("/proc")


class NoCgroups(Exception):
    """There is no part of the tree for the worker; says why."""


class TaskCgroup:
    """The group of one task."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def limit(self, limits: TaskLimits) -> None:
        """Set what it may use; raises OSError."""
        _write(self.folder / "memory.oom.group", "1")  # a task that lacks one of its processes is none
        if limits.memory_bytes:
            _write(self.folder / "memory.max", str(limits.memory_bytes))
            with contextlib.suppress(OSError):  # the kernel has none
                _write(self.folder / "memory.swap.max", "0")
        if limits.cpu_cores:
            _write(self.folder / "cpu.max", f"{max(1_000, round(limits.cpu_cores * PERIOD_US))} {PERIOD_US}")

    def add(self, pid: int) -> None:
        """Put a process into it, and what that will start; raises OSError."""
        _write(self.folder / "cgroup.procs", str(pid))

    @property
    def was_too_large(self) -> bool:
        """Whether the kernel has ended it for its own limit of memory."""
        events = _numbers(self.folder / "memory.events")
        return events.get("oom", 0) > 0 and events.get("oom_kill", 0) > 0

    @property
    def was_chosen(self) -> bool:
        """Whether the kernel has ended it because there was no memory, be it its own limit or not."""
        return _numbers(self.folder / "memory.events").get("oom_kill", 0) > 0

    @property
    def throttled_s(self) -> float:
        """How long it had to wait for its share of processors to begin anew."""
        return _numbers(self.folder / "cpu.stat").get("throttled_usec", 0) / 1_000_000

    def remove(self) -> bool:
        """Kill whoever is left and take it away; False while somebody is still dying."""
        with contextlib.suppress(OSError):
            _write(self.folder / "cgroup.kill", "1")
        return _removed(self.folder)


class Cgroups:
    """The part of the tree that a worker has taken; a context that gives it back."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self._home = home  # where this process was before
        self._worker = root / f"worker-{os.getpid()}"
        self._tasks = root / f"tasks-{os.getpid()}"
        self._numbers = itertools.count(1)
        self._left: list[TaskCgroup] = []
        self._mover = ThreadPoolExecutor(1, "cgroups")  # the kernel may take milliseconds for each

    def __enter__(self) -> "Cgroups":
        try:
            self._take()
        except OSError as error:
            self.close()
            raise NoCgroups(f"{self.root} cannot be used: {error.strerror} ({error.filename})") from error
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _take(self) -> None:
        for folder in (self._worker, self._tasks):
            folder.mkdir(exist_ok=True)
        _write(self._worker / "cgroup.procs", str(os.getpid()))
        for folder in (self.root, self._tasks):
            _write(folder / "cgroup.subtree_control", " ".join(f"+{each}" for each in NEEDED))
        _write(self._worker / "cpu.weight", str(WORKER_WEIGHT))

    def new(self) -> TaskCgroup:
        """Make a group for a task; raises OSError."""
        self.tidy()
        folder = self._tasks / str(next(self._numbers))
        folder.mkdir()
        return TaskCgroup(folder)

    async def move(self, group: TaskCgroup, pid: int) -> None:
        """Put a process into a group; raises OSError."""
        await asyncio.get_running_loop().run_in_executor(self._mover, group.add, pid)

    def give_up(self, group: TaskCgroup) -> None:
        """Take a group away, now or when everybody in it is gone."""
        if not group.remove():
            self._left.append(group)

    def tidy(self) -> None:
        """Take away what could not be before."""
        self._left = [group for group in self._left if not group.remove()]

    def close(self) -> None:
        """Give everything back, this process to where it was; what does not go stays."""
        self._mover.shutdown()
        self.tidy()
        with contextlib.suppress(OSError):
            for folder in list(self._tasks.iterdir()):
                if folder.is_dir():
                    TaskCgroup(folder).remove()
        _removed(self._tasks)
        if self._home == self.root and _removed(self._tasks):
            with contextlib.suppress(OSError):  # or nobody could go back to it
                _write(self.root / "cgroup.subtree_control", " ".join(f"-{each}" for each in NEEDED))
        with contextlib.suppress(OSError):
            _write(self._home / "cgroup.procs", str(os.getpid()))
        _removed(self._worker)


def cgroups(setting: str, proc: Path = PROC) -> Cgroups:
    """What the worker may take by its setting; raises NoCgroups, here or when it is entered."""
    if setting == NONE:
        raise NoCgroups("tidemill.task.cgroup=none")
    home = _home(proc)
    root = home if setting == AUTO else Path(setting)
    if not (root / "cgroup.controllers").is_file():
        raise NoCgroups(f"{root} is no control group of cgroup v2")
    missing = [each for each in NEEDED if each not in (root / "cgroup.controllers").read_text(encoding="ascii").split()]
    if missing:
        raise NoCgroups(f"{root} is not given the controllers {' and '.join(missing)}")
    if root == home and not (root / "cgroup.type").is_file():
        raise NoCgroups("the worker is in the root of the machine's control groups, which everything is in")
    others = [pid for pid in _members(root) if pid != os.getpid()]
    if others and (root / "cgroup.type").is_file():
        raise NoCgroups(f"{root} has other processes in it, such as {others[0]}")
    _sweep(root)
    return Cgroups(root, home)


def _home(proc: Path) -> Path:
    """The folder of this process's group."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "self" / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NoCgroups(f"the kernel tells of no control groups ({error.strerror})") from error
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    for line in mounts:
        facts, _, more = line.partition(" - ")
        if path is not None and more.startswith("cgroup2 "):
            mounted, point = facts.split()[3:5]
            inside = os.path.relpath(path, mounted)
            if not inside.startswith(".."):
                return Path(os.path.normpath(os.path.join(point, inside)))
    raise NoCgroups("cgroup v2 is not there, or not mounted where the worker could see its own group")


def _sweep(root: Path) -> None:
    """Take away what workers have left that were killed, one of this very number (in a container) included."""
    for folder in [*root.glob("worker-*"), *root.glob("tasks-*")]:
        pid = folder.name.partition("-")[2]
        if pid.isdecimal() and (int(pid) == os.getpid() or not os.path.exists(f"/proc/{pid}")):
            for each in folder.iterdir():
                if each.is_dir():
                    _removed(each)
            _removed(folder)


def _members(folder: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from map(int, (folder / "cgroup.procs").read_text(encoding="ascii").split())


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _numbers(file: Path) -> dict[str, int]:
    """A file of names and numbers; empty where there is none."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return {name: int(number) for name, number in map(str.split, lines)}
    except (OSError, ValueError):
        return {}


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY)  # one write, whole: the kernel takes no half
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        os.close(descriptor)
