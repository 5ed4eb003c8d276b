"""What members of the quorum say, as Kafka's messages and back

Each of their requests is one of Kafka's, about the one partition of the metadata log; the answer to it is read by the
request. What a message says about other topics or partitions is not for the quorum: it is refused as a whole.
"""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from tidemill.broker.quorum.raft import messages as said
from tidemill.broker.quorum.raft.election import NOBODY
from tidemill.broker.quorum.raft.log_view import Divergence
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidRequest
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = uuid.UUID(int=1)
_NOT_SAID: Final = 2**63 - 1  # the high watermark of a follower that does not say what it knows

REQUESTS: Final = (
    vote.VoteRequest,
    begin_quorum_epoch.BeginQuorumEpochRequest,
    end_quorum_epoch.EndQuorumEpochRequest,
    fetch.FetchRequest,
    fetch_snapshot.FetchSnapshotRequest,
    add_raft_voter.AddRaftVoterRequest,
    remove_raft_voter.RemoveRaftVoterRequest,
    update_raft_voter.UpdateRaftVoterRequest,
)
"""The messages that are for the quorum."""


# --- requests


def request_to_wire(request: said.Request) -> Message:
    """The message that says so."""
    match request:
        case said.VoteRequest():
            return _vote(request)
        case said.BeginQuorumEpochRequest():
            return _begin(request)
        case said.EndQuorumEpochRequest():
            return _end(request)
        case said.FetchRequest():
            return _fetch(request)
        case said.FetchSnapshotRequest():
            return _fetch_snapshot(request)
        case said.AddVoterRequest():
            return add_raft_voter.AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                timeout_ms=request.timeout_ms,
                voter_id=request.voter.node_id,
                voter_directory_id=request.voter.directory_id,
                listeners=tuple(_listener(add_raft_voter, each) for each in request.voter.endpoints),
                ack_when_committed=request.ack_when_committed,
            )
        case said.RemoveVoterRequest():
            return remove_raft_voter.RemoveRaftVoterRequest(
                cluster_id=request.cluster_id, voter_id=request.node_id, voter_directory_id=request.directory_id
            )
        case said.UpdateVoterRequest():
            return _update(request)


def _vote(request: said.VoteRequest) -> Message:
    partition = vote.PartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate_id,
        replica_directory_id=request.candidate_directory_id,
        voter_directory_id=request.voter_directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.TopicData(topic_name=TOPIC, partitions=(partition,))
    return vote.VoteRequest(cluster_id=request.cluster_id, voter_id=request.voter_id, topics=(topic,))


def _begin(request: said.BeginQuorumEpochRequest) -> Message:
    partition = begin_quorum_epoch.PartitionData(
        voter_directory_id=request.voter_directory_id, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter_id,
        topics=(begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=(partition,)),),
        leader_endpoints=tuple(
            begin_quorum_epoch.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in request.leader_endpoints
        ),
    )


def _end(request: said.EndQuorumEpochRequest) -> Message:
    candidates = tuple(
        end_quorum_epoch.ReplicaInfo(candidate_id=node_id, candidate_directory_id=directory_id)
        for node_id, directory_id in request.preferred_candidates
    )
    partition = end_quorum_epoch.PartitionData(
        leader_id=request.leader_id, leader_epoch=request.epoch, preferred_candidates=candidates
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=(end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=(partition,)),),
        leader_endpoints=tuple(
            end_quorum_epoch.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in request.leader_endpoints
        ),
    )


def _fetch(request: said.FetchRequest) -> Message:
    known = request.high_watermark if request.high_watermark != said.UNKNOWN_OFFSET else _NOT_SAID
    partition = fetch.FetchPartition(
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=request.bytes_max,
        replica_directory_id=request.replica_directory_id,
        high_watermark=known,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica_id),
        max_wait_ms=request.wait_max_ms,
        max_bytes=request.bytes_max,
        topics=(fetch.FetchTopic(topic_id=TOPIC_ID, partitions=(partition,)),),
    )


def _fetch_snapshot(request: said.FetchSnapshotRequest) -> Message:
    which = request.snapshot_id
    partition = fetch_snapshot.PartitionSnapshot(
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=which.offset_end, epoch=which.epoch),
        position=request.position,
        replica_directory_id=request.replica_directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica_id,
        max_bytes=request.bytes_max,
        topics=(fetch_snapshot.TopicSnapshot(name=TOPIC, partitions=(partition,)),),
    )


def _update(request: said.UpdateVoterRequest) -> Message:
    low, high = request.voter.kraft_versions
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=tuple(_listener(update_raft_voter, each) for each in request.voter.endpoints),
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )


def _listener(module: Any, end_point: VoterEndpoint) -> Any:
    return module.Listener(name=end_point.name, host=end_point.host, port=end_point.port)


def request_from_wire(message: Message) -> said.Request:
    """What a message for the quorum says; raises InvalidRequest."""
    match message:
        case vote.VoteRequest():
            ballot = _one(message.topics, "topic_name")
            return said.VoteRequest(
                cluster_id=message.cluster_id,
                epoch=ballot.replica_epoch,
                candidate_id=ballot.replica_id,
                candidate_directory_id=ballot.replica_directory_id,
                last_epoch=ballot.last_offset_epoch,
                end_offset=ballot.last_offset,
                pre_vote=ballot.pre_vote,
                voter_id=message.voter_id,
                voter_directory_id=ballot.voter_directory_id,
            )
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            begun = _one(message.topics, "topic_name")
            return said.BeginQuorumEpochRequest(
                cluster_id=message.cluster_id,
                epoch=begun.leader_epoch,
                leader_id=begun.leader_id,
                leader_endpoints=_end_points(message.leader_endpoints),
                voter_id=message.voter_id,
                voter_directory_id=begun.voter_directory_id,
            )
        case end_quorum_epoch.EndQuorumEpochRequest():
            ended = _one(message.topics, "topic_name")
            candidates = tuple((each.candidate_id, each.candidate_directory_id) for each in ended.preferred_candidates)
            return said.EndQuorumEpochRequest(
                cluster_id=message.cluster_id,
                epoch=ended.leader_epoch,
                leader_id=ended.leader_id,
                preferred_candidates=candidates,
                leader_endpoints=_end_points(message.leader_endpoints),
            )
        case fetch.FetchRequest():
            return _read_fetch(message)
        case fetch_snapshot.FetchSnapshotRequest():
            wanted = _one(message.topics, "name")
            return said.FetchSnapshotRequest(
                cluster_id=message.cluster_id,
                epoch=wanted.current_leader_epoch,
                replica_id=message.replica_id,
                replica_directory_id=wanted.replica_directory_id,
                snapshot_id=SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch),
                position=wanted.position,
                bytes_max=message.max_bytes,
            )
    return _read_change(message)


def _read_fetch(message: fetch.FetchRequest) -> said.FetchRequest:
    if len(message.topics) != 1 or message.topics[0].topic_id != TOPIC_ID or len(message.topics[0].partitions) != 1:
        raise InvalidRequest(f"the quorum has one partition, {TOPIC}-0")
    (partition,) = message.topics[0].partitions
    if partition.partition != 0:
        raise InvalidRequest(f"the quorum has one partition, {TOPIC}-0")
    return said.FetchRequest(
        cluster_id=message.cluster_id,
        epoch=partition.current_leader_epoch,
        replica_id=message.replica_state.replica_id,
        replica_directory_id=partition.replica_directory_id,
        offset=partition.fetch_offset,
        last_epoch=partition.last_fetched_epoch,
        high_watermark=said.UNKNOWN_OFFSET if partition.high_watermark == _NOT_SAID else partition.high_watermark,
        bytes_max=message.max_bytes,
        wait_max_ms=message.max_wait_ms,
    )


def _read_change(message: Message) -> said.Request:
    match message:
        case add_raft_voter.AddRaftVoterRequest():
            voter = Voter(
                node_id=message.voter_id,
                directory_id=message.voter_directory_id,
                endpoints=_end_points(message.listeners),
            )
            return said.AddVoterRequest(
                cluster_id=message.cluster_id,
                voter=voter,
                timeout_ms=message.timeout_ms,
                ack_when_committed=message.ack_when_committed,
            )
        case remove_raft_voter.RemoveRaftVoterRequest():
            return said.RemoveVoterRequest(
                cluster_id=message.cluster_id, node_id=message.voter_id, directory_id=message.voter_directory_id
            )
        case update_raft_voter.UpdateRaftVoterRequest():
            feature = message.k_raft_version_feature
            voter = Voter(
                node_id=message.voter_id,
                directory_id=message.voter_directory_id,
                endpoints=_end_points(message.listeners),
                kraft_versions=(feature.min_supported_version, feature.max_supported_version),
            )
            return said.UpdateVoterRequest(
                cluster_id=message.cluster_id, epoch=message.current_leader_epoch, voter=voter
            )
    raise InvalidRequest(f"{type(message).__name__} is not for the quorum")


def _one(topics: Sequence[Any], key: str) -> Any:
    """The part of a message that is about the metadata log; raises InvalidRequest for any other."""
    if len(topics) != 1 or getattr(topics[0], key) != TOPIC or len(topics[0].partitions) != 1:
        raise InvalidRequest(f"the quorum has one partition, {TOPIC}-0")
    partition = topics[0].partitions[0]
    number = next(
        getattr(partition, name) for name in ("partition_index", "partition", "index") if hasattr(partition, name)
    )
    if number != 0:
        raise InvalidRequest(f"the quorum has one partition, {TOPIC}-0")
    return partition


def _end_points(listeners: Sequence[Any]) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(each.name, each.host, each.port) for each in listeners)


# --- answers


def answer_to_wire(request: said.Request, answer: said.Response) -> Message:
    """The message with which `request` is answered."""
    match request, answer:
        case said.VoteRequest(), said.VoteResponse():
            result = vote.PartitionResult(
                error_code=answer.error,
                leader_id=answer.leader_id,
                leader_epoch=answer.epoch,
                vote_granted=answer.granted,
            )
            return vote.VoteResponse(
                topics=(vote.TopicResult(topic_name=TOPIC, partitions=(result,)),),
                node_endpoints=_nodes(vote, answer),
            )
        case said.BeginQuorumEpochRequest(), said.EpochResponse():
            return _epoch_answer(begin_quorum_epoch, begin_quorum_epoch.BeginQuorumEpochResponse, answer)
        case said.EndQuorumEpochRequest(), said.EpochResponse():
            return _epoch_answer(end_quorum_epoch, end_quorum_epoch.EndQuorumEpochResponse, answer)
        case said.FetchRequest(), said.FetchResponse():
            return _fetch_answer(answer)
        case said.FetchSnapshotRequest(), said.FetchSnapshotResponse():
            return _snapshot_answer(answer)
        case said.UpdateVoterRequest(), said.EpochResponse():
            host, port = _address(answer)
            return update_raft_voter.UpdateRaftVoterResponse(
                error_code=answer.error,
                current_leader=update_raft_voter.CurrentLeader(
                    leader_id=answer.leader_id, leader_epoch=answer.epoch, host=host, port=port
                ),
            )
        case said.AddVoterRequest(), said.EpochResponse():
            return add_raft_voter.AddRaftVoterResponse(error_code=answer.error, error_message=answer.message)
        case said.RemoveVoterRequest(), said.EpochResponse():
            return remove_raft_voter.RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.message)
    raise AssertionError(f"{type(answer).__name__} is no answer to {type(request).__name__}")


def _address(answer: said.Response) -> tuple[str, int]:
    """Where the leader can be reached, as far as it is known."""
    return answer.leader_endpoints[0][1:] if answer.leader_endpoints else ("", 0)


def _nodes(module: Any, answer: said.Response) -> tuple[Any, ...]:
    if answer.leader_id == NOBODY or not answer.leader_endpoints:
        return ()
    host, port = _address(answer)
    return (module.NodeEndpoint(node_id=answer.leader_id, host=host, port=port),)


def _epoch_answer(module: Any, response: Any, answer: said.EpochResponse) -> Message:
    result = module.PartitionResult(error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch)
    topics = (module.TopicResult(topic_name=TOPIC, partitions=(result,)),)
    made: Message = response(topics=topics, node_endpoints=_nodes(module, answer))
    return made


def _fetch_answer(answer: said.FetchResponse) -> Message:
    diverging, snapshot = fetch.EpochEndOffset(), fetch.SnapshotId()
    if answer.diverging is not None:
        diverging = fetch.EpochEndOffset(epoch=answer.diverging.epoch, end_offset=answer.diverging.end_offset)
    if answer.snapshot_id is not None:
        snapshot = fetch.SnapshotId(end_offset=answer.snapshot_id.offset_end, epoch=answer.snapshot_id.epoch)
    partition = fetch.PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        diverging_epoch=diverging,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        snapshot_id=snapshot,
        records=answer.records,
    )
    return fetch.FetchResponse(
        responses=(fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,)),),
        node_endpoints=_nodes(fetch, answer),
    )


def _snapshot_answer(answer: said.FetchSnapshotResponse) -> Message:
    which = answer.snapshot_id or SnapshotId(-1, -1)
    partition = fetch_snapshot.PartitionSnapshotResult(
        error_code=answer.error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=which.offset_end, epoch=which.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        size=answer.size,
        position=answer.position,
        unaligned_records=answer.data,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=(fetch_snapshot.TopicSnapshotResult(name=TOPIC, partitions=(partition,)),),
        node_endpoints=_nodes(fetch_snapshot, answer),
    )


def answer_from_wire(request: said.Request, message: Message) -> said.Response:
    """What the message says that `request` was answered with; raises InvalidRequest."""
    match message:
        case vote.VoteResponse():
            _refuse_whole(message.error_code)
            ballot = _one(message.topics, "topic_name")
            return said.VoteResponse(
                error=_error(ballot.error_code),
                epoch=ballot.leader_epoch,
                leader_id=ballot.leader_id,
                leader_endpoints=_leader(message.node_endpoints, ballot.leader_id),
                granted=ballot.vote_granted,
            )
        case begin_quorum_epoch.BeginQuorumEpochResponse() | end_quorum_epoch.EndQuorumEpochResponse():
            _refuse_whole(message.error_code)
            found = _one(message.topics, "topic_name")
            return said.EpochResponse(
                error=_error(found.error_code),
                epoch=found.leader_epoch,
                leader_id=found.leader_id,
                leader_endpoints=_leader(message.node_endpoints, found.leader_id),
            )
        case fetch.FetchResponse():
            return _read_fetched(message)
        case fetch_snapshot.FetchSnapshotResponse():
            return _read_chunk(message)
        case update_raft_voter.UpdateRaftVoterResponse():
            leader = message.current_leader
            known = (VoterEndpoint("", leader.host, leader.port),) if leader.host else ()
            return said.EpochResponse(
                error=_error(message.error_code),
                epoch=max(leader.leader_epoch, 0),
                leader_id=leader.leader_id,
                leader_endpoints=known,
            )
    raise InvalidRequest(f"{type(message).__name__} is no answer to {type(request).__name__}")


def _read_fetched(message: fetch.FetchResponse) -> said.FetchResponse:
    _refuse_whole(message.error_code)
    if len(message.responses) != 1 or len(message.responses[0].partitions) != 1:
        raise InvalidRequest(f"the quorum has one partition, {TOPIC}-0")
    (found,) = message.responses[0].partitions
    diverging, snapshot = found.diverging_epoch, found.snapshot_id
    return said.FetchResponse(
        error=_error(found.error_code),
        epoch=found.current_leader.leader_epoch,
        leader_id=found.current_leader.leader_id,
        leader_endpoints=_leader(message.node_endpoints, found.current_leader.leader_id),
        high_watermark=found.high_watermark,
        log_start_offset=found.log_start_offset,
        diverging=Divergence(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        snapshot_id=SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
        records=bytes(found.records or b""),
    )


def _read_chunk(message: fetch_snapshot.FetchSnapshotResponse) -> said.FetchSnapshotResponse:
    _refuse_whole(message.error_code)
    found = _one(message.topics, "name")
    which = found.snapshot_id
    return said.FetchSnapshotResponse(
        error=_error(found.error_code),
        epoch=found.current_leader.leader_epoch,
        leader_id=found.current_leader.leader_id,
        leader_endpoints=_leader(message.node_endpoints, found.current_leader.leader_id),
        snapshot_id=SnapshotId(which.end_offset, which.epoch),
        size=found.size,
        position=found.position,
        data=bytes(found.unaligned_records or b""),
    )


def _refuse_whole(code: int) -> None:
    if code:
        raise InvalidRequest(f"the whole request was refused: {_error(code).name}")


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _leader(nodes: Sequence[Any], leader_id: int) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint("", each.host, each.port) for each in nodes if each.node_id == leader_id)
