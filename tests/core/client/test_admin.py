"""Administration of a real broker."""

import uuid

import pytest

from tidemill.core.client.admin import Admin, CommittedOffset, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import GroupIdNotFound, TopicAlreadyExists
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.types import TopicPartition

pytestmark = pytest.mark.integration


async def test_topics_are_created_grown_and_deleted(client: ClusterClient) -> None:
    admin, name = Admin(client), f"t-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(name=name, partitions=2, replication_factor=1, configs={"retention.ms": "5000"})
    assert await admin.create_topics([topic]) == {name: None}
    assert isinstance((await admin.create_topics([topic]))[name], TopicAlreadyExists)
    assert len((await client.metadata([name])).topics[name].partitions) == 2
    assert await admin.create_partitions({name: 5}) == {name: None}
    assert len((await client.metadata([name])).topics[name].partitions) == 5
    assert (await admin.create_partitions({name: 1}))[name] is not None
    assert await admin.delete_topics([name]) == {name: None}
    assert name not in (await client.metadata([name])).topics


async def test_settings_are_read_and_changed(client: ClusterClient, topic: str) -> None:
    admin = Admin(client)

    async def retention() -> tuple[str | None, bool]:
        entries = (await admin.topic_configs([topic, "no-such-topic"]))[topic]
        return next((entry.value, entry.is_default) for entry in entries if entry.name == "retention.ms")

    default = await retention()
    assert default[1]
    assert await admin.alter_topic_configs({topic: {"retention.ms": "7777"}}) == {topic: None}
    assert await retention() == ("7777", False)
    assert await admin.alter_topic_configs({topic: {"retention.ms": None}}) == {topic: None}
    assert await retention() == default
    assert (await admin.alter_topic_configs({topic: {"retention.ms": "soon"}}))[topic] is not None


async def test_groups_commit_from_outside(client: ClusterClient, topic: str) -> None:
    admin, group = Admin(client), f"g-{uuid.uuid4().hex[:8]}"
    assert await admin.group_state(group) == "Dead"
    assert await admin.committed_offsets(group) == {}
    positions = {
        TopicPartition(topic, 0): CommittedOffset(offset=0, metadata=""),
        TopicPartition(topic, 2): CommittedOffset(offset=42, metadata="note"),
    }
    assert await admin.commit_offsets(group, positions) == dict.fromkeys(positions)
    assert await admin.committed_offsets(group) == positions
    assert await admin.group_state(group) == "Empty"
    assert group in [row.group for row in await admin.list_groups()]


async def test_single_positions_of_a_group_are_forgotten(client: ClusterClient, topic: str) -> None:
    admin, group = Admin(client), f"{topic}-group"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    positions = {first: CommittedOffset(offset=3, metadata=""), second: CommittedOffset(offset=4, metadata="kept")}
    await admin.commit_offsets(group, positions)
    assert await admin.delete_offsets(group, [first]) == {first: None}
    assert await admin.committed_offsets(group) == {second: positions[second]}
    with pytest.raises(GroupIdNotFound):
        await admin.delete_offsets(f"{group}-nobody", [first])


async def test_the_cluster_describes_itself(client: ClusterClient) -> None:
    described = await Admin(client).describe_cluster()
    view = await client.metadata(())
    assert described.cluster_id == view.cluster_id
    assert described.node_ids == tuple(view.nodes)


async def test_producers_are_listed(client: ClusterClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    records = [NewRecord(timestamp=1, key=None, value=b"x")] * 3
    await client.append(partition, build_batch(records, producer_id=4242, producer_epoch=1, base_sequence=0))
    rows = await Admin(client).describe_producers(partition)
    assert [(row.producer_id, row.epoch, row.last_sequence) for row in rows] == [(4242, 1, 2)]
