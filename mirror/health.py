"""How a flow is, looked at once a second

A look waits for nobody: what has to be asked of a cluster is asked beside it, so that one that hangs does not make the
mirror look dead.

Puts together what the parts of a flow know: whether its clusters answer, what holds up a topic, a partition, a group or
a job, how far behind it is. What is new goes to the log, when it begins and when it is over; everything goes into a
record of `tidemill.mirror.status_records`.

A partition that was in trouble is well again once it has run from one look to the next without stumbling. It is
looked at, not told of, so a partition costs the machine nothing in between.

Lag in seconds is the age of the oldest offset that is not mirrored: when its look first saw that offset on the source.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping

import structlog

from tidemill.core.client.batches import LATEST
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import TopicPartition
from tidemill.mirror.flow import Flow, PartitionEntry
from tidemill.mirror.link import State
from tidemill.mirror.probing import PATIENCE_SECONDS, ClusterProbe
from tidemill.mirror.status_records import FlowState, StatusRow
from tidemill.mirror.troubles import (
    CLUSTER,
    FLOW,
    GROUP,
    JOB,
    PARTITION,
    TOPIC,
    Problem,
    Trouble,
    TroubleBook,
    standing,
    unreachable,
)

ENDS_KEPT_MAX = 60  # per partition; when it is behind for longer the newest stretch of its age is told too high
PARTITIONS_LOGGED_MAX = 5  # per look: when a broker goes away, hundreds have the same to say
_STEADY = (State.RUNNING, State.IDLE)
_LOGGED = (CLUSTER, PARTITION)  # the beginnings of others are logged where they happen
_TOLD_BY_THE_MACHINE = (f"{State.FAILED}: ", f"{State.PARKED}: ")


class LagClock:
    """How old the oldest offset is that is not mirrored; fed with both ends at every look."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()  # when the source's end was seen to grow, and to what

    def look(self, now: float, mirrored: int, end: int) -> float:
        """Seconds, 0 when everything up to `end` is mirrored; `now` is monotonic."""
        if not self._ends or self._ends[-1][1] < end:
            if len(self._ends) == ENDS_KEPT_MAX:
                now_of_last, _ = self._ends.pop()
                self._ends.append((now_of_last, end))
            else:
                self._ends.append((now, end))
        while self._ends and self._ends[0][1] <= mirrored:
            self._ends.popleft()
        return now - self._ends[0][0] if self._ends else 0.0


class PartitionHealth:
    """What one partition's looks remember."""

    __slots__ = ("_looks", "clock", "lag", "lag_seconds", "reason")

    def __init__(self) -> None:
        self.reason = ""  # why it is not mirrored, empty while it is
        self.lag: int | None = None
        self.lag_seconds = 0.0
        self.clock = LagClock()
        self._looks = 0  # in trouble, in a row

    def look(self, entry: PartitionEntry, now: float, source_end: int | None) -> None:
        """Take in how the partition is; `source_end` if somebody asked for it."""
        link = entry.link
        stumbled, entry.trouble = entry.trouble, link.reason
        if stumbled or link.state not in _STEADY:
            self.reason = stumbled or self.reason
            self._looks += bool(self.reason)
        else:
            self.reason, self._looks = "", 0
        known = link.progress.source_end
        if known is not None:  # before, nothing is known of the position either
            end = known if source_end is None else max(known, source_end)
            self.lag = max(0, end - link.progress.source_next)
            self.lag_seconds = self.clock.look(now, link.progress.source_next, end)

    def problem(self, entry: PartitionEntry) -> Problem | None:
        """What to tell; a stumble that is over with the next look, as when a leader moves, is nothing."""
        state = entry.link.state
        if not self.reason or (self._looks < 2 and state not in (State.FAILED, State.PARKED)):
            return None
        shown = state if state in (State.FAILED, State.PARKED) else State.BACKING_OFF
        return standing(str(entry.source), shown, self.reason)


class FlowHealth:
    """One flow; `jobs` and `groups` name what failed in its last round, by what it is."""

    def __init__(
        self,
        flow: Flow,
        probes: Mapping[str, ClusterProbe],
        clock: Clock,
        *,
        mirror: str,
        jobs: Mapping[str, str],
        groups: Mapping[str, str],
    ) -> None:
        self.flow = flow
        self.ended = ""  # why the flow was given up
        self.partitions: dict[TopicPartition, PartitionHealth] = {}
        self.probes = {alias: probes[alias] for alias in (flow.config.source, flow.config.target)}
        self._clock = clock
        self._mirror = mirror
        self._started_ms = clock.now_ms()
        self._jobs = jobs
        self._groups = groups
        self._book = TroubleBook()
        self._ends: Mapping[TopicPartition, int] = {}  # of partitions that do not read
        self._written_ms = 0
        self._log = structlog.get_logger("tidemill.mirror").bind(flow=flow.config.name)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What the last look found, the oldest first."""
        return self._book.troubles

    def look(self) -> None:
        """See how everything is."""
        entries = dict(self.flow.entries)
        now = self._clock.monotonic()
        self.partitions = {partition: self.partitions.get(partition) or PartitionHealth() for partition in entries}
        for partition, entry in entries.items():
            self.partitions[partition].look(entry, now, self._ends.get(partition))
        change = self._book.look(self._problems(entries), self._clock.now_ms())
        self._tell(change.begun, change.ended)

    async def ask(self) -> None:
        """Ask for the log ends of partitions that do not read at the moment, so that their lag does not stand still."""
        entries = [entry for entry in self.flow.entries.values() if entry.link.state not in _STEADY]
        self._ends = await self._source_ends(entries)

    async def _source_ends(self, entries: list[PartitionEntry]) -> dict[TopicPartition, int]:
        if not entries or self.probes[self.flow.config.source].reason:
            return {}
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await self.flow.source.list_offsets({entry.source: LATEST for entry in entries})
        except (ConnectionFailed, KafkaError, TimeoutError):
            return {}
        return {partition: answer.offset for partition, answer in found.items() if not answer.error_code}

    def _problems(self, entries: Mapping[TopicPartition, PartitionEntry]) -> Iterator[Problem]:
        if self.ended:
            yield Problem(kind=FLOW, name=self.flow.config.name, reason=self.ended, remedy="then start it again")
            return
        for alias, probe in self.probes.items():
            if probe.reason:
                yield unreachable(alias, probe.reason)
        if self.flow.waiting:
            yield Problem(kind=FLOW, name=self.flow.config.name, reason=self.flow.waiting, remedy="it is tried again")
        for topic, reason in self.flow.topics.problems.items():
            remedy = "put it right, or leave it out with `topics.exclude`; it is tried again within seconds"
            yield Problem(kind=TOPIC, name=topic, reason=reason, remedy=remedy)
        for topic, reason in self.flow.gone.items():
            remedy = "create it again, or restart the mirror to forget it"
            yield Problem(kind=TOPIC, name=topic, reason=reason, remedy=remedy)
        for partition, entry in entries.items():
            problem = self.partitions[partition].problem(entry)
            if problem is not None:
                yield problem
        for kind, failed in ((JOB, self._jobs), (GROUP, self._groups)):
            for name, reason in tuple(failed.items()):
                yield Problem(kind=kind, name=name, reason=reason, remedy="it is tried again at its next turn")

    def _tell(self, begun: tuple[Trouble, ...], ended: tuple[Trouble, ...]) -> None:
        """Log what is new and what is over; of many partitions only some, and how many."""
        now_ms = self._clock.now_ms()
        news = [
            trouble
            for trouble in begun
            if trouble.problem.kind in _LOGGED and not trouble.problem.reason.startswith(_TOLD_BY_THE_MACHINE)
        ]
        for trouble in _some(news):
            problem = trouble.problem
            self._log.warning(f"{problem.kind} {problem.name}: {problem.reason}", remedy=problem.remedy)
        for trouble in _some(ended):
            problem = trouble.problem
            seconds = round((now_ms - trouble.since_ms) / 1000, 1)
            self._log.info(f"{problem.kind} {problem.name} is well again", after_seconds=seconds, was=problem.reason)
        more = max(0, _partitions(news) - PARTITIONS_LOGGED_MAX), max(0, _partitions(ended) - PARTITIONS_LOGGED_MAX)
        if any(more):
            self._log.info("and more partitions", in_trouble=more[0], well_again=more[1])

    def lag(self) -> int | None:
        """Offsets still to mirror; None while that is not known of every partition, or no topic was looked at."""
        lags = [partition.lag for partition in self.partitions.values()]
        known = self.flow.ready.is_set() and not self.flow.standby and not self.ended and None not in lags
        return None if not known else sum(lag for lag in lags if lag is not None)

    def row(self, state: FlowState | None = None) -> StatusRow:
        """What to tell the world; each row is younger than the one before it, also when the clock is put back."""
        self._written_ms = max(self._written_ms + 1, self._clock.now_ms())
        alive = FlowState.RUNNING if self.flow.ready.is_set() else FlowState.STARTING
        if self.flow.standby:
            alive = FlowState.STANDBY
        lag = self.lag()
        return StatusRow(
            flow=self.flow.config.name,
            mirror=self._mirror,
            state=state or (FlowState.ENDED if self.ended else alive),
            started_ms=self._started_ms,
            written_ms=self._written_ms,
            partitions={str(each): count for each, count in sorted(self.flow.states().items())},
            lag=lag,
            lag_seconds=None if lag is None else self.lag_seconds(),
            lost=sum(entry.link.progress.lost for entry in tuple(self.flow.entries.values())),
            troubles=self.troubles,
            troubles_total=len(self.troubles),
        )

    def lag_seconds(self) -> float:
        """Age of the oldest offset of any partition that is not mirrored."""
        return round(max((partition.lag_seconds for partition in self.partitions.values()), default=0.0), 1)


def _partitions(troubles: list[Trouble] | tuple[Trouble, ...]) -> int:
    return sum(trouble.problem.kind == PARTITION for trouble in troubles)


def _some(troubles: list[Trouble] | tuple[Trouble, ...]) -> Iterator[Trouble]:
    left = PARTITIONS_LOGGED_MAX
    for trouble in troubles:
        if trouble.problem.kind == PARTITION:
            left -= 1
        if trouble.problem.kind != PARTITION or left >= 0:
            yield trouble
