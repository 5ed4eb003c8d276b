"""What has to hold after every event; each rule is an object that hears of all of them

A rule remembers what was promised and raises Violation when an answer breaks it. Nothing here looks into a broker: what
is not on the wire was promised to nobody (`inside` has the rules that do). Where there are several brokers, what one
has promised binds those that have heard of the leader epoch, or of the decision, in which it did: events say which.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tests.sim.world.events import (
    Acknowledged,
    Assigned,
    CommitAsked,
    Committed,
    Ended,
    Event,
    Fetched,
    HeardAgain,
    Joined,
    OffsetTold,
    OutOfOrder,
    OutOfRange,
    RecordsDeleted,
    Refused,
    Replayed,
    StoredNowhere,
    TopicAsked,
    TopicsSeen,
    TopicTold,
)
from tests.sim.world.topology import name_of

Partition = tuple[uuid.UUID, int]

Begun = Callable[[uuid.UUID, int], int]
"""How far any log of a partition has ever begun: below that, records may have been deleted."""


def nothing_is_deleted(_topic_id: uuid.UUID, _partition: int) -> int:
    """`Begun` where nobody deletes records."""
    return 0


EPOCH_MAX = 2**31 - 1

Era = Callable[[uuid.UUID, int, int], int]
"""That of a partition to which a leader epoch belongs: what was promised in one binds nobody in another."""


def one_era(_topic_id: uuid.UUID, _partition: int, _epoch: int) -> int:
    """`Era` where no election may lose records."""
    return 0


class Violation(AssertionError):
    """A promise was broken."""


class Invariant(Protocol):
    """One rule."""

    def after(self, event: Event) -> None:
        """Look at what happened; raises Violation."""


class PowerCuts:
    """When the power went, where records are acknowledged from the page cache: it ends all promises made until then.

    An answer that was under way may be heard in the very instant of the cut, and after it.
    """

    def __init__(self, *, page_cache: bool) -> None:
        self._page_cache = page_cache
        self._last = -1.0

    def ends(self, event: Event) -> bool:
        """Whether this is one."""
        if not (self._page_cache and isinstance(event, Ended) and event.how == "power cut"):
            return False
        self._last = event.at
        return True

    def ended(self, event: Event) -> bool:
        """Whether what was heard is no promise any more."""
        return event.at <= self._last


class InEra(NamedTuple):
    """A partition in one of its eras."""

    topic_id: uuid.UUID
    partition: int
    era: int


def in_era(event: Acknowledged | Fetched | OutOfRange, epoch: int, era: Era) -> InEra:
    """The partition that an event is about, in the era of an epoch."""
    return InEra(event.topic_id, event.partition, era(event.topic_id, event.partition, epoch))


class NothingAcknowledgedIsLost:
    """The high watermark never falls below what was acknowledged or read, and the record is there, unless deleted."""

    def __init__(self, *, page_cache: bool, begun: Begun = nothing_is_deleted, era: Era = one_era) -> None:
        self._begun = begun
        self._era = era
        self._power_cuts = PowerCuts(page_cache=page_cache)
        self._values: dict[InEra, dict[int, bytes]] = {}
        self._ends: dict[InEra, list[tuple[float, int, int]]] = {}  # since when, end, and for whom

    def after(self, event: Event) -> None:
        if self._power_cuts.ends(event):
            self._values.clear()
            self._ends.clear()
        if self._power_cuts.ended(event):
            return
        match event:
            case Acknowledged():
                self._values.setdefault(in_era(event, event.made_in, self._era), {})[event.offset] = event.value
                self._raise_end(event, event.offset + 1, event.epoch)
            case Refused(request="fetch", why="CORRUPT_MESSAGE"):
                raise Violation("what is stored cannot be read")
            case Fetched():
                self._look(event)
                self._raise_end(event, event.high_watermark, event.newest_epoch)
            case OutOfRange():
                deleted = event.offset < event.log_start <= self._begun(event.topic_id, event.partition)
                if event.offset <= (promised := self._promised(event)) and not deleted:
                    raise Violation(
                        f"offset {event.offset} is out of range, and {promised} were there: records are lost"
                    )

    def _raise_end(self, event: Acknowledged | Fetched, end: int, epoch: int) -> None:
        ends = self._ends.setdefault(in_era(event, event.made_in, self._era), [])
        if not ends or end > ends[-1][1]:
            ends.append((event.at, end, epoch))

    def _promised(self, event: Fetched | OutOfRange) -> int:
        """Below that everything has to be there for whoever leads in that epoch."""
        ends = self._ends.get(in_era(event, event.epoch, self._era), ())
        return max((end for at, end, epoch in ends if at <= event.asked_at and epoch <= event.epoch), default=0)

    def _look(self, event: Fetched) -> None:
        key = in_era(event, event.made_in, self._era)
        if event.high_watermark < (promised := self._promised(event)):
            raise Violation(f"the high watermark is {event.high_watermark} and was {promised}: records are lost")
        if not event.records:
            return
        found = {offset: value for offset, _, value in event.records}
        for offset in range(event.offset, event.records[-1][0]):
            if offset not in found:
                raise Violation(f"offset {offset} is missing between others")
        for offset, value in self._values.get(key, {}).items() if key.era >= 0 else ():
            if offset in found and found[offset] != value:
                raise Violation(f"offset {offset} was acknowledged for {value!r} and is {found[offset]!r}")


class SameOffsetSameBytes:
    """A record keeps its place; where a power cut or an election may take records, in one leader epoch and one era."""

    def __init__(self, *, page_cache: bool, era: Era = one_era) -> None:
        self._page_cache = page_cache
        self._era = era
        self._seen: dict[tuple[uuid.UUID, int, int, int], bytes] = {}
        self._seen_in_era: dict[tuple[InEra, int], bytes] = {}

    def after(self, event: Event) -> None:
        if not isinstance(event, Fetched):
            return
        place = in_era(event, event.made_in, self._era)
        for offset, epoch, value in event.records:
            firsts = [self._seen.setdefault((event.topic_id, event.partition, offset, epoch), value)]
            if not self._page_cache and place.era >= 0:
                firsts.append(self._seen_in_era.setdefault((place, offset), value))
            for first in firsts:
                if first != value:
                    raise Violation(f"offset {offset} of leader epoch {epoch} was {first!r} and is {value!r}")


class StoredOnce:
    """What an idempotent producer sent again is there once.

    Where a power cut may take what was read already, a record that is sent again may lie elsewhere afterwards; so may
    one whose first copy was deleted, for nobody remembers what it was then, or was lost by an election.
    """

    def __init__(self, *, page_cache: bool, begun: Begun = nothing_is_deleted, era: Era = one_era) -> None:
        self._begun = begun
        self._era = era
        self._power_cuts = PowerCuts(page_cache=page_cache)
        self._once: dict[tuple[InEra, bytes], int] = {}

    def after(self, event: Event) -> None:
        if self._power_cuts.ends(event):
            self._once.clear()
        if not isinstance(event, Fetched) or self._power_cuts.ended(event):
            return
        place = in_era(event, event.made_in, self._era)
        for offset, _, value in event.records if place.era >= 0 else ():
            if value.startswith(b"once-"):
                key = (place, value)
                first = self._once.setdefault(key, offset)
                if first < offset and first < self._begun(event.topic_id, event.partition):
                    first = self._once[key] = offset
                if first != offset:
                    raise Violation(f"{value!r} is at offset {first} and at {offset}")


class InOrder:
    """What a producer sends with one id to one partition is there in the order in which it was sent, gaps or not."""

    def after(self, event: Event) -> None:
        if not isinstance(event, Fetched):
            return
        last: dict[bytes, int] = {}
        for offset, _, value in event.records:
            producer, _, number = value.rpartition(b"-")
            if not (value.startswith(b"once-") and b"." in producer):
                continue  # not of one that names its id: another id's may come late
            if int(number) <= last.get(producer, 0):
                raise Violation(f"{value!r} is at offset {offset}, behind number {last[producer]} of its producer")
            last[producer] = int(number)


class NothingIsMissed:
    """Whoever sends what was refused for a passing reason again, and what is behind it, is not told of a gap (KIP-98).

    Clients take that for a loss: librdkafka goes on in a new epoch, where what it has in doubt is stored a second time.
    Where an election has lost records there is a gap indeed.
    """

    def __init__(self, *, page_cache: bool, era: Era = one_era) -> None:
        self._page_cache = page_cache
        self._era = era
        self._lost = False

    def after(self, event: Event) -> None:
        if isinstance(event, Ended) and event.how == "power cut":
            self._lost = self._page_cache
        if not isinstance(event, OutOfOrder) or self._lost:
            return
        if not self._era(event.topic_id, event.partition, EPOCH_MAX):
            raise Violation(f"{event.place} has left out nothing of partition {event.partition}")


class DuplicatesAreThere:
    """What a producer is told to be stored already, its leader has."""

    def after(self, event: Event) -> None:
        if isinstance(event, StoredNowhere):
            raise Violation(f"{event.value!r} was told to be there already, and is not")


class Generations:
    """As long as one broker keeps a group its generations only rise, and one partition has one owner in each."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int, str], list[tuple[float, int]]] = {}  # by broker, epoch and group
        self._owners: dict[tuple[int, int, str, int, str], str] = {}

    def after(self, event: Event) -> None:
        match event:
            case Joined():
                told = self._told.setdefault((event.node_id, event.epoch, event.group), [])
                last = max((each for at, each in told if at <= event.asked_at), default=0)
                if event.generation < last:
                    raise Violation(f"group {event.group} is in generation {event.generation} after {last}")
                told.append((event.at, event.generation))
            case Assigned():
                for each in event.owned.split(","):
                    key = (event.node_id, event.epoch, event.group, event.generation, each)
                    owner = self._owners.setdefault(key, event.member)
                    if each and owner != event.member:
                        raise Violation(f"{each} has two owners in generation {event.generation}: {event.group}")
            case Ended():
                self._told = {key: told for key, told in self._told.items() if name_of(key[0]) != event.place}
                self._owners = {key: owner for key, owner in self._owners.items() if name_of(key[0]) != event.place}


class DeletedStaysDeleted:
    """What was said to be gone is not shown any more by whoever leads in that epoch, or in a later one of its era."""

    def __init__(self, *, era: Era = one_era) -> None:
        self._era = era
        self._starts: dict[InEra, list[tuple[float, int, int]]] = {}  # since when, where, and in which epoch

    def after(self, event: Event) -> None:
        match event:
            case RecordsDeleted() if event.epoch >= 0:
                era = self._era(event.topic_id, event.partition, event.epoch)
                starts = self._starts.setdefault(InEra(event.topic_id, event.partition, era), [])
                starts.append((event.at, event.offset, event.epoch))
            case Fetched():
                starts = self._starts.get(in_era(event, event.epoch, self._era), [])
                told = (each for at, each, epoch in starts if at <= event.asked_at and epoch <= event.epoch)
                start = max(told, default=0)
                if event.offset < start or event.log_start < start:
                    raise Violation(
                        f"records below {start} were deleted, and there are some from {event.offset} on in a log that "
                        f"begins at {event.log_start}"
                    )


@dataclass(slots=True)
class _Commit:
    offset: int
    asked_at: float
    told_at: float = field(default=float("inf"))
    epoch: int = -1


class OffsetsAreKept:
    """What is told of an offset is the last commit that was acknowledged, or one of which nobody knows what became."""

    def __init__(self, *, page_cache: bool) -> None:
        self._power_cuts = PowerCuts(page_cache=page_cache)
        self._commits: dict[tuple[str, uuid.UUID, int], dict[int, _Commit]] = {}

    def after(self, event: Event) -> None:
        if self._power_cuts.ends(event):
            for commits in self._commits.values():
                for commit in commits.values():
                    commit.told_at = float("inf")
        match event:
            case CommitAsked():
                key = (event.group, event.topic_id, event.partition)
                self._commits.setdefault(key, {})[event.offset] = _Commit(event.offset, event.at)
            case Committed() if not self._power_cuts.ended(event):
                commit = self._commits[event.group, event.topic_id, event.partition][event.offset]
                commit.told_at, commit.epoch = event.at, event.epoch
            case OffsetTold() if not self._power_cuts.ended(event):
                self._look(event)

    def _look(self, event: OffsetTold) -> None:
        commits = self._commits.get((event.group, event.topic_id, event.partition), {})
        where = f"group {event.group}, partition {event.partition} of {event.topic_id.hex[:8]}"
        kept = [each for each in commits.values() if each.told_at <= event.asked_at and each.epoch <= event.epoch]
        newest = max((each.asked_at for each in kept), default=None)
        if event.offset == -1:
            if newest is not None:
                raise Violation(f"{where}: a committed offset is forgotten")
            return
        commit = commits.get(event.offset)
        if commit is None:
            raise Violation(f"{where}: offset {event.offset} was never committed there")
        if newest is not None and commit.told_at < newest:
            raise Violation(f"{where}: offset {event.offset} is told, and a later commit was acknowledged")


class TopicsAreKept:
    """A topic that was made is there as a whole, one that was deleted is not, and none changes its id.

    Where brokers pass on what they are asked for, a creation that nobody has heard of may still be under way.
    """

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._under_way: dict[str, int] = {}  # creations, by the name of the topic
        self._sure: dict[str, tuple[float, int, uuid.UUID | None]] = {}  # since when and which decision

    def after(self, event: Event) -> None:
        match event:
            case TopicAsked():
                self._sure.pop(event.name, None)
                self._under_way[event.name] = self._under_way.get(event.name, 0) + event.wanted
            case TopicTold():
                self._under_way[event.name] -= event.topic_id is not None
                if self._alone or event.topic_id is not None or not self._under_way[event.name]:
                    self._sure[event.name] = (event.at, event.known, event.topic_id)
            case TopicsSeen():
                seen = dict(event.topics)
                if event.torn:
                    raise Violation(f"half of a decision: {event.torn}")
                for name, (since, decision, topic_id) in self._sure.items():
                    heard = since <= event.asked_at and decision <= event.known
                    if heard and seen.get(name) != topic_id:
                        raise Violation(f"topic {name} should be {topic_id} and is {seen.get(name)}")


class TheMutedAreNotHeard:
    """Nothing that a client sends is answered before the time is over for which it was told to wait."""

    def after(self, event: Event) -> None:
        if isinstance(event, HeardAgain) and event.at < event.muted_until:
            raise Violation(f"{event.place} was to wait, and was answered too early: {event.request}")


class MetadataEqualsReplay:
    """The log of decisions, read anew, leads to what the node goes by."""

    def after(self, event: Event) -> None:
        if isinstance(event, Replayed) and not event.same:
            raise Violation(f"the metadata log does not lead to the image at offset {event.offset}")


def all_invariants(
    *, page_cache: bool, alone: bool, begun: Begun = nothing_is_deleted, era: Era = one_era
) -> list[Invariant]:
    """Every rule, for nodes that acknowledge from the page cache or not, and for one without others."""
    return [
        NothingAcknowledgedIsLost(page_cache=page_cache, begun=begun, era=era),
        SameOffsetSameBytes(page_cache=page_cache, era=era),
        StoredOnce(page_cache=page_cache, begun=begun, era=era),
        DeletedStaysDeleted(era=era),
        InOrder(),
        NothingIsMissed(page_cache=page_cache, era=era),
        DuplicatesAreThere(),
        Generations(),
        OffsetsAreKept(page_cache=page_cache),
        TopicsAreKept(alone=alone),
        TheMutedAreNotHeard(),
        MetadataEqualsReplay(),
    ]
