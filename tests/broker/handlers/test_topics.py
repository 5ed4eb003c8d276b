"""CreateTopics, DeleteTopics and CreatePartitions on the wire, in every version."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.broker.handlers.topics import ROUTES
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidemill.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

CREATE, DELETE, GROW = ROUTES


def versions(route: object) -> range:
    return range(route.min_version, route.max_version + 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", versions(CREATE))
async def test_create(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topics = (
            CreatableTopic(name="a", num_partitions=2, replication_factor=1),
            CreatableTopic(
                name="b",
                num_partitions=-1,
                replication_factor=-1,
                assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),),
                configs=(CreatableTopicConfig(name="retention.ms", value="5"),),
            ),
            CreatableTopic(name="bad name", num_partitions=1, replication_factor=1),
            CreatableTopic(name="c", num_partitions=1, replication_factor=3),
        )
        response = await client.ask(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=topics))
        codes = {topic.name: topic.error_code for topic in response.topics}
        assert codes == {
            "a": 0,
            "b": 0,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "c": ErrorCode.INVALID_REPLICATION_FACTOR,
        }
        assert "available brokers" in response.topics[3].error_message
        image = broker.controller.image
        assert [len(image.topics[name].partitions) for name in "ab"] == [2, 1]
        assert broker.logs.get("a", 1) is not None, "the logs are there when the answer is"
        if version >= 5:
            first, second = response.topics[:2]
            assert (first.num_partitions, first.replication_factor) == (2, 1)
            configs = {config.name: (config.value, config.config_source) for config in second.configs}
            assert configs["retention.ms"] == ("5", 1)
            assert configs["segment.bytes"] == (str(2**30), 5)
        if version >= 7:
            assert response.topics[0].topic_id == image.topics["a"].topic_id


async def test_validate_only_makes_nothing(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        request = CreateTopicsRequest(
            topics=(CreatableTopic(name="a", num_partitions=2, replication_factor=1),), validate_only=True
        )
        response = await client.ask(ApiKey.CREATE_TOPICS, 7, request)
        assert response.topics[0].error_code == 0
        assert dict(broker.controller.image.topics) == {}


@pytest.mark.parametrize("version", versions(DELETE))
async def test_delete(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        a, b = await broker.controller.create_topics([NewTopic(name="a"), NewTopic(name="b")])
        if version >= 6:
            by_id = DeleteTopicState(name=None, topic_id=b.topic_id)
            request = DeleteTopicsRequest(topics=(DeleteTopicState(name="a"), by_id, DeleteTopicState(name="x")))
        else:
            request = DeleteTopicsRequest(topic_names=("a", "b", "x"))
        response = await client.ask(ApiKey.DELETE_TOPICS, version, request)
        assert [(answer.name, answer.error_code) for answer in response.responses] == [
            ("a", 0),
            ("b", 0),
            ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert dict(broker.controller.image.topics) == {}
        assert broker.logs.partitions() == []
        await broker.controller.create_topics([NewTopic(name="a")])
        assert broker.logs.get("a", 0).topic_id != a.topic_id  # type: ignore[union-attr]


@pytest.mark.parametrize("version", versions(GROW))
async def test_grow(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="a"), NewTopic(name="b")])
        topics = (
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(name="b", count=2, assignments=(CreatePartitionsAssignment(broker_ids=(1,)),)),
            CreatePartitionsTopic(name="x", count=2, assignments=None),
        )
        response = await client.ask(ApiKey.CREATE_PARTITIONS, version, CreatePartitionsRequest(topics=topics))
        assert [answer.error_code for answer in response.results] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [str(partition) for partition in broker.logs.partitions()] == ["a-0", "a-1", "a-2", "b-0", "b-1"]


@pytest.mark.parametrize("route", ROUTES)
def test_an_error_of_the_whole_request_is_told_for_every_entry(route: object) -> None:
    from tidemill.core.errors import KafkaStorageError

    error = KafkaStorageError("no space left")
    requests = {
        ApiKey.CREATE_TOPICS: CreateTopicsRequest(topics=(CreatableTopic(name="a"),)),
        ApiKey.DELETE_TOPICS: DeleteTopicsRequest(topics=(DeleteTopicState(name="a"),)),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a"),)),
    }
    response = route.error_response(requests[route.key], error, route.max_version)  # type: ignore[attr-defined]
    entries = getattr(response, {19: "topics", 20: "responses", 37: "results"}[route.key])  # type: ignore[attr-defined]
    assert [(entry.name, entry.error_code, entry.error_message) for entry in entries] == [("a", 56, "no space left")]
