"""Fetch (1) by a broker that copies what it is answered with

versions: as `fetch`, whose requests these are when they name a replica; its broker epoch comes with version 15, in a
tagged field of which the replica's id is part

A follower says with its fetch offset that it holds everything below, in the leader epoch it believes in; that is what
the high watermark follows from, so it is noted, once for each request, before anything is read. It reads up to the end
of the log, committed or not. Whoever asks from where its log is not this one is told where they part, and nothing is
noted of it.

It is answered as soon as there is something to copy, and soon when only the high watermark is another than the one it
knows: without that a leader that goes away at a quiet moment leaves followers behind that do not know what was
committed. While records come the next of them tells it, so that a record is one answer to each follower and not two.
Where consumers may read at followers it is told at once. So it is, in a session, when the log begins elsewhere than at
its last answer: somebody who has asked for records to be deleted may wait until that has been done everywhere
(`delete_records`). A follower has to write down where its log begins before it can say so, and asks on meanwhile; so as
long as anybody waits for what it has not told yet it is not let wait for long.

Whoever asks for anything says that it is there, and is asked into an ISR only while the image says that it is active.

Only brokers may ask (ClusterAction), and their answers do not count as what clients have fetched. One that is not in
sync may be throttled: it is answered without records then, after its `max_wait_ms`.
"""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Final

from tidemill.broker.authorization import THE_CLUSTER
from tidemill.broker.dispatch import BrokerServices, Peer, RequestContext
from tidemill.broker.fetch_sessions import FetchTurn
from tidemill.broker.handlers.fetch import (
    COPIED_BYTES_MAX,
    Fetch,
    Parked,
    Read,
    diverging_epoch,
    row_of,
)
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, find_topic
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.replication.moved import Moved
from tidemill.broker.replication.partition import Asking
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import InconsistentTopicId, OffsetOutOfRange, TopicAuthorizationFailed
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

WAIT_WHILE_DELETING_MS: Final = 20
"""About as long as a follower takes to write down where its logs begin: then its next request says so."""

COMMITTED_WAIT_MS: Final = 10
"""So long a follower is not told what is committed if there is nothing else to tell: most producers that wait for one
record before they send the next do that sooner. A leader that dies meanwhile leaves its successor to show the last
records a round trip later, or with too few in sync when one of those that hold them is back."""


class _ParkedFollower(Parked):
    """It wakes for what is appended, committed or not, and where a log begins elsewhere; for what is committed soon."""

    __slots__ = ("_due_soon",)

    _fetch: "FollowerFetch"

    def __init__(self, fetch: "FollowerFetch", read: Read, answer: "asyncio.Future[FetchResponse]") -> None:
        self._due_soon = fetch.knows_less
        super().__init__(fetch, read, answer)

    def _wait_for(self, replica: Replica) -> None:
        replica.watch(self.wake)
        replica.wait_for_data(self._committed)
        if self._fetch.knows_less:  # which one that was stirred may have shown
            self._committed()

    def hear(self, moved: Moved) -> None:
        """A partition that was quiet has moved."""
        if moved is Moved.APPENDED:
            self.wake()
        elif moved is Moved.COMMITTED:
            self._committed()

    def _committed(self) -> None:
        if self._fetch.broker.config.reads_nearby:
            self.wake()
        elif not self._due_soon:
            self._due_soon = True
            self._end_within(COMMITTED_WAIT_MS)

    def _leave(self, _answer: "asyncio.Future[FetchResponse]") -> None:
        self._timer.cancel()
        self._fetch.turn.leave(self)
        wake, committed = self.wake, self._committed
        for replica in self.replicas:
            replica.stop_waiting(wake)
            replica.stop_waiting(committed)


class FollowerFetch(Fetch):
    """A follower's request in work."""

    __slots__ = ("_broker_epoch", "_follower", "_found", "_may_join", "_noted", "knows_less")

    parked = _ParkedFollower
    to_clients = False

    def __init__(
        self, broker: BrokerServices, request: FetchRequest, turn: FetchTurn, version: int, who: RequestContext | Peer
    ) -> None:
        super().__init__(broker, request, turn, version, who)
        state = request.replica_state
        self._follower = request.replica_id if request.replica_id >= 0 else state.replica_id
        self._broker_epoch = state.replica_epoch
        self._noted: set[int] = set()
        self._found: tuple[object, str, uuid.UUID, TopicImage] | None = None  # in which image, asked how, and what
        self.knows_less = False  # than what is committed, and that is all there is to tell
        known = broker.controller.image.brokers.get(self._follower)
        self._may_join = known is None or (known.active and self._broker_epoch in (-1, known.epoch))
        broker.replicas.asked_by(self._follower, Asking(self._broker_epoch, self._may_join, self._now_ms()))

    def permitted(self, name: str, topic_id: uuid.UUID) -> TopicImage:
        """A topic, if it is a broker that asks; raises TopicAuthorizationFailed."""
        if not self.broker.authorizer.allows(self.who, Operation.CLUSTER_ACTION, THE_CLUSTER):
            raise TopicAuthorizationFailed(f"{self.who.principal} is no broker, and fetches as if it were one")
        image, found = self.broker.controller.image, self._found  # what had nothing new is read again when it has
        if found is None or found[0] is not image or found[1] != name or found[2] is not topic_id:
            self._found = found = image, name, topic_id, find_topic(self.broker, name, topic_id)
        return found[3]

    def read_one(
        self, read: Read, number: int, partition: FetchPartition, image: TopicImage, may_block: bool
    ) -> PartitionData:
        """Note how far the follower holds a partition, and read what it lacks; raises KafkaError."""
        found = find_replica(self.broker, image, partition.partition, partition.current_leader_epoch)
        partition_log = found.log
        if partition_log.topic_id not in (image.topic_id, ZERO_UUID):
            raise InconsistentTopicId(f"the log of {partition_log.topic_partition} is of another topic of that name")
        if number not in self._noted:  # nothing is cut off while it is led in this epoch
            if partition.last_fetched_epoch >= 0:
                diverging = diverging_epoch(found, partition)
                if diverging is not None:
                    read.answer_now = True
                    return row_of(found, partition.partition, b"", None, diverging)
            self._note(found, partition)
            self._noted.add(number)
        records: bytes | memoryview = b""
        left = (
            min(partition.partition_max_bytes, self.budget - read.size_bytes)
            if read.copied_bytes < COPIED_BYTES_MAX
            else 0
        )
        if partition.fetch_offset < partition_log.log_end_offset and not self._must_wait(found):
            if not may_block and (cold := partition_log.cold(partition.fetch_offset, left)) is not None:
                read.cold.append(cold)
                return row_of(found, partition.partition, b"", None)
            end = partition_log.end_position()
            records = partition_log.read(partition.fetch_offset, left, end, at_least_one=read.size_bytes == 0)
            read.count(records)
            self._slow_down(found, len(records))
        read.found[number] = found
        turn = self.turn
        if partition_log.log_start_offset > turn.told_start(number):
            read.answer_now = True
        if found.high_watermark > turn.told(number):
            self.knows_less = True
            if self.broker.config.reads_nearby:
                read.answer_now = True
        return row_of(found, partition.partition, records, None)

    def _note(self, found: Replica, partition: FetchPartition) -> None:
        """The follower holds everything below its offset; raises KafkaError if that cannot be."""
        partition_log, offset = found.log, partition.fetch_offset
        if offset < partition_log.log_start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {partition_log.topic_partition} has been deleted: it begins at "
                f"{partition_log.log_start_offset}"
            )
        actions = found.machine.fetched(
            self._follower,
            offset,
            leader_epoch=partition.current_leader_epoch,
            log_end=partition_log.log_end_offset,
            now_ms=self._now_ms(),
            broker_epoch=self._broker_epoch,
            may_join=self._may_join,
            log_start=partition.log_start_offset,
        )
        found.take(actions)

    def _must_wait(self, found: Replica) -> bool:
        """Whether it is being moved, and more of it has been sent than should be."""
        throttle = self.broker.replicas.leader_throttle
        if throttle is None or self._follower in found.machine.isr:
            return False
        return throttle.pause_ms(*found.log.topic_partition, self._now_ms()) > 0

    def note_sent(self, found: Replica, records: bytes | memoryview) -> None:
        """These are in the answer; what was read while it waited for more does not count twice."""
        self.broker.replicas.bytes_to_followers += len(records)

    def _slow_down(self, found: Replica, size_bytes: int) -> None:
        throttle = self.broker.replicas.leader_throttle
        if throttle is not None and self._follower not in found.machine.isr:
            throttle.note(*found.log.topic_partition, size_bytes, self._now_ms())

    def wait_ms(self) -> int:
        """As long as the follower says, or not for long."""
        wait_ms = self.request.max_wait_ms
        if self.knows_less:
            wait_ms = min(wait_ms, COMMITTED_WAIT_MS)
        deleting = self.broker.replicas.deleting
        if deleting and any(self._is_behind(each) for each in deleting):
            return min(wait_ms, WAIT_WHILE_DELETING_MS)
        return wait_ms

    def _is_behind(self, found: Replica) -> bool:
        """Whether the follower, as far as it has told, has not deleted what is deleted here."""
        progress = found.machine.progress(self._follower)
        return progress is not None and progress.log_start < found.log_start_offset and not found.closed

    def _now_ms(self) -> int:
        return int(self.broker.clock.monotonic() * 1000)

    def moved(self, read: Read) -> Sequence[int]:
        """Partitions with more to copy, another high watermark or beginning, or of no use any more."""
        partitions, wanted = read.partitions, self.turn.wanted
        return [
            number
            for number, found in read.found.items()
            if found.log_end_offset != wanted[number].partition.fetch_offset
            or found.high_watermark != partitions[number].high_watermark
            or found.log_start_offset != partitions[number].log_start_offset
            or found.log.closed
            or not found.machine.leads
        ]
