"""Metadata over the wire: which topics, which brokers, what is created"""

import uuid
from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tests.broker.handlers.data_path import make_topic
from tidemill.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def named(*names: str, create: bool = False) -> MetadataRequest:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


@pytest.mark.parametrize("version", range(14))
async def test_every_version_names_brokers_topics_and_leaders(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "a", partitions=2)
        await make_topic(broker, "b")
        response = await client.ask(ApiKey.METADATA, version, named("a"))
        (node,) = response.brokers
        assert (node.node_id, node.host, node.port) == (broker.node_id, "127.0.0.1", broker.servers[0].port)
        (answer,) = response.topics
        assert (answer.name, answer.error_code, answer.is_internal) == ("a", 0, False)
        assert answer.topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
        assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in answer.partitions] == [
            (0, broker.node_id, (broker.node_id,), (broker.node_id,)),
            (1, broker.node_id, (broker.node_id,), (broker.node_id,)),
        ]
        if version >= 2:
            assert response.cluster_id == broker.cluster_id
        if version >= 1:
            assert response.controller_id == broker.node_id


@pytest.mark.parametrize(("version", "nothing_means_all"), [(0, True), (1, False), (12, False)])
async def test_all_and_none(tmp_path: Path, version: int, nothing_means_all: bool) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        for name in ("b", "a"):
            await make_topic(broker, name)
        response = await client.ask(ApiKey.METADATA, version, MetadataRequest(topics=()))
        assert [topic.name for topic in response.topics] == (["a", "b"] if nothing_means_all else [])
        if version > 0:
            response = await client.ask(ApiKey.METADATA, version, MetadataRequest(topics=None))
            assert [topic.name for topic in response.topics] == ["a", "b"]


async def test_topics_by_id(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "a")
        unknown = MetadataRequest(topics=(MetadataRequestTopic(topic_id=uuid.UUID(int=5), name=None),))
        response = await client.ask(ApiKey.METADATA, 11, unknown)
        assert [(row.name, row.error_code) for row in response.topics] == [("", ErrorCode.UNKNOWN_TOPIC_ID)]
        wanted = (
            MetadataRequestTopic(topic_id=topic.topic_id, name=None),
            MetadataRequestTopic(topic_id=uuid.UUID(int=5), name=None),
        )
        response = await client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=wanted))
        assert [(row.name, row.error_code) for row in response.topics] == [
            ("a", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


async def test_an_id_wins_over_a_name(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "a")
        await make_topic(broker, "b")
        both = MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic.topic_id, name="b"),))
        response = await client.ask(ApiKey.METADATA, 12, both)
        assert [(row.name, row.topic_id) for row in response.topics] == [("a", topic.topic_id)]


async def test_what_is_asked_for_twice_is_told_once(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker, "a")
        response = await client.ask(ApiKey.METADATA, 12, named("a", "b", "a", "b"))
        assert [row.name for row in response.topics] == ["a", "b"]


async def test_all_operations_are_allowed_and_told_to_whom_asks(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker, "a")
        topics = (MetadataRequestTopic(name="a"),)
        everything = MetadataRequest(
            topics=topics, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        )
        response = await client.ask(ApiKey.METADATA, 9, everything)
        assert response.cluster_authorized_operations == CLUSTER_OPERATIONS
        assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
        response = await client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=topics))
        assert response.cluster_authorized_operations == NOT_ASKED
        assert response.topics[0].topic_authorized_operations == NOT_ASKED


@pytest.mark.parametrize(
    ("asked", "configured", "created"), [(True, "true", True), (False, "true", False), (True, "false", False)]
)
async def test_auto_creation_needs_both_sides(tmp_path: Path, asked: bool, configured: str, created: bool) -> None:
    async with broker_and_client(tmp_path, auto_create_topics_enable=configured, num_partitions="3") as (
        broker,
        client,
    ):
        response = await client.ask(ApiKey.METADATA, 12, named("new", create=asked))
        (topic,) = response.topics
        if created:
            assert (topic.error_code, len(topic.partitions)) == (0, 3)
            assert broker.logs.get("new", 2) is not None
        else:
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert "new" not in broker.controller.image.topics


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250])
async def test_bad_names_are_errors_and_create_nothing(tmp_path: Path, name: str, create: bool) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        response = await client.ask(ApiKey.METADATA, 12, named(name, create=create))
        assert [(row.name, row.error_code) for row in response.topics] == [(name, ErrorCode.INVALID_TOPIC_EXCEPTION)]
        assert broker.controller.image.topics == {}


@pytest.mark.parametrize("name", ["__cluster_metadata", "__consumer_offsets"])
async def test_topics_of_the_cluster_are_not_created_for_a_client(tmp_path: Path, name: str) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        response = await client.ask(ApiKey.METADATA, 12, named(name, create=True))
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.controller.image.topics == {}


async def test_advertised_addresses_win(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, advertised_listeners="PLAINTEXT://broker.example:9999") as (_, client):
        response = await client.ask(ApiKey.METADATA, 9, named())
        assert [(node.host, node.port) for node in response.brokers] == [("broker.example", 9999)]
