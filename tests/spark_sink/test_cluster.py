"""What the driver asks a real cluster"""

import gc
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.librdkafka_clients import clients
from tests.spark_sink.conftest import Topics, poll
from tests.spark_sink.debezium_events import Message
from tidemill import services
from tidemill.free_ports import free_ports
from tidemill.spark_sink.cluster import Cluster, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.core_api import ZERO_UUID, TopicPartition
from tidemill.spark_sink.offsets import StreamOffset
from tidemill.spark_sink.options import OptionError, parse_options

pytestmark = pytest.mark.integration


def cluster(bootstrap: str, **options: str) -> tuple[Cluster, Any]:
    given = {"kafka.bootstrap.servers": bootstrap, "fetchOffset.numRetries": "0", **options}
    parsed = parse_options({name.replace("__", "."): value for name, value in given.items()}, streaming=True)
    return Cluster(parsed), parsed


def offsets(position: StreamOffset) -> dict[int, int]:
    return {place.partition: offset for place, offset in sorted(position.offsets.items())}


def test_ends_and_ids_of_a_topic(topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, [[Message(None, b"x")] * 3, [Message(None, b"x")] * 5])
    asked, options = cluster(topics.bootstrap, subscribe=name)
    found = asked.ends(options.selection)
    assert offsets(found) == {0: 3, 1: 5}
    assert found.topic_ids[name] != ZERO_UUID


def test_starting_positions(topics: Topics) -> None:
    name = topics.create(partitions=3)
    topics.fill(name, [[Message(None, b"x")] * 4] * 3)
    later = int(time.time() * 1000) + 3_600_000
    for text, expected in (
        ("earliest", {0: 0, 1: 0, 2: 0}),
        ("latest", {0: 4, 1: 4, 2: 4}),
        (f'{{"{name}": {{"0": 2, "1": -1, "2": -2}}}}', {0: 2, 1: 4, 2: 0}),
        (f'{{"{name}": {{"0": 2}}}}', {0: 2, 1: 4, 2: 4}),
    ):
        asked, options = cluster(topics.bootstrap, subscribe=name, startingOffsets=text)
        assert offsets(asked.resolve(options.starting)) == expected
    asked, options = cluster(topics.bootstrap, subscribe=name, startingTimestamp="0")
    assert offsets(asked.resolve(options.starting)) == {0: 0, 1: 0, 2: 0}
    asked, options = cluster(topics.bootstrap, subscribe=name, startingTimestamp=str(later))
    with pytest.raises(OptionError, match="no record at or after timestamp"):
        asked.resolve(options.starting)
    lenient = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": str(later)}
    asked, options = cluster(topics.bootstrap, subscribe=name, **lenient)
    assert offsets(asked.resolve(options.starting)) == {0: 4, 1: 4, 2: 4}


def test_selections(topics: Topics) -> None:
    name = topics.create(partitions=3)
    asked, options = cluster(topics.bootstrap, assign=f'{{"{name}": [0, 2]}}')
    assert set(asked.partitions(options.selection).offsets) == {TopicPartition(name, 0), TopicPartition(name, 2)}
    asked, options = cluster(topics.bootstrap, subscribePattern=f"{name[:-1]}.")
    assert TopicPartition(name, 1) in asked.partitions(options.selection).offsets
    asked, options = cluster(topics.bootstrap, assign=f'{{"{name}": [7]}}')
    with pytest.raises(UnknownTopic, match="has no partition 7"):
        asked.partitions(options.selection)
    asked, options = cluster(topics.bootstrap, subscribe=name, startingOffsets='{"other": {"0": 1}}')
    with pytest.raises(OptionError, match="not among the selected partitions"):
        asked.resolve(options.starting)


def test_asking_about_a_topic_does_not_make_it(topics: Topics) -> None:
    asked, options = cluster(topics.bootstrap, subscribe="never-made")
    for _ in range(2):
        with pytest.raises(UnknownTopic, match="'never-made' does not exist at"):
            asked.partitions(options.selection)


def test_a_cluster_that_is_away_is_named() -> None:
    asked, options = cluster("127.0.0.1:1", subscribe="t", kafka__request__timeout__ms="500")
    with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1: the cluster does not answer: .*Connection refused$"):
        asked.partitions(options.selection)


@pytest.mark.timeout(60)  # with the patience that a known cluster gets it would be two minutes
@pytest.mark.parametrize(
    ("address", "reason"), [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid:1", "Failed to resolve")]
)
def test_a_wrong_address_is_told_soon_and_with_the_reason(address: str, reason: str) -> None:
    options = parse_options({"kafka.bootstrap.servers": address, "subscribe": "t"}, streaming=True)
    with pytest.raises(ClusterUnreachable, match=reason):
        Cluster(options).partitions(options.selection)


@pytest.mark.timeout(60)
def test_an_address_that_says_nothing_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = parse_options({"kafka.bootstrap.servers": address, "subscribe": "t"}, streaming=True)
        with pytest.raises(ClusterUnreachable, match=f"{address}: the cluster does not answer"):
            Cluster(options).partitions(options.selection)


@pytest.mark.parametrize(("is_there", "failure"), [(False, ClusterUnreachable), (True, UnknownTopic)])
def test_it_goes_with_its_client_when_it_is_dropped(topics: Topics, is_there: bool, failure: type[Exception]) -> None:
    """Also where a question was given up, and without a search for cycles."""
    address = topics.bootstrap if is_there else "127.0.0.1:1"
    gc.disable()
    try:
        before = clients()
        asked, options = cluster(address, subscribe="never-made", kafka__request__timeout__ms="5000")
        poll(lambda: clients() - before, "its client")
        its = clients() - before
        with pytest.raises(failure):
            asked.partitions(options.selection)
        dropped = weakref.ref(asked)
        del asked
        assert dropped() is None
        poll(lambda: not its & clients(), "its client's end")
    finally:
        gc.enable()


def test_ends_and_beginnings_of_today(topics: Topics) -> None:
    name = topics.create(partitions=3)
    topics.fill(name, [[Message(None, b"x")] * 4] * 3)
    asked, _ = cluster(topics.bootstrap, subscribe=name)
    symbols = {TopicPartition(name, 0): -1, TopicPartition(name, 1): -2, TopicPartition(name, 2): 3}
    assert offsets(asked.located(StreamOffset(offsets=symbols))) == {0: 4, 1: 0, 2: 3}


def test_an_end_that_was_asked_for_when_the_broker_was_killed_is_asked_for_again(tmp_path: Path) -> None:
    """What is no offset would be taken for a log that ends before what was read of it."""
    broker = services.Cluster("broker", tmp_path, free_ports(2)).start()
    (node,) = broker.nodes.values()
    ends: list[StreamOffset] = []
    is_over = threading.Event()

    def ask() -> None:
        asked, options = cluster(broker.bootstrap, subscribe="t", fetchOffset__numRetries="60")
        while not is_over.is_set():
            ends.append(asked.ends(options.selection))

    with ThreadPoolExecutor() as threads:
        try:
            Topics(broker.bootstrap).create(name="t")
            asking = [threads.submit(ask) for _ in range(4)]
            for _ in range(4):
                enough = len(ends) + 100
                poll(lambda enough=enough: len(ends) > enough, "answers")
                node.kill()
                node.start()
            is_over.set()
            for each in asking:
                each.result()
        finally:
            is_over.set()
            node.stop()
    assert {tuple(each.offsets.items()) for each in ends} == {((TopicPartition("t", 0), 0),)}


def test_a_setting_that_librdkafka_does_not_know(topics: Topics) -> None:
    with pytest.raises(OptionError, match="nonsense"):
        cluster(topics.bootstrap, subscribe="t", kafka__nonsense="1")


def test_positions_are_published_for_a_group(topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, [[Message(None, b"x")] * 3] * 2)
    asked, options = cluster(topics.bootstrap, subscribe=name)
    asked.publish(f"group-of-{name}", StreamOffset(offsets={TopicPartition(name, 0): 2, TopicPartition(name, 1): 3}))
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as ClientPartition

    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": f"group-of-{name}"})
    try:
        committed = consumer.committed([ClientPartition(name, 0), ClientPartition(name, 1)], timeout=30)
    finally:
        consumer.close()
    assert [each.offset for each in committed] == [2, 3]
