"""What the kernel knows about a process: memory, time, want of memory"""

import os
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """A process at one moment."""

    rss_bytes: int
    cpu_s: float


def process_facts(pid: int) -> ProcessFacts | None:
    """Resident memory and processor time used so far; None once the process is gone, or where /proc is missing."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
        resident_pages = int((_PROC / str(pid) / "statm").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    # The command's name, in brackets, may hold anything; the fields after the last bracket start with the third.
    fields = stat.rpartition(b")")[2].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return ProcessFacts(rss_bytes=resident_pages * _PAGE_BYTES, cpu_s=(user_ticks + system_ticks) / _TICKS_PER_S)


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it does not tell."""
    try:
        lines = (_PROC / "vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
