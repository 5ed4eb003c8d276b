"""Consumer groups as the broker's handlers ask for them

A group is kept by the machine of the partition of `__consumer_offsets` that it hashes to, on the broker that leads that
partition (`tidemill.broker.coordination`). A request goes to that machine; what is asked about all groups goes to all
machines. Who asks for a group that is kept elsewhere is told NOT_COORDINATOR, for one that is being taken up
COORDINATOR_LOAD_IN_PROGRESS.

The topic is created when the first client asks for a coordinator. Until then nobody has committed anything, which is
what whoever asks for offsets or groups is told.

Not here: any rule about groups (`tidemill.broker.groups.machine`) and wire messages (`tidemill.broker.handlers`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from tidemill.broker.coordination.contract import Duty
from tidemill.broker.coordination.leaderships import ShardState
from tidemill.broker.coordination.runtime import CoordinatorRuntime
from tidemill.broker.coordination.shard import CoordinatedLogs, Shard
from tidemill.broker.groups.events import (
    CommitOffsets,
    CommitResult,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    ExpireOffsets,
    GroupView,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    Request,
    Standing,
    SyncGroup,
    SyncResult,
)
from tidemill.broker.groups.machine import GroupMachine
from tidemill.broker.groups.records import CoordinatorRecord, decode_record, encode_record
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.log.turns import Turns
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from tidemill.core.runtime.clock import Clock

_Result = TypeVar("_Result")

GroupShard: TypeAlias = Shard[GroupMachine, CoordinatorRecord]

OFFSETS_TOPIC: Final = "__consumer_offsets"

REFUSED_PAUSE_MS: Final = 1000
"""How long a log that refused (a full disk) is left alone; clients come back at about this pace by themselves."""


class GroupCoordinator:
    """The groups that this node keeps."""

    def __init__(
        self,
        *,
        node_id: int,
        limits: GroupLimits,
        logs: CoordinatedLogs,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        duty: Duty[GroupMachine, CoordinatorRecord] = Duty(
            topic=OFFSETS_TOPIC,
            noun="group",
            new_machine=lambda: GroupMachine(limits),
            encode=encode_record,
            decode=decode_record,
        )
        self._runtime = CoordinatorRuntime(duty, node_id=node_id, logs=logs, clock=clock)
        self._clock = clock
        self._new_id = new_id
        self._request_id = 0

    # --- life

    def replay(self, image: ClusterImage) -> int:
        """Take up what is led here; returns the number of records. Call once, before serving."""
        self._runtime.image_changed(image, frozenset())
        return self._runtime.load_now()

    def image_changed(self, image: ClusterImage, gone: frozenset[str]) -> None:
        """The cluster is another one; topics that had the names in `gone` are not there any more."""
        self._runtime.image_changed(image, gone)

    def take_up(self) -> None:
        """Partitions of the topic may have got their logs, or may be led now."""
        self._runtime.take_up()

    async def load(self) -> None:
        """Take up what is led here and has records; `run` does it by itself."""
        await self._runtime.load()

    async def run(self) -> None:
        """Take up partitions and do what is due by the clock; runs until cancelled."""
        await self._runtime.run()

    def shards(self) -> list[GroupShard]:
        """The partitions that are kept here and can be asked about."""
        return list(self._runtime.active())

    def tick(self) -> None:
        """Do what is due by the clock."""
        self._runtime.tick()

    async def expire_offsets(self) -> None:
        """Drop what nobody has needed for the retention time; a job calls it now and then."""
        turns = Turns(self._clock.monotonic)
        for shard in self._runtime.active():
            for group_id in shard.machine.group_ids():
                if not shard.is_active:
                    break
                shard.tell(ExpireOffsets(group_ids=(group_id,)))
                await turns.give_way()

    # --- requests

    def new_member_id(self, prefix: str) -> str:
        """An id that no other member has."""
        return f"{prefix}-{self._new_id()}"

    def request_id(self) -> int:
        """The number under which the next request is answered."""
        self._request_id += 1
        return self._request_id

    async def join(self, request: JoinGroup) -> JoinResult:
        """Answered when the join phase ends."""
        return await self._ask(request, JoinResult)

    async def sync(self, request: SyncGroup) -> SyncResult:
        """Answered when the leader's assignment is durable.

        A group that is being taken up has lost its round, and clients know what to do about that; most expect no
        COORDINATOR_LOAD_IN_PROGRESS here and in the answer to a heartbeat.
        """
        try:
            return await self._ask(request, SyncResult)
        except CoordinatorLoadInProgress:
            return SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)

    async def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Answered at once; while the group is being taken up nobody knows better, as in Kafka."""
        try:
            return (await self._ask(request, ErrorResult)).error
        except CoordinatorLoadInProgress:
            return ErrorCode.NONE

    async def leave(self, request: LeaveGroup) -> LeaveResult:
        """Answered at once."""
        return await self._ask(request, LeaveResult)

    async def commit(self, request: CommitOffsets) -> CommitResult:
        """Answered when the offsets are durable."""
        try:
            self._runtime.shard_of(request.group_id)
        except KafkaError as error:
            return CommitResult(errors=(ErrorCode(error.code),) * len(request.offsets))
        return await self._ask(request, CommitResult)

    async def delete(self, request: DeleteGroup) -> ErrorCode:
        """Answered when the tombstones are durable."""
        if self._nothing_is_kept:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return (await self._ask(request, ErrorResult)).error

    async def delete_offsets(self, request: DeleteOffsets) -> DeleteOffsetsResult:
        """Answered when the tombstones are durable."""
        if self._nothing_is_kept:
            return DeleteOffsetsResult(error=ErrorCode.GROUP_ID_NOT_FOUND)
        return await self._ask(request, DeleteOffsetsResult)

    @property
    def _nothing_is_kept(self) -> bool:
        """Whether the topic was never made; where there are other brokers, one of them may know better."""
        return not self._runtime.partition_count and len(self._runtime.image.brokers) <= 1

    async def _ask(self, request: Request, expected: type[_Result]) -> _Result:
        result = await self._runtime.shard_of(request.group_id).ask(request)
        assert isinstance(result, expected)
        return result

    async def committed_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None = None
    ) -> Mapping[tuple[str, int], CommittedOffset]:
        """A group's offsets in topics that are there, or those of the `wanted` partitions; all are durable."""
        if self._nothing_is_kept:
            return {}
        shard = self._runtime.shard_of(group_id)
        offsets = shard.machine.committed_offsets(group_id, wanted)
        try:
            await shard.durable()
        except KafkaError as error:
            # As Kafka does: a consumer looks for its coordinator again then, and gives up at most other errors.
            raise NotCoordinator(str(error)) from error
        return shard.machine.still_committed(offsets)

    def describe(self, group_id: str) -> GroupView | None:
        """One group with its members; raises KafkaError if it is not kept here, or not yet."""
        if self._nothing_is_kept:
            return None
        return self._runtime.shard_of(group_id).machine.describe(group_id)

    def list_groups(self) -> list[GroupView]:
        """Every group that is kept here, without members; raises CoordinatorLoadInProgress while there may be more."""
        return [view for shard in self._runtime.all_loaded() for view in shard.machine.list_groups()]

    def trouble(self, group_id: str) -> str | None:
        """Why nothing about this group can be kept at the moment; None when all is well.

        Clients that ask for the coordinator are told, so that they wait between attempts: a group whose assignment
        cannot be written would otherwise go round as fast as its members can ask.
        """
        return self._runtime.trouble(group_id, REFUSED_PAUSE_MS)

    # --- figures

    def partition_states(self) -> Mapping[ShardState, int]:
        """How many of the partitions led here are being taken up, can answer, and cannot be used."""
        return self._runtime.states()

    def group_ids(self) -> list[str]:
        """Every group that is known here by its name."""
        return [group_id for shard in self._runtime.active() for group_id in shard.machine.group_ids()]

    def standing(self, group_id: str) -> Standing | None:
        """How large a group is and what it is about; None if it is not there any more."""
        machine = self._machine_of(group_id)
        return None if machine is None else machine.standing(group_id)

    def positions(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """A group's offsets in topics that are there, as they are now: not all of them need be durable."""
        machine = self._machine_of(group_id)
        return {} if machine is None else machine.committed_offsets(group_id)

    def _machine_of(self, group_id: str) -> GroupMachine | None:
        try:
            return self._runtime.shard_of(group_id).machine
        except KafkaError:
            return None
