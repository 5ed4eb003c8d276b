"""Batches that come before there is a log for them are not overtaken

A client may hear of a topic before the broker that is to lead it has opened its logs. Of the batches that an idempotent
producer has under way the first are refused then, and the next may meet a log that has never heard of their producer
and takes them. So the door (`admission`) keeps the headers of those that were refused, and the log hears of them with
the first batch that gets there: from then on it is as with any that was refused (`tidemill.broker.log.producers`).

Only for partitions that there are, so that nobody chooses what is kept, and bounded in number and time. What is
forgotten too early is what Apache Kafka never knows.
"""

from typing import NamedTuple

from tidemill.broker.log.producers import is_behind
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import KafkaStorageError
from tidemill.core.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidemill.core.runtime.disk import ByteBuffer
from tidemill.core.types import TopicPartition

PARTITIONS_MAX = 200
PRODUCERS_MAX = 50
"""Of one partition; whoever comes later is not known."""

KEPT_MS = 60_000
"""After the last one for a partition; clients ask again within seconds."""


class _Early(NamedTuple):
    """What was refused of one partition: the first batch of each producer."""

    latest_ms: int
    by_producer: dict[int, BatchHeader]


class TurnedAway:
    """Of all partitions that one broker leads and has not opened."""

    __slots__ = ("by_partition",)

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, _Early] = {}  # whoever was refused last is last; to be read only

    def note(self, partition: TopicPartition, data: ByteBuffer, now_ms: int) -> None:
        """A batch is refused."""
        self._forget(now_ms)
        if len(data) < HEADER_BYTES:
            return
        batch = read_header(data)
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return
        early = self.by_partition.pop(partition, None)
        by_producer = {} if early is None else early.by_producer
        if len(self.by_partition) >= PARTITIONS_MAX:
            del self.by_partition[next(iter(self.by_partition))]
        self.by_partition[partition] = _Early(now_ms, by_producer)
        known = by_producer.get(batch.producer_id)
        if known is None:
            if len(by_producer) < PRODUCERS_MAX:
                by_producer[batch.producer_id] = batch
        elif batch.producer_epoch > known.producer_epoch or (
            batch.producer_epoch == known.producer_epoch and is_behind(known.base_sequence, batch.base_sequence)
        ):
            by_producer[batch.producer_id] = batch

    def hand_over(self, replica: Replica, now_ms: int) -> None:
        """A partition is there: its log hears of what came too early."""
        self._forget(now_ms)
        early = None if replica.closed else self.by_partition.pop(replica.log.topic_partition, None)
        if early is None:
            return
        error = KafkaStorageError(f"the log of {replica.log.topic_partition} was not open")
        for batch in early.by_producer.values():
            replica.log.producers.refuse(
                batch, error, followed_epoch=replica.machine.leader_epoch, now_ms=early.latest_ms
            )

    def _forget(self, now_ms: int) -> None:
        for partition, early in tuple(self.by_partition.items()):
            if now_ms - early.latest_ms < KEPT_MS:
                break
            del self.by_partition[partition]
