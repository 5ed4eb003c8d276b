"""Members of consumer groups: they join, own partitions, and commit offsets that nobody else does

Whoever is told that a coordinator is being loaded comes again a little later, as whatever it was before; whoever is
told that another broker is the coordinator looks for it.
"""

from typing import TYPE_CHECKING, Final

from tests.sim.world.clients import PARTITIONS, TOPICS, UNKNOWN_TOPIC, Client, Led, ResponseT
from tests.sim.world.events import Assigned, CommitAsked, Committed, Joined, OffsetTold
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidemill.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemill.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidemill.core.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from tests.sim.world.world import World

BY_NAME: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics by their names."""


class Member(Client):
    """A member of a consumer group that commits offsets which nobody else does."""

    def __init__(self, world: "World", name: str, group: str = "g", *, commits: bool = True) -> None:
        super().__init__(world, name)
        self.group = group
        self.commits = commits
        self._coordinator: int | None = None
        self._member = ""
        self._generation = -1
        self._owned: list[tuple[str, int]] = []

    async def step(self) -> None:
        await self.pause(0.4)
        if not self.topics:
            await self.look_at_topics()
        if self._coordinator is None and not await self._find():
            await self.pause(1)
            return
        if self._generation < 0:
            await self._join()
            return
        chance = self.rng.random()
        if chance < 0.5 and self.commits:
            await self._commit()
        elif chance < 0.75:
            await self.look_up_offsets()
        elif chance < 0.95:
            await self._heartbeat()
        else:
            await self._leave()

    async def _ask(
        self, key: ApiKey, request: Message, expect: type[ResponseT], version: int | None = None
    ) -> ResponseT | None:
        """Ask the coordinator."""
        answer = await self.ask(key, request, expect, version, node_id=self._coordinator)
        if answer is None:
            self._coordinator = None
        return answer

    async def _find(self) -> bool:
        """Ask for the coordinator; whether there is one."""
        request = FindCoordinatorRequest(coordinator_keys=(self.group,))
        found = await self.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
        if found is None or found.coordinators[0].error_code:
            return False
        self._coordinator = found.coordinators[0].node_id
        return True

    def _lost(self, request: str, code: int) -> None:
        self.refused(request, code)
        if code == ErrorCode.NOT_COORDINATOR:
            self._coordinator = None
            return
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        self._generation = -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""

    async def _join(self) -> None:
        join = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=3000,
            rebalance_timeout_ms=2500,
            member_id=self._member,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=self.name.encode()),),
        )
        asked_at, led = self.now, self._led()
        answer = await self._ask(ApiKey.JOIN_GROUP, join, JoinGroupResponse)
        if answer is None:
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = answer.member_id
            return
        if answer.error_code:
            self._lost("join", answer.error_code)
            return
        self._member = answer.member_id
        self.tell(Joined(self.now, self.name, self.group, answer.member_id, answer.generation_id, asked_at, *led))
        if self.rng.random() < (0.1 if self.commits else 0.5):
            await self._leave()
            return
        await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        shares: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            everything = [f"{name}-{partition}" for name in TOPICS for partition in range(PARTITIONS)]
            members = [each.member_id for each in joined.members]
            shares = tuple(
                SyncGroupRequestAssignment(
                    member_id=member, assignment=",".join(everything[index :: len(members)]).encode()
                )
                for index, member in enumerate(members)
            )
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        led = self._led()
        answer = await self._ask(ApiKey.SYNC_GROUP, sync, SyncGroupResponse)
        if answer is None:
            return
        if answer.error_code:
            self._lost("sync", answer.error_code)
            return
        self._generation = joined.generation_id
        owned = answer.assignment.decode()
        self._owned = [(name, int(number)) for name, number in (each.split("-") for each in owned.split(",") if each)]
        self.tell(Assigned(self.now, self.name, self.group, joined.member_id, joined.generation_id, owned, *led))

    def _led(self) -> Led:
        """Who is asked, and in which epoch it leads what it keeps the group by."""
        node_id = self._coordinator if self._coordinator is not None else self._asked_first
        return Led(node_id, self.world.group_epoch_of(node_id, self.group))

    async def _heartbeat(self) -> None:
        beat = HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._member)
        answer = await self._ask(ApiKey.HEARTBEAT, beat, HeartbeatResponse)
        if answer is not None and answer.error_code:
            self._lost("heartbeat", answer.error_code)

    async def _leave(self) -> None:
        members = (MemberIdentity(member_id=self._member),)
        await self._ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id=self.group, members=members), LeaveGroupResponse)
        self._member, self._generation = "", -1
        await self.pause(2)

    async def _commit(self) -> None:
        owned = [(name, partition) for name, partition in self._owned if name in self.topics]
        if not owned:
            await self.look_at_topics()
            return
        name, partition = self.rng.choice(owned)
        topic_id = self.topics[name]
        offset = self.world.next_number()
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        self.tell(CommitAsked(self.now, self.name, self.group, topic_id, partition, offset))
        commit = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            topics=(OffsetCommitRequestTopic(topic_id=topic_id, partitions=(part,)),),
        )
        answer = await self._ask(ApiKey.OFFSET_COMMIT, commit, OffsetCommitResponse)
        if answer is None:
            return
        code = answer.topics[0].partitions[0].error_code
        if not code:
            epoch = self.world.newest_group_epoch(self.group)
            self.tell(Committed(self.now, self.name, self.group, topic_id, partition, offset, epoch))
        elif code in UNKNOWN_TOPIC:
            self.topics.clear()
        else:
            self._lost("commit", code)

    async def look_up_offsets(self) -> bool:
        """Ask by name for what is committed, if the topics surely keep their ids meanwhile; whether it was answered."""
        if self._coordinator is None and not await self._find():
            return False
        await self.look_at_topics()
        before = dict(self.topics)
        asked_at, led = self.now, self._led()
        sure = {name: self.world.knows(led.node_id, name, topic_id) for name, topic_id in before.items()}
        topics = tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=tuple(range(PARTITIONS)))
            for name in TOPICS
            if name in before
        )
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=self.group, topics=topics),))
        answer = await self._ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, BY_NAME)
        if answer is None:
            return False
        if answer.groups[0].error_code:
            self.refused("offsets", answer.groups[0].error_code)
            if answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR:
                self._coordinator = None
            return False
        self.topics.clear()  # unless it can be asked again, nothing is sure
        await self.look_at_topics()
        for topic in answer.groups[0].topics:
            topic_id = before[topic.name]
            if self.topics.get(topic.name) != topic_id or not sure[topic.name]:
                continue
            if not self.world.knows(None, topic.name, topic_id):
                continue
            for part in topic.partitions:
                if not part.error_code:
                    place = (self.group, topic_id, part.partition_index)
                    self.tell(OffsetTold(self.now, self.name, *place, asked_at, part.committed_offset, led.epoch))
        return True
