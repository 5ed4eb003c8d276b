"""What a running mirror tells about a flow, and whether it still runs

A mirror writes a record about each of its flows every second, into `tidemill-mirror-status.<other cluster>.internal` on
the target, and on the source too if it may write there at all (`offset-syncs.topic.location`), because the target may
be what is away. Key and value are JSON, so that any consumer can read along:

    key    {"flow": "A->B", "mirror": "<host>:<pid>:<start in ms>"}
    value  {"version": 1, "state": …, "written_ms": …,
            "troubles": [{"kind": …, "name": …, "reason": …, "remedy": …, "since_ms": …}], …}

A record that is not older than `FRESH_MS` is a sign of life. An older one proves nothing, the clocks of two machines
may differ: then only the next record tells. What stopped in order says so in its last record.

Pure: `tidemill.mirror.health` writes, `tidemill.mirror.inspection` reads.
"""

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from tidemill.mirror.troubles import Problem, Trouble

TOPIC_PREFIX = "tidemill-mirror-status"
INTERVAL_MS = 1000
FRESH_MS = 3 * INTERVAL_MS
TROUBLES_MAX = 200  # in one record, which then stays below 300 KB; how many there are is always told
REASON_CHARS_MAX = 400
TOPIC_SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": str(30 * 86_400_000), "segment.bytes": "1048576"}
_VERSION = 1


class FlowState(enum.StrEnum):
    """What a mirror does with a flow."""

    STARTING = "starting"  # clusters, map and topics are being looked at
    RUNNING = "running"
    STANDBY = "standing by"  # another mirror is at work
    ENDED = "ended"  # given up: it must not run
    STOPPED = "stopped"  # by a signal


_RANK = (FlowState.RUNNING, FlowState.STARTING, FlowState.STANDBY)
OVER = (FlowState.ENDED, FlowState.STOPPED)  # true also of a mirror that tells no more


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRow:
    """One record."""

    flow: str
    mirror: str
    state: FlowState
    started_ms: int
    written_ms: int
    partitions: Mapping[str, int] = field(default_factory=dict)  # how many are in which state
    lag: int | None = None  # offsets still to mirror; None while not known
    lag_seconds: float | None = None
    lost: int = 0  # offsets the source deleted before they were mirrored, since the start
    troubles: tuple[Trouble, ...] = ()  # the oldest, at most TROUBLES_MAX
    troubles_total: int = 0

    def key(self) -> bytes:
        """Key bytes."""
        return json.dumps({"flow": self.flow, "mirror": self.mirror}).encode()

    def value(self) -> bytes:
        """Value bytes."""
        fields = {
            "version": _VERSION,
            "state": self.state.value,
            "started_ms": self.started_ms,
            "written_ms": self.written_ms,
            "partitions": dict(self.partitions),
            "lag": self.lag,
            "lag_seconds": self.lag_seconds,
            "lost": self.lost,
            "troubles": [
                {**asdict(trouble.problem), "reason": trouble.problem.reason[:REASON_CHARS_MAX]}
                | {"since_ms": trouble.since_ms}
                for trouble in self.troubles[:TROUBLES_MAX]
            ],
            "troubles_total": self.troubles_total,
        }
        return json.dumps(fields).encode()


def decode(key: bytes | None, value: bytes | None) -> StatusRow | None:
    """Read a record back; None for one of another version, or that no mirror wrote."""
    try:
        names, fields = json.loads(key or b""), json.loads(value or b"")
        if fields["version"] != _VERSION:
            return None
        return StatusRow(
            flow=names["flow"],
            mirror=names["mirror"],
            state=FlowState(fields["state"]),
            started_ms=fields["started_ms"],
            written_ms=fields["written_ms"],
            partitions=fields["partitions"],
            lag=fields["lag"],
            lag_seconds=fields["lag_seconds"],
            lost=fields["lost"],
            troubles=tuple(_trouble(row) for row in fields["troubles"]),
            troubles_total=fields["troubles_total"],
        )
    except (ValueError, KeyError, TypeError):
        return None


def _trouble(row: Mapping[str, object]) -> Trouble:
    problem = Problem(
        kind=str(row["kind"]), name=str(row["name"]), reason=str(row["reason"]), remedy=str(row["remedy"])
    )
    since_ms = row["since_ms"]
    if not isinstance(since_ms, int):
        raise TypeError(since_ms)
    return Trouble(problem=problem, since_ms=since_ms)


def status_topic(other_alias: str) -> str:
    """Name of the topic on one cluster of a flow, after the alias of the other one.

    >>> status_topic("A")
    'tidemill-mirror-status.A.internal'
    """
    return f"{TOPIC_PREFIX}.{other_alias}.internal"


def is_fresh(row: StatusRow, now_ms: int) -> bool:
    """Whether a record is a sign of life; one from the future is none."""
    return abs(now_ms - row.written_ms) <= FRESH_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Which row to believe of a flow."""

    row: StatusRow
    living: bool  # its mirror gave a sign of life
    settled: bool  # nothing that another mirror may tell within `FRESH_MS` would change that


def believe(rows: Iterable[StatusRow], earlier: Iterable[StatusRow], now_ms: int) -> Belief | None:
    """What to believe of a flow of which mirrors have told `rows`, and `earlier` at the first look, if there was one.

    A mirror lives whose row is fresh, or who has told something since the first look, whatever its clock says. One that
    is at work is believed first, then the one heard of last.
    """
    latest, before = _latest(rows), _latest(earlier)
    living = [
        row
        for row in latest.values()
        if is_fresh(row, now_ms) or (before and row.written_ms != _written_ms(before.get(row.mirror)))
    ]
    at_work = [row for row in living if row.state not in OVER]
    silent = any(row.state not in OVER and row not in living for row in latest.values())
    if at_work:
        row = min(at_work, key=lambda row: (_RANK.index(row.state), -row.written_ms))
        return Belief(row=row, living=True, settled=row.state is not FlowState.STANDBY or not silent)
    if not latest:
        return None
    row = max(latest.values(), key=lambda row: row.written_ms)
    return Belief(row=row, living=row in living, settled=not silent)


def _latest(rows: Iterable[StatusRow]) -> dict[str, StatusRow]:
    """What each mirror has told last."""
    latest: dict[str, StatusRow] = {}
    for row in rows:
        held = latest.get(row.mirror)
        if held is None or row.written_ms >= held.written_ms:
            latest[row.mirror] = row
    return latest


def _written_ms(row: StatusRow | None) -> int | None:
    return None if row is None else row.written_ms
