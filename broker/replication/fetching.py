"""What a follower fetches from one leader, and when

Pure. There is one of these for each leader that somebody here follows. It says what the next request is, and what is
to be done with an answer; whoever does that tells how far each partition is held then.

* One request is under way at a time, as a fetch session wants it. The next one waits until what the last one brought is
  held: an offset in a request is the follower's word for everything below it, and a request without those partitions
  might wait at the leader for half a second while producers wait for them.
* A partition that cannot be fetched (the leader says no, its records are damaged, its log is being cut) is left out, by
  itself, for a while that grows with each failure in a row. A leader that cannot be reached is left alone in the same
  way. Either is told once, and its end once.
* What an answer says about a partition that has changed meanwhile (another leader epoch, another offset) means nothing.
* Where a log begins is told with the next request, be there something new to fetch or not: the leader sends consumers
  by it, and whoever has asked for records to be deleted waits for it.

In a session (KIP-227) only what differs from the request before is sent, so that a thousand quiet partitions cost
nothing. Without one, or after any doubt about it, everything is sent.

Not here: the log, the high watermark and where it is cut (`partition`), connections (`fetcher`).
"""

import enum
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tidemill.broker.replication.partition import Divergence
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID, TopicPartition, new_tuple
from tidemill.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

EPOCH_MAX: Final = 2**31 - 1
BACKOFF_FIRST_MS: Final = 50
"""After the first failure in a row, doubled with each; the leader has mostly just not heard of the image yet."""


class Key(NamedTuple):
    """A partition as requests name it; `topic` is the number of the topic's id.

    Everything here is found by it, several times with each answer: numbers are hashed and compared in C, UUIDs are not.
    """

    topic: int
    partition: int

    @classmethod
    def of(cls, topic_id: uuid.UUID, partition: int) -> "Key":
        """That of a partition of the topic with this id."""
        return new_tuple(cls, (topic_id.int, partition))

    @property
    def topic_id(self) -> uuid.UUID:
        """The topic's id."""
        return uuid.UUID(int=self.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much is asked for at once, in bytes, and how long is waited, in milliseconds.

    The names are those of Kafka's settings: replica.fetch.max.bytes is of a partition, replica.fetch.backoff.ms the
    longest pause after failures.
    """

    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 2**20
    replica_fetch_response_max_bytes: int = 10 * 2**20
    replica_fetch_backoff_ms: int = 1000


class Held(NamedTuple):
    """Where a partition stands: everything below `offset` is held, and there the log ends.

    `last_epoch` is the leader epoch of the last record, -1 if there is none. It begins at `log_start`, durably.
    """

    offset: int
    last_epoch: int
    log_start: int
    high_watermark: int


class Copied(NamedTuple):
    """The leader has answered: append `records`, if any, at `offset`, and take note of the rest.

    If there were records, the partition waits for `held` or `refused`.
    """

    key: Key
    leader_epoch: int
    offset: int
    records: bytes | bytearray | memoryview
    high_watermark: int
    log_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """The log is not the leader's from some point on: find it, cut there, and tell where the log is `held` then."""

    key: Key
    leader_epoch: int
    divergence: Divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginAnew:
    """The leader has deleted what comes next: have an empty log that begins at `offset`, then say it is `held`."""

    key: Key
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Something has begun to go wrong, or no longer does: then there is no `reason`.

    About the leader if no partition is named.
    """

    partition: TopicPartition | None
    reason: str


Action: TypeAlias = Copied | Parted | BeginAnew | Report


class Stage(enum.Enum):
    """What a partition waits for."""

    STORING = "storing"  # for the disk; everybody waits for that
    AWAY = "away"  # for its log to be cut or begun anew
    RESTING = "resting"  # until some time is over
    READY = "ready"


@dataclass(slots=True, kw_only=True, eq=False)
class _Followed:
    """Mutable: one partition."""

    key: Key
    topic_id: uuid.UUID  # as the rows of requests have it, made once
    name: TopicPartition
    leader_epoch: int
    place: "_Place"  # where it is: that is its stage
    row: FetchPartition | None = None  # what is asked of it
    failures: int = 0  # in a row
    failing_since_ms: int = 0  # when the first of these was
    until_ms: int = 0  # it rests
    trouble: str = ""  # that was told
    known: int = 0  # the high watermark that the leader has told last


_Place: TypeAlias = dict[Key, _Followed]
"""All that are in the same stage."""

_EXPECTED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)
"""One of the two has not heard of the image yet that the other goes by; it is told when it does not end."""

_TOLD_FROM: Final = 6  # failures in a row of what is expected: some three seconds

_SESSION_OVER: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class LeaderFetches:
    """Mutable: everything that is followed at one leader. Its methods are the events."""

    def __init__(self, replica_id: int, settings: FetchSettings) -> None:
        self._replica_id = replica_id
        self._settings = settings
        self._followed: dict[Key, _Followed] = {}
        self._asked: dict[Key, FetchPartition] = {}  # as the leader knows them, from the last request or the session
        self._changed: set[Key] = set()  # of these two
        self._begun: dict[Key, int] = {}  # log starts that the next request is to tell
        self._state = ReplicaState(replica_id=replica_id)  # as requests have it
        self._storing: _Place = {}
        self._away: _Place = {}
        self._resting: _Place = {}
        self._ready: _Place = {}
        self._session_id = 0
        self._session_epoch = 0  # of the next request; 0 sends everything
        self._under_way = False
        self._failures = 0  # of the leader, in a row
        self._not_before_ms = 0
        self._trouble = ""

    # -- what holds now

    def __len__(self) -> int:
        return len(self._followed)

    def stage(self, key: Key) -> Stage | None:
        """What a partition waits for, None if it is not followed here."""
        followed = self._followed.get(key)
        stages = {Stage.STORING: self._storing, Stage.AWAY: self._away, Stage.RESTING: self._resting}
        if followed is None:
            return None
        return next((stage for stage, place in stages.items() if place is followed.place), Stage.READY)

    def failing_since_ms(self, key: Key) -> int | None:
        """Since when a partition could not be copied, though its leader may answer; None while it can be."""
        followed = self._followed.get(key)
        return followed.failing_since_ms if followed is not None and followed.failures else None

    @property
    def ready(self) -> Collection[Key]:
        """The partitions that the next request is about."""
        return self._ready.keys()

    def next_deadline_ms(self) -> int | None:
        """When `next_request` may say something else than now if nothing happens; None for never."""
        if self._under_way or self._storing:
            return None
        ends = [followed.until_ms for followed in self._resting.values()]
        if self._ready:
            ends.append(self._not_before_ms)
        return min(ends, default=None)

    # -- what happens

    def follow(self, key: Key, name: TopicPartition, leader_epoch: int) -> None:
        """Begin with a partition, or again in a newer leader epoch, as soon as it is told how far it is `held`."""
        before = self._followed.get(key)
        self._followed[key] = followed = _Followed(
            key=key, topic_id=key.topic_id, name=name, leader_epoch=leader_epoch, place=self._storing
        )
        self._begun.pop(key, None)
        if before is not None:
            followed.trouble = before.trouble
            self._leave(before)
        self._enter(followed, self._storing)

    def away(self, key: Key) -> None:
        """The log of a partition is being cut or begun anew: nobody waits for it until it is `held`."""
        followed = self._followed.get(key)
        if followed is not None:
            self._enter(followed, self._away)

    def unfollow(self, key: Key) -> None:
        """End with a partition."""
        followed = self._followed.pop(key, None)
        self._begun.pop(key, None)
        if followed is not None:
            self._leave(followed)

    def held(self, key: Key, leader_epoch: int, held: Held) -> list[Action]:
        """Everything that was fetched of a partition, and all else in its log, is held."""
        followed = self._followed.get(key)
        if followed is None or followed.leader_epoch != leader_epoch:
            return []
        offset, last_epoch, log_start, high_watermark = held
        if high_watermark < followed.known:
            high_watermark = followed.known
        most = self._settings.replica_fetch_max_bytes
        followed.row = new_tuple(
            FetchPartition,
            (key.partition, leader_epoch, offset, last_epoch, log_start, most, ZERO_UUID, high_watermark),
        )
        if self._begun:
            self._begun.pop(key, None)
        if followed.place is self._resting:
            return []
        self._enter(followed, self._ready)
        followed.failures = 0
        return self._over(followed) if followed.trouble else []

    def begins(self, key: Key, log_start: int) -> None:
        """The log of a partition begins there now, durably; it has as much as before."""
        followed = self._followed.get(key)
        if followed is not None and followed.row is not None:
            self._begun[key] = log_start

    def refused(self, key: Key, leader_epoch: int, reason: str, now_ms: int) -> list[Action]:
        """What came for a partition cannot be stored, or done; it is asked for again after a pause."""
        followed = self._followed.get(key)
        if followed is None or followed.leader_epoch != leader_epoch or followed.row is None:
            return []
        return self._rest(followed, reason, now_ms)

    def hold_back(self, key: Key, until_ms: int) -> None:
        """Leave out a partition that is throttled."""
        followed = self._followed.get(key)
        if followed is not None and followed.place is self._ready:
            followed.until_ms = until_ms
            self._enter(followed, self._resting)

    def rested(self, now_ms: int) -> None:
        """Partitions whose pauses are over are ready again."""
        for followed in [each for each in self._resting.values() if each.until_ms <= now_ms]:
            self._enter(followed, self._ready)

    def next_request(self, now_ms: int, broker_epoch: int) -> FetchRequest | None:
        """What to ask now; None if there is nothing to ask, or not yet. One that is returned is under way."""
        if self._resting:
            self.rested(now_ms)
        if self._under_way or self._storing or not self._ready or now_ms < self._not_before_ms:
            return None
        self._under_way = True
        if self._begun:
            self._tell_log_starts()
        differing: Collection[Key] = self._changed
        if self._session_epoch == 0:  # everything is sent, and who has had something most lately comes last
            self._asked, differing = {}, self._ready
        ready, asked = self._ready, self._asked
        topics: dict[int, tuple[uuid.UUID, list[FetchPartition]]] = {}
        forgotten: list[Key] = []
        for key in differing:
            followed = ready.get(key)
            if followed is None:
                if asked.pop(key, None) is not None:
                    forgotten.append(key)
                continue
            assert followed.row is not None
            asked[key] = followed.row
            found = topics.get(key.topic)
            if found is None:
                topics[key.topic] = followed.topic_id, [followed.row]
            else:
                found[1].append(followed.row)
        self._changed.clear()
        if self._state.replica_epoch != broker_epoch:
            self._state = ReplicaState(replica_id=self._replica_id, replica_epoch=broker_epoch)
        settings = self._settings
        return FetchRequest(
            replica_state=self._state,
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=tuple([new_tuple(FetchTopic, ("", topic_id, tuple(rows))) for topic_id, rows in topics.values()]),
            forgotten_topics_data=_forgotten(forgotten) if forgotten else (),
        )

    def _tell_log_starts(self) -> None:
        """What is asked changes between requests only: answers are about what was asked."""
        for key, log_start in self._begun.items():
            followed = self._followed[key]
            assert followed.row is not None
            if followed.row.log_start_offset != log_start:
                followed.row = followed.row._replace(log_start_offset=log_start)
                if followed.place is self._ready:
                    self._enter(followed, self._ready)
        self._begun.clear()

    def failed(self, reason: str, now_ms: int) -> list[Action]:
        """No answer will come: the leader cannot be reached, or what it says cannot be read."""
        self._under_way = False
        self._end_session()
        self._failures += 1
        self._not_before_ms = now_ms + self._pause_ms(self._failures)
        if self._trouble:
            return []
        self._trouble = reason
        return [Report(partition=None, reason=reason)]

    def answered(self, response: FetchResponse, now_ms: int) -> list[Action]:
        """The leader has answered the request that was under way."""
        if response.error_code:
            code = _code(response.error_code)
            if code in _SESSION_OVER and self._session_epoch:
                self._under_way = False
                self._end_session()
                return []
            return self.failed(f"it refuses to be fetched from: {code.name}", now_ms)
        self._under_way = False
        actions: list[Action] = [Report(partition=None, reason="")] if self._trouble else []
        self._trouble, self._failures = "", 0
        for topic in response.responses:
            number = topic.topic_id.int
            for row in topic.partitions:
                followed = self._followed.get(new_tuple(Key, (number, row.partition_index)))
                if followed is not None:
                    self._take(followed, row, now_ms, actions)
        self._session_id = response.session_id
        if response.session_id:
            self._session_epoch = 1 if self._session_epoch >= EPOCH_MAX else self._session_epoch + 1
        else:
            self._end_session()
        return actions

    # -- the rules

    def _take(self, followed: _Followed, row: PartitionData, now_ms: int, actions: list[Action]) -> None:
        key, asked = followed.key, followed.row
        if followed.place is not self._ready or asked is None or asked is not self._asked.get(key):
            return  # of something that was asked before
        if row.error_code:
            actions += self._take_error(followed, asked, row, now_ms)
            return
        epoch = followed.leader_epoch
        if row.diverging_epoch.epoch >= 0:
            self._enter(followed, self._away)
            divergence = Divergence(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
            actions.append(Parted(key=key, leader_epoch=epoch, divergence=divergence))
            return
        followed.known = high_watermark = row.high_watermark
        records = row.records or b""
        actions.append(
            new_tuple(Copied, (key, epoch, asked.fetch_offset, records, high_watermark, row.log_start_offset))
        )
        if records:
            self._enter(followed, self._storing)
            return
        followed.failures = 0
        if asked.high_watermark < high_watermark:  # without a session the leader has no other way to know
            known = asked._replace(high_watermark=high_watermark)
            followed.row = self._asked[key] = known
        actions += self._over(followed)

    def _take_error(self, followed: _Followed, asked: FetchPartition, row: PartitionData, now_ms: int) -> list[Action]:
        code, offset = _code(row.error_code), asked.fetch_offset
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and row.log_start_offset > offset:
            self._enter(followed, self._away)
            return [BeginAnew(key=followed.key, leader_epoch=followed.leader_epoch, offset=row.log_start_offset)]
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and row.log_start_offset >= 0 and asked.last_fetched_epoch < 0:
            self._enter(followed, self._away)  # an empty log that begins beyond the leader's end
            return [BeginAnew(key=followed.key, leader_epoch=followed.leader_epoch, offset=row.log_start_offset)]
        told = code not in _EXPECTED or followed.failures + 1 >= _TOLD_FROM
        return self._rest(followed, f"the leader answers {code.name} at offset {offset}" if told else "", now_ms)

    def _rest(self, followed: _Followed, reason: str, now_ms: int) -> list[Action]:
        if not followed.failures:
            followed.failing_since_ms = now_ms
        followed.failures += 1
        followed.until_ms = now_ms + self._pause_ms(followed.failures)
        self._enter(followed, self._resting)
        if not reason or followed.trouble:
            return []
        followed.trouble = reason
        return [Report(partition=followed.name, reason=reason)]

    @staticmethod
    def _over(followed: _Followed) -> list[Action]:
        """It goes on, which is told if its trouble was."""
        if not followed.trouble:
            return []
        followed.trouble = ""
        return [Report(partition=followed.name, reason="")]

    def _pause_ms(self, failures: int) -> int:
        return min(self._settings.replica_fetch_backoff_ms, BACKOFF_FIRST_MS << min(failures - 1, 16))

    def _end_session(self) -> None:
        self._session_epoch = 0  # with the old id, so that the leader forgets it
        self._asked = {}

    def _enter(self, followed: _Followed, place: _Place) -> None:
        key = followed.key
        followed.place.pop(key, None)
        followed.place = place
        place[key] = followed
        self._changed.add(key)

    def _leave(self, followed: _Followed) -> None:
        followed.place.pop(followed.key, None)
        self._changed.add(followed.key)


def _forgotten(keys: list[Key]) -> tuple[ForgottenTopic, ...]:
    return tuple(ForgottenTopic(topic_id=key.topic_id, partitions=(key.partition,)) for key in keys)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
