"""Voters of the metadata quorum, changed while it runs

A voter is a node with the folder that holds its log. Who asks for one names the node; which folder that is the quorum
says, for whoever is to vote follows it already. So a name that is mistyped, a node that does not run and one that votes
are told apart before anything is changed. The requests are Kafka's (KIP-853), and a cluster of it takes them too.
"""

import uuid
from dataclasses import dataclass
from typing import Any, Final

from tidemill.cluster.asking import describe_quorum
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import error_for_code
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from tidemill.core.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

LOOK_TIMEOUT_MS: Final = 10_000
"""Who votes is not asked for again after this: a broker that finds no active controller has looked for longer."""


class VoterUnknown(Exception):
    """Nothing was asked for; the message says why not and what to do."""


class AnswerLost(Exception):
    """Whether it is done is not known here; the message says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Who is to vote, and where its controller listens; without a folder's id the quorum is asked for that."""

    node_id: int
    host: str
    port: int
    listener: str = "CONTROLLER"
    directory_id: uuid.UUID = ZERO_UUID


async def add_voter(client: ClusterClient, joining: Joining, *, timeout_ms: int) -> tuple[int, ...]:
    """Have one more voter; returns the ids of all. Raises VoterUnknown, AnswerLost, KafkaError, ConnectionFailed."""
    node_id = joining.node_id
    voters, observers = await _members(client)
    if node_id in voters:
        raise VoterUnknown(f"node {node_id} votes already; the voters are {_listed(voters)}")
    directory_id = joining.directory_id
    if directory_id == ZERO_UUID:
        directory_id = observers.get(node_id, ZERO_UUID)
    if directory_id == ZERO_UUID:
        raise VoterUnknown(
            f"node {node_id} does not follow the metadata: start it first, with controller in process.roles and the "
            "controller.quorum.bootstrap.servers of the cluster (one that has controller.quorum.voters takes none)"
        )
    name = joining.listener.upper()  # as nodes read it in their settings, however it is written there
    where = Listener(name=name, host=joining.host, port=joining.port)
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=(where,),
    )
    await _change(client, ApiKey.ADD_RAFT_VOTER, request, AddRaftVoterResponse)
    return tuple(sorted({*voters, node_id}))


async def remove_voter(client: ClusterClient, node_id: int, directory_id: uuid.UUID = ZERO_UUID) -> tuple[int, ...]:
    """Have one voter less; returns the ids of those that are left. Raises as `add_voter`."""
    voters, _ = await _members(client)
    if node_id not in voters:
        raise VoterUnknown(f"node {node_id} does not vote; the voters are {_listed(voters)}")
    if directory_id == ZERO_UUID:
        directory_id = voters[node_id]
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
    await _change(client, ApiKey.REMOVE_RAFT_VOTER, request, RemoveRaftVoterResponse)
    return tuple(sorted(voters.keys() - {node_id}))


async def _change(client: ClusterClient, key: ApiKey, request: Message, expect: type[Message]) -> None:
    try:
        answer: Any = await client.call(key, request, expect)
    except ConnectionFailed as error:
        raise AnswerLost(
            f"{error.address} has not said what came of it ({error.reason}): it may be done, or be done yet; 'tidemill "
            "cluster status' shows who votes"
        ) from None
    if answer.error_code == ErrorCode.NOT_CONTROLLER:  # else the broker would have asked the one that is
        raise AnswerLost(
            "another controller is elected: the one before may have done it; 'tidemill cluster status' shows who votes"
        )
    if answer.error_code:
        raise error_for_code(answer.error_code, answer.error_message)


def _listed(voters: dict[int, uuid.UUID]) -> str:
    return ", ".join(map(str, sorted(voters)))


async def _members(client: ClusterClient) -> tuple[dict[int, uuid.UUID], dict[int, uuid.UUID]]:
    """The folders of voters and of observers, by node id."""
    quorum, _ = await client.retrying(lambda: describe_quorum(client), timeout_ms=LOOK_TIMEOUT_MS)
    voters = {each.replica_id: each.replica_directory_id for each in quorum.current_voters}
    return voters, {each.replica_id: each.replica_directory_id for each in quorum.observers}
