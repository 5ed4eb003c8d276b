"""Leader epochs against a list of (offset, epoch)"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.epochs import UNKNOWN_EPOCH, UNKNOWN_OFFSET, LeaderEpochs

histories = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=10)


def build(history: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """The machine, and the epoch of every offset; epochs go up, by 0 for a leader that goes on."""
    epochs, of_offset, epoch = LeaderEpochs(), list[int](), 0
    for step, count in history:
        epoch += step
        epochs.assign(epoch, len(of_offset))
        of_offset += [epoch] * count
    return epochs, of_offset


@given(histories, st.integers(-1, 40), st.integers(0, 3))
def test_end_offsets_and_epochs_of_offsets(history: list[tuple[int, int]], asked: int, elections: int) -> None:
    epochs, of_offset = build(history)
    for offset, epoch in enumerate(of_offset):
        assert epochs.epoch_at(offset) == epoch
    current = of_offset[-1] + elections
    found = epochs.end_offset_for(asked, current, len(of_offset))
    if asked < 0 or asked > current:
        assert found == (UNKNOWN_EPOCH, UNKNOWN_OFFSET)
    elif asked == current:
        assert found == (current, len(of_offset)), "also if its leader has written nothing yet"
    elif asked < of_offset[0]:
        assert found == (asked, 0)
    else:
        largest = max(epoch for epoch in of_offset if epoch <= asked)
        end = max(offset for offset, epoch in enumerate(of_offset) if epoch == largest) + 1
        assert found == (largest, end)


KAFKAS_ANSWERS = {
    # What is left in the log, the leader's epoch and the log's end -> what Kafka 4.3.1 answers for epochs 0, 1, 2, 3.
    ("written in 0", ((0, 0),), 0, 3): ((0, 3), (-1, -1), (-1, -1), (-1, -1)),
    ("nothing written", (), 0, 0): ((0, 0), (-1, -1), (-1, -1), (-1, -1)),
    ("written in 0, led in 2", ((0, 0),), 2, 3): ((0, 3), (0, 3), (2, 3), (-1, -1)),
    ("nothing written, led in 2", (), 2, 0): ((0, 0), (1, 0), (2, 0), (-1, -1)),
    ("written in 0 and 2", ((0, 0), (2, 3)), 2, 5): ((0, 3), (0, 3), (2, 5), (-1, -1)),
    ("records of 0 deleted", ((2, 4),), 2, 5): ((0, 4), (1, 4), (2, 5), (-1, -1)),
}


@pytest.mark.parametrize("case", KAFKAS_ANSWERS, ids=lambda case: case[0])
def test_ends_are_those_that_kafka_tells(case: tuple[str, tuple[tuple[int, int], ...], int, int]) -> None:
    _, entries, leader_epoch, end_offset = case
    epochs = LeaderEpochs(entries)
    answers = tuple(epochs.end_offset_for(asked, leader_epoch, end_offset) for asked in range(4))
    assert answers == KAFKAS_ANSWERS[case]


def test_an_epoch_of_which_nothing_is_left_parts_from_no_later_one() -> None:
    epochs = LeaderEpochs([(0, 3)])
    assert [epochs.end_offset_for(asked, 2, 3) for asked in range(4)] == [(0, 3), (1, 3), (2, 3), (-1, -1)]


@given(histories, st.integers(0, 50), st.booleans())
def test_truncation(history: list[tuple[int, int]], cut: int, from_start: bool) -> None:
    epochs, of_offset = build(history)
    cut = min(cut, len(of_offset) - 1)
    before = epochs.entries()
    changed = epochs.truncate_from_start(cut) if from_start else epochs.truncate_from_end(cut)
    assert changed == (epochs.entries() != before)
    assert epochs.latest == (epochs.entries()[-1][0] if epochs.entries() else UNKNOWN_EPOCH)
    kept = range(cut, len(of_offset)) if from_start else range(cut)
    assert all(epochs.epoch_at(offset) == of_offset[offset] for offset in kept)
    if from_start:
        assert epochs.entries()[0][1] == max(cut, 0)
    else:
        assert all(start < cut for _, start in epochs.entries())


def test_an_epoch_that_wrote_nothing_that_stayed_is_replaced() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 5)])
    assert epochs.assign(3, 5)
    assert epochs.entries() == [(1, 0), (3, 5)]
    assert not epochs.assign(3, 9)
    assert not epochs.assign(2, 9)


def test_an_empty_log_knows_no_epoch() -> None:
    epochs = LeaderEpochs()
    assert (epochs.latest, epochs.epoch_at(0)) == (UNKNOWN_EPOCH, UNKNOWN_EPOCH)
    assert epochs.end_offset_for(-1, 0, 0) == (UNKNOWN_EPOCH, UNKNOWN_OFFSET)
