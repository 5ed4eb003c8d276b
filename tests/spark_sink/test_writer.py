"""DataFrames written to topics, in batches and as streams"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from tests.spark_sink.conftest import Topics
from tests.spark_sink.debezium_events import Message
from tidemill.spark_sink.options import OptionError
from tidemill.spark_sink.writer import check_columns, parse_writer_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

integration = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(600)]


def records(topics: Topics, name: str, partition: int, count: int) -> list[tuple[object, ...]]:
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([ClientPartition(name, partition, 0)])
        found = consumer.consume(count, 20)
    finally:
        consumer.close()
    return [(message.key(), message.value(), message.headers()) for message in found]


def write_options(topics: Topics, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": topics.bootstrap, **more}


class TestInSpark:
    pytestmark = integration

    def test_a_batch_reaches_the_topics_its_rows_name(self, spark: "SparkSession", topics: Topics) -> None:
        one, two = topics.create(partitions=2), topics.create()
        frame = spark.sql(
            f"select * from values ('{one}', 'k1', 'v1', 1, array(named_struct('key', 'h', 'value', binary('x')))),"
            f" ('{two}', null, 'v2', null, null) as t(topic, key, value, partition, headers)"
        )
        frame.write.format("tidemill").options(**write_options(topics)).mode("append").save()
        assert records(topics, one, 1, 1) == [(b"k1", b"v1", [("h", b"x")])]
        assert records(topics, two, 0, 1) == [(None, b"v2", None)]

    def test_a_stream_copies_a_topic(self, spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
        source, target = topics.create(), topics.create()
        topics.fill(source, [[Message(b"k%d" % i, b"v%d" % i) for i in range(50)]])
        stream = spark.readStream.format("tidemill").options(**write_options(topics, subscribe=source))
        rows = stream.option("startingOffsets", "earliest").load().select("key", "value")
        writer = rows.writeStream.format("tidemill").options(**write_options(topics, topic=target))
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        found = records(topics, target, 0, 50)
        assert [(key, value) for key, value, _ in found] == [(b"k%d" % i, b"v%d" % i) for i in range(50)]

    def test_what_the_broker_refuses_fails_the_task(self, spark: "SparkSession", topics: Topics) -> None:
        name = topics.create()
        frame = spark.sql("select repeat('x', 3000000) as value")
        write = frame.write.format("tidemill").options(**write_options(topics, topic=name)).mode("append")
        with pytest.raises(PySparkException, match="cannot write to topic"):
            write.save()


def schema(*fields: tuple[str, object]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])  # type: ignore[arg-type]


def test_columns_that_cannot_be_written() -> None:
    text, number = StringType(), IntegerType()
    check_columns(schema(("key", text), ("value", text), ("partition", number)), topic="t")
    for fields, topic, message in (
        ((("key", text),), "t", "a column 'value' is needed"),
        ((("value", text),), None, "either the option 'topic' or a column"),
        ((("value", number),), "t", "column 'value' must be string or binary, not integer"),
        ((("value", text), ("age", number)), "t", "column 'age' cannot be written"),
    ):
        with pytest.raises(OptionError, match=message):
            check_columns(schema(*fields), topic)


def test_options_of_a_write() -> None:
    options = parse_writer_options({"kafka.bootstrap.servers": "h:1", "TOPIC": "t", "kafka.linger.ms": "5"})
    assert (options.topic, options.client["linger.ms"]) == ("t", "5")
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        parse_writer_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
