"""What the kernel knows about the processes of a task

A task is a process and all it started, however deep. One pass over `/proc` tells of every process there is, so many
tasks are looked at for the price of one. Memory is counted as resident at first, which has pages that several
processes share in it more than once; `proportional_bytes` counts each page once and is asked where it matters.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
STAT_BYTES_MAX = 4096  # 52 numbers and a short name


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


def process_table(proc: Path = PROC) -> ProcessTable:
    """Look at every process; empty where /proc is missing."""
    table = {}
    try:
        names = os.listdir(proc)
    except OSError:
        return {}
    for name in names:
        if not name.isdigit():
            continue
        try:
            # The name, in brackets, may hold anything; the fields after the last bracket start with the third.
            fields = _content(f"{proc}/{name}/stat").rpartition(b")")[2].split()
            cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
            rss_bytes = int(fields[21]) * _PAGE_BYTES
            table[int(name)] = ProcessEntry(int(fields[1]), rss_bytes, cpu_s, fields[0] in (b"T", b"t"))
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
