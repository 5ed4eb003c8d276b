from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.broker.quorum.raft.member_world import CLUSTER, Lone, directory, of, voter, voters
from tests.sim.quorum_disk import ENTRY, Entry, encode
from tidemill.broker.quorum.raft.actions import (
    Action,
    Append,
    AppendLeaderChange,
    AppendVoters,
    BeginSnapshot,
    InstallSnapshot,
    Persist,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    StoreSnapshot,
    Truncate,
)
from tidemill.broker.quorum.raft.election import NOBODY, ElectionState
from tidemill.broker.quorum.raft.events import (
    Answered,
    AppendRefused,
    Failed,
    LogChanged,
    Received,
    Resign,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    VotersChanged,
)
from tidemill.broker.quorum.raft.log_view import Divergence
from tidemill.broker.quorum.raft.machine import CommittedDataLost
from tidemill.broker.quorum.raft.member import Role
from tidemill.broker.quorum.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voters import VoterEndpoint
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.core.error_code import ErrorCode


def vote_request(node_id: int, epoch: int, **named: Any) -> VoteRequest:
    values: dict[str, Any] = {
        "cluster_id": CLUSTER,
        "epoch": epoch,
        "candidate_id": node_id,
        "candidate_directory_id": directory(node_id),
        "last_epoch": 0,
        "end_offset": 0,
        "pre_vote": False,
    }
    return VoteRequest(**{**values, **named})


def begin(leader_id: int, epoch: int, **named: Any) -> BeginQuorumEpochRequest:
    values: dict[str, Any] = {"cluster_id": CLUSTER, "epoch": epoch, "leader_id": leader_id}
    return BeginQuorumEpochRequest(**{**values, **named})


def follower(*ids: int, epoch: int = 3, leader_id: int = 2, **named: Any) -> Lone:
    """Of a leader that has begun an epoch."""
    world = Lone(*(ids or (1, 2, 3)), **named)
    assert world.ask(begin(leader_id, epoch)).error == ErrorCode.NONE
    return world


def fetched(world: Lone, **named: Any) -> list[Any]:
    """The leader answers the fetch that is under way."""
    leader_id = world.machine.leader_id
    request_id, _ = world.sent(FetchRequest)[leader_id]
    return list(world.answer(request_id, FetchResponse(epoch=world.machine.epoch, leader_id=leader_id, **named)))


# --- elections


def test_a_quorum_of_one_leads_at_once() -> None:
    world = Lone(1, configured=True)
    assert world.machine.role is Role.LEADER
    assert world.persisted[-1] == ElectionState(epoch=1, leader_id=1, voted_id=1, voted_directory_id=directory(1))
    assert of(AppendLeaderChange, world.said) == [
        AppendLeaderChange(epoch=1, leader_id=1, voters=(1,), granting_voters=(1,))
    ]
    assert world.machine.is_settled
    world.append(3)
    assert world.machine.high_watermark == 4
    assert world.machine.next_deadline_ms() is None
    world.tell(Resign())
    assert world.machine.leads  # nobody else could


def test_a_quorum_of_one_leads_another_epoch_after_a_restart() -> None:
    world = Lone(1, election=ElectionState(epoch=7, leader_id=1, voted_id=1), entries=[Entry(7, 0)], configured=True)
    assert (world.machine.role, world.machine.epoch) == (Role.LEADER, 8)


def test_voters_of_a_bootstrap_snapshot_go_into_the_log() -> None:
    world = Lone(1)
    assert [type(each) for each in world.said if isinstance(each, AppendLeaderChange | AppendVoters)] == [
        AppendLeaderChange,
        AppendVoters,
    ]
    assert world.machine.voters_offset == 1


def test_nothing_is_done_before_all_voters_are_told() -> None:
    world = Lone(1, 2)
    assert not world.machine.leads  # as it would, had it acted on an earlier set
    assert world.machine.role is Role.UNATTACHED


def test_an_election_is_asked_about_before_it_begins() -> None:
    world = Lone(1, 2, 3)
    assert world.machine.next_deadline_ms() == 11_000
    done = world.wait(1_000)
    assert world.machine.role is Role.PROSPECTIVE
    assert world.machine.epoch == 0
    assert not of(Persist, done)
    asked = world.sent(VoteRequest, done)
    assert {node_id: each.pre_vote for node_id, (_, each) in asked.items()} == {2: True, 3: True}
    world.grant(2)
    assert world.machine.role is Role.CANDIDATE
    assert world.persisted[-1] == ElectionState(epoch=1, voted_id=1, voted_directory_id=directory(1))
    persisted = next(i for i, each in enumerate(world.said) if isinstance(each, Persist))
    real = [i for i, each in enumerate(world.said) if isinstance(each, Send) and not each.request.pre_vote]  # type: ignore[union-attr]
    assert persisted < min(real)
    world.grant(3)
    assert world.machine.role is Role.LEADER
    assert world.machine.leader_id == 1


def test_who_loses_an_election_tries_again_later() -> None:
    world = Lone(1, 2, 3)
    world.wait(1_000)
    for node_id in (2, 3):
        request_id, _ = world.sent(VoteRequest)[node_id]
        world.answer(request_id, VoteResponse(epoch=0, leader_id=NOBODY, granted=False))
    assert world.machine.role is Role.PROSPECTIVE
    assert len(world.sent(VoteRequest, world.wait(2))) == 2


def test_who_grants_does_not_speak_for_the_leader_that_is_gone() -> None:
    world = follower()
    world.wait(2_000)
    request_id, _ = world.sent(VoteRequest)[3]
    world.answer(request_id, VoteResponse(epoch=3, leader_id=2, granted=True))
    assert world.machine.role is Role.CANDIDATE


def test_a_leader_may_move() -> None:
    world = follower()
    moved = (VoterEndpoint("CONTROLLER", "new", 1),)
    world.ask(begin(2, 3, leader_endpoints=moved))
    fetched(world, high_watermark=0)
    assert of(Send, world.said)[-1].endpoints == moved


def test_answers_to_a_pre_vote_elect_nobody() -> None:
    world = Lone(1, 2, 3)
    world.wait(1_000)
    late, _ = world.sent(VoteRequest)[3]
    world.grant(2)
    world.answer(late, VoteResponse(epoch=1, leader_id=NOBODY, granted=True))
    assert world.machine.role is Role.CANDIDATE


def test_a_vote_is_given_once_and_on_disk_before_it_is_told() -> None:
    world = Lone(1, 2, 3)
    done = world.tell(Received(token="t", request=vote_request(2, 4)))
    kinds = [type(each) for each in done if isinstance(each, Persist | Reply)]
    assert kinds == [Persist, Reply]  # the epoch with the vote, the answer
    assert world.replies["t"].granted
    assert not world.ask(vote_request(3, 4)).granted
    assert world.ask(vote_request(2, 4)).granted
    again = Lone(1, 2, 3, election=world.machine.election)
    assert not again.ask(vote_request(3, 4)).granted
    assert again.ask(vote_request(3, 5)).granted


@pytest.mark.parametrize(
    "request_",
    [
        vote_request(3, 3),
        vote_request(3, 4),
        vote_request(2, 4),
        vote_request(3, 4, pre_vote=True),
        vote_request(3, 3, pre_vote=True),
        vote_request(3, 9, cluster_id="other"),
        vote_request(3, 9, voter_id=2),
        vote_request(3, 9, last_epoch=9),
    ],
    ids=str,
)
def test_a_request_that_changes_nothing_costs_no_write(request_: VoteRequest) -> None:
    world = Lone(1, 2, 3)
    assert world.ask(vote_request(2, 4)).granted
    assert not of(Persist, world.tell(Received(token="t", request=request_)))
    assert "t" in world.replies


def test_a_newer_epoch_costs_one_write_for_whomever_the_vote_is() -> None:
    world = Lone(1, 2, 3, entries=[Entry(1, 0)])
    for request in (vote_request(2, 4), vote_request(3, 5, last_epoch=1, end_offset=1)):
        assert len(of(Persist, world.tell(Received(token="t", request=request)))) == 1
    assert world.machine.election == ElectionState(epoch=5, voted_id=3, voted_directory_id=directory(3))
    leader = Lone(1, 2, 3)
    leader.lead()
    assert (
        len(of(Persist, leader.tell(Received(token="t", request=vote_request(3, 9, last_epoch=1, end_offset=9))))) == 1
    )


def test_a_pre_vote_of_before_an_election_undoes_nothing() -> None:
    """Who asked before it heard of the new epoch is told of it; who has voted for the winner asks nobody for long."""
    world = Lone(1, 2, 3, election=ElectionState(epoch=4))
    late = vote_request(3, 4, pre_vote=True)
    assert world.ask(late).granted
    assert world.ask(vote_request(2, 5)).granted
    answer = world.ask(late)
    assert (answer.error, answer.granted, answer.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, False, 5)
    world.wait(QuorumSettings().election_timeout_ms - 1)
    assert world.machine.role is Role.UNATTACHED  # it has voted, and gives the winner the whole time
    rival = Lone(1, 2, 3, election=ElectionState(epoch=4))
    rival.wait(1_000)
    assert rival.machine.role is Role.PROSPECTIVE
    request_id, _ = rival.sent(VoteRequest)[2]
    rival.answer(
        request_id, VoteResponse(epoch=5, leader_id=NOBODY, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH)
    )
    assert (rival.machine.epoch, rival.machine.role) == (5, Role.UNATTACHED)
    rival.wait(QuorumSettings().election_timeout_ms - 1)
    assert rival.machine.role is Role.UNATTACHED


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "granted"), [(2, 9, False), (3, 2, False), (3, 3, True), (3, 9, True), (4, 1, True)]
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_vote_needs_a_log_that_has_everything(
    last_epoch: int, end_offset: int, granted: bool, pre_vote: bool
) -> None:
    world = Lone(1, 2, 3, entries=[Entry(1, 0), Entry(3, 0), Entry(3, 1)])
    request = vote_request(2, 9, last_epoch=last_epoch, end_offset=end_offset, pre_vote=pre_vote)
    assert world.ask(request).granted is granted


def test_who_has_a_leader_does_not_want_another() -> None:
    world = follower()
    request = vote_request(3, 3, pre_vote=True)
    assert world.ask(request).granted  # it has not fetched yet: its leader may be a memory
    fetched(world, high_watermark=0)
    answer = world.ask(request)
    assert (answer.granted, answer.leader_id) == (False, 2)
    assert not world.ask(vote_request(3, 3)).granted
    leader = Lone(1, 2, 3)
    leader.lead()
    assert not leader.ask(vote_request(3, 1, pre_vote=True, last_epoch=1, end_offset=9)).granted
    assert leader.machine.leads


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"last_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"candidate_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"candidate_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"end_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 3}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_id": 1, "voter_directory_id": directory(9)}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_id": 1, "voter_directory_id": directory(1)}, ErrorCode.NONE),
        ({"cluster_id": None}, ErrorCode.NONE),
    ],
    ids=str,
)
def test_votes_that_are_refused(named: dict[str, Any], error: ErrorCode) -> None:
    world = Lone(1, 2, 3, election=ElectionState(epoch=3))
    answer = world.ask(replace(vote_request(2, 5), **named))
    assert answer.error == error
    assert answer.granted is (error == ErrorCode.NONE)
    assert answer.epoch == (5 if error == ErrorCode.NONE else 3)


def test_configured_voters_know_nobody_else() -> None:
    world = Lone(1, 2, 3, configured=True)
    assert world.ask(vote_request(4, 5)).error == ErrorCode.INCONSISTENT_VOTER_SET
    assert world.ask(begin(4, 5)).error == ErrorCode.INCONSISTENT_VOTER_SET
    assert world.machine.epoch == 0


# --- following


def test_a_follower_fetches_what_it_does_not_have_when_it_holds_what_it_has() -> None:
    world = follower()
    _, request = world.sent(FetchRequest)[2]
    assert (request.offset, request.last_epoch, request.epoch) == (0, 0, 3)
    world.syncs = False
    done = fetched(world, high_watermark=1, records=encode([Entry(1, 0), Entry(3, 0)]))
    assert of(Append, done) == [Append(offset=0, records=encode([Entry(1, 0), Entry(3, 0)]))]
    assert not of(Send, done)  # its offset would say that it holds them
    assert world.machine.high_watermark == 0
    world.log.durable_end = 2
    _, request = world.sent(FetchRequest, world.tell(LogChanged()))[2]
    assert (request.offset, request.last_epoch) == (2, 3)
    assert world.machine.high_watermark == 1


def test_a_follower_cuts_its_log_by_epochs() -> None:
    world = follower(entries=[Entry(1, 0), Entry(1, 1), Entry(2, 0), Entry(2, 1)])
    done = fetched(world, high_watermark=1, diverging=Divergence(1, 2))
    assert of(Truncate, done) == [Truncate(offset=2)]
    _, request = world.sent(FetchRequest, done)[2]
    assert (request.offset, request.last_epoch) == (2, 1)
    assert world.machine.high_watermark == 0  # it is not known yet whether this is the leader's log


def test_what_is_committed_is_never_cut() -> None:
    world = follower(entries=[Entry(1, 0), Entry(1, 1)])
    fetched(world, high_watermark=2)
    assert world.machine.high_watermark == 2
    with pytest.raises(CommittedDataLost):
        fetched(world, high_watermark=2, diverging=Divergence(1, 1))


def test_a_leader_with_another_log_below_its_snapshot_is_told_of() -> None:
    world = follower(entries=[Entry(1, 0), Entry(1, 1)])
    fetched(world, high_watermark=2)
    with pytest.raises(CommittedDataLost, match="below its snapshot"):
        fetched(world, high_watermark=2, snapshot_id=SnapshotId(2, 2))


def test_what_cannot_be_stored_is_fetched_again_a_moment_later() -> None:
    world = follower()
    request_id, _ = world.sent(FetchRequest)[2]
    records = encode([Entry(3, 0)])
    answer = FetchResponse(epoch=3, leader_id=2, records=records, high_watermark=0)
    world.machine.step(Answered(request_id=request_id, response=answer), world.now_ms)  # and the log refuses it
    assert not of(Send, world.tell(AppendRefused()))
    assert world.sent(FetchRequest, world.wait(500))[2][1].offset == 0


def test_a_leader_that_is_silent_is_looked_for() -> None:
    world = follower()
    world.wait(1_999)
    assert world.machine.role is Role.FOLLOWER
    world.wait(1)
    assert world.machine.role is Role.PROSPECTIVE
    assert world.machine.epoch == 3
    request_id, _ = world.sent(VoteRequest)[3]
    world.answer(request_id, VoteResponse(epoch=3, leader_id=2))
    assert world.machine.role is Role.FOLLOWER  # somebody else hears it


def refuse(world: Lone, times: int) -> None:
    """Nobody listens where the leader was."""
    for _ in range(times):
        request_id, _ = world.sent(FetchRequest)[2]
        world.tell(Failed(request_id=request_id, refused=True))
        world.wait(20)


def test_a_leader_where_nobody_listens_is_not_waited_for() -> None:
    world = follower()
    refuse(world, 2)
    assert world.machine.role is Role.FOLLOWER
    refuse(world, 1)
    assert world.wait(100) is not None
    assert world.machine.role is Role.PROSPECTIVE
    assert world.now_ms < 10_000 + 300


def test_who_still_hears_the_leader_does_not_let_another_be_elected() -> None:
    world = follower()
    request_id, _ = world.sent(FetchRequest)[2]
    world.answer(request_id, FetchResponse(epoch=3, leader_id=2, high_watermark=0))
    pre_vote = vote_request(3, 3, pre_vote=True)
    assert not world.ask(pre_vote).granted
    refuse(world, 2)
    assert not world.ask(pre_vote).granted
    refuse(world, 1)
    assert world.ask(pre_vote).granted, "it misses the leader too"


def test_a_request_without_an_answer_is_sent_again() -> None:
    world = follower()
    request_id, _ = world.sent(FetchRequest)[2]
    assert not of(Send, world.tell(Failed(request_id=request_id)))
    assert of(Send, world.wait(20))


def test_a_newer_epoch_is_believed_wherever_it_is_heard_of() -> None:
    world = follower()
    request_id, _ = world.sent(FetchRequest)[2]
    world.answer(
        request_id, FetchResponse(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=5, leader_id=3, leader_endpoints=())
    )
    assert (world.machine.epoch, world.machine.leader_id, world.machine.role) == (5, 3, Role.FOLLOWER)
    assert world.ask(begin(2, 4)).error == ErrorCode.FENCED_LEADER_EPOCH
    assert world.ask(begin(2, 5)).error == ErrorCode.INVALID_REQUEST  # an epoch has one leader
    assert world.machine.leader_id == 3
    assert world.ask(begin(3, 6, voter_id=2)).error == ErrorCode.INVALID_VOTER_KEY
    assert world.ask(begin(1, 6)).error == ErrorCode.INVALID_REQUEST
    assert world.machine.epoch == 5


def test_a_leader_that_says_it_does_not_lead_is_left_at_once() -> None:
    world = follower()
    request_id, _ = world.sent(FetchRequest)[2]
    response = FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=3, leader_id=NOBODY)
    world.answer(request_id, response)
    assert (world.machine.role, world.machine.leader_id) == (Role.UNATTACHED, NOBODY)
    assert world.ask(begin(2, 3)).error == ErrorCode.NONE
    assert world.machine.role is Role.UNATTACHED  # an old message


def test_a_snapshot_comes_in_chunks() -> None:
    world = follower(entries=[Entry(1, 0)])
    snapshot_id = SnapshotId(10, 2)
    done = fetched(world, snapshot_id=snapshot_id)
    assert of(BeginSnapshot, done) == [BeginSnapshot(snapshot_id=snapshot_id)]
    position = 0
    for chunk in (b"abc", b"de"):
        request_id, request = world.sent(FetchSnapshotRequest, done)[2]
        assert (request.snapshot_id, request.position) == (snapshot_id, position)
        response = FetchSnapshotResponse(
            epoch=3, leader_id=2, snapshot_id=snapshot_id, size=5, position=position, data=chunk
        )
        done = world.answer(request_id, response)
        assert of(StoreSnapshot, done) == [StoreSnapshot(snapshot_id=snapshot_id, position=position, data=chunk)]
        position += len(chunk)
        assert bool(of(InstallSnapshot, done)) is (position == 5)
    assert not of(Send, done)
    world.log.install(snapshot_id, encode([Entry(2, each) for each in range(10)]))
    _, fetch = world.sent(FetchRequest, world.tell(SnapshotInstalled(snapshot_id=snapshot_id)))[2]
    assert (fetch.offset, fetch.last_epoch) == (10, 2)
    assert world.machine.high_watermark == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"position": 1},
        {"data": b""},
        {"data": b"abcdef"},
        {"snapshot_id": SnapshotId(11, 2)},
        {"error": ErrorCode.SNAPSHOT_NOT_FOUND},
    ],
    ids=str,
)
def test_a_chunk_that_does_not_fit_ends_the_snapshot(wrong: dict[str, Any]) -> None:
    world = follower()
    snapshot_id = SnapshotId(10, 2)
    request_id, _ = world.sent(FetchSnapshotRequest, fetched(world, snapshot_id=snapshot_id))[2]
    chunk = FetchSnapshotResponse(epoch=3, leader_id=2, snapshot_id=snapshot_id, size=5, position=0, data=b"ab")
    done = world.answer(request_id, replace(chunk, **wrong))
    assert not of(StoreSnapshot, done)
    assert world.sent(FetchRequest, world.wait(20))


def test_a_snapshot_that_is_refused_is_asked_for_again() -> None:
    world = follower()
    snapshot_id = SnapshotId(10, 2)
    request_id, _ = world.sent(FetchSnapshotRequest, fetched(world, snapshot_id=snapshot_id))[2]
    chunk = FetchSnapshotResponse(epoch=3, leader_id=2, snapshot_id=snapshot_id, size=2, position=0, data=b"ab")
    assert of(InstallSnapshot, world.answer(request_id, chunk))
    assert not of(Send, world.tell(SnapshotRefused(snapshot_id=snapshot_id)))
    assert world.sent(FetchRequest, world.wait(500))


def test_who_cut_its_log_for_a_snapshot_that_is_refused_goes_by_what_is_left() -> None:
    world = follower(entries=[Entry(1, 0), Entry(1, -1), Entry(1, 1)])
    world.tell(VotersChanged(offset=1, voters=voters(1, 2, 3, 4)))
    snapshot_id = SnapshotId(2, 2)
    request_id, _ = world.sent(FetchSnapshotRequest, fetched(world, snapshot_id=snapshot_id))[2]
    chunk = FetchSnapshotResponse(epoch=3, leader_id=2, snapshot_id=snapshot_id, size=2, position=0, data=b"ab")
    assert of(InstallSnapshot, world.answer(request_id, chunk))
    world.log.truncate(1)  # there was no room for the rest
    world.tell(SnapshotRefused(snapshot_id=snapshot_id))
    assert world.machine.voters == voters(1, 2, 3)


@pytest.mark.parametrize("size", [1, 10, 2**31 - 1])
def test_an_answer_is_no_longer_than_the_leader_sends(size: int) -> None:
    world = Lone(1, 2, 3, entries=[Entry(1, each) for each in range(8)], election=ElectionState(epoch=1))
    world.log.take_snapshot(6)
    world.lead()
    world.fetch(2, 7, bytes_max=size)
    assert of(ReplyWithRecords, world.said)[-1].bytes_max == min(size, QuorumSettings().fetch_bytes_max)
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER,
        epoch=world.machine.epoch,
        replica_id=2,
        replica_directory_id=directory(2),
        snapshot_id=SnapshotId(6, 1),
        position=0,
        bytes_max=size,
    )
    world.ask(request)
    assert of(ReplyWithSnapshot, world.said)[-1].bytes_max == min(size, QuorumSettings().snapshot_bytes_max)


def test_voters_that_are_gone_are_told_now_and_then() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    told = 0
    world.tell(Failed(request_id=world.sent(BeginQuorumEpochRequest)[3][0]))
    for _ in range(100):
        before = len(world.said)
        world.fetch(2)
        world.wait(10)
        for request_id, _ in world.sent(BeginQuorumEpochRequest, world.said[before:]).values():
            told += 1
            world.tell(Failed(request_id=request_id))
    assert 1 <= told <= 3


def test_observers_look_for_a_leader_and_never_stand_for_election() -> None:
    world = Lone(2, 3, node_id=1, bootstrap=[("b", 1)])
    assert world.machine.role is Role.OBSERVER
    (node_id, (request_id, _)), *_ = world.sent(FetchRequest).items()
    endpoints = (VoterEndpoint("CONTROLLER", "n9", 9093),)
    answer = FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=4, leader_id=9, leader_endpoints=endpoints)
    done = world.answer(request_id, answer)
    assert world.machine.leader_id == 9
    assert [each.endpoints for each in of(Send, done)] == [endpoints]
    assert node_id != 9
    for _ in range(10):
        world.wait(2_000)
    assert not world.sent(VoteRequest)
    assert world.machine.epoch == 4
    assert world.ask(vote_request(2, 5)).granted  # it may be a voter and not know it yet


def test_observers_without_voters_ask_the_bootstrap_servers() -> None:
    world = Lone(node_id=1, bootstrap=[("b", 1)])
    (send,) = of(Send, world.said)
    assert (send.node_id, send.endpoints) == (-2, (VoterEndpoint("", "b", 1),))


# --- leading


def test_a_majority_commits_and_only_what_is_of_the_epoch() -> None:
    world = Lone(1, 2, 3, entries=[Entry(1, 0), Entry(1, 1)], election=ElectionState(epoch=1))
    world.lead()
    start = world.machine.epoch_start
    assert start == 2
    world.fetch(2, start)
    assert world.machine.high_watermark == 0  # a majority holds it, and it may still be lost
    assert not world.machine.is_settled
    world.fetch(2)
    assert world.machine.high_watermark == world.log.offset_end
    assert world.machine.is_settled
    progress = world.machine.replicas[2]
    assert (progress.end, progress.fetched_ms, progress.caught_up_ms) == (world.log.offset_end, *[world.now_ms] * 2)


def test_what_the_leader_has_not_synced_does_not_count() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    world.fetch(2)
    committed = world.machine.high_watermark
    world.syncs = False
    world.append()
    world.fetch(2)
    assert world.machine.high_watermark == committed
    world.fetch(3)
    assert world.machine.high_watermark == committed + 1  # it is not needed


@pytest.mark.parametrize("wrong_epoch", [-1, 1])
def test_fetches_of_other_epochs_are_refused(wrong_epoch: int) -> None:
    world = Lone(1, 2, 3, election=ElectionState(epoch=4))
    world.lead()
    answer = world.fetch(2, epoch=world.machine.epoch + wrong_epoch)
    expected = ErrorCode.FENCED_LEADER_EPOCH if wrong_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (answer.error, answer.epoch, answer.leader_id) == (expected, 5, 1)
    assert world.fetch(2, cluster_id="other").error == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert world.fetch(2, offset=-1).error == ErrorCode.INVALID_REQUEST
    assert world.fetch(1).error == ErrorCode.INVALID_REQUEST
    assert not world.machine.replicas
    away = follower()
    answer = away.fetch(3)
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_fetch_with_nothing_to_get_waits() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    world.fetch(2)
    assert world.fetch(2) is None
    waiting = world.tokens
    assert world.machine.next_deadline_ms() == world.now_ms + 500
    world.append()
    (reply,) = [each for each in of(ReplyWithRecords, world.said) if each.token == waiting]
    assert reply.offset == world.log.offset_end - 1
    assert world.fetch(2, high_watermark=0).high_watermark == world.log.offset_end  # HW is news too
    assert world.fetch(2) is None
    last = world.tokens
    world.wait(500)
    assert world.replies[last].error == ErrorCode.NONE


def test_who_waits_is_told_when_the_leadership_ends() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    world.fetch(2)
    assert world.fetch(2) is None
    waiting = world.tokens
    world.ask(vote_request(3, 9, last_epoch=1, end_offset=99))
    answer = world.replies[waiting]
    assert (answer.error, answer.epoch, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 9, NOBODY)
    assert not world.machine.leads


def test_a_second_fetch_of_one_replica_ends_its_first() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    world.fetch(2)
    assert world.fetch(2) is None
    first = world.tokens
    assert world.fetch(2) is None
    assert world.replies[first].error == ErrorCode.NONE


def test_followers_are_told_where_their_logs_part() -> None:
    world = Lone(1, 2, 3, entries=[Entry(1, 0), Entry(1, 1), Entry(3, 0)], election=ElectionState(epoch=3))
    world.lead()
    answer = world.fetch(2, 5, last_epoch=2)
    assert answer.diverging == Divergence(1, 2)
    assert world.machine.replicas[2].end == -1  # it holds something else


def test_who_is_behind_the_log_is_told_of_the_snapshot_and_gets_it() -> None:
    world = Lone(1, 2, 3, entries=[Entry(1, each) for each in range(8)], election=ElectionState(epoch=1))
    world.log.take_snapshot(6)
    world.lead()
    snapshot_id = SnapshotId(6, 1)
    assert world.fetch(2, 3).snapshot_id == snapshot_id
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER,
        epoch=world.machine.epoch,
        replica_id=2,
        replica_directory_id=directory(2),
        snapshot_id=snapshot_id,
        position=32,
        bytes_max=10,
    )
    world.ask(request)
    reply = of(ReplyWithSnapshot, world.said)[-1]
    assert (reply.position, reply.response.size) == (32, 6 * ENTRY.size)
    assert world.ask(replace(request, position=6 * ENTRY.size)).error == ErrorCode.POSITION_OUT_OF_RANGE
    assert world.ask(replace(request, position=-1)).error == ErrorCode.POSITION_OUT_OF_RANGE
    assert world.ask(replace(request, snapshot_id=SnapshotId(5, 1))).error == ErrorCode.SNAPSHOT_NOT_FOUND
    assert world.ask(replace(request, epoch=1)).error == ErrorCode.FENCED_LEADER_EPOCH


def test_a_leader_that_nobody_fetches_from_resigns() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    world.wait(1_000)
    world.fetch(3)
    world.wait(2_999)
    assert world.machine.leads
    world.wait(1)
    assert world.machine.role is Role.RESIGNED
    assert world.machine.leader_id == NOBODY
    assert set(world.sent(EndQuorumEpochRequest)) == {2, 3}
    world.wait(1_000)
    assert world.machine.role is Role.PROSPECTIVE


def test_voters_that_do_not_fetch_are_told_of_the_epoch() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    told = world.sent(BeginQuorumEpochRequest)
    assert set(told) == {2, 3}
    world.fetch(2)
    world.answer(told[3][0], EpochResponse(epoch=1, leader_id=1))
    assert not world.sent(BeginQuorumEpochRequest, world.wait(999))
    world.fetch(2)
    again = world.sent(BeginQuorumEpochRequest, world.wait(1))
    assert set(again) == {3}
    world.answer(again[3][0], EpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=6, leader_id=NOBODY))
    assert (world.machine.role, world.machine.epoch) == (Role.UNATTACHED, 6)


def test_who_was_the_leader_before_a_restart_is_it_no_more() -> None:
    world = Lone(1, 2, 3, election=ElectionState(epoch=4, leader_id=1, voted_id=1, voted_directory_id=directory(1)))
    assert world.machine.role is Role.RESIGNED
    assert world.machine.leader_id == NOBODY
    assert set(world.sent(EndQuorumEpochRequest)) == {2, 3}
    assert world.ask(vote_request(2, 4, pre_vote=True)).granted
    assert not world.ask(vote_request(2, 4)).granted


# --- handing over


def test_a_leader_hands_over_to_whoever_holds_most() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    world.append(3)
    world.fetch(2, 2)
    world.fetch(3, 3)
    world.tell(Resign())
    _, request = world.sent(EndQuorumEpochRequest)[2]
    assert [node_id for node_id, _ in request.preferred_candidates] == [3, 2]
    world = Lone(1, 2, 3)
    world.lead()
    world.tell(Resign(successor=3))
    assert world.sent(EndQuorumEpochRequest)[2][1].preferred_candidates[0] == (3, directory(3))


def test_the_first_successor_begins_at_once() -> None:
    ended = EndQuorumEpochRequest(
        cluster_id=CLUSTER, epoch=3, leader_id=2, preferred_candidates=((1, directory(1)), (3, directory(3)))
    )
    first = follower()
    assert first.ask(ended).error == ErrorCode.NONE
    assert first.machine.role is Role.PROSPECTIVE
    second = follower(node_id=3)
    assert second.ask(ended).error == ErrorCode.NONE
    assert second.machine.role is Role.UNATTACHED
    second.wait(500)
    assert second.machine.role is Role.PROSPECTIVE
    assert second.ask(replace(ended, epoch=2)).error == ErrorCode.FENCED_LEADER_EPOCH
    assert second.ask(replace(ended, leader_id=1)).error == ErrorCode.INVALID_REQUEST
    assert second.ask(replace(ended, cluster_id="x")).error == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_what_a_node_of_another_cluster_says_is_nothing() -> None:
    """Its epoch and its leader would be followed, and written down."""
    world = Lone(1, 2, 3)
    world.wait(3_000)
    epoch = world.machine.epoch
    request_id, _ = world.sent(VoteRequest)[2]
    world.answer(
        request_id,
        VoteResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID, epoch=epoch + 90, leader_id=2, granted=False),
    )
    assert (world.machine.epoch, world.machine.leader_id) == (epoch, -1)
    assert 2 not in world.sent(VoteRequest, world.wait(100)), "it is left alone for a while"


# --- other voters


def add(node_id: int, timeout_ms: int = 1_000) -> AddVoterRequest:
    return AddVoterRequest(cluster_id=CLUSTER, voter=voter(node_id), timeout_ms=timeout_ms)


def remove(node_id: int) -> RemoveVoterRequest:
    return RemoveVoterRequest(cluster_id=CLUSTER, node_id=node_id, directory_id=directory(node_id))


def answers(world: Lone, node_id: int) -> None:
    """It is called on, and is there."""
    request_id, request = world.sent(BeginQuorumEpochRequest)[node_id]
    assert (request.voter_id, request.voter_directory_id) == (node_id, directory(node_id))
    world.answer(request_id, EpochResponse(epoch=world.machine.epoch, leader_id=world.node_id))


def settled(*ids: int) -> Lone:
    """A leader that has committed something in its epoch."""
    world = Lone(*ids)
    world.lead()
    for each in ids[1:]:
        world.fetch(each)
    assert world.machine.is_settled
    return world


def test_a_voter_is_added_when_it_has_caught_up_and_answered_when_that_is_committed() -> None:
    world = settled(1, 2)
    assert world.ask(add(4)) is None
    token = world.tokens
    appended = len(of(AppendVoters, world.said))
    world.fetch(4, 0)
    assert len(of(AppendVoters, world.said)) == appended
    world.fetch(4)
    assert len(of(AppendVoters, world.said)) == appended
    answers(world, 4)
    assert of(AppendVoters, world.said)[-1].voters.ids == (1, 2, 4)
    assert world.machine.voters.ids == (1, 2, 4)  # from now on
    assert token not in world.replies
    world.fetch(4)
    assert world.replies[token].error == ErrorCode.NONE


def test_a_voter_that_does_not_catch_up_is_not_added() -> None:
    world = settled(1, 2)
    assert world.ask(add(4)) is None
    token = world.tokens
    world.wait(1_000)
    assert world.replies[token].error == ErrorCode.REQUEST_TIMED_OUT
    assert "node 4 with this directory does not fetch from the leader" in world.replies[token].message
    assert world.machine.voters.ids == (1, 2)
    assert world.ask(add(4)) is None
    token = world.tokens
    world.fetch(4, 0)
    world.wait(1_000)
    assert world.replies[token].message == "node 4 has not caught up in time: it holds 0 of 2"
    assert world.ask(add(4)) is None
    token = world.tokens
    world.fetch(4)
    world.wait(1_000)
    assert world.replies[token].message == "node 4 with this directory does not answer as a controller at n4:9093"


def test_a_change_that_is_to_be_waited_for_very_long_keeps_no_other_one_for_longer_than_a_client_waits() -> None:
    world = settled(1, 2)
    assert world.ask(add(4, timeout_ms=2**31 - 1)) is None
    token = world.tokens
    for _ in range(27):
        world.wait(1_000)
        world.fetch(2)
    assert "another change of the voters is under way" in world.ask(add(5)).message
    world.wait(1_000)
    assert "node 4 with this directory does not fetch from the leader" in world.replies[token].message
    assert world.ask(add(5)) is None


def test_one_change_at_a_time_and_none_before_the_leader_is_settled() -> None:
    world = Lone(1, 2, 3)
    world.lead()
    assert world.ask(remove(3)).error == ErrorCode.REQUEST_TIMED_OUT
    world.fetch(2)
    world.fetch(3)
    assert world.ask(remove(3)) is None
    first = world.tokens
    assert world.ask(remove(2)).error == ErrorCode.REQUEST_TIMED_OUT
    world.fetch(2)
    assert world.replies[first].error == ErrorCode.NONE
    assert world.machine.voters.ids == (1, 2)
    assert world.ask(remove(2)).error == ErrorCode.NONE  # the only one that is left holds it
    assert world.ask(remove(1)).error == ErrorCode.INVALID_REQUEST


def test_a_leader_that_is_removed_goes_on_until_that_is_committed_without_itself() -> None:
    world = settled(1, 2, 3)
    assert world.ask(remove(1)) is None
    token = world.tokens
    assert world.machine.leads
    world.append()
    world.fetch(2)
    assert world.machine.leads  # one of two
    world.fetch(3)
    assert world.replies[token].error == ErrorCode.NONE
    assert world.machine.role is Role.RESIGNED
    assert set(world.sent(EndQuorumEpochRequest)) == {2, 3}
    world.wait(1_000)
    assert world.machine.role is Role.OBSERVER


def test_who_was_removed_by_what_may_not_be_committed_may_still_have_to_lead() -> None:
    """Nobody else can: its log is the longest, and the one other voter may not know that it is alone."""
    world = settled(1, 2)
    world.ask(remove(1))
    world.wait(3_000)  # the other one is away
    assert world.machine.role is Role.RESIGNED
    world.wait(1_000)
    assert world.machine.role is Role.PROSPECTIVE
    world.grant(2)
    world.grant(2)
    assert world.machine.leads
    world.fetch(2)
    assert world.machine.role is Role.RESIGNED  # committed at last


def test_a_voter_says_where_it_is_now() -> None:
    world = settled(1, 2)
    moved = replace(voter(2), endpoints=(VoterEndpoint("CONTROLLER", "new", 1),))
    request = UpdateVoterRequest(cluster_id=CLUSTER, epoch=world.machine.epoch, voter=moved)
    assert world.ask(replace(request, epoch=0)).error == ErrorCode.FENCED_LEADER_EPOCH
    assert world.ask(replace(request, epoch=9)).error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert world.ask(replace(request, voter=voter(2))).error == ErrorCode.NONE  # nothing new
    assert world.ask(request).error == ErrorCode.NONE  # as soon as it is in the log: it may be needed to commit it
    assert world.machine.voters.get(2) == moved
    assert world.ask(remove(2)).error == ErrorCode.REQUEST_TIMED_OUT
    world.fetch(2)
    assert world.ask(remove(2)).error == ErrorCode.NONE


def test_whoever_adds_may_not_want_to_wait_until_it_is_committed() -> None:
    world = settled(1, 2)
    assert world.ask(replace(add(4), ack_when_committed=False)) is None
    token = world.tokens
    world.fetch(4)
    answers(world, 4)
    assert world.replies[token].error == ErrorCode.NONE
    assert world.machine.high_watermark < world.log.offset_end


def test_a_change_that_waits_for_its_turn_in_the_log_stays_the_only_one() -> None:
    world = settled(1, 2)
    world.late = []
    world.ask(add(4))
    token = world.tokens
    world.fetch(4)
    answers(world, 4)
    assert len(world.late) == 1
    world.wait(1_000)
    assert world.replies[token].error == ErrorCode.REQUEST_TIMED_OUT
    assert "not committed in time" in (world.replies[token].message or "")
    world.fetch(2)
    answer = world.ask(remove(2))
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    assert "another change of the voters is under way" in answer.message
    world.write_late()
    world.late = None
    assert world.machine.voters.ids == (1, 2, 4)
    world.fetch(2)
    world.fetch(4)
    assert world.ask(remove(4)) is None


def test_a_voter_that_has_moved_says_so_beside_its_fetches_and_once() -> None:
    new = (VoterEndpoint("CONTROLLER", "new", 1),)
    world = Lone(1, 2, node_id=2, endpoints=new)
    begin = BeginQuorumEpochRequest(cluster_id=CLUSTER, epoch=1, leader_id=1, leader_endpoints=voter(1).endpoints)
    world.ask(begin)
    assert not world.sent(UpdateVoterRequest)  # not before it is known that the leader is one
    fetch_id, _ = world.sent(FetchRequest)[1]
    done = world.answer(fetch_id, FetchResponse(epoch=1, leader_id=1, high_watermark=0, log_start_offset=0))
    assert set(world.sent(FetchRequest, done)) == {1}
    request_id, request = world.sent(UpdateVoterRequest, done)[1]
    assert request.voter == replace(voter(2), endpoints=new)
    assert request.epoch == 1
    done = world.answer(request_id, EpochResponse(epoch=1, leader_id=1))
    assert not world.sent(UpdateVoterRequest, [*done, *world.wait(100)])
    assert world.sent(UpdateVoterRequest, world.wait(400))  # it has not heard of it: the leader may have lost it


def test_a_leader_that_has_moved_tells_the_voters_when_it_may() -> None:
    new = (VoterEndpoint("CONTROLLER", "new", 1),)
    world = Lone(1, 2, endpoints=new)
    world.lead()
    assert world.machine.voters.get(1) == voter(1)
    world.fetch(2)
    assert world.machine.voters.get(1) == replace(voter(1), endpoints=new)
    appended = len(of(AppendVoters, world.said))
    world.fetch(2)
    world.wait(500)
    assert len(of(AppendVoters, world.said)) == appended


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add(2), ErrorCode.DUPLICATE_VOTER),
        (remove(4), ErrorCode.VOTER_NOT_FOUND),
        (replace(remove(2), directory_id=directory(9)), ErrorCode.VOTER_NOT_FOUND),
        (replace(remove(2), cluster_id="x"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
    ids=str,
)
def test_changes_that_are_refused(request_: Any, error: ErrorCode) -> None:
    world = settled(1, 2)
    assert world.ask(request_).error == error
    assert follower().ask(request_).error != ErrorCode.NONE


def test_configured_voters_do_not_change() -> None:
    world = Lone(1, configured=True)
    assert world.ask(add(2)).error == ErrorCode.UNSUPPORTED_VERSION


def test_a_change_ends_with_the_leadership() -> None:
    world = settled(1, 2)
    assert world.ask(add(4)) is None
    token = world.tokens
    world.ask(vote_request(2, 9, last_epoch=1, end_offset=99))
    assert world.replies[token].error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_tick_changes_nothing_by_itself() -> None:
    world = Lone(1, 2, 3)
    assert world.tell(Tick()) == []
    assert voters(1, 2, 3) == world.machine.voters


def test_a_snapshot_that_is_refused_again_and_again_is_fetched_less_and_less_often() -> None:
    world = Lone(1, 2, node_id=2)
    world.ask(BeginQuorumEpochRequest(cluster_id=CLUSTER, epoch=1, leader_id=1, leader_endpoints=voter(1).endpoints))
    began: list[int] = []
    fetches = 0
    which = SnapshotId(7, 1)
    start = world.now_ms
    done: list[Action] = list(world.said)
    while world.now_ms - start < 60_000:
        for request_id, _ in world.sent(FetchRequest, done).values():
            fetches += 1
            answer = FetchResponse(epoch=1, leader_id=1, high_watermark=9, log_start_offset=7, snapshot_id=which)
            done = world.answer(request_id, answer)
            break
        else:
            done = world.wait(100)
        for request_id, _ in world.sent(FetchSnapshotRequest, done).values():
            began.append(world.now_ms)
            chunk = FetchSnapshotResponse(epoch=1, leader_id=1, snapshot_id=which, size=1, data=b"x")
            assert of(InstallSnapshot, world.answer(request_id, chunk))
            done = world.tell(SnapshotRefused(snapshot_id=which))
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert 5 <= len(began) <= 8
    assert pauses == sorted(pauses)
    assert pauses[0] <= 1_500
    assert fetches > 80, "the leader hears of it meanwhile"
    assert world.machine.role is Role.FOLLOWER
