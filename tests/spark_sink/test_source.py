"""`format("tidemill")` in a real Spark: rows, ranges, streams, limits, topics made anew"""

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from tests.spark_sink.conftest import Topics
from tests.spark_sink.debezium_events import Message
from tidemill.spark_sink.options import parse_options
from tidemill.spark_sink.source import RangePartition, StreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(600)]


def numbered(count: int, first: int = 0) -> list[Message]:
    return [Message(b"k%d" % i, b"v%d" % i) for i in range(first, first + count)]


def batch(spark: "SparkSession", topics: Topics, **options: str) -> "DataFrame":
    return spark.read.format("tidemill").options(**{"kafka.bootstrap.servers": topics.bootstrap, **options}).load()


def run_stream(spark: "SparkSession", topics: Topics, checkpoint: Path, **options: str) -> list[tuple[int, int, str]]:
    """Read what there is now; returns (batch, offset, value) per record."""
    seen: list[tuple[int, int, str]] = []

    def take(frame: "DataFrame", batch_id: int) -> None:
        found = frame.selectExpr("partition", "offset", "cast(value as string) value").collect()
        seen.extend((batch_id, row["offset"], row["value"]) for row in found)

    stream = spark.readStream.format("tidemill").options(**{"kafka.bootstrap.servers": topics.bootstrap, **options})
    writer = stream.load().writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    return seen


def test_the_columns_are_those_of_the_kafka_source(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create()
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(name, b"v", key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"x")])
    producer.produce(name, None, timestamp=1_700_000_000_124)
    assert producer.flush(30) == 0
    frame = batch(spark, topics, subscribe=name, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("offset").collect()
    moment = dt.datetime.fromtimestamp(1_700_000_000.123)
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"v", name, 0, 0)
    assert (first.timestamp, first.timestampType) == (moment, 0)
    assert [(each.key, each.value) for each in first.headers] == [("h", b"x")]
    assert (second.key, second.value, second.headers) == (None, None, None)


def test_a_batch_reads_exactly_its_range_however_it_is_cut(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, [numbered(300), numbered(100)])
    options = {
        "startingOffsets": json.dumps({name: {"0": 17, "1": -2}}),
        "endingOffsets": json.dumps({name: {"0": 255, "1": -1}}),
        "minPartitions": "5",
    }
    frame = batch(spark, topics, subscribe=name, **options)
    assert frame.rdd.getNumPartitions() >= 5
    found = sorted((row.partition, row.offset, row.value) for row in frame.collect())
    expected = [(0, i, b"v%d" % i) for i in range(17, 255)] + [(1, i, b"v%d" % i) for i in range(100)]
    assert found == expected


def test_a_stream_goes_on_where_its_checkpoint_says_and_keeps_its_limit(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, [numbered(60), numbered(20)])
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    seen = run_stream(spark, topics, tmp_path / "c", **options)
    assert len(seen) == len({(offset, value) for _, offset, value in seen}) + 20  # offsets 0-19 exist twice
    sizes = [sum(1 for batch_id, *_ in seen if batch_id == number) for number in range(max(b for b, *_ in seen) + 1)]
    assert sum(sizes) == 80
    assert max(sizes) <= 30
    assert run_stream(spark, topics, tmp_path / "c", **options) == []
    topics.fill(name, [numbered(5, 60)])
    assert [value for *_, value in run_stream(spark, topics, tmp_path / "c", **options)] == [
        f"v{i}" for i in range(60, 65)
    ]


def test_a_stream_stops_at_a_topic_made_anew(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    topics.fill(name, [numbered(10)])
    options = {"subscribe": name, "startingOffsets": "earliest"}
    assert len(run_stream(spark, topics, tmp_path / "c", **options)) == 10
    topics.delete(name)
    topics.create(name=name)
    topics.fill(name, [numbered(3)])
    with pytest.raises(PySparkException, match="was deleted and created again since this query last read it"):
        run_stream(spark, topics, tmp_path / "c", **options)
    allowed = run_stream(spark, topics, tmp_path / "c", failOnDataLoss="false", **options)
    assert [value for *_, value in allowed] == ["v0", "v1", "v2"]


def test_positions_reach_the_group_for_lag_tools(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    topics.fill(name, [numbered(40)])
    group = f"lag-{name}"
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", "kafka.group.id": group}
    run_stream(spark, topics, tmp_path / "c", **options)
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group})
    try:
        (committed,) = consumer.committed([ClientPartition(name, 0)], timeout=30)
    finally:
        consumer.close()
    assert committed.offset >= 10  # one batch late by design


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
        ({"subscribe": "t", "maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "cannot be 'latest' for a batch read"),
    ],
)
def test_mistakes_are_told(spark: "SparkSession", topics: Topics, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        batch(spark, topics, **options).count()


# -- the planner alone, without a Spark around it


def reader(topics: Topics, name: str, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name, "startingOffsets": "earliest", **options}
    return StreamReader(parse_options(given, streaming=True))


def offsets(position: dict[str, Any], name: str) -> dict[str, int]:
    return dict(position[name])


def test_limits_are_those_of_the_engine(topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, [numbered(30), numbered(10)])
    planner = reader(topics, name, maxOffsetsPerTrigger="20")
    assert planner.getDefaultReadLimit() == ReadMaxRows(20)
    start = planner.initialOffset()
    limited = planner.latestOffset(start, ReadMaxRows(20))
    assert offsets(limited, name) == {"0": 15, "1": 5}
    assert offsets(planner.latestOffset(start, ReadAllAvailable()), name) == {"0": 30, "1": 10}
    assert planner.reportLatestOffset() is not None
    end = planner.latestOffset(start, ReadAllAvailable())
    assert planner.latestOffset(end, ReadMaxRows(20)) == end
    pieces = planner.partitions(limited, end)
    ranges = [each.wanted for each in pieces if isinstance(each, RangePartition)]
    assert [(each.start, each.end) for each in ranges] == [(15, 30), (5, 10)]
    assert planner.partitions(end, end) == []


def test_too_little_waits_unless_everything_is_asked_for(topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, [numbered(5)])
    planner = reader(topics, name, minOffsetsPerTrigger="10")
    assert planner.getDefaultReadLimit() == ReadMinRows(10)
    start = planner.initialOffset()
    assert planner.latestOffset(start, ReadMinRows(10)) == start
    assert offsets(planner.latestOffset(start, ReadAllAvailable()), name) == {"0": 5}
    patient = reader(topics, name, minOffsetsPerTrigger="10", maxTriggerDelay="0ms")
    assert offsets(patient.latestOffset(start, ReadMinRows(10)), name) == {"0": 5}


def test_an_available_now_query_has_its_end_fixed(topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, [numbered(5)])
    planner = reader(topics, name)
    start = planner.initialOffset()
    planner.prepareForTriggerAvailableNow()
    topics.fill(name, [numbered(5, 5)])
    end = planner.latestOffset(start, ReadAllAvailable())
    assert offsets(end, name) == {"0": 5}
    assert planner.latestOffset(end, ReadAllAvailable()) == end
