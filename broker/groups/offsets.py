"""Committed offsets: what may be kept or dropped, and when it expires

Pure decisions on one group: which commits are accepted (and the records that keep them), which offsets may be
deleted and which nobody has needed for the retention time (and the tombstones that drop them). An offset outlives its
group's members by the retention time (KIP-211); an offset committed without a group expires that long after its
commit.

Not here: who may commit (`tidemill.broker.groups.commits` checks the member and its generation first).
"""

from collections.abc import Iterable

from tidemill.broker.groups.events import CommitOffsets, CommittedOffset, Instant
from tidemill.broker.groups.membership import Group
from tidemill.broker.groups.records import CoordinatorRecord, GroupTombstone, OffsetRecord, OffsetTombstone
from tidemill.broker.groups.states import GroupState
from tidemill.broker.groups.subscription import CONSUMER, subscribed_topics
from tidemill.core.error_code import ErrorCode


def decide_commit(
    event: CommitOffsets, metadata_bytes_max: int, now: Instant
) -> tuple[tuple[ErrorCode, ...], tuple[OffsetRecord, ...]]:
    """One error per offset, in order, and the records of those that were accepted."""
    expire_ms = now.wall_ms + event.retention_ms if event.retention_ms >= 0 else -1
    errors: list[ErrorCode] = []
    records: list[OffsetRecord] = []
    for item in event.offsets:
        if len(item.metadata.encode()) > metadata_bytes_max:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(ErrorCode.NONE)
        records.append(
            OffsetRecord(
                group_id=event.group_id,
                topic=item.topic,
                partition=item.partition,
                offset=item.offset,
                leader_epoch=item.leader_epoch,
                metadata=item.metadata,
                commit_timestamp_ms=now.wall_ms,
                expire_timestamp_ms=expire_ms,
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
    )


def expired(group: Group, retention_ms: int, wall_ms: int) -> tuple[CoordinatorRecord, ...]:
    """The tombstones that are due: offsets, and the group itself once nothing is left of it."""
    if group.state is not GroupState.EMPTY or group.pending_members:
        return ()
    gone = [key for key, offset in group.offsets.items() if _is_due(group, offset, retention_ms, wall_ms)]
    records: list[CoordinatorRecord] = [
        OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition) for topic, partition in gone
    ]
    if len(gone) == len(group.offsets) and group.persisted is not None:
        records.append(GroupTombstone(group_id=group.group_id))
    return tuple(records)


def _is_due(group: Group, offset: CommittedOffset, retention_ms: int, wall_ms: int) -> bool:
    if offset.expire_timestamp_ms >= 0:  # asked for by an old client
        return wall_ms >= offset.expire_timestamp_ms
    since_ms = offset.commit_timestamp_ms
    if group.protocol_type is not None:
        since_ms = max(since_ms, group.state_timestamp_ms)
    return wall_ms - since_ms >= retention_ms


def forgotten(group: Group) -> tuple[CoordinatorRecord, ...]:
    """The tombstones of a group that is deleted."""
    records: list[CoordinatorRecord] = [
        OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition) for topic, partition in group.offsets
    ]
    if group.persisted is not None:
        records.append(GroupTombstone(group_id=group.group_id))
    return tuple(records)


def deletion_problem(group: Group | None) -> ErrorCode:
    """Why none of the group's offsets may be deleted; NONE when that depends on the topic (KIP-496)."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP  # what its members read is not ours to understand
    return ErrorCode.NONE


def decide_deletion(
    group: Group, partitions: Iterable[tuple[str, int]]
) -> tuple[tuple[ErrorCode, ...], tuple[OffsetTombstone, ...]]:
    """One error per partition, in order, and the tombstones of the offsets that are there to delete.

    A topic that a member subscribes to keeps its offsets. If a subscription cannot be read, every topic may be meant.
    """
    read = subscribed_topics(protocol.metadata for member in group.members.values() for protocol in member.protocols)
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


def of_deleted_topics(group: Group, names: frozenset[str]) -> tuple[CoordinatorRecord, ...]:
    """The tombstones of offsets in topics that are gone."""
    return tuple(
        OffsetTombstone(group_id=group.group_id, topic=topic, partition=partition)
        for topic, partition in group.offsets
        if topic in names
    )
