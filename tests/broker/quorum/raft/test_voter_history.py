from tests.broker.quorum.raft.member_world import directory, voters
from tidemill.broker.quorum.raft.voter_history import BOOTSTRAPPED, CONFIGURED, VoterHistory


def test_the_last_set_in_the_log_counts() -> None:
    history = VoterHistory(voters(1))
    assert (history.offset, history.is_configured) == (CONFIGURED, True)
    history.add(BOOTSTRAPPED, voters(1, 2))
    assert (history.offset, history.is_configured) == (BOOTSTRAPPED, False)
    history.add(5, voters(1, 2, 3))
    assert history.latest.ids == (1, 2, 3)
    assert history.was_voter(2, directory(2))
    assert not history.was_voter(3, directory(3))


def test_a_log_that_is_cut_goes_back() -> None:
    history = VoterHistory(voters(1))
    for offset, ids in [(3, (1, 2)), (7, (1, 2, 3)), (9, (1, 3))]:
        history.add(offset, voters(*ids))
    history.truncate(8)
    assert (history.offset, history.latest.ids) == (7, (1, 2, 3))
    history.truncate(7)
    assert history.latest.ids == (1, 2)
    history.truncate(0)
    assert history.is_configured


def test_what_comes_at_an_offset_stands_for_all_that_was_there() -> None:
    history = VoterHistory(voters(1))
    history.add(3, voters(1, 2))
    history.add(7, voters(1, 2, 3))
    history.add(3, voters(2))
    assert (history.offset, history.latest.ids) == (3, (2,))


def test_what_is_committed_is_not_gone_back_from() -> None:
    history = VoterHistory(voters(1))
    history.add(3, voters(1, 2))
    history.add(7, voters(2))
    history.settle(7)
    assert history.was_voter(1, directory(1))  # 7 itself is not committed
    history.settle(8)
    assert not history.was_voter(1, directory(1))
    assert history.offset == 7
