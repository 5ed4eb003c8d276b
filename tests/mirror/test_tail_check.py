"""The last batch of the target against the source: whole, compacted, probed, foreign."""

import pytest

from tidemill.core.records.batch import stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record
from tidemill.mirror.link_events import Fetched, TargetLocated
from tidemill.mirror.offsets import OffsetMap, Run
from tidemill.mirror.tail_check import Finding, Mismatch, TailCheck, foreign_tail

PID = (1 << 62) + 7
VALUES = {offset: b"v%d" % offset for offset in range(100)}


def source(*offsets: int, values: dict[int, bytes] = VALUES) -> bytes:
    """One batch with the records that are left at these offsets."""
    records = [Record(offset, 1000 + offset, b"k", values[offset]) for offset in offsets]
    built = bytearray(build_batch(records, base_offset=offsets[0], keep_offsets=True))
    stamp(built, 0, offsets[0], 0)
    return bytes(built)


def tail(base: int, *origins: int) -> bytes:
    """The target's last batch, its records mirrored from these source offsets."""
    records = [Record(index, 1000 + origin, b"k", VALUES[origin]) for index, origin in enumerate(origins)]
    built = bytearray(build_batch(records, producer_id=PID, producer_epoch=0, base_sequence=base))
    stamp(built, 0, base, 0)
    return bytes(built)


def fetched(*batches: bytes, end: int = 100) -> Fetched:
    return Fetched(turn=0, data=b"".join(batches), end=end)


IDENTITY = OffsetMap([Run(0, 0)])


def test_the_same_records_go_on_behind_them() -> None:
    check = TailCheck(tail(5, 5, 6, 7), IDENTITY, 8)
    assert check.offset == 5
    assert check.take(fetched(source(5, 6, 7, 8))) == Finding(next_source=8, corrections=())


def test_what_was_compacted_since_proves_nothing() -> None:
    assert TailCheck(tail(5, 5, 6, 7), IDENTITY, 8).take(fetched(source(6, 9))) == Finding(
        next_source=8, corrections=()
    )
    assert TailCheck(tail(5, 5, 6, 7), IDENTITY, 8).take(fetched(source(9))) == Finding(next_source=8, corrections=())


def test_the_comparison_takes_as_many_fetches_as_it_needs() -> None:
    check = TailCheck(tail(5, 5, 6, 7), IDENTITY, 8)
    assert check.take(fetched(source(5))) is None
    assert check.offset == 6
    assert check.take(fetched()) is None
    assert check.take(fetched(source(7))) == Finding(next_source=8, corrections=())


def test_the_end_of_the_source_ends_the_comparison() -> None:
    check = TailCheck(tail(5, 5, 6, 7), IDENTITY, 8)
    assert check.take(fetched(source(6), end=7)) == Finding(next_source=8, corrections=())


def test_other_records_in_their_place_are_a_mismatch() -> None:
    values = {**VALUES, 6: b"other"}
    with pytest.raises(Mismatch, match="offset 6 is not the one that was mirrored"):
        TailCheck(tail(5, 5, 6, 7), IDENTITY, 8).take(fetched(source(5, 6, 7, values=values)))


def test_a_batch_sent_ahead_of_its_map_puts_the_map_right() -> None:
    """The map expects offset 5 at 5, but 5 and 6 were compacted before 7, 8 and 11 were sent."""
    finding = TailCheck(tail(5, 7, 8, 11), IDENTITY, 8).take(fetched(source(7, 8, 11, 12)))
    assert finding == Finding(next_source=12, corrections=(Run(7, 5), Run(11, 7)))


def test_a_batch_sent_ahead_of_its_map_and_compacted_afterwards() -> None:
    finding = TailCheck(tail(5, 7, 8, 11), IDENTITY, 8).take(fetched(source(8, 12)))
    assert finding == Finding(next_source=9, corrections=(Run(8, 6),))


@pytest.mark.parametrize(
    ("left", "first"),
    [
        pytest.param((6, 9, 10, 11), Run(7, 7), id="the run that is refuted begins behind a record that is found"),
        pytest.param((9, 10, 11, 12), Run(7, 7), id="or behind one that the source has lost"),
        pytest.param((10, 11), Run(7, 7), id="whichever of its records is found first"),
    ],
)
def test_a_run_that_is_refuted_is_put_right_from_its_first_record_on(left: tuple[int, ...], first: Run) -> None:
    """The map was written for a target in which 9 followed on 6; this one has 7 and 8 too, which the source lost."""
    offsets = OffsetMap([Run(0, 0), Run(9, 7)])
    finding = TailCheck(tail(5, 5, 6, 7, 8, 9, 10), offsets, 13).take(fetched(*map(source, left)))
    assert finding is not None
    assert finding.next_source == 11, "11 and 12 are not in this target"
    for run in finding.corrections:
        offsets.append(run)
    assert finding.corrections[0] == first
    assert [offsets.source_for(target) for target in range(5, 11)] == [5, 6, 7, 8, 9, 10]


def test_equal_neighbours_are_told_apart_by_their_time() -> None:
    values = {**VALUES, 6: b"v5"}
    finding = TailCheck(tail(5, 5), IDENTITY, 6).take(fetched(source(6, values=values)))
    assert finding == Finding(next_source=6, corrections=()), "the record at 6 is still to be mirrored"


@pytest.mark.parametrize(
    ("event", "has_map", "words"),
    [
        (TargetLocated(turn=1, log_start=0, log_end=3), False, "no offset map"),
        (TargetLocated(turn=1, log_start=0, log_end=3), True, ""),
        (TargetLocated(turn=1, log_start=0, log_end=8, tail=tail(5, 5, 6, 7)), True, ""),
        (TargetLocated(turn=1, log_start=0, log_end=9, tail=tail(5, 5, 6, 7)), True, "does not fit a log end"),
    ],
)
def test_whose_the_end_of_the_log_is(event: TargetLocated, has_map: bool, words: str) -> None:
    problem = foreign_tail(event, PID, has_map=has_map)
    assert words in problem
    assert bool(problem) == bool(words)
    if event.tail:
        assert "not written by this mirror" in foreign_tail(event, PID + 1, has_map=True)
