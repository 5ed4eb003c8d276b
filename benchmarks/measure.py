"""What a benchmark reads from the operating system and how it prints a result

CPU seconds come from the kernel's accounting of a process and all its descendants: what other programs do to the wall
clock does not reach them, so ratios of CPU hold on a noisy machine.
"""

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

HISTORY = Path(__file__).parent / "results" / "history.ndjson"


@dataclass(slots=True)
class Usage:
    """What a block of work cost; filled when the block ends."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    rss_mb: float = 0.0


def tree(pid: int) -> list[psutil.Process]:
    """A process and everything below it."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its living descendants, plus what ended children left behind."""
    total = 0.0
    for process in tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its descendants, MB."""
    total = 0
    for process in tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


@contextmanager
def measured(*pids: int) -> Iterator[Usage]:
    """Measure wall time of a block and what the processes `pids` spent in it."""
    usage = Usage()
    begin, cpu = time.monotonic(), sum(cpu_seconds(pid) for pid in pids)
    yield usage
    usage.wall_s = time.monotonic() - begin
    usage.cpu_s = sum(cpu_seconds(pid) for pid in pids) - cpu
    usage.rss_mb = sum(rss_mb(pid) for pid in pids)


def ratio(ours: float, theirs: float | None) -> float | None:
    """Ours over theirs, None where the peer was not measured."""
    return round(ours / theirs, 2) if theirs else None


def emit(name: str, results: Mapping[str, Any]) -> None:
    """Print one JSON object and append it to the history file."""
    row = {
        "benchmark": name,
        "version": version("tidemill"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        **results,
    }
    line = json.dumps(row, separators=(",", ":"))
    print(line, flush=True)
    HISTORY.parent.mkdir(parents=True, exist_ok=True)
    with HISTORY.open("a") as file:
        file.write(line + "\n")
