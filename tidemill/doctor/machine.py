"""Facts about this machine, and what they mean for a broker

Nothing is left behind: the one file written, to time the disk, is gone before the function returns.
"""

import os
import resource
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemill.doctor import judge
from tidemill.doctor.judge import Finding

SYNC_ROUNDS = 50
_SYNC_BYTES = 4096


def examine_machine(*, loopback: bool) -> list[Finding]:
    """Interpreter, limits and kernel settings."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings = judge.python(sys.version_info[:3], _installed("uvloop"))
    findings.append(judge.open_files(soft, -1 if hard == resource.RLIM_INFINITY else hard))
    maps = _setting("vm/max_map_count")
    findings.append(judge.memory_maps(int(maps) if maps is not None and maps.isdigit() else None))
    findings.append(judge.congestion_control(_setting("net/ipv4/tcp_congestion_control"), loopback))
    return findings


def examine_folder(path: Path) -> list[Finding]:
    """Room, rights and speed of the disk under `path`; a folder that is not there is judged by its parent."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    problem = None
    if not there.is_dir():
        problem = "not a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        problem = "it cannot be written" if there == path else f"it cannot be made in {there}"
    findings = [judge.data_folder(str(path), problem, None if there == path else str(there))]
    if problem is not None:
        return findings
    facts = os.statvfs(there)
    findings.append(judge.disk_space(str(there), facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize))
    findings.append(judge.inodes(str(there), facts.f_favail, facts.f_files))
    try:
        findings.append(judge.sync_latency(str(there), sync_latencies_ms(there)))
    except OSError as error:
        findings.append(judge.data_folder(str(path), f"a file there cannot be synced: {error.strerror}"))
    return findings


def sync_latencies_ms(folder: Path, rounds: int = SYNC_ROUNDS) -> list[float]:
    """How long an append of 4 KiB takes to be durable, each of `rounds` times."""
    latencies: list[float] = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tidemill-doctor-") as file:
        block = os.urandom(_SYNC_BYTES)
        for _ in range(rounds):
            begun = time.perf_counter()
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            latencies.append((time.perf_counter() - begun) * 1000)
    return latencies


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _setting(name: str) -> str | None:
    """A kernel setting, where there is a /proc."""
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None
