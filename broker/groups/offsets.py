"""Committed offsets: what may be kept or dropped, and when it expires

Pure decisions on one group: which commits are accepted (and the records that keep them), which offsets may be
deleted, which nobody has needed for the retention time and which belong to a topic that is not there any more (and the
tombstones that drop them). An offset outlives its group's members by the retention time (KIP-211); an offset committed
without a group expires that long after its commit.

Not here: who may commit (`tidemill.broker.groups.commits` checks the member and its generation first).
"""

from collections.abc import Container, Iterable, Mapping

from tidemill.broker.coordination.contract import Instant
from tidemill.broker.groups.events import CommitOffsets, CommittedOffset
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.records import CoordinatorRecord, OffsetRecord, OffsetTombstone
from tidemill.broker.groups.topics import Topics
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


def decide_commit(
    event: CommitOffsets, problem: ErrorCode, topics: Topics, metadata_bytes_max: int, now: Instant
) -> tuple[tuple[ErrorCode, ...], tuple[OffsetRecord, ...]]:
    """One error per offset, in order, and the records of those that were accepted; `problem` is about all of them.

    A topic is looked up here and nowhere earlier: the record says which topic of that name was there at the append.
    """
    expire_ms = now.wall_ms + event.retention_ms if event.retention_ms >= 0 else -1
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for item in event.offsets:
        topic, error = topics.named(item)
        if error is ErrorCode.NONE:
            too_large = len(item.metadata.encode()) > metadata_bytes_max
            error = problem or (ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE)
        errors.append(error)
        if topic is None or error is not ErrorCode.NONE:
            continue
        records.append(
            OffsetRecord(
                group_id=event.group_id,
                topic=topic.name,
                partition=item.partition,
                offset=item.offset,
                leader_epoch=item.leader_epoch,
                metadata=item.metadata,
                commit_timestamp_ms=now.wall_ms,
                expire_timestamp_ms=expire_ms,
                topic_id=topic.topic_id,
            )
        )
    return tuple(errors), tuple(records)


def committed(record: OffsetRecord) -> CommittedOffset:
    """The part of a record that is kept under its group, topic and partition."""
    return CommittedOffset(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp_ms=record.commit_timestamp_ms,
        expire_timestamp_ms=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )


def present(
    offsets: Mapping[tuple[str, int], CommittedOffset], topics: Topics
) -> dict[tuple[str, int], CommittedOffset]:
    """Those of `offsets` whose topic is there: what anybody may be told."""
    return {key: offset for key, offset in offsets.items() if topics.has(key[0], offset)}


def foreign(group: Group, topics: Topics, names: Container[str]) -> tuple[OffsetTombstone, ...]:
    """The tombstones of offsets under `names` that were committed for a topic that is not there any more."""
    return tuple(
        OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition)
        for (topic, partition), offset in group.offsets.items()
        if topic in names and not topics.has(topic, offset)
    )


def without_id(group: Group, topics: Topics) -> tuple[OffsetRecord, ...]:
    """Offsets whose records name no topic id, with the one they count for: written once, they need no guess again."""
    return tuple(
        OffsetRecord(
            group_id=group.group_id,
            topic=topic,
            partition=partition,
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp_ms=offset.commit_timestamp_ms,
            expire_timestamp_ms=offset.expire_timestamp_ms,
            topic_id=topics.id_of(topic, offset),
        )
        for (topic, partition), offset in group.offsets.items()
        if offset.topic_id == ZERO_UUID and topics.has(topic, offset)
    )


def expired(group: Group, topics: Topics, retention_ms: int, wall_ms: int) -> tuple[CoordinatorRecord, ...]:
    """The tombstones that are due: offsets, and the group itself once nothing is left of it."""
    idle = group.is_idle
    gone = [
        (topic, partition)
        for (topic, partition), offset in group.offsets.items()
        if not topics.has(topic, offset) or (idle and _is_due(group, offset, retention_ms, wall_ms))
    ]
    records: list[CoordinatorRecord] = [
        OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition) for topic, partition in gone
    ]
    if idle and len(gone) == len(group.offsets):
        records += group.tombstones()
    return tuple(records)


def _is_due(group: Group, offset: CommittedOffset, retention_ms: int, wall_ms: int) -> bool:
    if offset.expire_timestamp_ms >= 0:  # asked for by an old client
        return wall_ms >= offset.expire_timestamp_ms
    return wall_ms - max(offset.commit_timestamp_ms, group.idle_since_ms) >= retention_ms


def forgotten(group: Group) -> tuple[CoordinatorRecord, ...]:
    """The tombstones of a group that is deleted."""
    dropped = (
        OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition) for topic, partition in group.offsets
    )
    return (*dropped, *group.tombstones())


def deletion_problem(group: Group | None) -> ErrorCode:
    """Why none of the group's offsets may be deleted; NONE when that depends on the topic (KIP-496)."""
    return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.deletion_problem()


def decide_deletion(
    group: Group, partitions: Iterable[tuple[str, int]]
) -> tuple[tuple[ErrorCode, ...], tuple[OffsetTombstone, ...]]:
    """One error per partition, in order, and the tombstones of the offsets that are there to delete.

    A topic that a member subscribes to keeps its offsets. If a subscription cannot be read, every topic may be meant.
    """
    read = group.subscribed_topics()
    errors: list[ErrorCode] = []
    gone: dict[tuple[str, int], OffsetTombstone] = {}
    for topic, partition in partitions:
        if read is None or topic in read:
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        errors.append(ErrorCode.NONE)
        if (topic, partition) in group.offsets:
            gone[topic, partition] = OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition)
    return tuple(errors), tuple(gone.values())
