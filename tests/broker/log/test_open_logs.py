"""Open logs by partition and by topic"""

from tests.broker.log.log_world import LogWorld
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.open_logs import OpenLogs
from tidemill.broker.log.partition import PartitionLog
from tidemill.core.types import TopicPartition


def log_of(topic: str, partition: int) -> PartitionLog:
    log = LogWorld(SimulatedDisk().root).open()
    log.topic_partition = TopicPartition(topic, partition)
    return log


def test_logs_are_found_until_they_are_removed() -> None:
    logs = OpenLogs()
    kept, gone, other = log_of("t", 1), log_of("t", 0), log_of("a", 0)
    for each in (kept, gone, other):
        logs.add(each)
    assert (len(logs), logs.of_topic("t"), logs.of_topic("none")) == (3, [kept, gone], [])
    assert logs.partitions() == [("a", 0), ("t", 0), ("t", 1)]
    for each in logs:  # those that were there when it began
        if each is not kept:
            logs.remove(each)
    assert (list(logs), logs.of_topic("t"), logs.of_topic("a")) == ([kept], [kept], [])
    assert (logs.get("t", 1), logs.get("t", 0)) == (kept, None)
    assert TopicPartition("t", 1) in logs
    logs.clear()
    assert (len(logs), logs.of_topic("t"), logs.get("t", 1)) == (0, [], None)
