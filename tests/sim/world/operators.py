"""Operators: they move replicas, give leaders back, and let controllers vote or not while everything else goes on

Nothing of it is needed by anybody, and nothing that was promised may suffer from it. What it came to is not told:
whoever asks again finds what there is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.world.clients import PARTITIONS, TOPICS, Client
from tests.sim.world.events import Operated
from tests.sim.world.losses import may_lose
from tests.sim.world.topology import CLUSTER_ID, CONTROLLER_PORT, REPLICAS_MAX, directory_of, name_of
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemill.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tidemill.core.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tidemill.core.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from tests.sim.world.world import World


class Operator(Client):
    """One who looks after a cluster, and does too much."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._rest_s = self.rng.choice((1.5, 4.0, 10.0))

    async def step(self) -> None:
        await self.pause(self._rest_s)
        acts = [self._move, self._move, self._give_back, self._elect]
        if may_lose(self.world.plan.nodes, self.world.plan.seed):
            acts += [self._elect_anybody] * len(acts)
        await self.rng.choice(acts + [self._change_voters] * 3 * self.world.has_dynamic_voters)()

    async def _move(self) -> None:
        brokers = [node.node_id for node in self.world.brokers]
        await self._reassign(tuple(self.rng.sample(brokers, min(REPLICAS_MAX, len(brokers)))))

    async def _give_back(self) -> None:
        await self._reassign(None)

    async def _reassign(self, replicas: tuple[int, ...] | None) -> None:
        part = ReassignablePartition(partition_index=self.rng.randrange(PARTITIONS), replicas=replicas)
        name = self.rng.choice((*TOPICS, "__consumer_offsets"))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3000, topics=(ReassignableTopic(name=name, partitions=(part,)),)
        )
        answer = await self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, AlterPartitionReassignmentsResponse)
        if answer is not None:
            code = answer.error_code or answer.responses[0].partitions[0].error_code
            self._came_to("reassign", f"{name}-{part.partition_index} to {replicas}", code)

    async def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000)
        answer = await self.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
        if answer is not None:
            self._came_to("elect", "the preferred", answer.error_code)

    async def _elect_anybody(self) -> None:
        """Where nobody leads, whoever is there, whatever it lacks."""
        topics = tuple(TopicPartitions(topic=name, partitions=tuple(range(PARTITIONS))) for name in TOPICS)
        request = ElectLeadersRequest(election_type=1, topic_partitions=topics, timeout_ms=3000)
        answer = await self.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
        if answer is not None:
            self._came_to("elect", "anybody", answer.error_code)

    def _came_to(self, request: str, about: str, code: int) -> None:
        if code:
            self.refused(request, code)
        else:
            self.tell(Operated(self.now, self.name, request, about))

    async def _change_voters(self) -> None:
        """Add one who does not vote, or remove one who does, the leader more often than others."""
        topics = (TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),)),)
        answer = await self.ask(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=topics), DescribeQuorumResponse)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return
        state = answer.topics[0].partitions[0]
        voters = [each.replica_id for each in state.current_voters]
        others = [node.node_id for node in self.world.controllers if node.node_id not in voters]
        if others and (len(voters) == 1 or self.rng.random() < 0.5):
            await self._add(self.rng.choice(others))
        elif len(voters) > 1:
            await self._remove(state.leader_id, voters)

    async def _add(self, node_id: int) -> None:
        where = Listener(name="CONTROLLER", host=name_of(node_id), port=CONTROLLER_PORT)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=3000,
            voter_id=node_id,
            voter_directory_id=directory_of(node_id),
            listeners=(where,),
        )
        answer = await self.ask(ApiKey.ADD_RAFT_VOTER, request, AddRaftVoterResponse)
        if answer is not None:
            self._came_to("add_voter", str(node_id), answer.error_code)

    async def _remove(self, leader_id: int, voters: Sequence[int]) -> None:
        node_id = leader_id if leader_id in voters and self.rng.random() < 0.6 else self.rng.choice(voters)
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_of(node_id)
        )
        answer = await self.ask(ApiKey.REMOVE_RAFT_VOTER, request, RemoveRaftVoterResponse)
        if answer is not None:
            self._came_to("remove_voter", str(node_id), answer.error_code)
