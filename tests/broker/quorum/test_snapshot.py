"""Snapshots: everything an image has comes back, and damage never passes for one."""

import random
import uuid

import pytest
from hypothesis import given, settings

from tests.broker.quorum import kafka_records as kafka
from tests.broker.quorum.random_records import histories
from tidemill.broker.quorum.image import ClusterImage, Draft, apply_batch
from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataFormatError,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, check, decode, encode, records_of
from tidemill.broker.tools.kafka_metadata import cluster_of
from tidemill.core.records.batch import iter_batches

NOW_MS = 1_700_000_000_000
GONE = uuid.UUID(int=99)


def topic(number: int, partitions: int) -> list[MetadataRecord]:
    topic_id = uuid.UUID(int=number)
    return [
        TopicRecord(name=f"t{number}", topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1, leader_epoch=number
            )
            for index in range(partitions)
        ),
    ]


def everything(topics: int = 40) -> ClusterImage:
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=uuid.UUID(int=5),
            broker_epoch=7,
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="h", port=9092),),
            rack="r",
        )
    ]
    for number in range(1, topics):
        records += topic(number, 1 + number % 7)
        records.append(ConfigRecord(resource_type=2, resource_name=f"t{number}", name="retention.ms", value="1"))
    records += [
        PartitionChangeRecord(partition_id=1, topic_id=uuid.UUID(int=3), leader=1),
        ConfigRecord(resource_type=4, resource_name="", name="log.roll.ms", value="2"),
        ConfigRecord(resource_type=4, resource_name="1", name="log.roll.ms", value="3"),
        ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value="3"),
        ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value=None),
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=4000),
    ]
    return apply_batch(ClusterImage(), records)


def written(image: ClusterImage, removed: dict[uuid.UUID, str] | None = None) -> bytes:
    return b"".join(encode(records_of(image, removed or {}), epoch=1, now_ms=NOW_MS))


def read(data: bytes) -> Draft:
    check(data)
    draft = Draft(ClusterImage())
    for batch in decode(data):
        draft.apply_all(batch)
    return draft


@pytest.mark.parametrize("topics", [1, 2, 40, 700])
def test_an_image_comes_back_whole(topics: int) -> None:
    image = everything(topics) if topics > 3 else ClusterImage()
    assert read(written(image)).freeze(image.offset) == image


@settings(max_examples=200, deadline=None)
@given(histories())
def test_what_any_history_leads_to_comes_back(records: list[MetadataRecord]) -> None:
    image = apply_batch(ClusterImage(), records)
    assert read(written(image)).freeze(image.offset) == image


def test_topics_that_are_gone_are_known_even_if_their_names_are_in_use() -> None:
    image = everything()
    draft = read(written(image, {GONE: "t1", uuid.UUID(int=98): "t1"}))
    assert draft.freeze(image.offset) == image
    assert draft.removed == {GONE: "t1", uuid.UUID(int=98): "t1"}


def test_what_becomes_of_a_read_image_is_what_becomes_of_the_first() -> None:
    image = everything()
    again = read(written(image)).freeze(image.offset)
    later: list[MetadataRecord] = [RemoveTopicRecord(topic_id=uuid.UUID(int=3)), *topic(1000, 2)]
    assert apply_batch(again, later) == apply_batch(image, later)


def test_the_file_is_one_of_kafkas() -> None:
    data = written(everything())
    views = list(iter_batches(data))
    assert views[0].is_control and views[-1].is_control
    assert not any(view.is_control for view in views[1:-1])
    assert [view.base_offset for view in views[1:]] == [view.last_offset + 1 for view in views[:-1]]
    name = SnapshotId(400, 1).name
    cluster = cluster_of({name: data, "00000000000000000400.log": b""})
    assert {each.name: len(each.partitions) for each in cluster.topics} == {f"t{n}": 1 + n % 7 for n in range(1, 40)}
    assert cluster.next_producer_id == 4000


def test_kafkas_own_snapshot_is_read() -> None:
    data = kafka.snapshot([kafka.topic("foo", GONE), kafka.config(2, "foo", "retention.ms", "9")])
    assert dict(read(data).freeze().topics["foo"].configs) == {"retention.ms": "9"}


def test_batches_are_small_so_that_each_write_lets_the_event_loop_go_on() -> None:
    image = apply_batch(ClusterImage(), [record for number in range(1, 3000) for record in topic(number, 1)])
    assert max(len(batch) for batch in encode(records_of(image, {}), epoch=1, now_ms=NOW_MS)) < 32 * 1024


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_noticed(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(written(everything()))
    batches = list(iter_batches(bytes(data)))
    match seed % 6:
        case 0:
            del data[rng.randrange(len(data)) :]
        case 1:
            data += bytes(rng.randrange(1, 100))
        case 2:
            lost = rng.choice(batches)
            del data[lost.offset : lost.offset + lost.size_bytes]
        case 3:
            twice = rng.choice(batches)
            data[twice.offset : twice.offset] = data[twice.offset : twice.offset + twice.size_bytes]
        case 4:
            start = rng.randrange(len(data))
            data[start : start + 512] = bytes(len(data[start : start + 512]))
            if bytes(data) == written(everything()):
                return
        case _:
            position = rng.choice([n for n in range(len(data)) if all(not 12 <= n - b.offset < 16 for b in batches)])
            data[position] ^= 1 << rng.randrange(8)
    with pytest.raises(SnapshotDamaged, match="byte"):
        check(bytes(data))


def test_a_record_of_a_newer_version_is_not_damage() -> None:
    data = kafka.snapshot([b"\x01\x63\x00"])
    check(data)
    with pytest.raises(MetadataFormatError, match="record type 99"):
        list(decode(data))


@pytest.mark.parametrize(
    "name",
    ["42-1.checkpoint", "00000000000000000042.log", f"{SnapshotId(42, 1).name}.part", "x-0000000001.checkpoint"],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert SnapshotId.parse(SnapshotId(42, 1).name) == SnapshotId(42, 1)
    assert SnapshotId.parse(name) is None
