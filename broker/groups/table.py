"""What the parts of the group machine share: tables and pending actions

The groups, their deadlines, and what the step at hand says. `joining`, `rounds` and `commits` take in the events and
decide; all of them speak through this, so that their words come out in one order, and a write and what depends on it
stay together: an append is remembered with its records and with what is to be done once its outcome is known (`Then`,
data and no closure, so that a machine can be looked at between two steps).

Not here: any rule.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from tidemill.broker.coordination.contract import Append, Instant, Note, Reply
from tidemill.broker.coordination.deadlines import Deadlines
from tidemill.broker.groups.events import Action, JoinResult, Response
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.membership import ClassicGroup, Terms
from tidemill.broker.groups.records import CoordinatorRecord, pieces
from tidemill.broker.groups.topics import Topics

KEPT_BYTES_MAX: Final = 256 * 1024
"""One batch of records that nobody waits for: far below `message.max.bytes`, whatever the number of offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the configuration allows."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 10_000
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 86_400_000


class Timer(IntEnum):
    """What can become due in a group."""

    SESSION = 0  # a member must be heard of
    PENDING = 1  # an id that was handed out must be used
    REBALANCE = 2  # the join phase ends
    INITIAL_DELAY = 3  # the first join phase of an empty group ends
    SYNC = 4  # members that joined must ask for their assignment


class TimerKey(NamedTuple):
    """A timer of a group, or of one of its members."""

    timer: Timer
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The leader's assignment was appended."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A request whose answer depends on the append."""

    group_id: str
    request_id: int
    response: Response
    failed: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A static member came back under a new id and keeps its place."""

    group_id: str
    request_id: int
    old_id: str
    old_terms: Terms
    response: JoinResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Nobody waits: an empty generation, offsets that expired or whose topic is gone."""

    group_id: str


Then: TypeAlias = Assigned | Answer | Returned | Kept


class GroupTable:
    """All groups of one coordinator, and the words of the step at hand."""

    __slots__ = ("_in_flight", "_out", "_pending", "_token", "deadlines", "groups", "limits", "topics")

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.groups: dict[str, Group] = {}
        self.topics = Topics()
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self._pending: dict[int, tuple[tuple[CoordinatorRecord, ...], Then]] = {}
        self._in_flight: Counter[str] = Counter()  # appends about each group whose outcome is not known
        self._token = 0
        self._out: list[Action] = []

    def begin(self) -> list[Action]:
        """A new step; what it says will be in the list that is returned."""
        self._out = []
        return self._out

    def group(self, group_id: str) -> Group:
        """The group of that name, made if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The classic group of that name, None if there is none."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def drop_if_nothing_left(self, group: Group, now: Instant) -> None:
        """Forget a group that has no members, no offsets and no record in the log or on its way there."""
        if (
            group.is_idle
            and not group.offsets
            and not group.tombstones()
            and not self.is_written_about(group)
            and self.groups.get(group.group_id) is group
        ):
            group.end(now.wall_ms)
            del self.groups[group.group_id]

    def is_written_about(self, group: Group) -> bool:
        """Whether records about the group are on their way to the log: what they say is not known yet."""
        return group.group_id in self._in_flight

    def set_timer(self, timer: Timer, group: Group, now: Instant, delay_ms: int, member_id: str = "") -> None:
        """Let something be due in `delay_ms`, whatever it was before."""
        self.deadlines.set(TimerKey(timer, group.group_id, member_id), now.monotonic_ms + delay_ms)

    def clear_timer(self, timer: Timer, group: Group, member_id: str = "") -> None:
        """Let it not become due."""
        self.deadlines.clear(TimerKey(timer, group.group_id, member_id))

    def append(self, group_id: str, records: Iterable[CoordinatorRecord], then: Then) -> None:
        """Have `records` written, and `then` done with the outcome."""
        self._token += 1
        written = tuple(records)
        self._pending[self._token] = (written, then)
        self._in_flight[then.group_id] += 1
        self._out.append(Append(token=self._token, subject=group_id, records=written))

    def keep(self, group: Group, records: Iterable[CoordinatorRecord]) -> None:
        """Have `records` written, in batches that any log takes; nobody waits for them, and each may fail alone."""
        for piece in pieces(records, KEPT_BYTES_MAX):
            self.append(group.group_id, piece, Kept(group_id=group.group_id))

    def settle(self, token: int) -> tuple[tuple[CoordinatorRecord, ...], Then]:
        """The append whose outcome has become known."""
        records, then = self._pending.pop(token)
        self._in_flight[then.group_id] -= 1
        if not self._in_flight[then.group_id]:
            del self._in_flight[then.group_id]
        return records, then

    def reply(self, request_id: int, response: Response, after: int | None = None) -> None:
        """Answer a request, once append `after` is on the disk."""
        self._out.append(Reply(request_id=request_id, response=response, after=after))

    def note(self, group: Group, text: str) -> None:
        """Tell the operator."""
        self._out.append(Note(subject=group.group_id, text=text))
