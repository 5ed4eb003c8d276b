"""What a Spark program of one's own imports: sessions, streams in every output mode, offsets behind"""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from pyspark.errors import PySparkException

from tests.spark_sink.conftest import Topics, poll
from tests.spark_sink.debezium_events import Message
from tidemill.spark_sink.options import OptionError
from tidemill.spark_sink.program import offsets_behind, to_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

slow = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(600)]


def test_offsets_behind_have_the_names_of_sparks_kafka_source() -> None:
    source = {"latestOffset": '{"t": {"0": 10, "1": 5, "2": 7}}', "endOffset": '{"t": {"0": 4, "1": 5}}'}
    assert offsets_behind({"sources": [source]}) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "7",
        "avgOffsetsBehindLatest": str(13 / 3),
    }
    assert offsets_behind({"sources": [source | {"latestOffset": None}]}) == {}
    assert offsets_behind(None) == {}


def test_options_of_a_write_are_judged_before_the_stream_starts() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is required"):
        to_topics(topic="t")
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        to_topics({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})


PROGRAM = """
import sys
from pyspark_tidemill import builder
settings = {"spark.ui.enabled": "false", "spark.log.level": "FATAL", "spark.driver.bindAddress": "127.0.0.1"}
spark = builder().master("local[1]").config(map=settings).getOrCreate()
frame = spark.read.format("tidemill").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
print("rows", frame.load().count())
"""


class TestInSpark:
    pytestmark = slow

    def test_a_program_needs_nothing_in_its_environment(self, topics: Topics, tmp_path: Path) -> None:
        name = topics.create()
        topics.fill(name, [[Message(b"k", b"v")] * 3])
        (tmp_path / "program.py").write_text(PROGRAM)
        (tmp_path / "python3").symlink_to("/bin/false")  # what Spark would take for its workers if nobody chose
        bare = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        bare["PATH"] = f"{tmp_path}{os.pathsep}{bare['PATH']}"
        here = Path(__file__).parents[2] / "spark_sink" / "autoload"  # an older one may be installed
        bare["PYTHONPATH"] = f"{here}{os.pathsep}{bare.get('PYTHONPATH', '')}".rstrip(os.pathsep)
        command = [sys.executable, str(tmp_path / "program.py"), topics.bootstrap, name]
        done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=500, check=False)
        assert "rows 3" in done.stdout, done.stderr[-3000:]

    @pytest.mark.parametrize("mode", ["update", "complete", "append"])
    def test_a_stream_writes_in_every_output_mode(
        self, spark: "SparkSession", topics: Topics, tmp_path: Path, mode: str
    ) -> None:
        source, target = topics.create(), topics.create()
        topics.fill(source, [[Message(b"k", b"a"), Message(b"k", b"b"), Message(b"k", b"a")]])
        stream = read(spark, topics, source)
        rows = stream.selectExpr("value") if mode == "append" else counts(stream)
        write = to_topics({"kafka.bootstrap.servers": topics.bootstrap}, topic=target)
        writer = rows.writeStream.outputMode(mode).foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))

        def run() -> None:
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(90)

        run()
        topics.fill(source, [[Message(b"k", b"b")]])
        run()
        found = sorted(values(topics, target))
        assert (
            found
            == {
                "update": [b"a 2", b"b 1", b"b 2"],
                "complete": [b"a 2", b"a 2", b"b 1", b"b 2"],
                "append": [b"a", b"a", b"b", b"b"],
            }[mode]
        )

    def test_the_format_itself_takes_append_and_complete(
        self, spark: "SparkSession", topics: Topics, tmp_path: Path
    ) -> None:
        source, target = topics.create(), topics.create()
        topics.fill(source, [[Message(b"k", b"a"), Message(b"k", b"a")]])
        rows = counts(read(spark, topics, source))

        def start(mode: str) -> None:
            writer = rows.writeStream.format("tidemill").outputMode(mode).option("topic", target)
            writer = writer.option("kafka.bootstrap.servers", topics.bootstrap)
            query = writer.option("checkpointLocation", str(tmp_path / mode)).trigger(availableNow=True).start()
            assert query.awaitTermination(90)

        start("complete")
        assert values(topics, target) == [b"a 2"]
        with pytest.raises(PySparkException, match="does not support Update mode"):
            start("update")  # Spark's JVM refuses it for every source in Python

    def test_a_running_query_tells_how_far_it_is_behind(
        self, spark: "SparkSession", topics: Topics, tmp_path: Path
    ) -> None:
        source = topics.create(partitions=2)
        topics.fill(source, [[Message(b"k", b"v")] * 6, [Message(b"k", b"v")] * 2])
        stream = read(spark, topics, source, maxOffsetsPerTrigger="4")
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        behind = [offsets_behind(each) for each in query.recentProgress if each["numInputRows"]]
        assert behind[0] == {
            "minOffsetsBehindLatest": "1",
            "maxOffsetsBehindLatest": "3",
            "avgOffsetsBehindLatest": "2.0",
        }
        assert behind[-1]["maxOffsetsBehindLatest"] == "0"


def read(spark: "SparkSession", topics: Topics, name: str, **more: str) -> "DataFrame":
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name, "startingOffsets": "earliest", **more}
    return spark.readStream.format("tidemill").options(**options).load()


def counts(stream: "DataFrame") -> "DataFrame":
    return stream.groupBy("value").count().selectExpr("concat(string(value), ' ', count) as value")


def values(topics: Topics, name: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "values", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([ClientPartition(name, 0, 0)])
        _, end = consumer.get_watermark_offsets(ClientPartition(name, 0), timeout=30)
        found: list[bytes | None] = []
        poll(lambda: found.extend(each.value() for each in consumer.consume(end, 1.0)) or len(found) >= end, "records")
        return found
    finally:
        consumer.close()
