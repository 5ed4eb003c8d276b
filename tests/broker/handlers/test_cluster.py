"""DescribeCluster, DescribeTopicPartitions and UnregisterBroker on the wire."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client, running_broker, wire_client
from tidemill.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tidemill.core.wire.messages.unregister_broker import UnregisterBrokerRequest


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_this_broker_where_the_client_reached_it(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path, broker_rack="r1") as (broker, client):
        response = await client.ask(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest())
        (node,) = response.brokers
        assert (node.broker_id, node.host, node.port, node.rack) == (1, "127.0.0.1", broker.servers[0].port, "r1")
        assert (response.cluster_id, response.controller_id) == (broker.cluster_id, 1)


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_only_brokers_are_described(tmp_path: Path, endpoint_type: int, code: ErrorCode) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        response = await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=endpoint_type))
        assert response.error_code == code


@pytest.mark.parametrize(("asked", "operations"), [(True, CLUSTER_OPERATIONS), (False, NOT_ASKED)])
async def test_everything_may_be_done_with_the_cluster(tmp_path: Path, asked: bool, operations: int) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
        response = await client.ask(ApiKey.DESCRIBE_CLUSTER, 2, request)
        assert response.cluster_authorized_operations == operations


async def test_an_advertised_address_is_told_instead(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://broker.example.org:19092"}
    async with running_broker(tmp_path, **settings) as broker, wire_client(broker) as client:
        response = await client.ask(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
        assert (response.brokers[0].host, response.brokers[0].port) == ("broker.example.org", 19092)


async def test_topics_come_in_pages(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics(
            [NewTopic(name="a", partitions=3), NewTopic(name="b"), NewTopic(name="c", partitions=2)]
        )
        seen: list[tuple[str, int]] = []
        cursor: Cursor | None = None
        pages = 0
        while True:
            request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
            response = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
            pages += 1
            for topic in response.topics:
                assert topic.topic_id == broker.controller.image.topics[topic.name].topic_id
                seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
                assert all(partition.leader_id == 1 for partition in topic.partitions)
                assert all(partition.eligible_leader_replicas == () for partition in topic.partitions)
                assert all(partition.last_known_elr == () for partition in topic.partitions)
            cursor = response.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]
        assert pages == 3


async def test_named_topics_and_one_that_is_missing(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="a"), NewTopic(name="z")])
        request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name="z"), TopicRequest(name="m")))
        response = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("m", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("z", 0),
        ]
        assert {topic.topic_authorized_operations for topic in response.topics} == {TOPIC_OPERATIONS}


@pytest.mark.parametrize("cursor", [Cursor(topic_name="a", partition_index=-1), Cursor(topic_name="m")])
async def test_a_cursor_points_at_a_partition_of_a_topic_that_is_asked_for(tmp_path: Path, cursor: Cursor) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="a"), NewTopic(name="z")])
        topics = (TopicRequest(name="a"), TopicRequest(name="z"))
        bad = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
        response = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, bad)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST] * 2


async def test_a_cursor_may_point_at_a_topic_that_is_gone_when_all_are_asked_for(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="a"), NewTopic(name="z")])
        request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="m", partition_index=3))
        response = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("z", 1)]


@pytest.mark.parametrize(("node", "code"), [(1, ErrorCode.INVALID_REQUEST), (7, ErrorCode.BROKER_ID_NOT_REGISTERED)])
async def test_neither_the_running_broker_nor_an_unknown_one_is_forgotten(
    tmp_path: Path, node: int, code: ErrorCode
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        response = await client.ask(ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=node))
        assert response.error_code == code
        assert f"{node}" in response.error_message
        assert set(broker.controller.image.brokers) == {1}
