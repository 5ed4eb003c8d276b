"""The open logs of a data folder, by partition and by topic

Changes on the event loop only. Another thread may take the list of all logs at any moment: a log that was deleted
meanwhile is `closed`.
"""

from collections.abc import Iterator

from tidemill.core.types import TopicPartition

from .partition import PartitionLog, Traffic


class OpenLogs:
    """Every partition stored in one folder; iterating goes over those that are there when it begins."""

    __slots__ = ("_by_partition", "_by_topic", "removed_traffic")

    def __init__(self) -> None:
        self.removed_traffic = Traffic(0, 0, 0)  # of logs that were here
        self._by_partition: dict[TopicPartition, PartitionLog] = {}
        self._by_topic: dict[str, dict[TopicPartition, PartitionLog]] = {}

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._by_partition.values()))

    def __len__(self) -> int:
        return len(self._by_partition)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._by_partition

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, None if it is not stored here."""
        return self._by_partition.get((topic, partition))  # type: ignore[call-overload,no-any-return]

    def of_topic(self, topic: str) -> list[PartitionLog]:
        """The logs of all partitions of `topic`."""
        return list(self._by_topic.get(topic, {}).values())

    def partitions(self) -> list[TopicPartition]:
        """Everything stored here, in order."""
        return sorted(self._by_partition)

    def add(self, partition_log: PartitionLog) -> None:
        """Take up a log; there is none of that partition yet."""
        key = partition_log.topic_partition
        assert key not in self._by_partition
        self._by_partition[key] = partition_log
        self._by_topic.setdefault(key.topic, {})[key] = partition_log

    def remove(self, partition_log: PartitionLog) -> None:
        """Let go of a log, into which nothing goes any more."""
        self.removed_traffic = Traffic(*map(sum, zip(self.removed_traffic, partition_log.traffic, strict=True)))
        key = partition_log.topic_partition
        del self._by_partition[key]
        of_topic = self._by_topic[key.topic]
        del of_topic[key]
        if not of_topic:
            del self._by_topic[key.topic]

    def clear(self) -> None:
        """Let go of all of them."""
        self._by_partition.clear()
        self._by_topic.clear()
