"""Whole answers of a running broker of ours, field by field beside those of a real Apache Kafka

The same records, the same requests; left out is only what has to be another one (texts, addresses, the cluster's id).
Where we answer otherwise on purpose, the row says why, and such a row has to differ.
"""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import pytest

from benchmarks.peers import Peer
from tests.broker.broker_world import WireClient
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidemill.core.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemill.core.wire.messages.describe_groups import DescribeGroupsRequest
from tidemill.core.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidemill.core.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from tidemill.core.wire.messages.describe_topic_partitions import TopicRequest as Described
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemill.core.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemill.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidemill.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.kafka_peer, pytest.mark.timeout(180)]

T0 = 1_700_000_000_000
UNKNOWN = uuid.UUID(int=9)
OTHERWISE = {"error_message", "cluster_id", "host", "port"}


class Place(NamedTuple):
    """The topics of one broker, by id."""

    ids: dict[uuid.UUID, str]

    def id_of(self, topic: str) -> uuid.UUID:
        return next((topic_id for topic_id, name in self.ids.items() if name == topic), UNKNOWN)


class Row(NamedTuple):
    """One request; `differs` says why our answer is not Kafka's."""

    name: str
    key: ApiKey
    version: int
    request: Callable[[Place], Message]
    differs: str = ""


def named(*names: str, auto: bool = False, operations: bool = False) -> Callable[[Place], Message]:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return lambda place: MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=auto,
        include_cluster_authorized_operations=operations,
        include_topic_authorized_operations=operations,
    )


def by_id(topic: str, name: str | None = None) -> Callable[[Place], Message]:
    return lambda place: MetadataRequest(topics=(MetadataRequestTopic(name=name, topic_id=place.id_of(topic)),))


def metadata(full: str, empty: str) -> Iterator[Row]:
    """Which topics there are."""
    for version in range(14):
        yield Row(f"metadata {version}", ApiKey.METADATA, version, named(full))
    for names in (("missing",), ("a b",), ("",), (".",), (full, full), (), ("__cluster_metadata",)):
        yield Row(f"metadata of {names!r}", ApiKey.METADATA, 12, named(*names))
    for names in (("a b",), ("",), (".",), ("x" * 250,), ("__cluster_metadata",)):
        yield Row(f"metadata, perhaps new, of {names!r}", ApiKey.METADATA, 12, named(*names, auto=True))
    for version in (8, 10, 12):
        asked = named(full, "missing", "a b", operations=True)
        yield Row(f"metadata with operations {version}", ApiKey.METADATA, version, asked)
    yield Row("metadata by id", ApiKey.METADATA, 12, by_id(full))
    yield Row("metadata by unknown id", ApiKey.METADATA, 12, by_id("?"))
    yield Row("metadata by id and name", ApiKey.METADATA, 12, by_id(full, full))
    yield Row("metadata by id and another name", ApiKey.METADATA, 12, by_id(full, empty))
    yield Row("metadata by id 11", ApiKey.METADATA, 11, by_id(full, ""), "the field is there, so it is honoured")


def asked_offset(
    topic: str, timestamp: int, partition: int = 0, epoch: int = -1, isolation: int = 0
) -> Callable[[Place], Message]:
    row = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    topics = (ListOffsetsTopic(name=topic, partitions=(row,)),)
    return lambda place: ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)


def asked_twice(twice: str, once: str) -> Callable[[Place], Message]:
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = tuple(ListOffsetsTopic(name=name, partitions=(row,)) for name in (twice, once, twice))
    return lambda place: ListOffsetsRequest(replica_id=-1, topics=topics)


def asked_epoch(topic: str, epoch: int, current: int = -1, partition: int = 0) -> Callable[[Place], Message]:
    row = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    topics = (OffsetForLeaderTopic(topic=topic, partitions=(row,)),)
    return lambda place: OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def offsets(full: str, empty: str) -> Iterator[Row]:
    """Offsets by time, by place, by epoch."""
    key = ApiKey.LIST_OFFSETS
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, T0, T0 + 2, T0 + 9, T0 + 10):
        for topic in (full, empty):
            which = "a full" if topic == full else "an empty"
            yield Row(f"offset {timestamp} of {which} log", key, 11, asked_offset(topic, timestamp))
    for version, timestamp in ((1, -1), (1, -3), (1, T0), (3, -2), (4, -1), (6, -3), (7, -4), (8, -5), (10, -6)):
        yield Row(f"offset {timestamp} in {version}", key, version, asked_offset(full, timestamp))
    for topic, partition in (("missing", 0), (full, 9), (full, -1)):
        place = f"{'the' if topic == full else 'no'} topic {partition}"
        yield Row(f"offset of {place}", key, 11, asked_offset(topic, -1, partition))
        yield Row(f"epoch of {place}", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, asked_epoch(topic, 0, partition=partition))
    for epoch in (0, 1):
        yield Row(f"offset under epoch {epoch}", key, 11, asked_offset(full, -1, epoch=epoch))
        yield Row(f"epoch under {epoch}", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, asked_epoch(full, 0, epoch))
    yield Row("offset, committed", key, 11, asked_offset(full, -1, isolation=1))
    for version in (1, 5, 11):
        yield Row(f"offset of one named twice {version}", key, version, asked_twice(full, empty))
    for epoch in (-1, 0, 1, 5):
        for topic in (full, empty):
            which = "a full" if topic == full else "an empty"
            for version in (2, 4):
                title = f"epoch {epoch} of {which} log in {version}"
                yield Row(title, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, asked_epoch(topic, epoch))


OUT_OF_RANGE = "an offset that is not there is told with those that are"


def fetched(
    topic: str, offset: int, version: int, partition: int = 0, epoch: int = -1, last_epoch: int = -1, **more: int
) -> Callable[[Place], Message]:
    row = FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1_000_000,
    )

    def request(place: Place) -> Message:
        wanted = (
            FetchTopic(topic_id=place.id_of(topic), partitions=(row,))
            if version >= 13
            else FetchTopic(topic=topic, partitions=(row,))
        )
        return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000_000, topics=(wanted,), **more)  # type: ignore[arg-type]

    return request


def fetches(full: str, empty: str) -> Iterator[Row]:
    """Records, and why there are none."""
    key = ApiKey.FETCH
    for version in range(4, 19):
        yield Row(f"fetch {version}", key, version, fetched(full, 0, version))
        yield Row(f"fetch {version} of no topic", key, version, fetched("missing", 0, version))
    for version in (4, 12, 18):
        yield Row(f"fetch {version} at the end", key, version, fetched(full, 3, version))
        yield Row(f"fetch {version} of nothing", key, version, fetched(empty, 0, version))
        yield Row(f"fetch {version} of no partition", key, version, fetched(full, 0, version, partition=9))
        yield Row(f"fetch {version} beyond the end", key, version, fetched(full, 4, version), OUT_OF_RANGE)
    for topic, end in ((full, 3), (empty, 0)):
        for last_epoch, offset in itertools.product((0, 1, 5), (0, end, end + 1)):
            if topic == full or offset:
                asked = fetched(topic, offset, 12, last_epoch=last_epoch)
                title = f"fetch of {'a full' if end else 'an empty'} log from {offset} after epoch {last_epoch}"
                yield Row(title, key, 12, asked, OUT_OF_RANGE if last_epoch else "")
    yield Row("fetch under an epoch", key, 12, fetched(full, 0, 12, epoch=0))
    yield Row("fetch in no session", key, 12, fetched(full, 0, 12, session_id=77, session_epoch=3))
    yield Row("fetch in session 0", key, 12, fetched(full, 0, 12, session_id=0, session_epoch=3))


def pages(*names: str, limit: int = 2000, at: tuple[str, int] | None = None) -> Callable[[Place], Message]:
    cursor = None if at is None else Cursor(topic_name=at[0], partition_index=at[1])
    topics = tuple(Described(name=name) for name in names)
    return lambda place: DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


def described(kind: int, name: str, *keys: str) -> Callable[[Place], Message]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return lambda place: DescribeConfigsRequest(resources=(resource,))


def descriptions(full: str, empty: str) -> Iterator[Row]:
    """Pages of topics, the cluster, producers, settings."""
    both = tuple(sorted((full, empty)))
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    rows: list[tuple[str, Callable[[Place], Message]]] = [
        ("two", pages(*both)), ("none there", pages("missing")), ("one twice", pages(full, full)),
        *((f"at most {limit}", pages(*both, limit=limit)) for limit in (-1, 0, 1, 2, 3, 10**6)),
        ("from the second", pages(*both, at=(both[1], 0))), ("from beyond", pages(*both, at=(both[0], 9))),
        ("from -1", pages(*both, at=(both[0], -1))), ("from another topic", pages(*both, at=("0", 0))),
        ("from one that is gone", pages(*both, "0", at=("0", 0))),
    ]  # fmt: skip
    for name, request in rows:
        yield Row(f"pages: {name}", key, 0, request)
    for version in range(3):
        for operations in (False, True):
            asked = DescribeClusterRequest(include_cluster_authorized_operations=operations)
            title = f"cluster {version}{', with operations' if operations else ''}"
            yield Row(title, ApiKey.DESCRIBE_CLUSTER, version, lambda place, asked=asked: asked)  # type: ignore[misc]
    for kind in (0, 2, 3):
        of_kind = DescribeClusterRequest(endpoint_type=kind)
        yield Row(f"endpoints {kind}", ApiKey.DESCRIBE_CLUSTER, 1, lambda place, asked=of_kind: asked)  # type: ignore[misc]
    for topic in (full, "missing", "a b"):
        producers = DescribeProducersRequest(topics=(TopicRequest(name=topic, partition_indexes=(0, 9)),))
        title = f"producers of {'the topic' if topic == full else topic!r}"
        yield Row(title, ApiKey.DESCRIBE_PRODUCERS, 0, lambda place, asked=producers: asked)  # type: ignore[misc]
    key = ApiKey.DESCRIBE_CONFIGS
    yield Row("a setting", key, 4, described(2, full, "retention.ms", "nonsense"))
    elr = "Kafka puts min.insync.replicas down for the whole cluster when eligible leaders are on; here one node leads"
    yield Row("all settings", key, 4, described(2, full), elr)


def groups(full: str, empty: str) -> Iterator[Row]:
    """What is named twice in one request."""
    reason = "what is named often is answered once: each name is a few bytes, and what is kept for it many"
    both = OffsetFetchRequestTopics(name=full, partition_indexes=(0, 0))
    one = OffsetFetchRequestTopics(name=full, partition_indexes=(0,))
    for title, topics in (("twice", (both,)), ("in two rows", (one, one))):
        of_group = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
        yield Row(f"committed, {title}", ApiKey.OFFSET_FETCH, 9, lambda place, asked=of_group: asked, reason)  # type: ignore[misc]
    twice = DescribeGroupsRequest(groups=("g", "g"))
    yield Row("a group twice", ApiKey.DESCRIBE_GROUPS, 5, lambda place: twice, reason)


def deleted(topic: str, offset: int, partition: int = 0) -> Callable[[Place], Message]:
    row = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = (DeleteRecordsTopic(name=topic, partitions=(row,)),)
    return lambda place: DeleteRecordsRequest(topics=topics, timeout_ms=5000)


def deletions(full: str, empty: str, compacted: str) -> Iterator[Row]:
    """Records that go, one request after the other."""
    key = ApiKey.DELETE_RECORDS
    for offset in (0, 2, 1, 4, -2, -1):
        yield Row(f"delete up to {offset}", key, 2, deleted(full, offset))
    yield Row("delete up to the end of an empty log", key, 2, deleted(empty, -1))
    yield Row("delete from a compacted topic", key, 2, deleted(compacted, 1))
    yield Row("delete from no topic", key, 2, deleted("missing", 1))
    yield Row("delete from no partition", key, 2, deleted(full, 1, 9))
    for timestamp in (-1, -2, -4, 0):
        yield Row(f"offset {timestamp} afterwards", ApiKey.LIST_OFFSETS, 11, asked_offset(full, timestamp))
    yield Row("epoch afterwards", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, asked_epoch(full, 0))


def shape(value: Any, place: Place) -> Any:
    """What has to be the same, in no order: brokers list topics in one of their own."""
    if isinstance(value, Message):
        return {
            field.name: shape(getattr(value, field.name), place)
            for field in fields(value)  # type: ignore[arg-type]  # every message class is a dataclass
            if field.name not in OTHERWISE
        }
    if isinstance(value, tuple):
        return sorted((shape(item, place) for item in value), key=repr)
    if isinstance(value, uuid.UUID):
        return place.ids.get(value, value)
    return bytes(value) if isinstance(value, memoryview) else value


async def prepare(client: WireClient, full: str, empty: str, compacted: str) -> Place:
    """Three topics, two with three records."""
    compact = (CreatableTopicConfig(name="cleanup.policy", value="compact"),)
    topics = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=compact if name == compacted else ())
        for name in (full, empty, compacted)
    )
    response = await client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    ids = {topic.topic_id: topic.name for topic in response.topics}
    assert ZERO_UUID not in ids
    for name in (full, compacted):
        batch = build_batch([NewRecord(T0 + time, b"k", b"v") for time in (0, 9, 5)])
        data = TopicProduceData(name=name, partition_data=(PartitionProduceData(index=0, records=batch),))
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))
        for _ in range(100):  # a new topic's leader may take a moment
            answer = await client.ask(ApiKey.PRODUCE, 9, request)
            if answer.responses[0].partition_responses[0].error_code == 0:
                break
            await asyncio.sleep(0.05)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return Place(ids)


async def ask_all(address: str, topics: tuple[str, str, str]) -> dict[str, Any]:
    """The shape of every answer."""
    host, _, port = address.rpartition(":")
    client = WireClient(*await asyncio.open_connection(host, int(port)))
    place = await prepare(client, *topics)
    answers: dict[str, Any] = {}
    for row in rows(topics):
        assert row.name not in answers
        answers[row.name] = shape(await client.ask(row.key, row.version, row.request(place)), place)
    await client.close()
    return answers


def rows(topics: tuple[str, str, str]) -> Iterator[Row]:
    """The table."""
    for part in (metadata, offsets, fetches, descriptions, groups):
        yield from part(*topics[:2])
    yield from deletions(*topics)


def test_every_answer_is_kafkas(kafka_peer: tuple[str, Peer], tidemill_broker: Service) -> None:
    name = uuid.uuid4().hex[:8]
    topics = (f"answers-{name}-full", f"answers-{name}-empty", f"answers-{name}-compacted")
    addresses = (kafka_peer[0], str(tidemill_broker.facts["address"]))
    theirs, ours = (asyncio.run(ask_all(address, topics)) for address in addresses)
    reasons = {row.name for row in rows(topics) if row.differs}
    different = {title: (theirs[title], ours[title]) for title in theirs if theirs[title] != ours[title]}
    assert {title: pair for title, pair in different.items() if title not in reasons} == {}
    assert reasons <= set(different), "these rows need no reason any more"
    assert len(theirs) > 100
