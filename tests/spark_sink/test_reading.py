"""Ranges as Spark's rows or as chunks"""

from pathlib import Path

import pytest

from tests.spark_sink.conftest import Topics
from tests.spark_sink.debezium_events import Message, event
from tidemill import services
from tidemill.free_ports import free_port
from tidemill.spark_sink.changes import chunks_of
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.fetch import Refused
from tidemill.spark_sink.offsets import OffsetRange
from tidemill.spark_sink.options import parse_options
from tidemill.spark_sink.reading import envelope_options, read_batches

pytestmark = pytest.mark.integration


def test_rows_or_chunks_of_the_same_range(topics: Topics) -> None:
    import pyarrow as pa

    name = topics.create()
    gone = event("d", {"id": 2}, before={"id": 2})
    topics.fill(name, [[event("c", {"id": 1}, {"id": 1, "Name": "a"}), gone, Message(gone.key, None)]])
    wanted = OffsetRange(partition=TopicPartition(name, 0), start=0, end=3)
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name}
    (rows,) = read_batches(wanted, parse_options(given, streaming=True))
    assert rows.column("offset").to_pylist() == [0, 1, 2]
    assert set(rows.column("topic").to_pylist()) == {name}
    found = read_batches(wanted, parse_options({**given, "decode": "debezium"}, streaming=True))
    (chunk,) = chunks_of(pa.Table.from_batches(found))
    assert (chunk.start, chunk.end, chunk.records) == (0, 3, 3)
    assert [(row["id"], row["__op"]) for row in chunk.tables[0].to_pylist()] == [(1, "c"), (2, "d")]


def test_decode_options_reach_the_envelope_reader() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "decode": "debezium", "decode.keep": "all"}
    more = {"decode.columns": "id:int32", "decode.keyColumns": "id", "decode.unavailableValue": "?"}
    options = envelope_options(parse_options({**given, **more}, streaming=True))
    assert options.want_before
    assert (options.key_columns, options.unavailable, list(options.columns or ())) == (("id",), "?", ["id"])


def test_a_batch_that_was_damaged_on_disk_is_named_with_its_partition(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    broker = services.broker("damaged", tmp_path / "data", listen=listen, log=tmp_path / "log").start()
    try:
        topics = Topics(listen)
        name = topics.create()
        topics.fill(name, [[Message(b"k", b"a value of its own")]])
        broker.stop()
        (segment,) = [each for each in (tmp_path / "data").rglob("*.log") if b"a value of its own" in each.read_bytes()]
        segment.write_bytes(segment.read_bytes().replace(b"value of its", b"value_of_its"))
        broker.start()
        wanted = OffsetRange(partition=TopicPartition(name, 0), start=0, end=1)
        options = parse_options({"kafka.bootstrap.servers": listen, "subscribe": name}, streaming=True)
        with pytest.raises(Refused, match=rf"{name}-0 at offset 0: The record batch fails its checksum"):
            list(read_batches(wanted, options))
    finally:
        broker.stop()
