"""What happens in the world, as clients and the machine see it: one object, and one line of the trace, each

A line has four columns: virtual seconds since the beginning, the place, the kind of event, and its facts as
`name=value`. Ids of topics are written by their first eight digits.
"""

import uuid
from dataclasses import dataclass, fields
from functools import cache


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that invariants are asked after."""

    at: float
    place: str

    def line(self) -> str:
        """The line of the trace."""
        kind = type(self)
        facts = " ".join([f"{name}={_text(getattr(self, name))}" for name in _facts_of(kind)])
        return f"{self.at:012.6f} {self.place:<9} {kind.__name__:<13} {facts}".rstrip()


@cache
def _facts_of(kind: type[Event]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name not in ("at", "place"))


def _text(value: object) -> str:
    if isinstance(value, uuid.UUID):
        return value.hex[:8]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, tuple):
        return ",".join("=".join(map(_text, each)) if isinstance(each, tuple) else _text(each) for each in value) or "-"
    if isinstance(value, float):
        return f"{value:.6f}"
    return str(value).replace(" ", "_")


@dataclass(frozen=True, slots=True)
class Started(Event):
    """A node serves; these are the topics that it knows."""

    life: int
    topics: tuple[tuple[str, uuid.UUID], ...]


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """A node does not run any more."""

    life: int
    how: str


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """Something was done to the world."""

    what: str


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """A batch of one record is stored, a producer was told."""

    topic_id: uuid.UUID
    partition: int
    offset: int
    value: bytes
    once: bool
    epoch: int
    """The newest in which anybody may lead by then; -1 where there is one node only."""
    made_in: int = -1
    """The oldest in which it can have been acknowledged; -1 where nobody knows."""


@dataclass(frozen=True, slots=True)
class StoredNowhere(Event):
    """A producer was told that a record is stored, by a leader that does not have it."""

    topic_id: uuid.UUID
    partition: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """A request was answered with an error, or not at all."""

    request: str
    why: str


@dataclass(frozen=True, slots=True)
class OutOfOrder(Event):
    """A producer that has sent all its batches, in order and on one connection, is told that some are missing."""

    topic_id: uuid.UUID
    partition: int


@dataclass(frozen=True, slots=True)
class Operated(Event):
    """An operator's wish was granted."""

    request: str
    about: str


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """An answer says that nothing more is heard for so long."""

    request: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class HeardAgain(Event):
    """The next answer on the same connection, which cannot have come before `muted_until`."""

    request: str
    muted_until: float


@dataclass(frozen=True, slots=True)
class Fetched(Event):
    """What one fetch found in one partition; `asked_at` is when it was asked, of whoever leads in that epoch.

    Of a leader that does not know yet how far the one before had come (KIP-207) the epoch is -2: it promises nothing.
    """

    topic_id: uuid.UUID
    partition: int
    asked_at: float
    epoch: int
    offset: int
    high_watermark: int
    records: tuple[tuple[int, int, bytes], ...]
    """Offset, leader epoch and value."""
    newest_epoch: int
    """In which anybody may lead by then."""
    log_start: int = 0
    made_in: int = -1
    """The epoch in which it was answered, be it by a follower or by a leader that promises nothing; -1 is unknown."""

    def line(self) -> str:
        """Only how many records there were."""
        return (
            f"{self.at:012.6f} {self.place:<9} Fetched       topic_id={self.topic_id.hex[:8]} "
            f"partition={self.partition} epoch={self.epoch} offset={self.offset} high_watermark={self.high_watermark} "
            f"records={len(self.records)}"
        )


@dataclass(frozen=True, slots=True)
class OutOfRange(Event):
    """A leader says that there is no such offset."""

    topic_id: uuid.UUID
    partition: int
    asked_at: float
    epoch: int
    offset: int
    log_start: int = -1
    """Where the log begins by its own account."""


@dataclass(frozen=True, slots=True)
class RecordsDeleted(Event):
    """Whoever leads in that epoch says that everything below an offset is gone."""

    topic_id: uuid.UUID
    partition: int
    offset: int
    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicAsked(Event):
    """An administrator asks for a topic, or for its end."""

    name: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class TopicTold(Event):
    """The outcome of the last TopicAsked: the topic that is there, or None."""

    name: str
    topic_id: uuid.UUID | None
    known: int
    """The end of the decisions that anybody knew of then."""


@dataclass(frozen=True, slots=True)
class TopicsSeen(Event):
    """An answer to Metadata."""

    asked_at: float
    known: int
    """Up to which decision the broker knew when it was asked, at least."""
    topics: tuple[tuple[str, uuid.UUID], ...]
    torn: tuple[str, ...]
    """Topics that have other partitions than were asked for."""


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """A member was told the generation that it is in."""

    group: str
    member: str
    generation: int
    asked_at: float
    node_id: int
    epoch: int
    """In which it leads what it keeps the group by."""


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """A member was told what it owns in a generation."""

    group: str
    member: str
    generation: int
    owned: str
    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CommitAsked(Event):
    """A member asks to remember an offset, which is one that nobody else commits."""

    group: str
    topic_id: uuid.UUID
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """It is remembered."""

    group: str
    topic_id: uuid.UUID
    partition: int
    offset: int
    epoch: int
    """The newest in which anybody may keep the group by then."""


@dataclass(frozen=True, slots=True)
class OffsetTold(Event):
    """What is remembered: -1 is nothing. `topic_id` is that of the topic which surely had the name all the while."""

    group: str
    topic_id: uuid.UUID
    partition: int
    asked_at: float
    offset: int
    epoch: int
    """In which the coordinator kept the group when it was asked, at least."""


@dataclass(frozen=True, slots=True)
class Replayed(Event):
    """The metadata log on the disk, read anew beside the node."""

    offset: int
    same: bool
