import uuid

from tidemill.broker.quorum.raft.messages import BeginQuorumEpochRequest, FetchRequest
from tidemill.broker.quorum.raft.peers import Peers
from tidemill.broker.quorum.raft.settings import QuorumSettings

REQUEST = BeginQuorumEpochRequest(cluster_id=None, epoch=1, leader_id=1, voter_directory_id=uuid.UUID(int=1))


def test_one_request_at_a_time_for_each_node() -> None:
    peers = Peers(QuorumSettings())
    assert peers.may_ask(2, 0)
    first = peers.sent(2, REQUEST, 0)
    assert not peers.may_ask(2, 1_999)
    assert peers.may_ask(3, 0)
    assert peers.next_deadline_ms(0) == 2_000
    assert peers.may_ask(2, 2_000)  # nobody answers any more
    second = peers.sent(2, REQUEST, 2_000)
    assert peers.take(first) is None
    taken = peers.take(second)
    assert taken is not None
    assert (taken.node_id, taken.request) == (2, REQUEST)
    assert peers.take(second) is None
    assert peers.may_ask(2, 2_000)


def test_after_a_failure_there_is_a_pause() -> None:
    peers = Peers(QuorumSettings())
    peers.back_off(2, 100)
    assert not peers.may_ask(2, 119)
    assert peers.next_deadline_ms(100) == 120
    assert peers.may_ask(2, 120)
    assert peers.next_deadline_ms(120) is None
    peers.back_off(2, 200, 500)
    assert not peers.may_ask(2, 699)
    assert peers.may_ask(2, 700)


def test_what_is_forgotten_is_not_heard() -> None:
    peers = Peers(QuorumSettings())
    request_id = peers.sent(2, REQUEST, 0)
    peers.back_off(3, 0)
    peers.forget()
    assert peers.may_ask(2, 0)
    assert peers.may_ask(3, 0)
    assert peers.take(request_id) is None
    assert peers.sent(2, REQUEST, 0) != request_id


def test_a_fetch_is_waited_for_as_long_as_the_leader_may_hold_it_and_a_request_takes() -> None:
    peers = Peers(QuorumSettings(request_timeout_ms=500, fetch_wait_max_ms=500))
    fetch = FetchRequest(
        cluster_id=None,
        epoch=1,
        replica_id=1,
        replica_directory_id=uuid.UUID(int=1),
        offset=0,
        last_epoch=0,
        bytes_max=1,
        wait_max_ms=500,
    )
    held = peers.sent(2, fetch, 0)
    assert not peers.may_ask(2, 999)
    assert peers.next_deadline_ms(0) == 1_000
    assert peers.take(held) is not None
    peers.sent(2, REQUEST, 1_000)
    assert peers.may_ask(2, 1_500)
