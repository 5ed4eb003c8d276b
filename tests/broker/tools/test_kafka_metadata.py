"""Kafka's metadata log: round trips against an encoder of the test's own, damage, and what a whole log leads to."""

import struct
import uuid
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.quorum import kafka_records as kafka
from tidemill.broker.quorum.records import (
    ConfigRecord,
    MetadataFormatError,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidemill.broker.tools.kafka_metadata import (
    NO_LEADER_CHANGE,
    KafkaCluster,
    KafkaMetadataError,
    KafkaPartition,
    KafkaPartitionChange,
    KafkaTopic,
    NodeSeen,
    NotTaken,
    cluster_of,
    decode,
    files_needed,
)

A, B = uuid.UUID(int=1000), uuid.UUID(int=2000)
LOG = "00000000000000000000.log"

texts = st.text(max_size=200)
i32 = st.integers(-(2**31), 2**31 - 1)
nodes = st.lists(i32, max_size=4).map(tuple)
directories = st.lists(st.uuids(), max_size=3).map(tuple)


@given(i32, st.uuids(), nodes, i32, i32, i32, directories, st.integers(0, 2))
def test_partitions_round_trip_in_every_version(
    number: int,
    topic_id: uuid.UUID,
    replicas: tuple[int, ...],
    leader: int,
    epoch: int,
    partition_epoch: int,
    folders: tuple[uuid.UUID, ...],
    version: int,
) -> None:
    value = kafka.partition(
        number,
        topic_id,
        replicas,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        directories=folders,
        version=version,
    )
    assert decode(value) == KafkaPartition(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=replicas,
        directories=folders if version else (),
    )
    damaged(value)


@given(i32, st.uuids(), st.none() | nodes, st.none() | i32, st.none() | directories)
def test_changes_round_trip_with_any_of_their_fields(
    number: int,
    topic_id: uuid.UUID,
    replicas: tuple[int, ...] | None,
    leader: int | None,
    folders: tuple[uuid.UUID, ...] | None,
) -> None:
    fields = {0: kafka.int32s((1, 2)), 5: b"\1", 6: kafka.int32s(None), 7: kafka.int32s((9,))}
    if leader is not None:
        fields[1] = kafka.int32(leader)
    if replicas is not None:
        fields[2] = kafka.int32s(replicas)
    if folders is not None:
        fields[8] = kafka.uuids(folders)
    value = kafka.change(number, topic_id, fields)
    assert decode(value) == KafkaPartitionChange(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=(1, 2),
        recovery_state=1,
        leader=NO_LEADER_CHANGE if leader is None else leader,
        directories=folders,
    )
    damaged(value)


@given(texts, st.uuids(), texts, st.none() | texts, st.integers(0, 2**63 - 1), st.sampled_from((2, 4, 32)))
def test_records_that_are_as_ours_round_trip(
    name: str, topic_id: uuid.UUID, key: str, value: str | None, following: int, kind: int
) -> None:
    for data, expected in (
        (kafka.topic(name, topic_id), TopicRecord(name=name, topic_id=topic_id)),
        (kafka.removed(topic_id), RemoveTopicRecord(topic_id=topic_id)),
        (
            kafka.config(kind, name, key, value),
            ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value),
        ),
        (kafka.producer_ids(following), ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=following)),
    ):
        assert decode(data) == expected
        damaged(data)


def damaged(value: bytes) -> None:
    """Every truncation is an error of the one kind, and so is a byte too many."""
    for size in range(len(value)):
        with pytest.raises(MetadataFormatError):
            decode(value[:size])
    with pytest.raises(MetadataFormatError):
        decode(value + b"\0")


@given(st.binary(max_size=80), st.integers(0, 40), st.integers(0, 5))
def test_any_bytes_are_a_record_or_an_error(body: bytes, key: int, version: int) -> None:
    try:
        decode(kafka.frame(key, version, body))
    except MetadataFormatError:
        return


@pytest.mark.parametrize(
    ("key", "what"),
    [(10, "delegation tokens"), (11, "SCRAM credentials"), (14, "client quotas"), (18, "access control entries")],
)
def test_what_is_not_kept_has_a_name(key: int, what: str) -> None:
    assert decode(kafka.frame(key, 0, b"not looked at")) == NotTaken(what=what)


def test_nodes_are_seen_and_bookkeeping_is_nothing() -> None:
    for version in (1, 4):
        assert decode(kafka.broker(7, 44, version)) == NodeSeen(node_id=7, role="broker", epoch=44)
    assert decode(kafka.broker_gone(7)) == NodeSeen(node_id=7, role="broker", gone=True)
    assert decode(kafka.frame(27, 0, kafka.int32(9))) == NodeSeen(node_id=9, role="controller")
    assert [decode(kafka.frame(key, 0, b"")) for key in (7, 8, 12, 17, 20, 21, 28)] == [None] * 7


@pytest.mark.parametrize("value", [kafka.frame(29, 0, b""), kafka.frame(3, 3, b""), kafka.frame(5, 3, b""), b"\2\2\0"])
def test_what_is_not_known_is_refused(value: bytes) -> None:
    with pytest.raises(MetadataFormatError, match=r"not (known|supported)"):
        decode(value)


# --- whole logs


def log(*values: bytes) -> bytes:
    """One batch per value, behind the control batch of a new leader."""
    batches = [kafka.batch([value], number) for number, value in enumerate(values, 1)]
    return kafka.control_batch(2) + b"".join(batches)


def cluster(*values: bytes) -> KafkaCluster:
    return cluster_of({LOG: log(*values)})


def one(found: KafkaCluster) -> KafkaTopic:
    (topic,) = found.topics
    return topic


def test_a_log_is_replayed() -> None:
    found = cluster(
        kafka.broker(1),
        kafka.topic("a", A),
        kafka.partition(1, A),
        kafka.partition(0, A, directories=(B,)),
        kafka.config(2, "a", "retention.ms", "5"),
        kafka.config(2, "a", "segment.bytes", "6"),
        kafka.topic("gone", B),
        kafka.partition(0, B),
        kafka.config(2, "a", "segment.bytes", None),
        kafka.removed(B),
        kafka.config(4, "", "min.insync.replicas", "1"),
        kafka.config(32, "group", "consumer.heartbeat.interval.ms", "1"),
        kafka.producer_ids(1000),
        kafka.producer_ids(2000),
        kafka.frame(18, 0, b""),
        kafka.frame(18, 0, b""),
    )
    topic = one(found)
    assert (topic.name, topic.topic_id, topic.configs) == ("a", A, {"retention.ms": "5"})
    assert [(each.partition_id, each.directories) for each in topic.partitions] == [(0, (B,)), (1, ())]
    assert found.broker_configs == {"": {"min.insync.replicas": "1"}}
    assert (found.next_producer_id, found.nodes) == (2000, {1})
    assert found.not_taken == {"access control entries": 2, "group configurations": 1}


def test_a_change_of_the_leader_is_a_new_epoch() -> None:
    made = [kafka.topic("a", A), kafka.partition(0, A, leader_epoch=4, partition_epoch=9)]
    led = {1: kafka.int32(-1)}
    (partition,) = one(cluster(*made, kafka.change(0, A, led), kafka.change(0, A, {0: kafka.int32s((1,))}))).partitions
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (-1, 5, 11)


def test_a_topic_made_again_under_its_name_is_the_new_one() -> None:
    made = [kafka.topic("a", A), kafka.partition(0, A), kafka.config(2, "a", "retention.ms", "5"), kafka.removed(A)]
    topic = one(cluster(*made, kafka.topic("a", B), kafka.partition(0, B)))
    assert (topic.topic_id, topic.configs) == (B, {})


@pytest.mark.parametrize(("end", "counts"), [((24,), True), ((25,), False), ((), False)])
def test_a_metadata_transaction_counts_when_it_ended(end: Iterable[int], counts: bool) -> None:
    made = [kafka.topic("a", A), kafka.partition(0, A)]
    found = cluster(kafka.frame(23, 0, b"\0"), *made, *(kafka.frame(key, 0, b"\0") for key in end))
    assert bool(found.topics) is counts


def test_the_newest_snapshot_and_what_is_behind_it_are_read() -> None:
    old = "00000000000000000003-0000000001.checkpoint"
    newest = "00000000000000000005-0000000001.checkpoint"
    segments = {LOG: b"unreadable", "00000000000000000004.log": b"", "00000000000000000009.log": b""}
    assert files_needed([old, newest, "quorum-state", "00000000000000000004.index", *segments]) == (
        newest,
        "00000000000000000004.log",
        "00000000000000000009.log",
    )
    content = {
        newest: kafka.snapshot([kafka.topic("a", A), kafka.partition(0, A)]),
        # one batch over the end of the snapshot: its first record is in there, and would be refused twice
        "00000000000000000004.log": kafka.batch([kafka.removed(B), kafka.producer_ids(1000)], 4),
        "00000000000000000006.log": kafka.batch([kafka.config(2, "a", "retention.ms", "5")], 6),
    }
    found = cluster_of(content)
    assert (one(found).configs, found.next_producer_id) == ({"retention.ms": "5"}, 1000)


def test_a_torn_tail_is_left_out_and_anything_else_is_refused() -> None:
    whole = log(kafka.topic("a", A), kafka.partition(0, A))
    more = kafka.batch([kafka.topic("b", B)], 3)
    for size in range(1, len(more)):
        found = cluster_of({LOG: whole + more[:size]})
        assert (one(found).name, found.torn_bytes) == ("a", size)
    first = len(kafka.control_batch(2))
    covered = first + 17  # by the CRC; base offset, length, epoch, magic and the CRC itself are before
    for position in (*range(first, first + 12), *range(covered, len(whole) - len(kafka.batch([b""])), 7)):
        flipped = bytearray(whole + kafka.batch([kafka.producer_ids(1)], 3))
        flipped[position] ^= 1
        with pytest.raises(KafkaMetadataError):
            cluster_of({LOG: bytes(flipped)})


SNAPSHOT = "00000000000000000005-0000000001.checkpoint"
MADE = kafka.snapshot([kafka.topic("a", A), kafka.partition(0, A)])


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({LOG: log(kafka.frame(60, 0, b""))}, "type 60"),
        ({LOG: log(kafka.topic("a", A))}, "lacks partitions"),
        ({LOG: log(kafka.partition(0, A))}, "does not exist"),
        ({LOG: log(kafka.topic("a", A), kafka.change(0, A, {}))}, "does not exist"),
        ({LOG: log(kafka.config(2, "a", "b", "c"))}, "does not exist"),
        ({"00000000000000000003.log": kafka.batch([kafka.producer_ids(1)], 3)}, "missing"),
        ({LOG: kafka.batch([kafka.producer_ids(1)]) + kafka.batch([kafka.producer_ids(2)], 5)}, "follows"),
        ({LOG: log(kafka.producer_ids(1))[:-1], "00000000000000000002.log": b""}, "corrupt"),
        ({SNAPSHOT: MADE[:-1], LOG: b""}, "damaged"),
        ({SNAPSHOT: MADE[: -len(kafka.control_batch(4))], LOG: b""}, "damaged"),
        ({SNAPSHOT: b"", LOG: b""}, "damaged"),
    ],
)
def test_a_log_that_cannot_be_believed_is_refused_with_a_reason(files: dict[str, bytes], says: str) -> None:
    with pytest.raises(KafkaMetadataError, match=says):
        cluster_of(files)


def test_the_encoder_of_this_test_writes_what_kafka_does() -> None:
    """A partition as a node of Kafka 4.3.1 wrote it, less its elder fields that were empty."""
    topic_id = uuid.UUID(bytes=bytes.fromhex("8bd0fc45ee6b4be782a9386dfec5f185"))
    folder = uuid.UUID(bytes=bytes.fromhex("bc8bfa12e418f602a080a1ba4c9cba63"))
    head = (
        "01 03 02 00000002" + topic_id.hex + "02 00000001 02 00000001 01 01 00000001 00000000 00000000 02" + folder.hex
    )
    written = kafka.partition(2, topic_id, directories=(folder,))
    assert written.startswith(bytes.fromhex(head))
    assert struct.unpack(">i", written[3:7]) == (2,)
