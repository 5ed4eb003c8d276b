import pytest

from tests.broker.quorum.raft.member_world import Lone, directory, of, voter, voters
from tidemill.broker.quorum.raft.actions import Persist, Send
from tidemill.broker.quorum.raft.election import NOBODY, ElectionState
from tidemill.broker.quorum.raft.member import Role
from tidemill.broker.quorum.raft.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse
from tidemill.broker.quorum.raft.settings import QuorumSettings


def test_what_a_member_is_after_a_restart() -> None:
    for election, role, leader_id in [
        (ElectionState(), Role.UNATTACHED, NOBODY),
        (ElectionState(epoch=3, voted_id=2), Role.UNATTACHED, NOBODY),
        (ElectionState(epoch=3, leader_id=2), Role.FOLLOWER, 2),
        (ElectionState(epoch=3, leader_id=1, voted_id=1), Role.RESIGNED, NOBODY),
    ]:
        machine = Lone(1, 2, 3, election=election).machine
        assert (machine.role, machine.leader_id, machine.epoch) == (role, leader_id, election.epoch)
    assert Lone(2, 3, election=ElectionState(epoch=3, leader_id=2)).machine.role is Role.OBSERVER


def test_what_it_shows() -> None:
    world = Lone(1, 2, 3)
    machine = world.machine
    assert (machine.is_voter, machine.leads, machine.is_settled, machine.epoch_start) == (True, False, False, -1)
    assert machine.replicas == {}
    assert machine.voters == voters(1, 2, 3)
    assert machine.voters_offset == -1
    assert machine.leader_endpoints == ()
    world.lead()
    assert machine.leader_endpoints == voter(1).endpoints
    assert machine.epoch_start == 0


def test_who_has_another_disk_is_no_voter() -> None:
    world = Lone(1, 2, 3)
    other = Lone(2, 3, node_id=1)
    assert world.machine.is_voter
    assert not other.machine.is_voter
    assert other.machine.role is Role.OBSERVER


def test_a_leader_is_persisted_and_the_vote_stays_with_it() -> None:
    voted = ElectionState(epoch=3, voted_id=2, voted_directory_id=directory(2))
    world = Lone(1, 2, 3, election=voted)
    world.ask(BeginQuorumEpochRequest(cluster_id=None, epoch=3, leader_id=2))
    expected = ElectionState(epoch=3, leader_id=2, voted_id=2, voted_directory_id=directory(2))
    assert [each.state for each in of(Persist, world.said)] == [expected]
    assert world.machine.leader_endpoints == voter(2).endpoints  # as the set of voters has them
    world.ask(BeginQuorumEpochRequest(cluster_id=None, epoch=3, leader_id=2))
    assert len(of(Persist, world.said)) == 1


def test_deadlines_are_never_behind() -> None:
    world = Lone(1, 2, 3)
    for _ in range(20):
        deadline = world.machine.next_deadline_ms()
        assert deadline is not None
        assert deadline > world.now_ms
        world.wait(deadline - world.now_ms)


@pytest.mark.parametrize("fetch_timeout_ms", [100, 400, 500, 2000])
def test_a_follower_of_an_idle_leader_that_holds_its_fetches_misses_nobody(fetch_timeout_ms: int) -> None:
    """Whatever is set: a leader is asked to answer before it is taken for lost."""
    following = ElectionState(epoch=3, leader_id=2)
    world = Lone(1, 2, 3, election=following, settings=QuorumSettings(fetch_timeout_ms=fetch_timeout_ms))
    done = world.said
    for _ in range(5):
        fetch = of(Send, done)[-1]
        assert isinstance(fetch.request, FetchRequest)
        world.wait(fetch.request.wait_max_ms + 10)
        assert world.machine.role is Role.FOLLOWER
        done = world.answer(fetch.request_id, FetchResponse(epoch=3, leader_id=2))
