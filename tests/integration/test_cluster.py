"""Three brokers as processes: topics by any of them, leaders that are killed and paused, a rolling restart

What a client was told to be stored is there afterwards, once, at the offset that it was told.
"""

import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.integration.numbered_records import PARTITIONS, TOPIC, Writer, check, until
from tidemill import services
from tidemill.free_ports import free_ports
from tidemill.known_brokers import known_brokers

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[services.Cluster]:
    """Three nodes that fence quickly who is away."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    found = services.Cluster("cluster", tmp_path, free_ports(6), settings=settings)
    try:
        yield found.start()
    finally:
        for node in found.nodes.values():
            node.kill()


def leader_of(admin: AdminClient, partition: int = 0) -> int:
    """The broker that leads; -1 is none."""
    return int(admin.list_topics(TOPIC, 10).topics[TOPIC].partitions[partition].leader)


def in_sync(admin: AdminClient) -> bool:
    """Whether every replica of the topic is."""
    return all(len(each.isrs) == 3 for each in admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.values())


def earliest(admin: AdminClient, partition: TopicPartition) -> int:
    """Where the leader says that a partition begins; it may not know yet that it leads, or in which epoch."""
    for _ in range(300):
        with suppress(KafkaException):
            admin.list_topics(TOPIC, 10)  # librdkafka asks with the leader and the epoch that it knows
            offset = int(admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(30).offset)
            if offset >= 0:  # else the connection ended
                return offset
        time.sleep(0.1)
    raise AssertionError(f"nobody says where {partition} begins")


def another_leads(admin: AdminClient, than: int) -> None:
    """Wait for a leader that is not that one."""
    until(lambda: leader_of(admin) not in (-1, than), f"another leader than broker {than}")


def make_topic(cluster: services.Cluster) -> AdminClient:
    """The topic, asked for at one broker; returns when another one tells that all its replicas are in sync."""
    one = AdminClient({"bootstrap.servers": cluster.addresses[2]})
    one.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    until(lambda: TOPIC in admin.list_topics(timeout=10).topics and in_sync(admin), "all replicas in sync")
    return admin


def test_whichever_broker_is_asked_knows_all_once_the_cluster_has_started(cluster: services.Cluster) -> None:
    assert [known_brokers(address) for address in cluster.addresses.values()] == [{1, 2, 3}] * 3
    cluster.kill()
    cluster.restart()
    assert [known_brokers(address) for address in cluster.addresses.values()] == [{1, 2, 3}] * 3


def test_leaders_are_killed_and_nothing_is_lost(cluster: services.Cluster) -> None:
    admin = make_topic(cluster)
    writer = Writer(cluster.bootstrap)
    for _ in range(3):
        writer.write(1)
        victim = leader_of(admin)
        cluster.nodes[victim].kill()
        writer.write(1)
        another_leads(admin, victim)
        writer.write(1)
        cluster.nodes[victim].restart()
        until(lambda: in_sync(admin), "all replicas in sync again")
    check(cluster.bootstrap, writer)


def test_what_was_deleted_is_not_read_again_whoever_leads(cluster: services.Cluster) -> None:
    admin = make_topic(cluster)
    writer = Writer(cluster.bootstrap)
    first = TopicPartition(TOPIC, 0, OFFSET_END)
    for _ in range(3):
        writer.write(0.5)
        writer.finish()
        until(lambda: in_sync(admin), "all replicas in sync")
        victim = leader_of(admin)
        start = admin.delete_records([first])[first].result(30).low_watermark
        cluster.nodes[victim].kill()
        another_leads(admin, victim)
        assert earliest(admin, first) == start
        cluster.nodes[victim].restart()


def test_records_are_deleted_without_waiting_for_the_fetches_of_a_quiet_cluster(cluster: services.Cluster) -> None:
    admin = make_topic(cluster)
    writer = Writer(cluster.bootstrap)
    writer.write(0.5)
    writer.finish()
    took_s = []
    for offset in range(1, 11):
        wanted = TopicPartition(TOPIC, 0, offset)
        begun = time.monotonic()
        assert admin.delete_records([wanted])[wanted].result(30).low_watermark == offset
        took_s.append(time.monotonic() - begun)
    assert statistics.median(took_s) < 0.25, "half of what a follower's fetch may wait for"


def test_a_leader_that_was_paused_is_no_leader_any_more(cluster: services.Cluster) -> None:
    admin = make_topic(cluster)
    writer = Writer(cluster.bootstrap)
    writer.write(1)
    victim = leader_of(admin)
    os.kill(cluster.nodes[victim].pid, signal.SIGSTOP)
    try:
        writer.write(1)
        others = AdminClient({"bootstrap.servers": ",".join(cluster.addresses[node] for node in {1, 2, 3} - {victim})})
        another_leads(others, victim)
        writer.write(1)
    finally:
        os.kill(cluster.nodes[victim].pid, signal.SIGCONT)
    writer.write(1)
    until(lambda: in_sync(admin), "all replicas in sync again")
    check(cluster.bootstrap, writer)


def test_a_rolling_restart_is_no_error_for_anybody(cluster: services.Cluster) -> None:
    admin = make_topic(cluster)
    writer = Writer(cluster.bootstrap)
    for node in cluster.nodes.values():
        writer.write(0.5)
        assert node.stop(30) == 0
        writer.write(0.5)
        node.restart()
        until(lambda: in_sync(admin), "all replicas in sync again")
    check(cluster.bootstrap, writer)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        until(lambda: consumer.consume(1, 1.0), "a record for a member of a group")
    finally:
        consumer.close()


def test_a_cluster_that_is_stopped_as_a_whole_comes_back(cluster: services.Cluster) -> None:
    admin = make_topic(cluster)
    writer = Writer(cluster.bootstrap)
    writer.write(1)
    writer.finish()
    cluster.stop()
    cluster.start()
    until(lambda: in_sync(admin), "all replicas in sync again")
    for node in cluster.nodes.values():
        node.kill()
    cluster.start()
    until(lambda: in_sync(admin), "all replicas in sync after all of them were killed")
    check(cluster.bootstrap, writer)
