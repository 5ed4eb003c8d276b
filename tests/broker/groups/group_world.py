"""A coordinator without a broker: the machine, a list for a log, a clock that is moved by hand."""

import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.broker.coordination.contract import (
    Append,
    Appended,
    AppendFailed,
    ImageChanged,
    Instant,
    Note,
    Replayed,
    Reply,
    Tick,
)
from tidemill.broker.groups.events import (
    CommitOffsets,
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    Event,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    Leaver,
    LeaveResult,
    OffsetToCommit,
    Protocol,
    Response,
    SyncGroup,
    SyncResult,
)
from tidemill.broker.groups.machine import GroupMachine
from tidemill.broker.groups.records import CoordinatorRecord, decode_record, encode_record
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.core.error_code import ErrorCode

START_WALL_MS = 1_700_000_000_000
LIMITS = GroupLimits(initial_rebalance_delay_ms=0, max_size=50)


PARTITION = PartitionImage(partition=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
TOPICS = {"t": uuid.UUID(int=1), "u": uuid.UUID(int=2)}


def image_of(topics: Mapping[str, uuid.UUID], partitions: int = 10) -> ClusterImage:
    """A cluster with these topics, all of the same size."""
    each = tuple(replace(PARTITION, partition=index) for index in range(partitions))
    return ClusterImage(
        topics=SharedMap(
            {name: TopicImage(name=name, topic_id=topic_id, partitions=each) for name, topic_id in topics.items()}
        ),
        topic_names=SharedMap({topic_id: name for name, topic_id in topics.items()}),
    )


class GroupWorld:
    """Drives one GroupMachine as the coordinator shell does, and keeps everything it says."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.limits = limits
        self.machine = GroupMachine(limits)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[int, Response] = {}
        self.after: dict[int, int | None] = {}
        self.notes: list[str] = []
        self.asked: set[int] = set()
        self.elapsed_ms = 0
        self.append_error: ErrorCode | None = None
        self._request_id = 0
        self.topics = dict(TOPICS)
        self.step(Replayed(image=image_of(self.topics)))

    @property
    def now(self) -> Instant:
        return Instant(self.elapsed_ms, START_WALL_MS + self.elapsed_ms)

    # --- the shell

    def step(self, event: Event) -> None:
        todo = deque(self.machine.step(event, self.now))
        while todo:
            action = todo.popleft()
            match action:
                case Append():
                    todo.extendleft(reversed(self._append(action)))
                case Reply():
                    assert action.request_id in self.asked, "an answer that nobody asked for"
                    assert action.request_id not in self.replies, "two answers to one request"
                    self.replies[action.request_id] = action.response
                    self.after[action.request_id] = action.after
                case Note():
                    self.notes.append(action.text)

    def _append(self, action: Append) -> list[Any]:
        if self.append_error is not None:
            return self.machine.step(AppendFailed(token=action.token, error=self.append_error), self.now)
        self.log += [encode_record(record) for record in action.records]
        return self.machine.step(Appended(token=action.token), self.now)

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass, with a tick at every deadline on the way."""
        end_ms = self.elapsed_ms + elapsed_ms
        while (deadline_ms := self.machine.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.elapsed_ms = max(self.elapsed_ms, deadline_ms)
            self.step(Tick())
        self.elapsed_ms = end_ms

    def stall(self, elapsed_ms: int) -> None:
        """Let time pass while nobody looks at the clock: whatever is due comes up in one tick."""
        self.elapsed_ms += elapsed_ms
        self.step(Tick())

    def records(self) -> list[CoordinatorRecord]:
        """The log, decoded."""
        decoded = [decode_record(key, value) for key, value in self.log]
        return [record for record in decoded if record is not None]

    def restart(self) -> None:
        """Lose everything but the log."""
        self.machine = GroupMachine(self.limits)
        for record in self.records():
            self.machine.apply(record)
        self.step(Replayed(image=image_of(self.topics)))

    # --- requests

    def request_id(self) -> int:
        self._request_id += 1
        self.asked.add(self._request_id)
        return self._request_id

    def join(
        self,
        member_id: str = "",
        *,
        name: str = "m",
        group: str = "g",
        instance: str | None = None,
        protocols: tuple[Protocol, ...] = (Protocol("range", b"t"),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        required: bool = False,
        skip: bool = False,
    ) -> int:
        request_id = self.request_id()
        self.step(
            JoinGroup(
                request_id=request_id,
                group_id=group,
                member_id=member_id,
                new_member_id=f"{name}-{request_id}",
                group_instance_id=instance,
                client_id=name,
                client_host="/127.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                member_id_required=required,
                skip_assignment=skip,
            )
        )
        return request_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        request_id = self.request_id()
        self.step(
            SyncGroup(
                request_id=request_id,
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=tuple((assignments or {}).items()),
            )
        )
        return request_id

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request_id = self.request_id()
        self.step(
            Heartbeat(
                request_id=request_id,
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
            )
        )
        result = self.replies[request_id]
        assert isinstance(result, ErrorResult)
        return result.error

    def leave(self, *leavers: Leaver, group: str = "g") -> LeaveResult:
        request_id = self.request_id()
        self.step(LeaveGroup(request_id=request_id, group_id=group, leavers=leavers))
        result = self.replies[request_id]
        assert isinstance(result, LeaveResult)
        return result

    def commit(
        self,
        offset: int = 0,
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        metadata: str = "",
        retention_ms: int = -1,
        instance: str | None = None,
    ) -> ErrorCode:
        request_id = self.request_id()
        self.step(
            CommitOffsets(
                request_id=request_id,
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                retention_ms=retention_ms,
                offsets=(OffsetToCommit(topic, partition, offset, 5, metadata),),
            )
        )
        result = self.replies[request_id]
        assert isinstance(result, CommitResult)
        return result.errors[0]

    def delete(self, group: str = "g") -> ErrorCode:
        request_id = self.request_id()
        self.step(DeleteGroup(request_id=request_id, group_id=group))
        result = self.replies[request_id]
        assert isinstance(result, ErrorResult)
        return result.error

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> DeleteOffsetsResult:
        request_id = self.request_id()
        self.step(DeleteOffsets(request_id=request_id, group_id=group, partitions=partitions))
        result = self.replies[request_id]
        assert isinstance(result, DeleteOffsetsResult)
        return result

    def expire(self) -> None:
        self.step(ExpireOffsets(group_ids=tuple(self.machine.group_ids())))

    def delete_topics(self, *names: str) -> None:
        for name in names:
            self.topics.pop(name, None)
        self.step(ImageChanged(image=image_of(self.topics), gone=frozenset(names)))

    def create_topic(self, name: str, topic_id: int) -> None:
        self.topics[name] = uuid.UUID(int=topic_id)
        self.step(ImageChanged(image=image_of(self.topics), gone=frozenset()))

    # --- answers

    def joined(self, request_id: int) -> JoinResult:
        result = self.replies[request_id]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, request_id: int) -> SyncResult:
        result = self.replies[request_id]
        assert isinstance(result, SyncResult)
        return result

    def waits(self, request_id: int) -> bool:
        return request_id not in self.replies

    def state(self, group: str = "g") -> str:
        view = self.machine.describe(group)
        return "none" if view is None else str(view.state)

    def stable_group(self, *names: str, group: str = "g", **terms: Any) -> list[str]:
        """Members that have joined and synced, the first one leading; returns their ids."""
        first = self.join(name=names[0], group=group, **terms)
        members = [self.joined(first).member_id]
        others = [self.join(name=name, group=group, **terms) for name in names[1:]]
        if others:
            # Everybody who is in has to come again before the round ends.
            again = self.join(members[0], name=names[0], group=group, **terms)
            done = {members[0]}
            results = [self.joined(again)]
            for request_id in others:
                result = self.joined(request_id)
                assert result.member_id not in done
                members.append(result.member_id)
                results.append(result)
            generation = results[0].generation_id
            assert {result.generation_id for result in results} == {generation}
        else:
            generation = self.joined(first).generation_id
        syncs = [self.sync(member, generation, group=group) for member in members[1:]]
        syncs.append(self.sync(members[0], generation, {member: member.encode() for member in members}, group=group))
        assert all(self.synced(request_id).error is ErrorCode.NONE for request_id in syncs)
        assert self.state(group) == "Stable"
        return members

    def generation(self, group: str = "g") -> int:
        return self.machine.table.groups[group].generation_id
