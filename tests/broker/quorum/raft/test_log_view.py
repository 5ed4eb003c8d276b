from hypothesis import given
from hypothesis import strategies as st

from tests.sim.quorum_disk import Entry, SimulatedLog
from tidemill.broker.quorum.raft.log_view import (
    Divergence,
    end_of_epoch,
    epoch_before,
    is_up_to_date,
    judge_fetch,
    last_epoch,
    truncation_point,
)
from tidemill.broker.quorum.snapshot import SnapshotId


def log_of(*epochs: int, snapshot: int = 0) -> SimulatedLog:
    """One entry for each epoch given, those before `snapshot` in a snapshot only."""
    log = SimulatedLog()
    for number, epoch in enumerate(epochs):
        log.append(Entry(epoch, number))
    if snapshot:
        log.take_snapshot(snapshot)
    return log


def test_epochs_of_a_log() -> None:
    log = log_of(1, 1, 3, 3, 3)
    assert [epoch_before(log, each) for each in range(6)] == [0, 1, 1, 3, 3, 3]
    assert last_epoch(log) == 3
    assert last_epoch(log_of()) == 0
    assert [end_of_epoch(log, each) for each in (0, 1, 2, 3, 4)] == [
        Divergence(0, 0),
        Divergence(1, 2),
        Divergence(1, 2),
        Divergence(3, 5),
        Divergence(3, 5),
    ]


def test_epochs_behind_a_snapshot() -> None:
    log = log_of(1, 1, 3, 3, 3, snapshot=3)
    assert epoch_before(log, 3) == 3
    assert end_of_epoch(log, 3) == Divergence(3, 5)
    empty = log_of(1, 1, 3, snapshot=3)
    assert (last_epoch(empty), empty.log_start_offset) == (3, 3)
    assert end_of_epoch(empty, 7) == Divergence(3, 3)


def test_whose_log_has_all() -> None:
    log = log_of(1, 3)
    assert is_up_to_date(log, 3, 2)
    assert is_up_to_date(log, 4, 1)
    assert not is_up_to_date(log, 3, 1)
    assert not is_up_to_date(log, 2, 9)


def test_what_a_leader_answers() -> None:
    log = log_of(1, 1, 3, 3, 5, 5)
    assert judge_fetch(log, 0, 0) is None
    assert judge_fetch(log, 4, 3) is None
    assert judge_fetch(log, 6, 5) is None
    assert judge_fetch(log, 4, 2) == Divergence(1, 2)
    assert judge_fetch(log, 5, 3) == Divergence(3, 4)
    assert judge_fetch(log, 9, 5) == Divergence(5, 6)
    assert judge_fetch(log, 9, 8) == Divergence(5, 6)
    cut = log_of(1, 1, 3, 3, 5, 5, snapshot=4)
    assert judge_fetch(cut, 0, 0) == SnapshotId(4, 3)
    assert judge_fetch(cut, 3, 3) == SnapshotId(4, 3)
    assert judge_fetch(cut, 4, 3) is None
    assert judge_fetch(cut, 5, 2) == SnapshotId(4, 3)
    assert judge_fetch(cut, 5, 4) == Divergence(3, 4)


def test_where_a_follower_cuts() -> None:
    log = log_of(1, 1, 2, 2, 4)
    assert truncation_point(log, Divergence(2, 3)) == 3
    assert truncation_point(log, Divergence(2, 9)) == 4
    assert truncation_point(log, Divergence(3, 9)) == 4
    assert truncation_point(log, Divergence(1, 1)) == 1


epochs = st.lists(st.integers(1, 6), max_size=12).map(sorted)


@given(shared=epochs, mine=epochs, theirs=epochs)
def test_two_logs_find_where_they_part(shared: list[int], mine: list[int], theirs: list[int]) -> None:
    """Whatever was written after the same beginning by different leaders is cut, and not a record more than needed."""
    base = shared[-1] if shared else 0
    leader = log_of(*shared, *(base + 2 * each for each in theirs))
    follower = log_of(*shared, *(base + 2 * each - 1 for each in mine))
    rounds = 0
    while (judged := judge_fetch(leader, follower.offset_end, last_epoch(follower))) is not None:
        assert isinstance(judged, Divergence)
        end = truncation_point(follower, judged)
        assert end < follower.offset_end
        follower.truncate(end)
        rounds += 1
    assert follower.offset_end == len(shared)
    assert rounds <= len(set(mine)) + 1
