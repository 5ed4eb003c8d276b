"""A data folder with thousands of segments, written as an orderly stop leaves it, and a watch over the event loop"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

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


@dataclass(slots=True)
class LoopWatch:
    """The longest time between two turns of the event loop."""

    longest_ms: float = 0.0
    """As the clock on the wall has it: everything that kept others waiting, the machine's other work too."""

    longest_busy_ms: float = 0.0
    """As the loop's own thread was at work meanwhile: what the code is to blame for, on a busy machine too."""


@asynccontextmanager
async def watched_loop() -> AsyncIterator[LoopWatch]:
    """Tick every millisecond while the block runs."""
    watch = LoopWatch()

    async def tick() -> None:
        wall, busy = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, worked = time.perf_counter(), time.thread_time()
            watch.longest_ms = max(watch.longest_ms, 1000 * (now - wall))
            watch.longest_busy_ms = max(watch.longest_busy_ms, 1000 * (worked - busy))
            wall, busy = now, worked

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0.005)
    watch.longest_ms = watch.longest_busy_ms = 0.0
    try:
        yield watch
        await asyncio.sleep(0.002)  # the turn that ended the block counts as well
    finally:
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
