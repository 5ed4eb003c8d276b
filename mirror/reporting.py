"""The words and the exit status of `tidemill mirror status`

Per flow: whether a mirror runs it and since when, everything that is wrong with since when and what to do, then the
partitions. Lag is only told where it is known of every partition.

Pure: `tidemill.mirror.inspection` has looked.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemill.mirror.inspection import NO_MIRROR, FlowReport, Life, PartitionStatus
from tidemill.mirror.troubles import CLUSTER

ALL_WELL, SOMETHING_WRONG, NOT_RUNNING = 0, 1, 3
_ALIVE = frozenset({Life.STARTING, Life.RUNNING, Life.STANDBY, Life.ENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a program reads: the last line of the output."""

    mirror: Mapping[str, str]  # by flow
    partitions: int
    lag: int | None  # offsets still to mirror; None unless it is known of every partition
    unknown: int  # partitions whose lag is not known
    lost: int  # offsets the source deleted before they were mirrored, since the mirror started
    problems: int

    @property
    def exit_status(self) -> int:
        """0 all is well, 1 something is wrong, 3 nothing is but no mirror runs a flow."""
        if self.problems:
            return SOMETHING_WRONG
        return NOT_RUNNING if any(life in NO_MIRROR for life in self.mirror.values()) else ALL_WELL


def lines_of(report: FlowReport, now_ms: int) -> Iterator[str]:
    """The flow's life and everything wrong with it."""
    yield f"{report.flow}: {_life(report, now_ms)}"
    for problem in problems_of(report, now_ms):
        yield f"  {problem}"
    row = report.row
    if row is not None and row.lost:
        yield f"  the source deleted {row.lost} offsets before they were mirrored, since {_moment(row.started_ms)}"


def _life(report: FlowReport, now_ms: int) -> str:
    row = report.row
    if row is None:
        what = {
            Life.NOT_STARTED: "not started: no mirror has told of this flow on either cluster",
            Life.UNKNOWN: "nobody knows whether a mirror runs: the cluster that would tell does not answer",
        }
        return what.get(report.life, report.life)
    host, process, _ = row.mirror.rsplit(":", 2)
    where = f"on {host} (process {process})"
    if report.life in (Life.STOPPED, Life.ENDED):
        return f"{report.life} {where} at {_moment(row.written_ms)}, {_age(now_ms - row.written_ms)} ago"
    if report.life is Life.SILENT:
        ago = f"{_moment(row.written_ms)}, {_age(now_ms - row.written_ms)} ago"
        return f"not running: no sign of life from the mirror {where} since {ago}; start it again"
    return f"{report.life} {where} since {_moment(row.started_ms)}"


def problems_of(report: FlowReport, now_ms: int) -> list[str]:
    """Everything wrong, one a line; what a mirror told counts as long as it lives."""
    found: list[str] = []
    named: set[str] = set()
    row = report.row if report.life in _ALIVE else None
    for trouble in () if row is None else row.troubles:
        problem = trouble.problem
        named.add(problem.name)
        age = _age(now_ms - trouble.since_ms)
        found.append(
            f"{problem.kind} {problem.name}: {problem.reason} (since {_moment(trouble.since_ms)}, {age}): "
            f"{problem.remedy}"
        )
    if row is not None and row.troubles_total > len(row.troubles):
        found.append(f"and {row.troubles_total - len(row.troubles)} more")
    found += [
        f"{CLUSTER} {alias}: unreachable from here: {reason}"
        for alias, reason in report.unreachable.items()
        if alias not in named
    ]
    if report.blind:
        found.append(f"partitions cannot be looked at: {report.blind}")
    found += [
        f"partition {status.source}: {status.problem}"
        for status in report.partitions
        if status.problem and str(status.source) not in named
    ]
    return found


def standing_of(report: FlowReport, status: PartitionStatus) -> str:
    """The state of one partition in a few words."""
    row = report.row if report.life in _ALIVE else None
    troubles = () if row is None else row.troubles
    reason = next((each.problem.reason for each in troubles if each.problem.name == str(status.source)), "")
    if reason:
        behind = "" if status.lag is None else f", {status.lag} behind"
        return reason.partition(":")[0] + behind
    return status.verdict


def summary(reports: Iterable[FlowReport], now_ms: int) -> Summary:
    """All flows together."""
    every = tuple(reports)
    partitions = [status for report in every for status in report.partitions]
    unknown = sum(status.lag is None for status in partitions)
    seen = not any(report.unreachable or report.blind or report.life is Life.NOT_STARTED for report in every)
    return Summary(
        mirror={report.flow: str(report.life) for report in every},
        partitions=len(partitions),
        lag=None if unknown or not seen else sum(status.lag or 0 for status in partitions),
        unknown=unknown,
        lost=sum(report.row.lost for report in every if report.row is not None),
        problems=sum(len(problems_of(report, now_ms)) for report in every),
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _age(ms: int) -> str:
    """A length of time in its largest unit.

    >>> _age(900), _age(90_000), _age(7_300_000), _age(900_000_000)
    ('0 s', '90 s', '2 h', '10 d')
    """
    seconds = max(0, ms // 1000)
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"
