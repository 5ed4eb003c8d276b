"""Facts judged: each becomes a finding that says what to do

Pure, so that every threshold has a row in a test. A finding is `fail` if a broker or its clients will not work, `warn`
if they will work worse than they could or stop working later, else `ok`.
"""

import datetime
import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass

GIB = 2**30

DISK_FREE_FAIL_BYTES = GIB  # one segment of the default size
DISK_FREE_WARN_SHARE = 0.1
INODES_FREE_WARN = 100_000  # a partition takes some ten files, a segment of it four
OPEN_FILES_FAIL = 1_024  # the usual limit of a shell: a few hundred partitions exhaust it
OPEN_FILES_WARN = 65_536
MAPS_WARN = 65_530  # the usual vm.max_map_count; every segment that is being read is mapped
SYNC_WARN_MS = 10.0  # p50; a produce request waits for one or two of them
SYNC_FAIL_MS = 200.0
SKEW_WARN_MS = 2_000
SKEW_FAIL_MS = 3_600_000  # message.timestamp.after.max.ms: what lies further ahead is refused
PYTHON_LEAST = (3, 11)
CLEANER_SILENT_MS = 3_600_000  # the cleaner's longest pause between two attempts


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at; `advice` is empty when all is well."""

    check: str
    level: Level
    text: str
    advice: str = ""


def _ok(check: str, text: str, advice: str = "") -> Finding:
    return Finding(check=check, level=Level.OK, text=text, advice=advice)


def _warn(check: str, text: str, advice: str) -> Finding:
    return Finding(check=check, level=Level.WARN, text=text, advice=advice)


def _fail(check: str, text: str, advice: str) -> Finding:
    return Finding(check=check, level=Level.FAIL, text=text, advice=advice)


def disk_space(path: str, free_bytes: int, total_bytes: int) -> Finding:
    """Room for data."""
    text = f"{free_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB free at {path}"
    advice = "make room, lower retention.ms or retention.bytes of large topics, or use a larger disk"
    if free_bytes < DISK_FREE_FAIL_BYTES:
        return _fail("disk space", text, advice)
    if free_bytes < DISK_FREE_WARN_SHARE * total_bytes:
        return _warn("disk space", text, advice)
    return _ok("disk space", text)


def inodes(path: str, free: int, total: int) -> Finding:
    """Room for files; some file systems have no fixed number and say 0."""
    if total == 0:
        return _ok("inodes", f"the file system at {path} has no fixed number of files")
    text = f"{free} of {total} files may still be made at {path}"
    if free < 1_000:
        return _fail("inodes", text, "remove small files or use another file system for the data")
    if free < INODES_FREE_WARN:
        return _warn("inodes", text, "a partition takes about ten files: use a file system with more inodes")
    return _ok("inodes", text)


def open_files(soft: int, hard: int) -> Finding:
    """The limit of open files; the broker raises its own from the soft to the hard one, -1 is none."""
    if hard < 0:
        return _ok("open files", "no limit")
    text = f"a process may have {hard} files open ({soft} before it asks for more)"
    advice = "raise the hard limit: LimitNOFILE=1048576 in the systemd unit, or nofile in limits.conf"
    if hard <= OPEN_FILES_FAIL:
        return _fail("open files", text, advice)
    if hard < OPEN_FILES_WARN:
        return _warn("open files", text, advice)
    return _ok("open files", text)


def memory_maps(count: int | None) -> Finding:
    """vm.max_map_count; None where the system has no such limit."""
    if count is None:
        return _ok("memory maps", "no limit known on this system")
    text = f"vm.max_map_count is {count}"
    if count < MAPS_WARN:
        return _fail("memory maps", text, "sysctl -w vm.max_map_count=262144")
    if count <= MAPS_WARN + 6:
        advice = "enough for some ten thousand segments in use; for more: sysctl -w vm.max_map_count=262144"
        return Finding(check="memory maps", level=Level.OK, text=text, advice=advice)
    return _ok("memory maps", text)


def sync_latency(path: str, latencies_ms: Sequence[float]) -> Finding:
    """How long the disk takes to make 4 KiB durable."""
    ordered = sorted(latencies_ms)
    median, worst = ordered[len(ordered) // 2], ordered[-1]
    text = f"fdatasync at {path} takes {median:.2f} ms (median of {len(ordered)}), at worst {worst:.1f} ms"
    advice = (
        "every acknowledged write waits for it: use a disk with a power-loss protected cache, "
        "or flush.policy=os if losing the last seconds in a power cut is acceptable"
    )
    if median >= SYNC_FAIL_MS:
        return _fail("sync latency", text, advice)
    if median >= SYNC_WARN_MS:
        return _warn("sync latency", text, advice)
    return _ok("sync latency", text)


def data_folder(path: str, problem: str | None, made_in: str | None = None) -> Finding:
    """Whether the folder can be written, or where it is not there yet, made in the folder `made_in`."""
    if problem is not None:
        return _fail("data folder", f"{path}: {problem}", "make the folder and give it to the user of the broker")
    if made_in is not None:
        return _ok(
            "data folder",
            f"{path} is not there yet and can be made in {made_in}",
            "a broker makes it when it first starts; if yours has run, give the folder that it has (log.dirs)",
        )
    return _ok("data folder", f"{path} can be written")


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanableLog:
    """A log that the broker could not compact the last time it tried."""

    name: str
    reason: str
    attempts: int
    since_ms: int
    retry_at_ms: int


def cleaner(logs: Sequence[UncleanableLog], now_ms: int) -> Finding:
    """Whether every log that is to be compacted can be; one that cannot grows without end."""
    if not logs:
        return _ok("log cleaner", "no log is known that cannot be compacted")
    told = "; ".join(
        f"{each.name}: {each.reason} (attempt {each.attempts}, the first at {_moment(each.since_ms)}, "
        f"the next at {_moment(each.retry_at_ms)})"
        for each in logs[:3]
    )
    text = f"cannot be compacted: {told}" + (f"; … ({len(logs)} logs)" if len(logs) > 3 else "")
    if all(each.retry_at_ms + CLEANER_SILENT_MS < now_ms for each in logs):
        advice = "nobody has tried again: start the broker of this folder, with log.cleaner.enable=true"
        return _warn("log cleaner", text, advice)
    return _warn(
        "log cleaner",
        text,
        "they are served and grow; the broker goes on trying and logs every attempt. Make room on a full disk; for a "
        "corrupt batch 'tidemill log verify' says what is lost, and 'tidemill log repair --quarantine' takes it out "
        "while the broker is stopped",
    )


def cleaner_unknown(file: str, problem: str) -> Finding:
    """The broker's list of such logs is there and cannot be read."""
    advice = "run this as the user of the broker; a file that is damaged may be removed"
    return _warn("log cleaner", f"{file} cannot be read: {problem}", advice)


def _moment(wall_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def python(version: tuple[int, int, int], event_loop: str | None) -> list[Finding]:
    """The interpreter and the event loop; `event_loop` is the version of uvloop, None without it."""
    shown = ".".join(map(str, version))
    findings = [
        _ok("python", f"Python {shown}")
        if version[:2] >= PYTHON_LEAST
        else _fail("python", f"Python {shown}", "use Python 3.11 or newer")
    ]
    if event_loop is None:
        findings.append(_fail("uvloop", "uvloop is not installed", "pip install uvloop: the broker runs on it"))
    else:
        findings.append(_ok("uvloop", f"uvloop {event_loop}"))
    return findings


def congestion_control(name: str | None, loopback: bool) -> Finding:
    """TCP's congestion control; bbr paces even the loopback device."""
    if name is None:
        return _ok("congestion control", "not known on this system")
    if name == "bbr" and loopback:
        advice = (
            "bbr paces connections even inside one machine, which lowers their throughput: "
            "for benchmarks on one machine use sysctl -w net.ipv4.tcp_congestion_control=cubic; leave it for a network"
        )
        return Finding(check="congestion control", level=Level.WARN, text="bbr, and the broker is local", advice=advice)
    return _ok("congestion control", name)


def bootstrap(address: str, problem: str | None, round_trip_ms: float = 0.0) -> Finding:
    """Whether the first address answers as Kafka."""
    if problem is None:
        return _ok("bootstrap", f"{address} answers in {round_trip_ms:.1f} ms")
    if "certificate" in problem or "TLS" in problem:
        advice = "settings of the client are in the file of --command-config; the broker's log says whom it refuses"
        return _fail("bootstrap", f"{address}: {problem}", advice)
    return _fail(
        "bootstrap",
        f"{address}: {problem}",
        "start a broker ('tidemill broker start'), give its address with --bootstrap-server, or open the firewall",
    )


def advertised(node_id: int, address: str, via: str, problem: str | None, answered_by: Collection[str]) -> Finding:
    """Whether a broker answers where it says that it does, and as the same cluster.

    `answered_by` holds the ids of the cluster asked at `via` and of the one that answered at `address`.
    """
    check = f"advertised address of node {node_id}"
    if problem is not None:
        return _fail(
            check,
            f"{via} sends clients to {address}, which does not answer from here: {problem}",
            "start that broker if it is stopped; else set its advertised.listeners to a host and port that its clients "
            "can reach (a public name instead of localhost, the port outside of a container)",
        )
    if len(answered_by) > 1:
        return _fail(
            check,
            f"{via} sends clients to {address}, where another cluster answers ({', '.join(sorted(answered_by))})",
            "set advertised.listeners of that broker: the address belongs to somebody else",
        )
    return _ok(check, f"{address} answers")


def leaders(without: Sequence[str], partitions: int) -> Finding:
    """Whether every partition can be used."""
    if not without:
        return _ok("partitions", f"{partitions} partitions, every one has a leader")
    few = ", ".join(without[:3]) + (", …" if len(without) > 3 else "")
    return _fail(
        "partitions", f"{len(without)} of {partitions} partitions have no leader: {few}", "start their brokers"
    )


def clock_behind(newest_ms: int | None, now_ms: int) -> Finding:
    """The clock here against the newest record that the brokers themselves have stamped."""
    if newest_ms is None:
        return _ok("clock", "nothing to compare with: no group has committed offsets yet")
    ahead_ms = newest_ms - now_ms
    if ahead_ms <= SKEW_WARN_MS:
        return _ok("clock", "not behind the broker's")
    text = f"the clock of this machine is at least {ahead_ms / 1000:.1f} s behind the broker's"
    advice = "let both follow NTP (chronyc tracking, timedatectl): timestamps, retention and timeouts depend on it"
    return _fail("clock", text, advice) if ahead_ms >= SKEW_FAIL_MS else _warn("clock", text, advice)
