"""What the kernel knows about the processes of a task

A task is a process and all it started, however deep. One pass over `/proc` tells of every process there is, so many
tasks are looked at for the price of one. Whoever looks all the time passes over those that cannot be of a task: who is
not below a process never gets there, as orphans only ever go to somebody above them.

Memory is counted as resident at first, which has pages that several processes share in it more than once;
`proportional_bytes` counts each page once and is asked where it matters.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidemill.core.runtime.clock import Clock, SystemClock

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
STAT_BYTES_MAX = 4096  # 52 numbers and a short name
NOBODY = 0  # the parent of the first process, and of those that come from outside of a container

LOOKS_AT_ALL = 15
"""Every so many looks nobody is passed over: the number of a stranger may have been given anew between two of them."""

LOOKS_APART_S = 5
"""Nor after more than that since the last look: more of them may have, while there was nobody to look at."""


class ProcessEntry(NamedTuple):
    """A process at one moment."""

    parent: int
    rss_bytes: int
    cpu_s: float
    stopped: bool = False  # by a signal or a debugger, until it lets it go on


ProcessTable: TypeAlias = Mapping[int, ProcessEntry]
"""Every process of the machine, by its number."""

Children: TypeAlias = Mapping[int, Sequence[int]]
"""The children of every process that has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFacts:
    """A process and its descendants at one moment."""

    pids: tuple[int, ...]
    rss_bytes: int
    cpu_s: float  # of those that live


class Census:
    """Looks again and again at what is below one process, this one by default."""

    def __init__(self, root: int | None = None, proc: Path = PROC, *, clock: Clock | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self._proc = proc
        self._clock = clock or SystemClock()
        self._looked_s = self._clock.monotonic()
        self._strangers: set[int] = set()
        self._looks = 0

    def look(self) -> ProcessTable:
        """Everything that is below it, and whoever is new: at first everybody. Empty where /proc is missing."""
        pids = _pids(self._proc)
        self._looks += 1
        before_s, self._looked_s = self._looked_s, self._clock.monotonic()
        if self._looks % LOOKS_AT_ALL == 0 or self._looked_s - before_s > LOOKS_APART_S:
            self._strangers.clear()
        self._strangers &= pids
        table = _table(pids - self._strangers, self._proc)
        self._strangers |= {pid for pid in table if self._is_stranger(pid, table)}
        return table

    def _is_stranger(self, pid: int, table: ProcessTable) -> bool:
        """Whether it is known not to be below the root; who is above it may have come or gone while they were read."""
        for _ in range(len(table) + 1):
            if pid == self._root:
                return False
            if pid == NOBODY or pid in self._strangers:
                return True
            if pid not in table:
                return False
            pid = table[pid].parent
        return False


def _pids(proc: Path) -> set[int]:
    try:
        return {int(name) for name in os.listdir(proc) if name.isdigit()}
    except OSError:
        return set()


def _table(pids: Iterable[int], proc: Path) -> ProcessTable:
    table = {}
    for pid in pids:
        try:
            # The name, in brackets, may hold anything; the fields after the last bracket start with the third.
            fields = _content(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
            cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
            rss_bytes = int(fields[21]) * _PAGE_BYTES
            table[pid] = ProcessEntry(int(fields[1]), rss_bytes, cpu_s, fields[0] in (b"T", b"t"))
        except (OSError, IndexError, ValueError):
            continue  # gone meanwhile
    return table


def _content(path: str) -> bytes:
    """A short file of the kernel's, with as few calls as there can be: there is one for every process."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, STAT_BYTES_MAX)
    finally:
        os.close(file)


def children_of(table: ProcessTable) -> Children:
    """Who has started, or adopted, whom."""
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    return children


def family_facts(table: ProcessTable, children: Children, root: int) -> FamilyFacts | None:
    """A process with all that descends from it; None once it is gone."""
    if root not in table:
        return None
    family = [root]
    for pid in family:  # grows while it is read
        family += children.get(pid, ())
    return FamilyFacts(
        pids=tuple(family),
        rss_bytes=sum(table[pid].rss_bytes for pid in family),
        cpu_s=sum(table[pid].cpu_s for pid in family),
    )


def proportional_bytes(pids: tuple[int, ...], proc: Path = PROC) -> int | None:
    """Memory of some processes, pages they share counted once; None where the kernel does not tell."""
    if not (proc / "self" / "smaps_rollup").exists():
        return None
    total_kib = 0
    for pid in pids:
        try:
            lines = (proc / str(pid) / "smaps_rollup").read_bytes().splitlines()
        except (ProcessLookupError, FileNotFoundError):
            continue  # gone meanwhile
        except OSError:
            return None
        total_kib += next((int(line.split()[1]) for line in lines if line.startswith(b"Pss:")), 0)
    return total_kib * 1024


def out_of_memory_kills(proc: Path = PROC) -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it does not tell."""
    try:
        lines = (proc / "vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
