"""Leader epochs as they were read, and what a source can say against them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.mirror.lineage import SPANS_MAX, UNKNOWN_EPOCH, Claim, Lineage, Span


def test_batches_of_one_leader_are_one_span() -> None:
    lineage = Lineage()
    assert lineage.note([Span(3, 0, 10)])
    assert not lineage.note([Span(3, 10, 25)])
    assert lineage.note([Span(3, 25, 30), Span(5, 30, 40)])
    assert lineage.spans() == (Span(3, 0, 30), Span(5, 30, 40))
    assert [lineage.epoch_before(position) for position in (0, 1, 30, 31)] == [UNKNOWN_EPOCH, 3, 3, 5]


def test_the_newest_epoch_reaches_to_the_position_and_one_that_ended_to_its_end() -> None:
    lineage = Lineage([Span(3, 0, 20), Span(5, 30, 31)])
    lineage.reach(50)
    assert lineage.claims(50) == (Claim(5, 50), Claim(3, 20))
    assert lineage.claims(25) == (Claim(3, 20),), "between them nothing is known to have been written"
    assert lineage.claims(7) == (Claim(3, 7),)
    assert lineage.claims(0) == ()
    assert Lineage().claims(50) == ()


def test_what_this_life_has_read_reaches_no_further() -> None:
    lineage = Lineage()
    lineage.note([Span(3, 0, 20)])
    lineage.reach(50)
    assert lineage.claims(50) == (Claim(3, 20),), "what an earlier life sent may be of another leader"
    lineage = Lineage([Span(3, 0, 20)])
    lineage.note([Span(5, 30, 31)])
    lineage.reach(50)
    assert lineage.claims(50) == (Claim(5, 31), Claim(3, 20))


@pytest.mark.parametrize(
    ("answer", "is_refuted"),
    [
        ((5, 99), True),
        ((5, 100), False),
        ((4, 90), True),  # the leader never had epoch 5, and the next one began before
        ((4, 100), False),
        ((6, 50), False),  # no answer to the question
        ((-1, -1), False),  # it cannot tell
    ],
)
def test_only_an_end_before_what_was_read_refutes(answer: tuple[int, int], is_refuted: bool) -> None:
    assert Claim(5, 100).is_refuted(*answer) is is_refuted


def test_batches_that_do_not_tell_are_claimed_nothing_of() -> None:
    lineage = Lineage()
    assert not lineage.note([Span(UNKNOWN_EPOCH, 0, 10)])
    assert lineage.spans() == ()
    lineage.note([Span(3, 10, 20), Span(UNKNOWN_EPOCH, 20, 30)])
    assert lineage.claims(30) == (Claim(3, 20),)


def test_what_is_read_again_changes_nothing() -> None:
    spans = (Span(3, 0, 20), Span(5, 30, 50))
    lineage = Lineage(spans)
    assert not lineage.note([Span(3, 5, 20), Span(5, 30, 45)])
    assert lineage.spans() == spans


def test_a_source_that_was_cut_replaces_what_was_read_behind_the_cut() -> None:
    lineage = Lineage([Span(3, 0, 20), Span(5, 30, 50)])
    assert lineage.note([Span(7, 10, 12)])
    assert lineage.spans() == (Span(3, 0, 10), Span(7, 10, 12))


def test_epochs_that_fall_are_no_evidence() -> None:
    lineage = Lineage([Span(3, 0, 20), Span(5, 30, 50)])
    assert lineage.note([Span(4, 50, 60)])
    assert lineage.spans() == (Span(4, 50, 60),)


def test_what_lies_before_everything_known_is_put_in_front() -> None:
    lineage = Lineage([Span(5, 30, 50)])
    assert not lineage.note([Span(5, 25, 30)])
    assert lineage.note([Span(3, 10, 20)])
    assert lineage.spans() == (Span(3, 10, 20), Span(5, 25, 50))


def test_only_the_newest_are_kept() -> None:
    lineage = Lineage()
    lineage.note(Span(epoch, 10 * epoch, 10 * epoch + 5) for epoch in range(40))
    assert [span.epoch for span in lineage.spans()] == list(range(40 - SPANS_MAX, 40))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2)), max_size=60), st.data())
def test_an_uncut_log_refutes_nothing(steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Batches of some length behind a hole of some length, under leaders that change; read from anywhere, and again."""
    batches: list[Span] = []
    end, epoch, starts = 0, 0, {0: 0}
    for length, hole, next_leader in steps:
        if next_leader:
            epoch += next_leader
            starts[epoch] = end
        batches.append(Span(epoch, end + hole, end + hole + length))
        end += hole + length
    lineage = Lineage()
    position = 0
    for _ in range(4):
        first = data.draw(st.integers(0, len(batches)))
        last = data.draw(st.integers(first, len(batches)))
        lineage.note(batches[first:last])
        position = max([position, *(batch.end for batch in batches[first:last])])
    for claim in lineage.claims(position):
        later = [start for other, start in starts.items() if other > claim.epoch]
        assert not claim.is_refuted(claim.epoch, min(later, default=end))
