import uuid

from tidemill.broker.quorum.raft.messages import (
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


def test_every_answer_says_who_leads_which_epoch() -> None:
    for kind in (EpochResponse, VoteResponse, FetchResponse, FetchSnapshotResponse):
        answer = kind(epoch=3, leader_id=2)
        assert (answer.epoch, answer.leader_id, answer.error) == (3, 2, ErrorCode.NONE)
    assert not VoteResponse(epoch=3, leader_id=2).granted


def test_what_is_not_said_is_unknown() -> None:
    vote = VoteRequest(
        cluster_id=None,
        epoch=1,
        candidate_id=2,
        candidate_directory_id=uuid.UUID(int=1),
        last_epoch=0,
        end_offset=0,
        pre_vote=True,
    )
    assert (vote.voter_id, vote.voter_directory_id) == (-1, ZERO_UUID)
    fetch = FetchRequest(
        cluster_id=None,
        epoch=1,
        replica_id=2,
        replica_directory_id=ZERO_UUID,
        offset=0,
        last_epoch=0,
        bytes_max=1,
        wait_max_ms=0,
    )
    assert fetch.high_watermark == -1
    assert FetchResponse(epoch=1, leader_id=2).high_watermark == -1
