"""A data folder of Apache Kafka made ours, once and for good

Partition folders need nothing: we keep Kafka's layout. What is Kafka's own is the metadata log, so it is read, a log of
ours that leads to the same topics, settings and producer ids is written beside it, and the two change places:

    1. ours is written to `__cluster_metadata-0.adopting` and synced
    2. Kafka's is renamed to `__cluster_metadata-0.kafka`, which nothing opens and nothing deletes
    3. ours is renamed to `__cluster_metadata-0`

A node of a cluster keeps its place in it: its log is made ours record by record (`adopt_cluster`), and its registration
is remembered, so that what it holds counts. All its brokers are taken over before the first of ours is started.

Before the last rename the folder is refused by our broker, and the step may be taken again from wherever a crash left
it: everything is made anew from Kafka's log, under either of its names.

What Kafka knew and we do not keep is said, never dropped in silence; where records would be served that Kafka's
consumers do not see, or partitions would come out empty, the step is refused.
"""

import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tidemill.broker.config import BROKER_CONFIG
from tidemill.broker.groups.records import GroupFormatError, OffsetRecord, OffsetTombstone
from tidemill.broker.groups.records import decode_record as decode_group_record
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN, CLEANED, RECOVERY_POINTS, read_offsets, write_offsets
from tidemill.broker.log.identity import META, FolderIdentity, FolderRefused, read_identity, read_topic_id
from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage, ImageError, apply_batch
from tidemill.broker.quorum.records import ConfigRecord, MetadataRecord, PartitionRecord, ProducerIdsRecord, TopicRecord
from tidemill.broker.quorum.store import FILE, FOLDER, KAFKA_ASIDE, KAFKA_STATE, encode_batch
from tidemill.broker.registration_file import PastRegistration, write_registration
from tidemill.broker.tools.adopt_cluster import MemberLog, convert, voters_in
from tidemill.broker.tools.kafka_metadata import (
    LOG_SUFFIX,
    KafkaCluster,
    KafkaMetadataError,
    KafkaPartition,
    KafkaTopic,
    cluster_of,
    files_needed,
)
from tidemill.broker.tools.kafka_settings import why_no_setting
from tidemill.broker.topic_config import TOPIC_CONFIG
from tidemill.core.config import ConfigTable
from tidemill.core.errors import KafkaError
from tidemill.core.ids import encode_id
from tidemill.core.records.record import Record, decode_records
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

STAGING: Final = "__cluster_metadata-0.adopting"

_OFFSETS_TOPIC: Final = "__consumer_offsets"
_TRANSACTIONS_TOPIC: Final = "__transaction_state"
_RESERVED_DIRECTORIES: Final = 100  # directory ids below say "unassigned" and the like
_TRANSACTION_VALUE = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, status
_NOT_COMMITTED: Final = frozenset({1, 3, 7})  # status: ongoing, about to be aborted, about to be fenced


class AdoptRefused(Exception):
    """The folder cannot be taken over; the message is one line that says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What is going to be done with a folder."""

    files: Mapping[str, bytes]
    """Of our metadata log."""
    compacted: tuple[TopicPartition, ...]
    broker_epoch: int | None = None
    """Of the registration under which the logs were written; None of a node by itself."""
    was_killed: bool = False
    taken: tuple[str, ...]
    not_taken: tuple[str, ...]


# --- deciding


def plan(data: Directory, *, now_ms: int, keep_uncommitted: bool = False, was_killed: bool = False) -> Adoption:
    """Read everything and change nothing; raises AdoptRefused.

    `keep_uncommitted` accepts that records of transactions that were not committed are served like all others,
    `was_killed` says that a node of several lacks nothing though it was not closed in order: its machine stayed up.
    """
    source = _source(data)
    try:
        identity = read_identity(data)
        files = _metadata_files(source)
        cluster = cluster_of(files)
        voters = _voters(source, files)
        several = sorted((voters | cluster.nodes) - {identity.node_id})
        if several:
            cluster = _here(data, identity, cluster, voters, was_killed=was_killed)
        for topic in cluster.topics:
            _check_topic(data, identity, topic, alone=not several)
        member = convert(files, source.read(KAFKA_STATE), now_ms) if several else None
    except (FolderRefused, KafkaMetadataError) as error:
        raise AdoptRefused(str(error)) from None
    uncommitted = _uncommitted(data, cluster)
    if uncommitted and not keep_uncommitted:
        raise AdoptRefused(
            f"{'; '.join(uncommitted)}: this broker has no transactions and would serve those records like all others; "
            "--keep-uncommitted accepts that"
        )
    not_taken = [f"{what}: {count} records" for what, count in sorted(cluster.not_taken.items())]
    if member is None:
        batches = tuple(_batches(cluster, identity.node_id, not_taken))
        _check_image(batches, cluster)
        ours: Mapping[str, bytes] = {FILE: _log_of(batches, now_ms)}
        taken = tuple(_taken(identity, batches))
    else:
        not_taken += sorted(member.left_out)
        ours, taken = member.files, tuple(_taken_of_member(identity, several, member))
    groups = _group_offsets(data, cluster, not_taken)
    if any(topic.name == _TRANSACTIONS_TOPIC for topic in cluster.topics):
        not_taken.append("transactional ids: their topic is kept as it is, but there are no transactions here")
    not_taken += [f"which records were not committed ({each})" for each in uncommitted]
    return Adoption(
        files=ours,
        compacted=tuple(_compacted(data, cluster)),
        broker_epoch=_broker_epoch(data, cluster, identity.node_id) if several else None,
        was_killed=was_killed,
        taken=(*taken, *groups),
        not_taken=tuple(not_taken),
    )


def _source(data: Directory) -> Directory:
    """Kafka's folder, under the name that it has now."""
    if not data.exists(META):
        raise AdoptRefused(f"{data.path} is no data folder: it has no {META}")
    if data.is_directory(FOLDER):
        folder = data.subdirectory(FOLDER)
        if not folder.exists(KAFKA_STATE):
            done = " already" if data.is_directory(KAFKA_ASIDE) else ": its metadata log is not Apache Kafka's"
            raise AdoptRefused(f"{data.path} is Tidemill's{done}, there is nothing to do")
        if data.exists(KAFKA_ASIDE):
            raise AdoptRefused(
                f"{data.path}/{KAFKA_ASIDE} is in the way, from an earlier time: move it elsewhere first"
            )
        return folder
    if data.is_directory(KAFKA_ASIDE):
        return data.subdirectory(KAFKA_ASIDE)
    raise AdoptRefused(
        f"{data.path} has no {FOLDER}: give the folder in log.dirs (or metadata.log.dir) of a KRaft node that is both "
        "broker and controller"
    )


def _metadata_files(source: Directory) -> Mapping[str, bytes]:
    names = files_needed(source.list())
    if not names:
        raise KafkaMetadataError(f"{source.path} holds no metadata log")
    return {name: source.read(name) for name in names}


def _voters(source: Directory, files: Mapping[str, bytes]) -> frozenset[int]:
    """Who votes: the last that the log says, or those of `quorum-state`, where they are the same for good."""
    try:
        state = json.loads(source.read(KAFKA_STATE))
        fixed = frozenset(int(voter["voterId"]) for voter in state.get("currentVoters") or ())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KafkaMetadataError(f"{source.path}/{KAFKA_STATE} cannot be read: restore the file") from None
    return voters_in(files) or fixed


def _here(
    data: Directory, identity: FolderIdentity, cluster: KafkaCluster, voters: frozenset[int], *, was_killed: bool
) -> KafkaCluster:
    """The cluster with those partitions only that this node, one of several, has a replica of."""
    node = identity.node_id
    if node not in cluster.broker_epochs:
        raise KafkaMetadataError(
            f"node {node} is no broker: only brokers, or brokers that are controllers too, are taken over"
        )
    if apart := sorted(voters - cluster.broker_epochs.keys()):
        raise KafkaMetadataError(
            f"nodes {', '.join(map(str, apart))} vote and are no brokers: a cluster whose controllers are apart is not "
            "taken over, for nobody could vote; copy it with 'tidemill mirror'"
        )
    if not (data.exists(CLEAN_SHUTDOWN) or was_killed):
        raise KafkaMetadataError(
            f"{data.path} was not closed in order, so what it lacks is not known: start Kafka on it once more, wait "
            "until its replicas are in sync, and stop it (the last node of a cluster takes minutes to stop); if it was "
            "killed and its machine has stayed up since, it lacks nothing: --was-killed says so"
        )
    for topic in cluster.topics:
        for each in topic.partitions:
            if not each.isr:
                raise KafkaMetadataError(
                    f"partition {topic.name}-{each.partition_id} has no replica in sync: start Kafka once more and "
                    "wait until it has"
                )
    return replace(
        cluster,
        topics=tuple(
            replace(topic, partitions=tuple(each for each in topic.partitions if _is_kept(data, topic, each, node)))
            for topic in cluster.topics
        ),
    )


def _is_kept(data: Directory, topic: KafkaTopic, partition: KafkaPartition, node: int) -> bool:
    """Whether this node has that partition; one that is not in sync yet may not have begun."""
    if node not in partition.replicas:
        return False
    return node in partition.isr or data.is_directory(f"{topic.name}-{partition.partition_id}")


def _check_topic(data: Directory, identity: FolderIdentity, topic: KafkaTopic, *, alone: bool) -> None:
    for partition in topic.partitions:
        name = f"{topic.name}-{partition.partition_id}"
        if alone and partition.replicas != (identity.node_id,):
            raise KafkaMetadataError(
                f"partition {name} has the replicas {list(partition.replicas)}: move it to node {identity.node_id} "
                "alone with kafka-reassign-partitions first"
            )
        _check_place(name, partition, identity)
        if not data.is_directory(name) or read_topic_id(data.subdirectory(name)) not in (None, topic.topic_id):
            raise KafkaMetadataError(
                f"partition {name} has no folder here and would be empty: start Kafka on the folder once more, stop "
                "it in order, and look where the partition is"
            )


def _check_place(name: str, partition: KafkaPartition, identity: FolderIdentity) -> None:
    for node, directory in zip(partition.replicas, partition.directories, strict=False):
        if node == identity.node_id and directory.int >= _RESERVED_DIRECTORIES and directory != identity.directory_id:
            raise KafkaMetadataError(
                f"partition {name} is in another of Kafka's log.dirs (directory.id {encode_id(directory)}): move it to "
                "this one with kafka-reassign-partitions first"
            )


def _broker_epoch(data: Directory, cluster: KafkaCluster, node_id: int) -> int:
    """Of the registration under which this node closed its logs, as it has noted itself, or as the metadata says."""
    try:
        return int(json.loads(data.read(CLEAN_SHUTDOWN))["brokerEpoch"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return cluster.broker_epochs[node_id]


def _uncommitted(data: Directory, cluster: KafkaCluster) -> list[str]:
    """Where records of transactions are that were not committed."""
    aborted = [
        name
        for topic in cluster.topics
        for partition in topic.partitions
        if _has_aborted(data.subdirectory(name := f"{topic.name}-{partition.partition_id}"))
    ]
    found = [f"aborted transactions in {', '.join(aborted)}"] if aborted else []
    states: dict[bytes, int] = {}
    for record in _records(data, cluster, _TRANSACTIONS_TOPIC):
        value = record.value or b""
        whole = len(value) >= _TRANSACTION_VALUE.size
        states[bytes(record.key or b"")] = _TRANSACTION_VALUE.unpack_from(value)[-1] if whole else 0
    count = sum(state in _NOT_COMMITTED for state in states.values())
    return [*found, *([f"{count} transactions are not over"] if count else [])]


def _has_aborted(folder: Directory) -> bool:
    return any(name.endswith(".txnindex") and folder.read(name) for name in folder.list())


def _records(data: Directory, cluster: KafkaCluster, topic_name: str) -> Iterator[Record]:
    """Every record of an internal topic, as far as its segments can be read."""
    for topic in cluster.topics:
        for partition in topic.partitions if topic.name == topic_name else ():
            folder = data.subdirectory(f"{topic_name}-{partition.partition_id}")
            for name in folder.list():
                if not name.endswith(LOG_SUFFIX):
                    continue
                for view, _ in sound_batches(folder.read(name)):
                    try:
                        found = [] if view.is_control else decode_records(view)
                    except KafkaError as error:
                        raise AdoptRefused(f"{folder.path}/{name} cannot be read: {error}") from None
                    yield from found


def _batches(cluster: KafkaCluster, node_id: int, not_taken: list[str]) -> Iterator[tuple[MetadataRecord, ...]]:
    """Our log; what has no place in it is told to `not_taken`."""
    for topic in cluster.topics:
        yield (
            TopicRecord(name=topic.name, topic_id=topic.topic_id),
            *(_led_by(node_id, partition) for partition in topic.partitions),
            *_settings(TOPIC_CONFIG, RESOURCE_TOPIC, topic.name, topic.configs, not_taken),
        )
    for name, configs in sorted(cluster.broker_configs.items()):
        if name not in ("", str(node_id)):
            not_taken.append(f"settings of broker {name}, which is not this node: {', '.join(sorted(configs))}")
            continue
        records = _settings(BROKER_CONFIG, RESOURCE_BROKER, name, configs, not_taken)
        if records:
            yield records
    if cluster.next_producer_id:
        yield (ProducerIdsRecord(broker_id=node_id, broker_epoch=-1, next_producer_id=cluster.next_producer_id),)


def _led_by(node_id: int, partition: KafkaPartition) -> PartitionRecord:
    """The partition under a new leadership: ours, so that its epoch is in no batch yet."""
    return PartitionRecord(
        partition_id=partition.partition_id,
        topic_id=partition.topic_id,
        replicas=(node_id,),
        isr=(node_id,),
        leader=node_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def _settings(
    table: ConfigTable, resource_type: int, resource: str, configs: Mapping[str, str], not_taken: list[str]
) -> tuple[ConfigRecord, ...]:
    whose = f"topic {resource}" if resource_type == RESOURCE_TOPIC else f"broker {resource or 'default'}"
    records = []
    for name, value in sorted(configs.items()):
        problem = why_no_setting(table, name, value, of=resource)
        if problem is None:
            records.append(ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value))
        else:
            not_taken.append(f"{name} of {whose}: {problem}")
    return tuple(records)


def _check_image(batches: tuple[tuple[MetadataRecord, ...], ...], cluster: KafkaCluster) -> None:
    """What a start will make of our log is what Kafka's led to."""
    image = ClusterImage()
    try:
        for batch in batches:
            image = apply_batch(image, batch)
    except ImageError as error:
        raise AdoptRefused(f"the metadata log contradicts itself: {error}") from None
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {
        topic.name: len(topic.partitions) for topic in cluster.topics
    }
    assert image.next_producer_id == cluster.next_producer_id


def _compacted(data: Directory, cluster: KafkaCluster) -> Iterator[TopicPartition]:
    """Partitions that Kafka compacts, or, by a default of its file or an earlier setting, must have compacted."""
    clean = data.exists(CLEAN_SHUTDOWN)
    points = read_offsets(data, RECOVERY_POINTS)
    for topic in cluster.topics:
        by_setting = "compact" in topic.configs.get("cleanup.policy", "")
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_id)
            if by_setting or (not clean and _has_gaps(data.subdirectory(str(partition)), points.get(partition, 0))):
                yield partition


def _has_gaps(folder: Directory, recovery_point: int) -> bool:
    """Whether offsets are missing, with nothing torn, in segments that a start would check from end to end.

    Kafka serves such a log; a start of ours would cut it off at the first gap.
    """
    names = [name for name in folder.list() if name.endswith(LOG_SUFFIX)]
    for name, following in pairwise(names):  # the last one is never compacted
        if _first_offset(following) <= recovery_point:
            continue
        data = folder.read(name)
        due, end = _first_offset(name), 0
        for view, position in sound_batches(data):
            if view.base_offset > due:
                return True
            due, end = view.last_offset + 1, position
        if end == len(data) and due < _first_offset(following):
            return True
    return False


def _first_offset(segment: str) -> int:
    return int(segment.removesuffix(LOG_SUFFIX))


def _group_offsets(data: Directory, cluster: KafkaCluster, not_taken: list[str]) -> list[str]:
    """The line about committed offsets, which stay where they are; what of them a start cannot read is told."""
    offsets: set[tuple[str, str, int]] = set()
    unread: Counter[str] = Counter()
    for record in _records(data, cluster, _OFFSETS_TOPIC):
        try:
            found = decode_group_record(record.key, record.value)
        except GroupFormatError as error:
            unread[f"group records that cannot be read ({error})"] += 1
            continue
        match found:
            case OffsetRecord():
                offsets.add((found.group_id, found.topic, found.partition))
            case OffsetTombstone():
                offsets.discard((found.group_id, found.topic, found.partition))
            case None:
                unread["members of groups of the newer protocols (their offsets are taken)"] += 1
    not_taken += [f"{what}: {count} records" for what, count in sorted(unread.items())]
    groups = {group_id for group_id, _, _ in offsets}
    return [f"committed offsets: {len(offsets)} of {len(groups)} groups"]


def _log_of(batches: tuple[tuple[MetadataRecord, ...], ...], now_ms: int) -> bytes:
    content = bytearray()
    offset = 0
    for batch in batches:
        content += encode_batch(batch, offset, now_ms)
        offset += len(batch)
    return bytes(content)


def _taken_of_member(identity: FolderIdentity, others: Sequence[int], member: MemberLog) -> Iterator[str]:
    nodes = ", ".join(map(str, others))
    yield (
        f"cluster {identity.cluster_id}, node {identity.node_id} beside {nodes}, directory "
        f"{encode_id(identity.directory_id)}"
    )
    yield f"metadata up to offset {member.offset_end}, epoch {member.epoch}"
    for topic in member.image.topics.values():
        settings = ", ".join(f"{name}={value}" for name, value in topic.configs.items())
        here = sum(identity.node_id in each.replicas for each in topic.partitions)
        count = f"{here} of {len(topic.partitions)} partitions here"
        yield f"topic {topic.name}, id {encode_id(topic.topic_id)}, {count}{settings and ', ' + settings}"
    for name, configs in member.image.broker_configs.items():
        settings = ", ".join(f"{key}={value}" for key, value in configs.items())
        yield f"settings of {f'broker {name}' if name else 'all brokers'}: {settings}"
    if member.image.next_producer_id:
        yield f"producer ids, of which the next is {member.image.next_producer_id}"


def _taken(identity: FolderIdentity, batches: tuple[tuple[MetadataRecord, ...], ...]) -> Iterator[str]:
    yield f"cluster {identity.cluster_id}, node {identity.node_id}, directory {encode_id(identity.directory_id)}"
    for batch in batches:
        settings = ", ".join(f"{each.name}={each.value}" for each in batch if isinstance(each, ConfigRecord))
        match batch[0]:
            case TopicRecord(name=name, topic_id=topic_id):
                count = sum(isinstance(each, PartitionRecord) for each in batch)
                yield f"topic {name}, id {encode_id(topic_id)}, partitions {count}{settings and ', ' + settings}"
            case ConfigRecord(resource_name=name):
                yield f"settings of {f'broker {name}' if name else 'all brokers'}: {settings}"
            case ProducerIdsRecord(next_producer_id=first):
                yield f"producer ids, of which the next is {first}"


# --- doing


def carry_out(data: Directory, adoption: Adoption) -> None:
    """Put our metadata log in the place of Kafka's; a crash on the way is finished by doing it all again."""
    staging = data.subdirectory(STAGING)
    for name in staging.list():
        staging.remove(name)
    for name, content in adoption.files.items():
        staging.replace(name, content)
    data.sync()
    if data.is_directory(FOLDER):
        data.rename(FOLDER, KAFKA_ASIDE)
        data.sync()
    _expect_gaps(data, adoption.compacted)
    if adoption.broker_epoch is not None:
        write_registration(
            data, PastRegistration(broker_epoch=adoption.broker_epoch, survives_a_crash=adoption.was_killed)
        )
    data.rename(STAGING, FOLDER)
    data.sync()


def _expect_gaps(data: Directory, compacted: tuple[TopicPartition, ...]) -> None:
    """Say which logs have gaps between offsets, which a start would else take for the end of a torn log.

    Kafka compacts all but the last segment, and may have died before it wrote down that it did.
    """
    cleaned = read_offsets(data, CLEANED)
    points = read_offsets(data, RECOVERY_POINTS)
    for partition in compacted:
        cleaned.setdefault(partition, 0)
        names = data.subdirectory(str(partition)).list()
        last = max((_first_offset(name) for name in names if name.endswith(LOG_SUFFIX)), default=0)
        points[partition] = max(points.get(partition, 0), last)
    write_offsets(data, CLEANED, cleaned)
    if not data.exists(CLEAN_SHUTDOWN):
        write_offsets(data, RECOVERY_POINTS, points)
