"""Short ways to produce and fetch over the wire, in any version"""

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.broker.broker_world import WireClient
from tidemill.broker.node import Broker
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records
from tidemill.core.runtime.joint_sync import JointSync
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidemill.core.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE_BY_ID_FROM = 13
FETCH_BY_ID_FROM = 13


async def make_topic(broker: Broker, name: str = "t", partitions: int = 1, **configs: str) -> TopicImage:
    """Create a topic; settings are keys with underscores for dots."""
    settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
    (result,) = await broker.controller.create_topics([NewTopic(name=name, partitions=partitions, configs=settings)])
    assert result.error is None
    return broker.controller.image.topics[name]


def instead_of_a_sync(patch: pytest.MonkeyPatch, call: Callable[[int], None]) -> None:
    """Have `call` made wherever files would be made durable, with how many they are."""
    patch.setattr(os, "fdatasync", lambda _descriptor: call(1))
    patch.setattr(JointSync, "__call__", lambda _sync, descriptors: call(len(descriptors)))


def out_of_sync(broker: Broker, topic: TopicImage) -> None:
    """Let every partition of `topic` have a second replica, on a broker that there is not."""
    for partition in topic.partitions:
        replica = broker.replicas.get(topic.name, partition.partition)
        assert replica is not None
        two = replace(partition, replicas=(broker.node_id, 99), partition_epoch=partition.partition_epoch + 1)
        replica.assign(two, now_ms=0)


def records(*values: bytes, timestamp: int = 1_700_000_000_000, **more: Any) -> bytes:
    """A produced batch."""
    return build_batch([NewRecord(timestamp + number, None, value) for number, value in enumerate(values)], **more)


def produce_request(
    topic: TopicImage, batches: dict[int, bytes], version: int, acks: int = -1, **more: Any
) -> ProduceRequest:
    """One batch per partition of one topic."""
    by_id = version >= PRODUCE_BY_ID_FROM
    data = tuple(PartitionProduceData(index=index, records=batch) for index, batch in batches.items())
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(
            TopicProduceData(
                name="" if by_id else topic.name, topic_id=topic.topic_id if by_id else ZERO_UUID, partition_data=data
            ),
        ),
        **more,
    )


async def produce(
    client: WireClient, topic: TopicImage, batch: bytes, *, partition: int = 0, version: int = 9, acks: int = -1
) -> PartitionProduceResponse:
    """Produce one batch; returns the partition's answer."""
    response = await client.ask(ApiKey.PRODUCE, version, produce_request(topic, {partition: batch}, version, acks))
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def fetch_request(
    topic: TopicImage, offsets: dict[int, int], version: int, *, partition_max_bytes: int = 1 << 20, **more: Any
) -> FetchRequest:
    """Fetch from partitions of one topic."""
    by_id = version >= FETCH_BY_ID_FROM
    partitions = tuple(
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in offsets.items()
    )
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24} | more
    return FetchRequest(
        topics=(
            FetchTopic(
                topic="" if by_id else topic.name,
                topic_id=topic.topic_id if by_id else ZERO_UUID,
                partitions=partitions,
            ),
        ),
        **settings,
    )


async def fetch(
    client: WireClient, topic: TopicImage, offset: int = 0, *, partition: int = 0, version: int = 12, **more: Any
) -> PartitionData:
    """Fetch from one partition; returns the partition's answer."""
    response = await client.ask(ApiKey.FETCH, version, fetch_request(topic, {partition: offset}, version, **more))
    assert response.error_code == 0
    data: PartitionData = response.responses[0].partitions[0]
    return data


def decoded(data: PartitionData) -> Sequence[Record]:
    """The records of an answer."""
    return [record for view in iter_batches(data.records or b"") for record in decode_records(view)]


def unknown_topic(name: str = "unknown") -> TopicImage:
    """A topic that no broker has."""
    return TopicImage(name=name, topic_id=uuid.UUID(int=99))
