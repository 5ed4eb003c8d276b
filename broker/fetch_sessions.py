"""Fetch sessions: only what changed is asked for and told (KIP-227)

A consumer of a thousand quiet partitions would send and get a thousand rows ten times a second. In a session it sends
only the partitions whose request has changed and gets only those with something new: records, an error, a moved high
watermark, last stable offset or log start.

    session id 0, epoch -1   a full request without a session
    any id, epoch 0          a full request; the session of that id is over; the answer may bring the id of a new one
    id, epoch n              the nth incremental request of the session; after 2**31 - 1 comes 1

The cache has `max.incremental.fetch.session.cache.slots` slots. A new session takes the place of one not used for two
minutes; failing that, of one that is worth less: privileged (a follower) is worth more than not, then more partitions
are worth more than fewer, and within its first two minutes a session gives way to privileged ones only. Whoever gets
no session is told id 0 and goes on with full requests. A client whose session is gone starts a new one.

A session's partitions are read in order, and those that brought records go to the end, so that none of them starves; a
full fetch begins with another partition each time.
One that has been read to its end and had nothing to tell is quiet: its log stirs it when it says anything else, be it
an offset or how the partition is led, and until then nobody looks at it. So a fetch of a thousand partitions of which
one has moved costs what a fetch of that one does. A follower reads beyond what is committed, so for it the end of the
log counts, too; and it says itself where its log begins, so it is told of its leader's log start as long as that is
further on.

Pure: `begin` when a request comes, `finish` when it is answered, with the time as an argument; and logs that stir.
"""

import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.quorum.metadata import TOPIC_NAME_LENGTH_MAX
from tidemill.broker.replication.moved import Moved, Stir
from tidemill.core.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from tidemill.core.types import new_tuple
from tidemill.core.wire.messages.fetch import SINCE, FetchPartition, FetchRequest, PartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
TOPIC_IDS_FROM: Final = SINCE["FetchTopic.topic_id"]
"""From this version on topics are asked for by id; a session does one or the other."""

EVICTION_MS: Final = 120_000
"""Kafka's number: for so long a session is safe from others that are worth more, and may stay unused."""

PARTITIONS_MAX: Final = 1_000_000
"""Of all sessions together, some 300 MB; Kafka counts sessions only, which lets one client fill the memory."""

_LOOK_AGAIN_MS: Final = 1_000
"""For so long a full cache remembers what its least session is worth: looking at all takes a while, and whoever is
refused asks again with its next fetch."""

_NOTHING: Final = (True, 2**63, 0)  # worth more than any session

_Key: TypeAlias = tuple[str, uuid.UUID, int]


class Wanted(NamedTuple):
    """One partition to be read."""

    topic: str
    topic_id: uuid.UUID
    partition: FetchPartition


class Marks(Protocol):
    """A partition that is served here, as far as a session looks at it."""

    @property
    def image(self) -> PartitionImage | None:
        """How it is led, the same object for as long as that stays so; None if it is here no more."""

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""

    @property
    def log_start_offset(self) -> int:
        """As in a response."""

    @property
    def high_watermark(self) -> int:
        """As in a response."""

    @property
    def last_stable_offset(self) -> int:
        """As in a response."""

    @property
    def log_end_offset(self) -> int:
        """Where a follower has everything."""

    def listen(self, stir: Stir, *, of_appends: bool) -> None:
        """Call `stir` once when more is committed or, with `of_appends`, appended, and whenever anything else moves."""

    def ignore(self, stir: Stir) -> None:
        """Undo `listen`."""


_NO_SOURCES: Final[Mapping[int, Marks]] = MappingProxyType({})


class Answer(NamedTuple):
    """What a response says: the session and the numbers of those read partitions that belong in it."""

    session_id: int
    numbers: Sequence[int]


class Waiting(Protocol):
    """A request that waits at the broker for what its session's quiet partitions may bring."""

    def hear(self, moved: Moved) -> None:
        """One of them has moved."""


class _SessionPartition:
    """A partition of a session: what is wanted of it, what the client was told last (-1 is nothing), if it is quiet.

    While it is quiet the log that said what the client knows, its `source`, is to stir it. The reference is weak: a
    session whose client has gone away keeps no log of a deleted topic alive.
    """

    __slots__ = ("high_watermark", "is_quiet", "last_stable_offset", "log_start_offset", "session", "source", "wanted")

    of_appends = False

    def __init__(self, session: "_Session", wanted: Wanted) -> None:
        self.session = session
        self.wanted = wanted
        self.is_quiet = False
        self.source: weakref.ref[Marks] | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def tell(self, answer: PartitionData) -> bool:
        """Whether `answer` is news for the client, which knows it from now on."""
        known = (self.high_watermark, self.last_stable_offset, self.log_start_offset)
        now = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
        self.high_watermark, self.last_stable_offset, self.log_start_offset = now
        if answer.error_code != 0:
            self.high_watermark = -1  # the end of the error is news too
            return True
        return (
            now != known
            or bool(answer.records)
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )

    def quieten(self, answer: PartitionData, source: Marks | None) -> None:
        """Be quiet if the client has all there is in the log of `source`, which gave that answer."""
        if (
            source is not None
            and self._has_all(answer, source)
            and answer.error_code == 0
            and not answer.records
            and source.image is not None
            and not source.closed
            and source.high_watermark == answer.high_watermark
            and source.last_stable_offset == answer.last_stable_offset
            and source.log_start_offset == answer.log_start_offset
        ):
            self.is_quiet = True
            self.source = weakref.ref(source)
            self.session.due.pop(self, None)
            source.listen(self.stir, of_appends=self.of_appends)

    def _has_all(self, answer: PartitionData, _source: Marks) -> bool:
        partition = self.wanted.partition
        return partition.fetch_offset == answer.high_watermark and partition.last_fetched_epoch < 0

    def stir(self, moved: Moved) -> None:
        """The log may say more than the client knows."""
        if self.is_quiet:
            session = self.session
            session.due[self] = None
            if session.waiting is not None:
                session.waiting.hear(moved)

    def ignore(self) -> None:
        """Be stirred no more."""
        source = None if self.source is None else self.source()
        if source is not None:
            source.ignore(self.stir)


class _Copied(_SessionPartition):
    """The same for a follower, which sends the epoch of its last record and has all when it is at the end.

    It is told where the log begins until its own log begins there: it may not have been able to let it yet.
    """

    __slots__ = ()

    of_appends = True

    def tell(self, answer: PartitionData) -> bool:
        """Whether `answer` is news for the follower, or makes it do what it has not done yet."""
        own = self.wanted.partition.log_start_offset
        return super().tell(answer) or 0 <= own < answer.log_start_offset

    def _has_all(self, answer: PartitionData, source: Marks) -> bool:
        return self.wanted.partition.fetch_offset == source.log_end_offset and answer.diverging_epoch.epoch < 0


@dataclass(slots=True, kw_only=True, eq=False)
class _Session:
    """Mutable: what is remembered of one client, changed by its requests, and by logs of what is quiet."""

    session_id: int
    privileged: bool
    by_topic_id: bool
    created_ms: int
    used_ms: int
    partitions: dict[_Key, _SessionPartition]
    rules: object  # under which quiet partitions were read
    owner: object  # whose it is, and nobody else's
    due: dict[_SessionPartition, None] = field(default_factory=dict)  # to be read next, in this order
    waiting: Waiting | None = None
    epoch: int = INITIAL_EPOCH + 1  # of the request that is due
    counted: int = 0  # partitions, as the cache counts them
    is_over: bool = False

    def obey(self, rules: object) -> None:
        """Under other rules the client must hear whether it may still read, so all quiet ends."""
        if rules is not self.rules:
            self.rules = rules
            self.due |= dict.fromkeys(self.partitions.values())

    def want(self, wanted: Wanted) -> None:
        """From now on the client wants this of a partition."""
        key = _key(wanted)
        partition = self.partitions.get(key)
        if partition is None:
            make = _Copied if self.privileged else _SessionPartition
            partition = self.partitions[key] = make(self, wanted)
        else:
            partition.wanted = wanted
        self.due[partition] = None

    def forget(self, key: _Key) -> None:
        """The client wants nothing more of a partition."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.ignore()
            partition.is_quiet = False
            self.due.pop(partition, None)

    def end(self) -> None:
        """Nothing is quiet any more: a request that still waits has to look at all of it."""
        self.is_over = True
        for partition in self.partitions.values():
            partition.ignore()
            if partition.is_quiet:
                self.due[partition] = None
        if self.waiting is not None:
            self.waiting.hear(Moved.APPENDED)

    def take_due(self) -> list[_SessionPartition]:
        """What is to be read now, which is not quiet any more."""
        due = list(self.due)
        for each in due:
            each.is_quiet = False
        return due


@dataclass(slots=True, kw_only=True)
class FetchTurn:
    """Mutable: one request between `begin` and `finish`: what it reads, in this order, and what is quiet meanwhile.

    It grows while the request waits: see `want_moved`.
    """

    wanted: tuple[Wanted, ...]
    first: int = 0  # the number to begin with, so that no partition starves
    session: _Session | None = None
    partitions: list[_SessionPartition] = field(default_factory=list)  # of the session, one for each that is wanted
    epoch_after: int = FINAL_EPOCH
    may_create: bool = False
    privileged: bool = False
    by_topic_id: bool = False
    rules: object = None
    owner: object = None

    def told(self, number: int) -> int:
        """The high watermark that who asks knows of a wanted partition; 2**63 - 1 if that cannot be told."""
        if self.session is not None:
            return self.partitions[number].high_watermark
        return self.wanted[number].partition.high_watermark

    def told_start(self, number: int) -> int:
        """The same of the log start; without a session who asks says only where its own log begins."""
        return 2**63 - 1 if self.session is None else self.partitions[number].log_start_offset

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could ever bring records."""
        return not self.wanted and (self.session is None or not self.session.partitions)

    def want_moved(self) -> range:
        """Want those too that were quiet and have been stirred since; their numbers."""
        before, session = len(self.wanted), self.session
        if session is None or session.epoch != self.epoch_after:  # a later request reads them
            return range(before, before)
        if moved := [each for each in session.due if each.is_quiet]:
            for each in moved:
                each.is_quiet = False
            self.partitions += moved
            self.wanted += tuple([each.wanted for each in moved])
        return range(before, len(self.wanted))

    def wait(self, waiting: Waiting) -> None:
        """The request of this turn waits, and is to hear what becomes of the quiet partitions."""
        if self.session is not None:
            self.session.waiting = waiting

    def leave(self, waiting: Waiting) -> None:
        """It waits no longer."""
        if self.session is not None and self.session.waiting is waiting:
            self.session.waiting = None


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, slots: int, new_id: Callable[[], int], *, partitions_max: int = PARTITIONS_MAX) -> None:
        self._slots = slots
        self._new_id = new_id  # any number in [1, 2**31)
        self._partitions_max = partitions_max
        self._by_id: OrderedDict[int, _Session] = OrderedDict()  # the one unused for longest first
        self._partitions = 0
        self._least: dict[bool, tuple[int, tuple[bool, int, int]]] = {}  # privileged: when, and what it was worth
        self._full_fetches = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions."""
        return self._partitions

    @property
    def waiting(self) -> int:
        """Sessions whose client waits for an answer."""
        return sum(session.waiting is not None for session in self._by_id.values())

    def begin(
        self, request: FetchRequest, api_version: int, now_ms: int, rules: object = None, owner: object = None
    ) -> FetchTurn:
        """What this request reads; raises the errors that make a client start a new session.

        `rules` are those about who may read what, the same object for as long as they are the same. To anybody but its
        `owner` a session is one that there is not: it would tell the names of topics.
        """
        by_topic_id = api_version >= TOPIC_IDS_FROM
        session = self._by_id.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session)
            wanted = tuple(_wanted(request))
            return FetchTurn(
                wanted=wanted,
                first=self._next_first(len(wanted)),
                may_create=request.session_epoch == INITIAL_EPOCH,
                privileged=is_follower(request),
                by_topic_id=by_topic_id,
                rules=rules,
                owner=owner,
            )
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {request.session_id} is at epoch {session.epoch}, not {request.session_epoch}"
            )
        if session.by_topic_id != by_topic_id:
            raise FetchSessionTopicIdError(
                f"fetch session {request.session_id} names topics by {'id' if session.by_topic_id else 'name'}, "
                f"version {api_version} does not"
            )
        session.obey(rules)
        return self._go_on(session, request, now_ms)

    def _go_on(self, session: _Session, request: FetchRequest, now_ms: int) -> FetchTurn:
        partitions = session.partitions
        memorable = _take_changes(session, request)
        self._count(session)
        if not partitions or not memorable or self._partitions > self._partitions_max:
            # Nothing left to remember, or more than should be: answered in full, with session id 0.
            self._remove(session)
            wanted = tuple(each.wanted for each in partitions.values())
            return FetchTurn(wanted=wanted, first=self._next_first(len(wanted)))
        session.used_ms = now_ms
        self._by_id.move_to_end(session.session_id)
        session.epoch = next_epoch(session.epoch)
        due = session.take_due()
        return FetchTurn(
            wanted=tuple([each.wanted for each in due]),
            session=session,
            partitions=due,
            epoch_after=session.epoch,
        )

    def _next_first(self, count: int) -> int:
        """Where a full fetch of `count` partitions begins: each time with another one."""
        self._full_fetches += 1
        return self._full_fetches % count if count else 0

    def finish(
        self,
        turn: FetchTurn,
        data: Sequence[PartitionData],
        now_ms: int,
        sources: Mapping[int, Marks] = _NO_SOURCES,
    ) -> Answer:
        """What of `data`, one for each wanted partition, the client is to be told.

        `sources` says, by number, where those come from that were read without an error.
        """
        if turn.session is not None:
            return self._answer_in_session(turn, turn.session, data, sources)
        session_id = NO_SESSION
        if (
            turn.may_create
            and turn.wanted
            and all(len(wanted.topic) <= TOPIC_NAME_LENGTH_MAX for wanted in turn.wanted)
        ):
            session_id = self._create(turn, data, now_ms, sources)
        return Answer(session_id, range(len(data)))

    def _answer_in_session(
        self, turn: FetchTurn, session: _Session, data: Sequence[PartitionData], sources: Mapping[int, Marks]
    ) -> Answer:
        if session.epoch != turn.epoch_after:
            raise InvalidFetchSessionEpoch(f"fetch session {session.session_id} went on without this request")
        numbers: list[int] = []
        for number, (partition, answer) in enumerate(zip(turn.partitions, data, strict=True)):
            if not session.is_over:
                partition.quieten(answer, sources.get(number))
            if partition.tell(answer):
                numbers.append(number)
                if answer.records:
                    session.due.pop(partition, None)
                    session.due[partition] = None
        return Answer(session.session_id, numbers)

    def _create(self, turn: FetchTurn, data: Sequence[PartitionData], now_ms: int, sources: Mapping[int, Marks]) -> int:
        numbers = {_key(wanted): number for number, wanted in enumerate(turn.wanted)}  # the last of any named twice
        has_room = len(self._by_id) < self._slots or self._evict(turn.privileged, len(numbers), now_ms)
        if not has_room or self._partitions + len(numbers) > self._partitions_max:
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._by_id or session_id == NO_SESSION:
            session_id = self._new_id()
        session = self._by_id[session_id] = _Session(
            session_id=session_id,
            privileged=turn.privileged,
            by_topic_id=turn.by_topic_id,
            created_ms=now_ms,
            used_ms=now_ms,
            partitions={},
            rules=turn.rules,
            owner=turn.owner,
        )
        for key, number in numbers.items():
            session.want(turn.wanted[number])
            partition = session.partitions[key]
            partition.quieten(data[number], sources.get(number))
            partition.tell(data[number])
        self._count(session)
        self._least.clear()
        return session_id

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions if it is worth it; whether there is room now."""
        longest_unused = next(iter(self._by_id.values()), None)
        if longest_unused is None:
            return False  # there are no slots at all
        if now_ms - longest_unused.used_ms <= EVICTION_MS:
            looked_at_ms, worth = self._least.get(privileged, (-_LOOK_AGAIN_MS, _NOTHING))
            if 0 <= now_ms - looked_at_ms < _LOOK_AGAIN_MS and (privileged, size) <= worth[:2]:
                return False
            evictable = (
                session
                for session in self._by_id.values()
                if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            )
            least = min(evictable, key=_worth, default=None)
            worth = _NOTHING if least is None else _worth(least)
            self._least[privileged] = (now_ms, worth)
            if least is None or (privileged, size) <= worth[:2]:
                return False
            longest_unused = least
        self._remove(longest_unused)
        self.evictions += 1
        return True

    def _remove(self, session: _Session | None) -> None:
        if session is not None and self._by_id.pop(session.session_id, None) is not None:
            self._partitions -= session.counted
            session.end()

    def _count(self, session: _Session) -> None:
        self._partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)


def next_epoch(epoch: int) -> int:
    """The epoch of the request after the one with `epoch`."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


def _worth(session: _Session) -> tuple[bool, int, int]:
    return session.privileged, session.counted, session.session_id


def _key(wanted: Wanted) -> _Key:
    return wanted.topic, wanted.topic_id, wanted.partition.partition


def _take_changes(session: _Session, request: FetchRequest) -> bool:
    """Let the partitions of a session be what the request makes of them; whether they may be remembered.

    No names are kept for whoever makes them up.
    """
    memorable = True
    for wanted in _wanted(request):
        memorable = memorable and len(wanted.topic) <= TOPIC_NAME_LENGTH_MAX
        session.want(wanted)
    for topic in request.forgotten_topics_data:
        for number in topic.partitions:
            session.forget((topic.topic, topic.topic_id, number))
    return memorable


def is_follower(request: FetchRequest) -> bool:
    """Whether a broker asks for what it copies; consumers have no replica id."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def _wanted(request: FetchRequest) -> list[Wanted]:
    wanted: list[Wanted] = []
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        wanted += [new_tuple(Wanted, (name, topic_id, partition)) for partition in topic.partitions]
    return wanted
