from typing import Any

import pytest

from tests.broker.quorum.raft.member_world import directory, voter, voters
from tidemill.broker.quorum.raft.leadership import HeldFetch, Leadership, VoterChange
from tidemill.broker.quorum.raft.messages import AddVoterRequest, FetchRequest, RemoveVoterRequest


def fetch(node_id: int, offset: int, directory_of: int | None = None) -> FetchRequest:
    return FetchRequest(
        cluster_id=None,
        epoch=1,
        replica_id=node_id,
        replica_directory_id=directory(directory_of or node_id),
        offset=offset,
        last_epoch=1,
        bytes_max=1,
        wait_max_ms=0,
    )


def leading(**fetched: int) -> Leadership:
    """Of an epoch that begins at 10, at the time 1000; `n2=12` is a fetch."""
    leadership = Leadership(voter(1), epoch_start=10, now_ms=1_000)
    for name, offset in fetched.items():
        leadership.heard_of(fetch(int(name[1:]), offset), log_end=20, now_ms=1_000)
    return leadership


@pytest.mark.parametrize(
    ("ids", "own", "fetched", "end"),
    [
        ((1,), 12, {}, 12),
        ((1, 2, 3), 20, {}, -1),
        ((1, 2, 3), 20, {"n2": 15}, 15),
        ((1, 2, 3), 11, {"n2": 15}, 11),
        ((1, 2, 3), 5, {"n2": 15, "n3": 14}, 14),
        ((1, 2, 3), 20, {"n2": 10}, -1),  # all of it is of older epochs
        ((1, 2, 3), 20, {"n2": 9, "n9": 20}, -1),
        ((2, 3), 20, {"n2": 15, "n3": 12}, 12),  # the leader is no voter any more
        ((2, 3), 20, {"n2": 15}, -1),
        ((1, 2), 20, {"n2": 15}, 15),
        ((1, 2, 3, 4, 5), 20, {"n2": 15, "n3": 14, "n4": 13}, 14),
    ],
)
def test_what_a_majority_holds(ids: tuple[int, ...], own: int, fetched: dict[str, int], end: int) -> None:
    assert leading(**fetched).majority_end(voters(*ids), own) == end


def test_another_disk_of_a_voter_does_not_count() -> None:
    leadership = leading()
    leadership.heard_of(fetch(2, 20, directory_of=9), log_end=20, now_ms=1_000)
    assert leadership.majority_end(voters(1, 2), 20) == -1
    assert leadership.successors(voters(1, 2)) == ((2, directory(2)),)


def test_how_long_a_leader_may_believe_in_itself() -> None:
    leadership = leading()
    assert leadership.quorum_deadline_ms(voters(1), 300) is None
    assert leadership.quorum_deadline_ms(voters(1, 2, 3), 300) == 1_300
    leadership.heard_of(fetch(2, 12), log_end=20, now_ms=1_200)
    assert leadership.quorum_deadline_ms(voters(1, 2, 3), 300) == 1_500
    assert leadership.quorum_deadline_ms(voters(2, 3), 300) == 1_300  # without itself it needs both
    leadership.heard_from(3, directory(3), 1_250)
    assert leadership.quorum_deadline_ms(voters(2, 3), 300) == 1_500


def test_who_has_caught_up() -> None:
    leadership = leading()
    for at_ms, offset, end, caught_up_ms in [
        (1, 5, 10, -1),
        (2, 9, 15, -1),
        (3, 15, 18, 2),
        (4, 18, 18, 4),
        (5, 18, 20, 4),
    ]:
        leadership.heard_of(fetch(4, offset), log_end=end, now_ms=at_ms)
        assert leadership.replicas[4].caught_up_ms == caught_up_ms
    assert leadership.is_caught_up(voter(4), 4)
    assert not leadership.is_caught_up(voter(4), 5)
    assert not leadership.is_caught_up(voter(5), 0)
    leadership.heard_of(fetch(6, 0), log_end=20, now_ms=3)
    assert not leadership.is_caught_up(voter(6), -500)  # never is not long ago, on a clock that has just begun


def test_a_snapshot_on_its_way_is_a_sign_of_life_and_of_nothing_else() -> None:
    leadership = leading(n2=12)
    leadership.heard_from(2, directory(2), 1_500)
    assert (leadership.replicas[2].end, leadership.replicas[2].fetched_ms) == (12, 1_500)
    leadership.heard_from(2, directory(9), 1_600)
    assert leadership.replicas[2].end == -1


def test_who_is_told_of_the_epoch_and_when() -> None:
    leadership = leading()
    assert leadership.begin_due_ms(voter(2), 100) == 1_000
    leadership.begun_ms[2] = 1_010
    assert leadership.begin_due_ms(voter(2), 100) == 1_110
    leadership.heard_of(fetch(2, 12), log_end=20, now_ms=1_050)
    assert leadership.begin_due_ms(voter(2), 100) == 1_150


def test_observers_that_are_gone_are_forgotten() -> None:
    leadership = leading(n2=12, n8=12)
    leadership.forget_silent(voters(1, 2), 1_000)
    assert set(leadership.replicas) == {2, 8}
    leadership.forget_silent(voters(1, 2), 1_001)
    assert set(leadership.replicas) == {2}
    leadership.heard_from(2, directory(9), 1_500)  # with another folder it is another member
    leadership.forget_silent(voters(1, 2), 1_501)
    assert set(leadership.replicas) == set()


def test_successors_are_those_that_hold_most() -> None:
    assert [each for each, _ in leading(n2=12, n3=14).successors(voters(1, 2, 3, 4))] == [3, 2, 4]


def change(request: Any) -> VoterChange:
    return VoterChange(token="t", request=request, voters=voters(1), deadline_ms=1_700)


def test_a_voter_comes_when_it_has_caught_up_and_goes_at_once() -> None:
    leadership = leading(n4=19)
    adding = change(AddVoterRequest(cluster_id=None, voter=voter(4), timeout_ms=1))
    assert not leadership.may_be_proposed(adding, 900)
    leadership.heard_of(fetch(4, 20), log_end=20, now_ms=1_100)
    assert not leadership.may_be_proposed(adding, 900), "it has not been heard to answer"
    leadership.begun_ms[4] = 1_100
    assert leadership.may_be_proposed(adding, 900)
    assert not leadership.may_be_proposed(adding, 1_200)
    removing = RemoveVoterRequest(cluster_id=None, node_id=2, directory_id=directory(2))
    assert leadership.may_be_proposed(change(removing), 900)


def test_deadlines_of_those_who_wait() -> None:
    leadership = leading()
    leadership.held["a"] = HeldFetch(token="a", request=fetch(2, 1), known_high_watermark=0, deadline_ms=1_500)
    leadership.change = change(RemoveVoterRequest(cluster_id=None, node_id=2, directory_id=directory(2)))
    assert sorted(leadership.deadlines()) == [1_500, 1_700]
