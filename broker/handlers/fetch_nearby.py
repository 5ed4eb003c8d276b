"""Consumers that read at a replica in their own rack (KIP-392)

With `replica.selector.class` a leader tells a consumer that names its rack (`client.rack`) which replica is near: one
in that rack that is in sync and holds what the consumer asks for, of several the one that holds most. The consumer goes
there from then on, be it a follower. Where there is none, or the leader is near itself, it is served here.

A follower serves what it knows to be committed, so it tells of a record a moment later than its leader. What it does
not have yet is waited for; what it has no more, or never had, is an error that sends the consumer back to the leader.

Without the setting, and in versions that know no racks, only leaders are read (`fetch`). Apache Kafka lets any consumer
of a newer version read at any replica; here it has to be wanted, for a client with an old picture of the cluster is
better told so.
"""

import uuid
from collections.abc import Iterable, Sequence

from tidemill.broker.authorization import ALLOW_ALL
from tidemill.broker.dispatch import BrokerServices
from tidemill.broker.handlers.fetch import (
    COPIED_BYTES_MAX,
    READ_COMMITTED,
    Aborted,
    Fetch,
    Read,
    failed,
    read_one,
    row_of,
)
from tidemill.broker.partitions import find_readable, find_topic
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.replication.partition import Role
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import KafkaError
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.messages.fetch import FetchPartition, PartitionData

NONE_NEARER = -1


class NearbyFetch(Fetch):
    """A consumer's request where followers may be read."""

    __slots__ = ()

    def read(self, read: Read, numbers: Iterable[int], may_block: bool = True) -> None:
        """Read partitions, or say where that is nearer."""
        broker, wanted, partitions = self.broker, self.turn.wanted, read.partitions
        aborted: Aborted = () if self.request.isolation_level == READ_COMMITTED else None
        image: TopicImage | None = None
        topic, topic_id = "", ZERO_UUID
        for number in numbers:
            name, its_id, partition = wanted[number]
            before = partitions.get(number)
            if before is not None and before.records:
                read.count(before.records, -1)
            try:
                if image is None or its_id is not topic_id or name != topic:
                    image = None
                    image = self._topic(name, its_id)
                    topic, topic_id = name, its_id
                found = find_readable(broker, image, partition.partition, partition.current_leader_epoch)
                partitions[number] = self._read_or_tell(found, partition, number, aborted, read, may_block)
            except KafkaError as error:
                read.answer_now = True
                partitions[number] = failed(broker, wanted[number], error)

    def _topic(self, name: str, topic_id: uuid.UUID) -> TopicImage:
        if self.broker.authorizer is ALLOW_ALL:
            return find_topic(self.broker, name, topic_id)
        return self.permitted(name, topic_id)

    def _read_or_tell(
        self, found: Replica, partition: FetchPartition, number: int, aborted: Aborted, read: Read, may_block: bool
    ) -> PartitionData:
        nearer = nearest(self.broker, found, self.request.rack_id, partition.fetch_offset, self.who.listener)
        if nearer != NONE_NEARER:
            read.answer_now = True
            return row_of(found, partition.partition, b"", aborted, nearer=nearer)
        budget = min(self.request.max_bytes, self.broker.config.fetch_max_bytes)
        left = budget - read.size_bytes if read.copied_bytes < COPIED_BYTES_MAX else 0
        return read_one(found, partition, number, aborted, left, read, may_block)

    def moved(self, read: Read) -> Sequence[int]:
        """Partitions of which more is committed, or that are of no use any more."""
        partitions = read.partitions
        return [
            number
            for number, found in read.found.items()
            if found.high_watermark != partitions[number].high_watermark
            or found.log.closed
            or not (found.machine.leads or found.machine.role is Role.FOLLOWER)
        ]


def nearest(broker: BrokerServices, found: Replica, rack: str, offset: int, listener: str) -> int:
    """The replica that a consumer in `rack` had better read at; NONE_NEARER where this one will do."""
    machine = found.machine
    if not rack or not machine.leads or machine.alone or rack == broker.config.broker_rack:
        return NONE_NEARER
    brokers = broker.controller.image.brokers
    near = []
    for node in machine.isr:
        known, progress = brokers.get(node), machine.progress(node)
        if known is None or progress is None or known.rack != rack or not known.active or progress.held < offset:
            continue
        if any(each.name == listener for each in known.end_points):
            near.append((-progress.held, node))
    return min(near)[1] if near else NONE_NEARER
