"""All partitions of one broker, as it serves them

There is a replica for every partition that the image gives this broker and that has a log. It is told of every image
that changes its topic, and it ends with its log. What partitions want of others goes to the outlet; with one broker
nobody else is there, and nothing is ever wanted.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.replication.partition import Asking, PartitionMachine
from tidemill.broker.replication.replica import Outlet, Replica, Wish
from tidemill.core.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from tidemill.broker.replication.fetcher import ReplicaFetchers, Surrounded
    from tidemill.broker.replication.fetching import FetchSettings
    from tidemill.broker.replication.throttle import Throttle

LAG_MAX_MS = 30_000
"""Kafka's replica.lag.time.max.ms."""


def nobody_else(_replica: Replica, _wish: Wish) -> None:
    """The outlet of a broker that is the only one: whom it could follow or ask is not there."""


class Replicas:
    """By partition; changes on the event loop only."""

    def __init__(
        self,
        node_id: int,
        logs: LogStore,
        monotonic: Callable[[], float],
        *,
        outlet: Outlet = nobody_else,
        lag_max_ms: int = LAG_MAX_MS,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._monotonic = monotonic
        self.outlet = outlet  # may be set at any time
        self.lag_max_ms = lag_max_ms
        self.leader_throttle: Throttle | None = None  # of what followers that are not in sync are sent
        self.bytes_to_followers = 0  # sent, as stored
        self.deleting: Counter[Replica] = Counter()  # of which somebody waits until followers, too, begin where they do
        self.asking: dict[int, Asking] = {}  # brokers that copy from here
        self.heard_ms: dict[int, int] = {}  # when brokers that are copied from have answered last, or were to begin to
        self.failing_since_ms: Callable[[Replica], int | None] = lambda _replica: None  # of one that copies
        self.somebody_may_join = asyncio.Event()  # who could not before: of silent partitions it asks for nothing
        self._by_partition: dict[TopicPartition, Replica] = {}
        self._by_topic: dict[str, list[TopicPartition]] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._by_partition.values()))

    def get(self, topic: str, partition: int) -> Replica | None:
        """The replica of a partition, None if it is not served here."""
        return self._by_partition.get((topic, partition))  # type: ignore[call-overload,no-any-return]

    def assign(self, topic: TopicImage, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Tell the replicas of `topic` what the image and its settings say; make those that have a log and are new.

        `high_watermarks` are those of a start: what the folder's checkpoint says.
        """
        now_ms = int(self._monotonic() * 1000)
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition)
            replica = self._by_partition.get(key)
            if replica is None or replica.closed:
                replica = self._make(key, topic.topic_id, (high_watermarks or {}).get(key, 0))
                if replica is not None:
                    replica.assign(partition, now_ms=now_ms)
            else:
                replica.assign(partition, now_ms=now_ms)
                replica.configure(lag_max_ms=self.lag_max_ms)

    def tell(self, topic: TopicImage) -> None:
        """Tell the replicas that there are of `topic` how they are led; others have to wait for their logs."""
        now_ms = int(self._monotonic() * 1000)
        for partition in topic.partitions:
            replica = self.get(topic.name, partition.partition)
            if replica is not None and not replica.closed:
                replica.assign(partition, now_ms=now_ms)

    def is_cut_off(self, replica: Replica) -> bool:
        """Whether for long a replica could not be copied, or nothing was heard of its leader: it may be far behind."""
        old_ms = int(self._monotonic() * 1000) - self.lag_max_ms
        since = (self.heard_ms.get(replica.machine.leader), self.failing_since_ms(replica))
        return any(each is not None and each < old_ms for each in since)

    def asked_by(self, node_id: int, now: Asking) -> None:
        """A broker asks what there is to copy, of whichever partitions."""
        before = self.asking.get(node_id)
        self.asking[node_id] = now
        if now.may_join and before is not None and not before.may_join:
            self.somebody_may_join.set()

    def _make(self, key: TopicPartition, topic_id: uuid.UUID, high_watermark: int) -> Replica | None:
        partition_log = self._logs.get(*key)
        if partition_log is None or partition_log.closed or partition_log.topic_id not in (topic_id, ZERO_UUID):
            return None  # that of a deleted topic of the same name is about to go
        machine = PartitionMachine(
            self._node_id,
            held=partition_log.held_offset,
            high_watermark=max(high_watermark, partition_log.log_start_offset),
            min_in_sync=partition_log.config.min_insync_replicas,
            lag_max_ms=self.lag_max_ms,
        )
        replica = Replica(partition_log, machine, self._wish)
        before = self._by_partition.get(key)
        if before is None:
            self._by_topic.setdefault(key.topic, []).append(key)
        else:
            before.retire()
        self._by_partition[key] = replica
        return replica

    def _wish(self, replica: Replica, wish: Wish) -> None:
        self.outlet(replica, wish)

    def forget(self, topic: str) -> None:
        """The topic is gone; whoever waits for data is woken when its logs are closed."""
        for key in self._by_topic.pop(topic, ()):
            self._by_partition.pop(key).retire()


def among_others(
    around: "Surrounded", settings: "FetchSettings | None" = None, throttle: "Throttle | None" = None
) -> "ReplicaFetchers":
    """Let the replicas of a broker that is not the only one have an outlet, before they hear of an image.

    The caller runs what is returned. A broker by itself never comes here and does without all it needs.
    """
    from tidemill.broker.replication.fetcher import ReplicaFetchers

    fetchers = ReplicaFetchers(around, settings=settings, throttle=throttle)
    around.replicas.outlet = fetchers.outlet
    around.replicas.failing_since_ms = fetchers.failing_since_ms
    return fetchers
