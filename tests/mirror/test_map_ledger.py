"""What of the map is stored, after any order of writes, failures and deletions."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.mirror.lineage import Span
from tidemill.mirror.map_join import join_segments
from tidemill.mirror.map_ledger import MapLedger
from tidemill.mirror.offsets import OffsetMap, Run


def ledger() -> MapLedger:
    return MapLedger(OffsetMap(segment_runs=2))


def test_a_batch_waits_for_the_write_that_holds_its_runs() -> None:
    book = ledger()
    needs = book.add(0, [(0, 3), (5, 2)])
    write = book.write()
    assert write is not None
    assert (write.token, write.segments) == (needs, {0: (Run(0, 0), Run(5, 3))})
    assert book.add(5, [(7, 4)]) == needs, "it goes on as the map says"
    assert book.write() is None
    assert not book.is_settled
    book.stored(needs)
    assert book.is_settled
    assert book.confirmed == needs


def test_a_later_write_makes_up_for_a_failed_one() -> None:
    book = ledger()
    book.add(0, [(0, 1), (2, 1)])
    first = book.write()
    book.add(2, [(9, 1)])
    second = book.write()
    assert first is not None
    assert second is not None
    assert second.segments == {0: (Run(0, 0), Run(2, 1)), 1: (Run(9, 2),)}
    book.stored(second.token)
    assert book.rewrite() is None


def test_nothing_is_collected_while_a_write_may_have_failed() -> None:
    book = ledger()
    book.add(0, [(2 * i, 1) for i in range(6)])
    write = book.write()
    assert write is not None
    assert book.collect(5) is None
    again = book.rewrite()
    assert again is not None
    assert again.segments == write.segments
    book.stored(again.token)
    gone = book.collect(5)
    assert gone is not None
    assert (gone.segments, gone.deleted) == ({}, (0, 1))


def test_a_deletion_that_failed_goes_with_the_next_write_oldest_first() -> None:
    book = ledger()
    book.add(0, [(2 * i, 1) for i in range(8)])
    write = book.write()
    assert write is not None
    book.stored(write.token)
    failed = book.collect(3)
    assert failed is not None
    assert failed.deleted == (0,)
    book.add(8, [(100, 1)])
    later = book.write()
    assert later is not None
    assert later.deleted == (0,)
    assert set(later.segments) == {4}


@given(st.data())
def test_the_topic_always_holds_a_map_that_is_right_as_far_as_it_goes(data: st.DataObject) -> None:
    """Whatever fails half-way, what is stored translates every confirmed record above the log start."""
    book, topic = ledger(), dict[int, tuple[Run, ...]]()
    target = source = start = 0
    confirmed = 0
    needs_of: list[tuple[int, int, int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            source += data.draw(st.integers(0, 2))
            needs_of.append((book.add(target, [(source, 1)]), target, source))
            source, target = source + 1, target + 1
            write = book.write()
        elif data.draw(st.booleans()):
            start = data.draw(st.integers(start, confirmed))
            write = book.collect(start)
        else:
            write = book.rewrite()
        if write is not None:
            rows = [(number, None) for number in write.deleted] + list(write.segments.items())
            done = data.draw(st.sampled_from([len(rows), data.draw(st.integers(0, len(rows)))]))
            for number, runs in rows[:done]:
                topic.pop(number, None) if runs is None else topic.update({number: runs})
            if done == len(rows):
                book.stored(write.token)
        stored = join_segments(topic, segment_runs=2)
        for needs, at, origin in needs_of:
            if needs <= book.confirmed:
                confirmed = max(confirmed, at)
                assert at < start or stored.source_for(at) == origin


def test_a_new_leader_is_stored_before_what_it_wrote_is_sent() -> None:
    book = ledger()
    book.note([Span(3, 0, 4)])
    assert book.write() is None, "the first run takes it along"
    needs = book.add(0, [(0, 4)])
    write = book.write()
    assert write is not None
    assert (write.token, write.spans) == (needs, (Span(3, 0, 4),))
    book.stored(needs)
    book.note([Span(3, 4, 8)])
    assert book.write() is None, "the end of the newest epoch follows from the map"
    book.note([Span(5, 8, 10)])
    needs = book.add(8, [(8, 2)])
    write = book.write()
    assert write is not None
    assert (write.token, write.segments) == (needs, {0: (Run(0, 0),)})
    assert write.spans == (Span(3, 0, 8), Span(5, 8, 10))


def test_runs_written_ahead_give_way_to_records_that_are_there() -> None:
    book = ledger()
    book.add(0, [(0, 2), (5, 2), (9, 1)])
    first = book.write()
    assert first is not None
    book.stored(first.token)
    book.add(2, [(5, 6)])
    write = book.write()
    assert write is not None
    assert (write.segments, write.deleted) == ({0: (Run(0, 0), Run(5, 2))}, (1,))


def test_a_write_that_affirms_what_is_stored_holds_what_is_not() -> None:
    book = ledger()
    book.add(0, [(0, 3)])
    first = book.write()
    assert first is not None
    again = book.affirm()
    assert again is not None
    assert again.segments == first.segments
    book.stored(again.token)
    empty = book.affirm()
    assert empty is not None
    assert (empty.segments, empty.deleted) == ({}, ())
    assert not book.is_settled
    book.stored(empty.token)
    assert book.is_settled
