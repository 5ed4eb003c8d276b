"""A data folder with thousands of segments, written as an orderly stop leaves it"""

from tests.broker.log.log_world import NOW_MS, batch
from tidemill.broker.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, write_clean_shutdown, write_offsets
from tidemill.broker.log.index import TimeIndex
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.records.batch import stamp
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition


def write_crowded_topic(directory: Directory, topic: str, partitions: int, segments: int) -> None:
    """Partitions with so many segments of one record each, a second apart, the newest at `NOW_MS`."""
    data = bytearray(batch(1))
    for partition in range(partitions):
        folder = directory.subdirectory(f"{topic}-{partition}")
        for offset in range(segments):
            timestamp = NOW_MS - 1000 * (segments - 1 - offset)
            data[:] = batch(1, timestamp=timestamp)
            stamp(data, 0, offset, 0)
            times = TimeIndex()
            times.append_if_later(timestamp, 0)
            for suffix, content in ((".log", data), (".index", b""), (".timeindex", times.to_bytes())):
                file = folder.create(segment_name(offset, suffix))
                if content:
                    file.write_at(0, content)
                file.close()


def write_clean_stop(directory: Directory, topics: dict[str, tuple[int, int]]) -> None:
    """Crowded topics, by their number of partitions and of segments in each, after an orderly stop."""
    points = {}
    for topic, (partitions, segments) in topics.items():
        write_crowded_topic(directory, topic, partitions, segments)
        points |= {TopicPartition(topic, partition): segments for partition in range(partitions)}
    write_offsets(directory, RECOVERY_POINTS, points)
    write_offsets(directory, LOG_STARTS, dict.fromkeys(points, 0))
    write_clean_shutdown(directory)
