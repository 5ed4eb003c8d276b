"""kill -9 of every part in the middle of the load: the final tables are equal and nothing acknowledged is lost.

One pipeline for the module (Spark takes seconds to start); every test kills one part under load, brings it back where
nobody supervises it, and waits for equality. The last test compares the records of both topics, one by one.
"""

import time
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from tidemill.demo.pipeline import MIRRORED_TOPIC, PARTS, SINK, TOPIC, Pipeline

pytestmark = [
    pytest.mark.integration,
    pytest.mark.crash,
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.timeout(1_800),
]

ROWS = 1_000
CHANGES_BEFORE_KILL = 300
CHANGES = 3_000  # more than are made while a part is killed
RATE_PER_S = 400
IDLE_S = 300
PROGRESS_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    running = Pipeline(tmp_path_factory.mktemp("pipeline"))
    try:
        running.start(ROWS)
        first = running.wait_equal(IDLE_S)
        assert first.ok, first
        yield running
    finally:
        running.close()


def wait_for_changes(pipeline: Pipeline, more: int) -> None:
    """Wait until the load has committed `more` further changes."""
    assert pipeline.load is not None
    target = pipeline.load.progress.changes + more
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while pipeline.load.progress.changes < target:
        assert pipeline.load.running, "the load ended early"
        assert time.monotonic() < deadline, "the load does not get on"
        time.sleep(0.02)


@pytest.mark.parametrize("part", PARTS)
def test_tables_are_equal_after_a_kill_under_load(pipeline: Pipeline, part: str) -> None:
    assert pipeline.load is not None
    pipeline.load.pace(RATE_PER_S)
    pipeline.load.start(CHANGES)
    wait_for_changes(pipeline, CHANGES_BEFORE_KILL)
    pipeline.kill(part)
    wait_for_changes(pipeline, CHANGES_BEFORE_KILL)
    pipeline.restart(part)
    pipeline.load.wait()
    result = pipeline.wait_equal(IDLE_S)
    assert result.ok, result
    assert result.comparison.source_rows > 0


def test_what_does_not_move_is_not_waited_for(pipeline: Pipeline) -> None:
    assert pipeline.load is not None
    httpx.put(f"{pipeline.url}/connectors/{SINK}/pause").raise_for_status()
    pipeline.load.start(CHANGES_BEFORE_KILL)
    pipeline.load.wait()
    assert not pipeline.wait_equal(5).comparison.equal
    httpx.put(f"{pipeline.url}/connectors/{SINK}/resume").raise_for_status()
    assert pipeline.wait_equal(IDLE_S).ok


Row = tuple[bytes | None, bytes | None, tuple[int, int], object]


def records(address: str, topic: str) -> dict[int, list[Row]]:
    """Key, value, timestamp and headers of every record, by partition and in order."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "compare", "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[Row]] = {partition: [] for partition in partitions}
        ended: set[int] = set()
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} at {address} does not end"
            for message in consumer.consume(10_000, 1.0):
                partition = message.partition()
                assert partition is not None
                if message.error() is not None:
                    ended.add(partition)
                else:
                    row = (message.key(), message.value(), message.timestamp(), message.headers())
                    found[partition].append(row)
        return found
    finally:
        consumer.close()


def test_the_mirror_has_every_record_exactly_once(pipeline: Pipeline) -> None:
    """After all those kills both topics hold the same records in the same order: none lost, none twice."""
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while True:
        captured = records(pipeline.east_address, TOPIC)
        mirrored = records(pipeline.west_address, MIRRORED_TOPIC)
        if captured == mirrored or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    sizes = [[len(rows) for rows in found.values()] for found in (captured, mirrored)]
    assert captured == mirrored, f"records by partition: {sizes}"
    assert sum(sizes[0]) > ROWS
