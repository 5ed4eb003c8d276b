"""Ranges read from a real cluster: exactly their records, by either reader"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark_sink.conftest import Topics
from tests.spark_sink.debezium_events import Message
from tidemill.spark_sink.cluster import Cluster
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.fetch import FetchFailed, read_range, read_raw, read_secured
from tidemill.spark_sink.offsets import DataLoss, OffsetRange, TopicRecreated
from tidemill.spark_sink.options import SourceOptions, parse_options
from tidemill.spark_sink.rows import Rows

if TYPE_CHECKING:
    from benchmarks.peers import Peer

pytestmark = pytest.mark.integration

Reader = Callable[[OffsetRange, SourceOptions], Iterator[Rows]]
both = pytest.mark.parametrize("reader", [read_raw, read_secured])


def options(bootstrap: str, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "x", "kafkaConsumer.pollTimeoutMs": "10000", **more}
    return parse_options(given, streaming=True)


def wanted(name: str, start: int, end: int, **more: Any) -> OffsetRange:
    return OffsetRange(partition=TopicPartition(name, 0), start=start, end=end, **more)


def values(reader: Reader, what: OffsetRange, how: SourceOptions) -> list[tuple[int, bytes | None]]:
    pieces = list(reader(what, how))
    return [pair for rows in pieces for pair in zip(rows.offset.to_pylist(), rows.value.to_pylist(), strict=True)]


@both
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_any_range_is_read_exactly(topics: Topics, reader: Reader, codec: str) -> None:
    name = topics.create()
    messages = [Message(b"k", b"value %d" % i * (i % 40)) for i in range(500)]
    topics.fill(name, [messages[:300]], **{"compression.type": codec, "batch.num.messages": 70})
    topics.fill(name, [messages[300:]], **{"compression.type": codec})
    how = options(topics.bootstrap, **{"kafka.max.partition.fetch.bytes": "5000"})
    for start, end in ((0, 500), (3, 4), (69, 71), (120, 431), (499, 500)):
        assert values(reader, wanted(name, start, end), how) == [(i, messages[i].value) for i in range(start, end)]


@both
def test_headers_timestamps_and_tombstones(topics: Topics, reader: Reader) -> None:
    name = topics.create()
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(name, b"v", key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1"), ("n", None)])
    producer.produce(name, None, key=b"gone", timestamp=1_700_000_000_124)
    assert producer.flush(30) == 0
    rows = next(reader(wanted(name, 0, 2), options(topics.bootstrap, includeHeaders="true")))
    assert rows.key.to_pylist() == [b"k", b"gone"]
    assert rows.value.to_pylist() == [b"v", None]
    assert rows.timestamp_ms.to_pylist() == [1_700_000_000_123, 1_700_000_000_124]
    assert rows.timestamp_type.to_pylist() == [0, 0]
    assert rows.headers is not None
    assert rows.headers.to_pylist() == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None]


def test_an_end_that_never_comes_is_an_error(topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"x")]])
    how = options(topics.bootstrap, **{"kafkaConsumer.pollTimeoutMs": "700"})
    with pytest.raises(FetchFailed, match="-0: nothing at offset 1 within 700 ms"):
        list(read_raw(wanted(name, 0, 5), how))


@both
def test_offsets_that_are_gone_are_data_loss(topics: Topics, reader: Reader) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"x")]])
    with pytest.raises(DataLoss, match="offset 50 of"):
        list(reader(wanted(name, 50, 60), options(topics.bootstrap)))


@both
def test_offsets_that_are_gone_may_be_skipped(topics: Topics, reader: Reader) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"x")]])
    assert list(reader(wanted(name, 50, 60), options(topics.bootstrap, failOnDataLoss="false"))) == []


@both
def test_what_is_left_behind_a_gap_is_read(topics: Topics, reader: Reader) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"%d" % number) for number in range(20)]])
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    (done,) = admin.delete_records([ClientTopicPartition(name, 0, 12)]).values()
    assert done.result(30).low_watermark == 12
    with pytest.raises(DataLoss, match=r"offset 3 of .* set failOnDataLoss=false"):
        list(reader(wanted(name, 3, 15), options(topics.bootstrap)))
    skipping = options(topics.bootstrap, failOnDataLoss="false")
    assert values(reader, wanted(name, 3, 15), skipping) == [(number, b"%d" % number) for number in (12, 13, 14)]
    assert values(reader, wanted(name, 3, 9), skipping) == []


@both
def test_another_topic_of_the_same_name_is_not_read(topics: Topics, reader: Reader) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"old")]])
    asked = parse_options({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name}, streaming=True)
    topic_id = Cluster(asked).partitions(asked.selection).topic_ids[name]
    how = options(topics.bootstrap, **{"kafkaConsumer.pollTimeoutMs": "3000"})
    assert values(reader, wanted(name, 0, 1, topic_id=topic_id), how) == [(0, b"old")]
    topics.delete(name)
    topics.create(name=name)
    topics.fill(name, [[Message(None, b"new")]])
    with pytest.raises(TopicRecreated, match=r"was deleted .*while it was read"):
        list(reader(wanted(name, 0, 1, topic_id=topic_id), how))


def test_a_topic_made_anew_while_it_is_read_record_by_record_is_noticed(topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"old")]])
    asked = parse_options({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name}, streaming=True)
    topic_id = Cluster(asked).partitions(asked.selection).topic_ids[name]
    pieces = read_secured(wanted(name, 0, 1, topic_id=topic_id), options(topics.bootstrap))
    assert next(pieces).value.to_pylist() == [b"old"]
    topics.delete(name)
    topics.create(name=name)
    with pytest.raises(TopicRecreated, match=r"was deleted .*while it was read"):
        list(pieces)


def test_the_reader_follows_from_the_settings(topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, [[Message(None, b"x")]])
    assert values(read_range, wanted(name, 0, 1), options(topics.bootstrap)) == [(0, b"x")]


@pytest.mark.java
@pytest.mark.kafka_peer
@both
def test_transactions_of_a_kafka_cluster(kafka_peer: "tuple[str, Peer]", reader: Reader) -> None:
    bootstrap, _ = kafka_peer
    topics = Topics(bootstrap)
    name = topics.create()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(name, b"%d-%d" % (number, index))
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    committed = options(bootstrap, **{"kafka.isolation.level": "read_committed"})
    expected = [(number * 4 + index, b"%d-%d" % (number, index)) for number in (0, 2, 4) for index in range(3)]
    assert values(reader, wanted(name, 0, 24), committed) == expected
    assert values(reader, wanted(name, 9, 21), committed) == [pair for pair in expected if 9 <= pair[0] < 21]
    assert values(reader, wanted(name, 3, 4), committed) == []  # a marker alone
    assert len(values(reader, wanted(name, 0, 24), options(bootstrap))) == 18
