"""Ranges as Spark's rows or as chunks"""

import pytest

from tests.spark_sink.conftest import Topics
from tests.spark_sink.debezium_events import Message, event
from tidemill.spark_sink.changes import chunks_of
from tidemill.spark_sink.core_api import TopicPartition
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
