"""Consumers that read at a replica in their own rack (KIP-392)

With `replica.selector.class` a leader tells a consumer that names its rack (`client.rack`) which replica is near: one
in that rack that is in sync and holds what the consumer asks for, of several the one that holds most. The consumer goes
there from then on, be it a follower. Where there is none, or the leader is near itself, it is served here.

A follower serves what it knows to be committed, so it tells of a record a moment later than its leader. What it does
not have yet is waited for; what it has no more, or never had, is an error that sends the consumer back to the leader,
and so is that it has fallen out of the ISR: it may be behind for long. One that is cut off does not hear of that; after
`replica.lag.time.max.ms` without an answer of its leader, or without a copy of this partition from a leader that does
answer, it sends consumers back by itself. In Kafka they read on there what is old, until they ask the leader again by
themselves (after `metadata.max.age.ms`, 5 minutes).

Without the setting, and for consumers that name no rack, only leaders are read (`fetch`). Apache Kafka lets any
consumer of a newer version read at any replica; here it has to be wanted, for a client with an old picture of the
cluster is better told so.
"""

from collections.abc import Sequence

from tidemill.broker.dispatch import BrokerServices
from tidemill.broker.handlers.fetch import Fetch, Read, row_of
from tidemill.broker.partitions import find_readable
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import NotLeaderOrFollower
from tidemill.core.wire.messages.fetch import FetchPartition, PartitionData

NONE_NEARER = -1


class NearbyFetch(Fetch):
    """A consumer's request where followers may be read."""

    __slots__ = ()

    def read_one(
        self, read: Read, number: int, partition: FetchPartition, image: TopicImage, may_block: bool
    ) -> PartitionData:
        """Read a partition, or say where that is nearer; raises KafkaError."""
        found = find_readable(self.broker, image, partition.partition, partition.current_leader_epoch)
        if not found.machine.leads and self.broker.replicas.is_cut_off(found):
            raise NotLeaderOrFollower(f"broker {found.machine.leader} leads, and nothing was copied from it for long")
        nearer = nearest(self.broker, found, self.request.rack_id, partition.fetch_offset, self.who.listener)
        if nearer != NONE_NEARER:
            read.answer_now = True
            return row_of(found, partition.partition, b"", self.aborted, nearer=nearer)
        return self.records_of(found, read, number, partition, may_block)

    def moved(self, read: Read) -> Sequence[int]:
        """Partitions of which more is committed, or that are of no use any more."""
        partitions = read.partitions
        return [
            number
            for number, found in read.found.items()
            if found.high_watermark != partitions[number].high_watermark
            or found.log.closed
            or not found.machine.readable
        ]


def nearest(broker: BrokerServices, found: Replica, rack: str, offset: int, listener: str) -> int:
    """The replica that a consumer in `rack` had better read at; NONE_NEARER where this one will do.

    What is gone at the leader is nowhere to be sent for: it is the leader who says so.
    """
    machine = found.machine
    if not machine.leads or machine.alone or rack == broker.config.broker_rack or offset < found.log_start_offset:
        return NONE_NEARER
    brokers = broker.controller.image.brokers
    near = []
    for node in machine.isr:
        known, progress = brokers.get(node), machine.progress(node)
        if known is None or progress is None or known.rack != rack or not known.active or broker.misses(node):
            continue
        if progress.log_start <= offset <= progress.held and any(each.name == listener for each in known.end_points):
            near.append((-progress.held, node))
    return min(near)[1] if near else NONE_NEARER
