"""Queries that stand still: the arithmetic, and real ones whose planner hangs or whose thread is gone"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from tests.spark_sink.conftest import Topics, planners_below, poll
from tests.spark_sink.debezium_events import Message
from tidemill.core.types import TopicPartition
from tidemill.spark_sink.cluster import Cluster
from tidemill.spark_sink.failures import failure_of
from tidemill.spark_sink.offsets import StreamOffset
from tidemill.spark_sink.options import parse_options
from tidemill.spark_sink.progress import exception_of, stream_thread_is_dead
from tidemill.spark_sink.standstill import QueryGuard, Stalled, Standstill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def at(offset: int, partitions: int = 1) -> StreamOffset:
    return StreamOffset(offsets={TopicPartition("t", number): offset for number in range(partitions)})


def test_time_counts_from_when_records_began_to_wait() -> None:
    still = Standstill()
    assert still.seconds(0, at(5), at(5)) == 0
    assert still.seconds(500, at(5), at(5)) == 0  # idle is not still
    assert still.seconds(510, at(5), at(6)) == 10  # they came after the last look, so not before it
    assert still.seconds(530, at(5), at(9)) == 30


def test_any_move_starts_the_time_anew() -> None:
    still = Standstill()
    still.seconds(0, at(5), at(90))
    assert still.seconds(100, at(6), at(90)) == 0
    assert still.seconds(130, at(6), at(90)) == 30
    still.moves(140)
    assert still.seconds(150, at(6), at(90)) == 10


def test_a_partition_the_query_does_not_know_yet_waits_from_its_first_record() -> None:
    still = Standstill()
    still.seconds(0, at(5), at(5, partitions=2))
    assert still.seconds(20, at(5), at(5, partitions=2)) == 20


slow = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(600)]


class TestInSpark:
    pytestmark = slow

    @pytest.fixture
    def query(self, spark: "SparkSession", topics: Topics, tmp_path: Path) -> "Iterator[StreamingQuery]":
        """A stream that has read a record of its topic, which is its name, and takes what comes."""
        name = topics.create()
        seen: list[int] = []

        def take(frame: "DataFrame", batch_id: int) -> None:
            seen.append(frame.count())

        topics.fill(name, [[Message(b"k", b"v")]])
        stream = spark.readStream.format("tidemill").options(**options_of(topics, name)).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
        query = writer.queryName(name).trigger(processingTime="100 milliseconds").start()
        try:
            poll(lambda: seen, "a batch", 300)
            yield query
        finally:
            with contextlib.suppress(Exception):
                query.stop()

    def test_a_hung_planner_is_noticed_once_records_wait(self, topics: Topics, query: "StreamingQuery") -> None:
        name = query.name
        assert name is not None
        poll(lambda: query.lastProgress is not None, "the report of the batch", 120)
        guard = guard_of(query, topics, name, timeout_s=60)
        planners = planners_below(os.getpid())
        for planner in planners:
            os.kill(planner, signal.SIGSTOP)
        try:
            for now in range(0, 1_000, 50):
                guard.check(now, busy=False)  # nothing waits
            topics.fill(name, [[Message(b"k", b"v")] * 3])
            guard.check(1_000, busy=True)
            guard.check(1_050, busy=False)
            with pytest.raises(Stalled, match="3 records wait and the query has not moved for 70 s"):
                guard.check(1_070, busy=False)
        finally:
            for planner in planners:
                os.kill(planner, signal.SIGCONT)
        poll(lambda: query.lastProgress["batchId"] >= 1, "the batch after it", 120)
        guard.check(2_000, busy=False)  # it goes on

    def test_a_query_whose_thread_is_gone_is_dead_however_active(self, topics: Topics, query: "StreamingQuery") -> None:
        assert not stream_thread_is_dead(query)
        inner = query._jsq.streamingQuery()
        active = inner.state().get()
        query.stop()
        assert not stream_thread_is_dead(query)  # it has ended, as it should
        inner.state().set(active)  # as a thread leaves it that dies before its last act
        assert query.isActive
        with pytest.raises(Stalled, match="stream thread is dead"):
            guard_of(query, topics, str(query.name), timeout_s=0).check(0, busy=False)

    def test_an_error_that_kills_the_thread_is_told_by_its_class(self, query: "StreamingQuery") -> None:
        try:
            query._jsq.streamingQuery().queryExecutionThread().stop()  # throws an Error there, as a full stack would
        except Py4JJavaError:
            pytest.skip("Java 20 and later have no Thread.stop")
        poll(lambda: not query.isActive, "the query's end", 120)
        error = exception_of(query)
        assert error is not None
        failure = failure_of(error)
        assert (failure.needs_new_jvm, str(failure)) == (True, "the Spark JVM failed with java.lang.ThreadDeath")


def options_of(topics: Topics, name: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name, "startingOffsets": "earliest"}


def guard_of(query: "StreamingQuery", topics: Topics, name: str, timeout_s: float) -> QueryGuard:
    options = replace(parse_options(options_of(topics, name), streaming=True), retries=0)
    return QueryGuard(query, options, Cluster(options, timeout_ms=5_000), timeout_s)
