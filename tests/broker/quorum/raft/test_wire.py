"""What members say, through Kafka's bytes and back"""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.quorum.raft import messages as said
from tidemill.broker.quorum.raft.log_view import Divergence
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint
from tidemill.broker.quorum.raft.wire import (
    REQUESTS,
    TOPIC,
    answer_from_wire,
    answer_to_wire,
    request_from_wire,
    request_to_wire,
)
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.broker.quorum.transport import decode_answer, decode_call, encode_answer, encode_call
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidRequest
from tidemill.core.wire.api import api_of
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidemill.core.wire.messages.vote import PartitionData, TopicData, VoteRequest, VoteResponse

ids = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 2)
epochs = st.integers(0, 2**31 - 1)
clusters = st.none() | st.text(max_size=5)
uuids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
names = st.text("abc.-0", min_size=1, max_size=5)
end_points = st.builds(VoterEndpoint, names, names, st.integers(0, 65535))
some_end_points = st.lists(end_points, max_size=2).map(tuple)
voters = st.builds(Voter, node_id=ids, directory_id=uuids, endpoints=some_end_points)
versions = st.tuples(st.integers(0, 3), st.integers(3, 9))
snapshot_ids = st.builds(SnapshotId, offsets, epochs)

requests = st.one_of(
    st.builds(
        said.VoteRequest, cluster_id=clusters, epoch=epochs, candidate_id=ids, candidate_directory_id=uuids,
        last_epoch=epochs, end_offset=offsets, pre_vote=st.booleans(), voter_id=ids | st.just(-1),
        voter_directory_id=uuids,
    ),
    st.builds(
        said.BeginQuorumEpochRequest, cluster_id=clusters, epoch=epochs, leader_id=ids,
        leader_endpoints=some_end_points, voter_id=ids, voter_directory_id=uuids,
    ),
    st.builds(
        said.EndQuorumEpochRequest, cluster_id=clusters, epoch=epochs, leader_id=ids, leader_endpoints=some_end_points,
        preferred_candidates=st.lists(st.tuples(ids, uuids), max_size=3).map(tuple),
    ),
    st.builds(
        said.FetchRequest, cluster_id=clusters, epoch=epochs, replica_id=ids, replica_directory_id=uuids,
        offset=offsets, last_epoch=epochs, high_watermark=offsets | st.just(-1), bytes_max=ids, wait_max_ms=ids,
    ),
    st.builds(
        said.FetchSnapshotRequest, cluster_id=clusters, epoch=epochs, replica_id=ids, replica_directory_id=uuids,
        snapshot_id=snapshot_ids, position=offsets, bytes_max=ids,
    ),
    st.builds(said.AddVoterRequest, cluster_id=clusters, voter=voters, timeout_ms=ids),
    st.builds(said.RemoveVoterRequest, cluster_id=clusters, node_id=ids, directory_id=uuids),
    st.builds(
        said.UpdateVoterRequest, cluster_id=clusters, epoch=epochs,
        voter=st.builds(Voter, node_id=ids, directory_id=uuids, endpoints=some_end_points, kraft_versions=versions),
    ),
)  # fmt: skip


@given(requests)
def test_a_request_comes_back_as_it_was(request: said.Request) -> None:
    message = request_to_wire(request)
    assert isinstance(message, REQUESTS)
    entry = api_of(type(message))
    assert entry is not None
    heard, _ = decode_call(encode_call(message, entry.max_version))
    assert request_from_wire(heard) == request


def through(request: said.Request, answer: said.Response) -> said.Response:
    """`answer` as whoever asked `request` gets it."""
    message = request_to_wire(request)
    entry = api_of(type(message))
    assert entry is not None
    data = encode_answer(answer_to_wire(request, answer), entry.max_version)
    return answer_from_wire(request, decode_answer(message, entry.max_version, data))


HERE = (VoterEndpoint("", "h", 9),)
VOTE = said.VoteRequest(
    cluster_id="c", epoch=3, candidate_id=1, candidate_directory_id=uuid.UUID(int=1), last_epoch=2, end_offset=9,
    pre_vote=False,
)  # fmt: skip
BEGIN = said.BeginQuorumEpochRequest(cluster_id="c", epoch=3, leader_id=1)
END = said.EndQuorumEpochRequest(cluster_id="c", epoch=3, leader_id=1)
FETCH = said.FetchRequest(
    cluster_id="c", epoch=3, replica_id=2, replica_directory_id=uuid.UUID(int=1), offset=9, last_epoch=2, bytes_max=9,
    wait_max_ms=5,
)  # fmt: skip
SNAPSHOT = said.FetchSnapshotRequest(
    cluster_id="c", epoch=3, replica_id=2, replica_directory_id=uuid.UUID(int=1), snapshot_id=SnapshotId(5, 1),
    position=0, bytes_max=9,
)  # fmt: skip
known: dict[str, Any] = {"epoch": 7, "leader_id": 4, "leader_endpoints": HERE}


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (VOTE, said.VoteResponse(granted=True, **known)),
        (VOTE, said.VoteResponse(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=7, leader_id=-1)),
        (BEGIN, said.EpochResponse(error=ErrorCode.INVALID_REQUEST, **known)),
        (END, said.EpochResponse(**known)),
        (FETCH, said.FetchResponse(high_watermark=8, log_start_offset=2, records=b"batches", **known)),
        (FETCH, said.FetchResponse(high_watermark=8, log_start_offset=2, diverging=Divergence(0, 0), **known)),
        (FETCH, said.FetchResponse(high_watermark=8, log_start_offset=2, snapshot_id=SnapshotId(5, 1), **known)),
        (FETCH, said.FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, **known)),
        (SNAPSHOT, said.FetchSnapshotResponse(snapshot_id=SnapshotId(5, 1), size=9, position=4, data=b"x", **known)),
        (
            said.UpdateVoterRequest(cluster_id="c", epoch=3, voter=Voter(node_id=2)),
            said.EpochResponse(error=ErrorCode.VOTER_NOT_FOUND, **known),
        ),
    ],
)
def test_an_answer_comes_back_as_it_was(request_: said.Request, answer: said.Response) -> None:
    assert through(request_, answer) == answer


def test_a_change_of_voters_that_is_refused_says_why() -> None:
    asked = said.AddVoterRequest(cluster_id="c", voter=Voter(node_id=2), timeout_ms=1)
    answer = said.EpochResponse(error=ErrorCode.DUPLICATE_VOTER, message="it is there", **known)
    told: Any = answer_to_wire(asked, answer)
    assert (told.error_code, told.error_message) == (ErrorCode.DUPLICATE_VOTER, "it is there")


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(),
        VoteRequest(topics=(TopicData(topic_name="t", partitions=(PartitionData(),)),)),
        VoteRequest(topics=(TopicData(topic_name=TOPIC, partitions=(PartitionData(partition_index=1),)),)),
        FetchRequest(topics=(FetchTopic(topic_id=uuid.UUID(int=5), partitions=(FetchPartition(),)),)),
        BrokerHeartbeatRequest(),
    ],
)
def test_what_is_not_about_the_quorums_log_is_refused(message: Message) -> None:
    with pytest.raises(InvalidRequest):
        request_from_wire(message)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (VOTE, VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)),
        (FETCH, FetchResponse()),
        (VOTE, BrokerHeartbeatResponse()),
    ],
)
def test_an_answer_that_says_nothing_about_it_is_none(asked: said.Request, message: Message) -> None:
    with pytest.raises(InvalidRequest):
        answer_from_wire(asked, message)
