"""The partition machine, one situation at a time; `tests/sim/test_mirror_link.py` has them all together."""

import pytest

from tidemill.core.records.batch import BatchView, stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record, decode_records
from tidemill.mirror.lineage import Span
from tidemill.mirror.link import CONFIRM_MS, DISPUTES_MAX, IDLE_MS, PartitionLink, State
from tidemill.mirror.link_events import (
    Action,
    EpochEndFound,
    Event,
    Fetch,
    Fetched,
    Halted,
    LocateEpochEnd,
    LocateSource,
    LocateTarget,
    LogStartFound,
    LookupFailed,
    OutOfRange,
    Produce,
    Produced,
    ProduceFailed,
    Release,
    Report,
    Reset,
    RunsStored,
    SourceLocated,
    Started,
    StoreFailed,
    StoreRuns,
    TargetLocated,
    TargetUnbound,
    Trouble,
    Wake,
    Woken,
)
from tidemill.mirror.map_join import Damage, join_segments
from tidemill.mirror.offsets import OffsetMap, Run
from tidemill.mirror.passthrough import Verdict
from tidemill.mirror.resuming import ARRIVAL_MS

PID = (1 << 62) + 7


def step(link: PartitionLink, event: Event, now_ms: int = 0) -> list[Action]:
    return link.step(event, now_ms)


def plain(base: int, count: int, *, epoch: int = -1, **kind: object) -> bytes:
    records = [Record(base + i, 1, b"k%d" % (base + i), b"v") for i in range(count)]
    batch = bytearray(build_batch(records, base_offset=base, **kind))  # type: ignore[arg-type]
    stamp(batch, 0, base, epoch)
    return bytes(batch)


def mirrored(base: int, count: int, producer: int = PID, sequence: int | None = None) -> bytes:
    return plain(
        base, count, producer_id=producer, producer_epoch=0, base_sequence=base if sequence is None else sequence
    )


def only(actions: list[Action], kind: type[Action]) -> Action:
    found = [action for action in actions if isinstance(action, kind)]
    assert len(found) == 1, actions
    return found[0]


def located(link: PartitionLink, end: int, tail: bytes = b"", start: int = 0) -> list[Action]:
    action = only(step(link, Started()), LocateTarget)
    return affirmed(link, step(link, TargetLocated(turn=action.turn, log_start=start, log_end=end, tail=tail)))


def affirmed(link: PartitionLink, actions: list[Action], now_ms: int = 0) -> list[Action]:
    """Those actions, and what follows when the map writes among them are confirmed."""
    tokens = [action.token for action in actions if isinstance(action, StoreRuns)]
    return [*actions, *(more for token in tokens for more in step(link, RunsStored(token=token), now_ms))]


def test_a_target_with_unknown_records_is_left_alone() -> None:
    link = PartitionLink(producer_id=PID)
    located(link, 10, mirrored(0, 10))
    assert link.state is State.FAILED
    assert "no offset map" in link.reason


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (mirrored(5, 5, producer=99), "not written by this mirror"),
        (mirrored(5, 5, sequence=3), "does not fit a log end"),
        (mirrored(4, 5), "does not fit a log end"),
    ],
)
def test_a_foreign_tail_stops_the_partition(tail: bytes, words: str) -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    located(link, 10, tail)
    assert link.state is State.FAILED
    assert words in link.reason


def test_a_source_with_other_records_stops_the_partition() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10, mirrored(5, 5)), Fetch)
    assert fetch.offset == 5, "the look back starts at the target's last batch"
    other = build_batch([Record(i, 1, b"other", b"v") for i in range(5)], base_offset=5)
    step(link, Fetched(turn=fetch.turn, data=other, end=20))
    assert link.state is State.FAILED
    assert "is not the one that was mirrored" in link.reason


def test_a_source_with_the_same_records_goes_on() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10, mirrored(5, 5)), Fetch)
    actions = step(link, Fetched(turn=fetch.turn, data=plain(5, 5) + plain(10, 2), end=12))
    produce = only(actions, Produce)
    view = BatchView(produce.batch)
    assert (view.base_sequence, view.record_count, view.producer_id) == (10, 2, PID)


def test_a_source_that_got_shorter_stops_the_partition() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10), Fetch)
    lookup = only(step(link, OutOfRange(turn=fetch.turn)), LocateSource)
    step(link, SourceLocated(turn=lookup.turn, log_start=0, log_end=4))
    assert link.state is State.FAILED
    assert "truncated or created anew" in link.reason


@pytest.mark.parametrize(("reset", "state"), [(Reset.EARLIEST, State.RUNNING), (Reset.NONE, State.FAILED)])
def test_records_deleted_before_they_were_mirrored(reset: Reset, state: State) -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]), reset=reset)
    fetch = only(located(link, 10), Fetch)
    lookup = only(step(link, OutOfRange(turn=fetch.turn)), LocateSource)
    actions = step(link, SourceLocated(turn=lookup.turn, log_start=50, log_end=60))
    assert link.state is state
    assert "deleted offsets 10 to 49" in only(actions, Report).message
    if state is State.RUNNING:
        assert only(actions, Fetch).offset == 50
        step(link, LookupFailed(turn=only(actions, Fetch).turn, trouble=Trouble.RETRY, reason="x"))
        again = only(step(link, Woken(turn=only(actions, Fetch).turn + 1)), LocateTarget)
        fetch = only(step(link, TargetLocated(turn=again.turn, log_start=0, log_end=10)), Fetch)
        lookup = only(step(link, OutOfRange(turn=fetch.turn)), LocateSource)
        step(link, SourceLocated(turn=lookup.turn, log_start=52, log_end=60))
        assert link.progress.lost == 42, "the same gap is counted once"


def test_a_start_at_the_end_is_known_to_the_next_start() -> None:
    link = PartitionLink(producer_id=PID, reset=Reset.LATEST)
    lookup = only(located(link, 0), LocateSource)
    store = only(step(link, SourceLocated(turn=lookup.turn, log_start=30, log_end=80)), StoreRuns)
    assert isinstance(store, StoreRuns)
    again = PartitionLink(producer_id=PID, reset=Reset.LATEST, offsets=join_segments(store.segments))
    fetch = only(located(again, 0), Fetch)
    assert isinstance(fetch, Fetch)
    assert fetch.offset == 80, "what came after the first start is not skipped"


@pytest.mark.parametrize(("reset", "offset"), [(Reset.EARLIEST, 30), (Reset.LATEST, 80)])
def test_where_a_new_partition_starts(reset: Reset, offset: int) -> None:
    link = PartitionLink(producer_id=PID, reset=reset)
    lookup = only(located(link, 0), LocateSource)
    actions = step(link, SourceLocated(turn=lookup.turn, log_start=30, log_end=80))
    assert only(actions, Fetch).offset == offset


def running(end: int = 0) -> tuple[PartitionLink, Fetch]:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    return link, only(located(link, end), Fetch)


def new() -> tuple[PartitionLink, Fetch]:
    link = PartitionLink(producer_id=PID)
    lookup = only(located(link, 0), LocateSource)
    return link, only(step(link, SourceLocated(turn=lookup.turn, log_start=0, log_end=7)), Fetch)


def test_one_batch_in_flight_until_the_target_took_one() -> None:
    link, fetch = running()
    data = b"".join(plain(2 * i, 2) for i in range(10))
    actions = step(link, Fetched(turn=fetch.turn, data=data, end=20))
    first = only(actions, Produce)
    more = step(link, Produced(token=first.token, target_offset=0))
    assert len([a for a in more if isinstance(a, Produce)]) == 5


def test_no_batch_behind_a_hole_before_the_map_is_stored() -> None:
    link, fetch = new()
    actions = step(link, Fetched(turn=fetch.turn, data=plain(0, 2) + plain(5, 2), end=7))
    store = only(actions, StoreRuns)
    assert store.segments == {0: (Run(0, 0), Run(5, 2))}
    assert not [action for action in actions if isinstance(action, Produce)]
    first = only(step(link, RunsStored(token=store.token)), Produce)
    actions = step(link, Fetched(turn=only(actions, Fetch).turn, data=plain(9, 2), end=11))
    assert only(actions, StoreRuns).segments == {0: (Run(0, 0), Run(5, 2), Run(9, 4))}
    assert len([a for a in step(link, Produced(token=first.token, target_offset=0)) if isinstance(a, Produce)]) == 1


def test_a_batch_in_the_wrong_place_stops_the_partition() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
    step(link, Produced(token=first.token, target_offset=40))
    assert link.state is State.FAILED
    assert "somebody else writes" in link.reason


def test_an_oversize_batch_parks_the_partition_and_is_tried_again() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
    actions = step(link, ProduceFailed(token=first.token, trouble=Trouble.PARK, reason="too large", in_doubt=False))
    assert link.state is State.PARKED
    assert only(actions, Report).severe
    wake = only(actions, Wake)
    assert only(step(link, Woken(turn=wake.turn)), LocateTarget)


def test_a_corrupt_source_batch_that_must_be_rebuilt_parks_the_partition() -> None:
    link, fetch = running()
    damaged = bytearray(build_batch([Record(1, 1, b"k", b"value")], base_offset=0, keep_offsets=True))
    damaged[-3] ^= 1
    step(link, Fetched(turn=fetch.turn, data=bytes(damaged), end=2))
    assert link.state is State.PARKED
    assert "checksum" in link.reason


def test_an_endless_dispute_over_the_sequence_parks_the_partition() -> None:
    link, fetch = running()
    for _ in range(DISPUTES_MAX):
        first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
        failed = ProduceFailed(token=first.token, trouble=Trouble.OUT_OF_ORDER, reason="sequence", in_doubt=False)
        actions = step(link, failed)
        if link.state is State.PARKED:
            break
        locate = only(step(link, Woken(turn=only(actions, Wake).turn)), LocateTarget)
        actions = step(link, TargetLocated(turn=locate.turn, log_start=0, log_end=0))
        fetch = only(affirmed(link, actions), Fetch)
    assert link.state is State.PARKED
    assert "another producer" in link.reason
    assert only(actions, Wake), "replicas that lag behind may have caught up by then"


@pytest.mark.parametrize("data", [plain(0, 2)[:-1], b""])
def test_a_batch_larger_than_the_fetch_is_asked_for_again(data: bytes) -> None:
    link, fetch = running()
    again = only(step(link, Fetched(turn=fetch.turn, data=data, end=2)), Fetch)
    assert (again.offset, again.max_bytes) == (0, 2 * fetch.max_bytes)
    after = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Fetch)
    assert (after.offset, after.max_bytes) == (2, fetch.max_bytes)


def test_a_batch_larger_than_any_fetch_parks_the_partition() -> None:
    link, fetch = running()
    for _ in range(20):
        actions = step(link, Fetched(turn=fetch.turn, data=plain(0, 2)[:-1], end=2))
        if link.state is State.PARKED:
            break
        fetch = only(actions, Fetch)
    assert link.state is State.PARKED
    assert "exceeds any fetch size" in link.reason


def test_markers_at_the_end_count_as_mirrored() -> None:
    link, fetch = running()
    marker = build_batch([Record(0, 0, b"\0\0\0\0", b"")], base_offset=0, control=True, transactional=True)
    step(link, Fetched(turn=fetch.turn, data=marker, end=1))
    assert link.is_caught_up
    assert link.progress.dropped[Verdict.DROP_CONTROL] == 1
    assert link.translate(1) == 0


def test_stale_answers_are_ignored() -> None:
    link, fetch = running()
    assert not step(link, Fetched(turn=fetch.turn - 1, data=plain(0, 2), end=2))
    assert not step(link, Produced(token=99, target_offset=0))
    assert not step(link, ProduceFailed(token=99, trouble=Trouble.FAIL, reason="", in_doubt=True))
    assert not step(link, LookupFailed(turn=fetch.turn - 1, trouble=Trouble.FAIL, reason=""))
    assert link.state is State.RUNNING


def test_halting_waits_for_what_is_in_flight() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
    step(link, Halted(reason="topic re-created"))
    assert link.state is State.DRAINING
    step(link, Produced(token=first.token, target_offset=0))
    assert (link.state, link.reason) == (State.FAILED, "topic re-created")


def test_positions_are_clamped_to_the_target_log() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    assert link.translate(3) is None, "nobody has looked at the target yet"
    located(link, 10, mirrored(5, 5), start=4)
    assert [link.translate(offset) for offset in (0, 4, 7, 10, 50)] == [4, 4, 7, 10, 10]


def test_segments_below_the_log_start_are_dropped() -> None:
    runs = [Run(2 * i, i) for i in range(300)]
    link = PartitionLink(producer_id=PID, offsets=OffsetMap(runs))
    located(link, 299)
    stale = only(step(link, LogStartFound(log_start=290)), StoreRuns)
    assert (stale.segments, stale.deleted) == ({}, (0, 1))
    assert not step(link, LogStartFound(log_start=290))
    assert link.translate(2 * 295) == 295


def test_a_failed_map_write_is_not_taken_for_done_when_garbage_is_collected() -> None:
    runs = [Run(2 * i, i) for i in range(300)]
    link = PartitionLink(producer_id=PID, offsets=OffsetMap(runs))
    fetch = only(located(link, 299), Fetch)
    marker = bytearray(build_batch([Record(0, 0, b"\0\0\0\0", b"")], control=True, transactional=True))
    stamp(marker, 0, 598, 0)
    store = only(step(link, Fetched(turn=fetch.turn, data=bytes(marker) + plain(599, 1), end=600)), StoreRuns)
    step(link, StoreFailed(token=store.token, reason="away"))
    assert not [a for a in step(link, LogStartFound(log_start=290)) if isinstance(a, StoreRuns)]


def test_an_old_map_is_deleted_when_a_new_one_begins() -> None:
    link = PartitionLink(producer_id=PID, segments_stored=3)
    lookup = only(located(link, 0), LocateSource)
    fetch = only(step(link, SourceLocated(turn=lookup.turn, log_start=0, log_end=2)), Fetch)
    store = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), StoreRuns)
    assert (store.segments, store.deleted) == ({0: (Run(0, 0),)}, (1, 2))


# -- what may be on the target without having been acknowledged


def relocated(link: PartitionLink, actions: list[Action], end: int, tail: bytes = b"", now_ms: int = 0) -> list[Action]:
    locate = only(step(link, Woken(turn=only(actions, Wake).turn), now_ms), LocateTarget)
    actions = step(link, TargetLocated(turn=locate.turn, log_start=0, log_end=end, tail=tail), now_ms)
    return affirmed(link, actions, now_ms)


def lost(token: int, *, in_doubt: bool = True) -> ProduceFailed:
    return ProduceFailed(token=token, trouble=Trouble.RETRY, reason="connection lost", in_doubt=in_doubt)


def test_a_batch_in_doubt_is_sent_again_as_the_same_bytes() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=bytearray(plain(0, 4)), end=4)), Produce)
    sent = bytes(first.batch)
    again = relocated(link, step(link, lost(first.token)), 0)
    assert bytes(only(again, Produce).batch) == sent
    assert only(again, Fetch).offset == 4, "whatever the source has at its place by now"


def test_a_batch_in_doubt_that_is_found_is_not_sent_again() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 4), end=4)), Produce)
    actions = relocated(link, step(link, lost(first.token)), 4, mirrored(0, 4))
    assert not [action for action in actions if isinstance(action, Produce)]
    assert link.progress.source_next == 4


def test_a_batch_that_was_refused_is_fetched_anew() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 4), end=4)), Produce)
    actions = relocated(link, step(link, lost(first.token, in_doubt=False)), 0)
    assert only(actions, Fetch).offset == 0
    assert link.buffered_bytes == 0


def test_damaged_bytes_are_fetched_anew() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=plain(0, 4), end=4)), Produce)
    damaged = ProduceFailed(token=first.token, trouble=Trouble.REREAD, reason="checksum", in_doubt=False)
    assert only(relocated(link, step(link, damaged), 0), Fetch).offset == 0


def test_one_in_flight_after_nothing_was_acknowledged_for_a_while() -> None:
    link, fetch = new()
    actions = step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2))
    fetch = only(actions, Fetch)
    first = only(step(link, RunsStored(token=only(actions, StoreRuns).token)), Produce)
    step(link, Produced(token=first.token, target_offset=0))
    data = b"".join(plain(2 + 2 * i, 2) for i in range(10))
    actions = step(link, Fetched(turn=fetch.turn, data=data, end=22), now_ms=IDLE_MS + 1)
    first = only(actions, Produce)
    more = step(link, Produced(token=first.token, target_offset=2), now_ms=IDLE_MS + 2)
    assert len([action for action in more if isinstance(action, Produce)]) == 5


def test_soon_after_a_restart_an_idle_partition_looks_again_before_it_sends() -> None:
    link, fetch = running()
    actions = step(link, Fetched(turn=fetch.turn, data=plain(0, 2), end=2), now_ms=IDLE_MS + 1)
    assert only(actions, Wake).after_ms == 0
    assert not [action for action in actions if isinstance(action, Produce)]


def resumed(now_ms: int) -> tuple[PartitionLink, list[Action]]:
    """A restarted mirror whose map expects offset 10 next, where the source has a hole now."""
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10), Fetch)
    return link, step(link, Fetched(turn=fetch.turn, data=bytearray(plain(12, 2)), end=14), now_ms)


def test_after_a_restart_the_stored_map_is_not_contradicted_at_once() -> None:
    link, actions = resumed(now_ms=1000)
    assert only(actions, Wake).after_ms == ARRIVAL_MS - 1000
    assert not [action for action in actions if isinstance(action, StoreRuns | Produce)]
    assert "compacted" in link.reason


def test_after_a_restart_a_batch_goes_ahead_of_the_map_and_shows_what_the_target_has() -> None:
    link, actions = resumed(now_ms=ARRIVAL_MS)
    assert not [action for action in actions if isinstance(action, StoreRuns | Fetch)]
    probe = only(actions, Produce)
    actions = step(link, Produced(token=probe.token, target_offset=10))
    landed = plain(12, 2, producer_id=PID, producer_epoch=0, base_sequence=10)
    tail = bytearray(landed)
    stamp(tail, 0, 10, 0)
    actions = relocated(link, actions, 12, bytes(tail))
    assert only(actions, StoreRuns).segments == {0: (Run(0, 0), Run(12, 10))}
    assert link.translate(12) == 10


def test_after_a_restart_what_was_already_there_keeps_its_place_in_the_map() -> None:
    link, actions = resumed(now_ms=ARRIVAL_MS)
    actions = step(link, Produced(token=only(actions, Produce).token, target_offset=10))
    actions = relocated(link, actions, 12, mirrored(10, 2))
    assert not only(actions, StoreRuns).segments
    assert only(actions, Fetch).offset == 10, "the comparison with the source comes first"
    assert link.progress.source_next == 12


def test_where_the_map_is_put_right_reading_begins_where_the_target_really_ends() -> None:
    """The map was written for a target in which 12 followed on 9; this one has 10 and 11 too, which the source lost."""
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0), Run(12, 10)]))
    last = bytearray(plain(10, 4, producer_id=PID, producer_epoch=0, base_sequence=10))
    fetch = only(located(link, 14, bytes(last)), Fetch)
    step(link, Fetched(turn=fetch.turn, data=bytearray(plain(12, 2)), end=18))
    assert link.offsets.runs() == (Run(0, 0), Run(10, 10))
    assert link.progress.source_next == 14, "14 and 15 would be missing in the target"


def test_a_marker_contradicts_nothing() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10), Fetch)
    marker = bytearray(build_batch([Record(0, 0, b"\0\0\0\0", b"")], base_offset=10, control=True, transactional=True))
    stamp(marker, 0, 10, 0)
    actions = step(link, Fetched(turn=fetch.turn, data=bytes(marker) + plain(11, 2), end=13))
    assert only(actions, StoreRuns).segments == {0: (Run(0, 0), Run(11, 10))}


# -- memory


def test_an_answer_is_released_when_its_last_batch_has_landed() -> None:
    link, fetch = running()
    data = bytearray(plain(0, 2) + plain(2, 2))
    actions = step(link, Fetched(turn=fetch.turn, data=data, end=4, frame=7))
    assert not [action for action in actions if isinstance(action, Release)]
    actions = step(link, Produced(token=only(actions, Produce).token, target_offset=0))
    assert not [action for action in actions if isinstance(action, Release)]
    actions = step(link, Produced(token=only(actions, Produce).token, target_offset=2))
    assert only(actions, Release) == Release(frame=7)
    assert link.own_bytes == 0


def test_an_answer_of_which_nothing_is_kept_is_released_at_once() -> None:
    link, fetch = new()
    assert step(link, Fetched(turn=fetch.turn - 1, data=plain(0, 2), end=2, frame=3)) == [Release(frame=3)]
    holes = bytearray(build_batch([Record(0, 1, b"k", b"v"), Record(2, 1, b"k", b"v")], keep_offsets=True))
    actions = step(link, Fetched(turn=fetch.turn, data=holes, end=3, frame=4))
    assert only(actions, Release) == Release(frame=4), "what was rebuilt has bytes of its own"
    assert link.own_bytes == link.buffered_bytes > 0


def test_a_batch_in_doubt_does_not_keep_its_answer() -> None:
    link, fetch = running()
    data = bytearray(plain(0, 2) + plain(2, 2))
    first = only(step(link, Fetched(turn=fetch.turn, data=data, end=4, frame=7)), Produce)
    assert only(step(link, lost(first.token)), Release) == Release(frame=7)
    assert link.own_bytes == len(first.batch)


DAMAGE = Damage(what="segment 1 cannot be read", first_segment=1)


def test_a_damaged_map_stops_the_partition_where_the_target_has_what_it_does_not_tell() -> None:
    for offsets in (OffsetMap([Run(20, 5)], first_segment=2), OffsetMap(first_segment=2)):
        link = PartitionLink(producer_id=PID, offsets=offsets, damage=DAMAGE, segments_stored=3)
        located(link, 10, mirrored(5, 5))
        assert link.state is State.FAILED
        assert "damaged (segment 1 cannot be read)" in link.reason
        assert "says nothing about target offsets 0 to" in link.reason
        assert "delete the target topic" in link.reason


def test_a_map_with_a_hole_above_the_log_start_stops_the_partition() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(20, 5)], first_segment=2))
    located(link, 10, mirrored(5, 5), start=3)
    assert "says nothing about target offsets 3 to 4" in link.reason


def test_a_map_damaged_below_the_log_start_is_put_right() -> None:
    offsets = OffsetMap([Run(20, 5)], first_segment=2)
    link = PartitionLink(producer_id=PID, offsets=offsets, damage=DAMAGE, segments_stored=3)
    actions = located(link, 10, mirrored(5, 5), start=5)
    assert link.state is State.RUNNING
    assert only(actions, StoreRuns) == StoreRuns(token=1, segments={}, deleted=(1,))
    assert "was damaged" in only(actions, Report).message  # type: ignore[union-attr]


def test_a_damaged_map_of_an_empty_target_is_begun_anew() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap(first_segment=3), damage=DAMAGE, segments_stored=3)
    look = only(located(link, 0), LocateSource)
    actions = step(link, SourceLocated(turn=look.turn, log_start=0, log_end=4))  # type: ignore[union-attr]
    assert link.state is State.RUNNING
    assert only(actions, StoreRuns).deleted == (1, 2)  # type: ignore[union-attr]


# -- a source that is cut


def led(*spans: Span) -> tuple[PartitionLink, list[Action]]:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]), spans=spans)
    return link, located(link, 10)


def answered(link: PartitionLink, actions: list[Action], epoch: int, end_offset: int) -> list[Action]:
    turn = only(actions, LocateEpochEnd).turn  # type: ignore[union-attr]
    return step(link, EpochEndFound(turn=turn, epoch=epoch, end_offset=end_offset))


def test_before_it_reads_it_asks_where_the_epochs_ended() -> None:
    link, actions = led(Span(3, 0, 6), Span(5, 6, 7))
    assert only(actions, LocateEpochEnd).epoch == 5  # type: ignore[union-attr]
    actions = answered(link, actions, 5, 12)
    assert only(actions, LocateEpochEnd).epoch == 3  # type: ignore[union-attr]
    actions = answered(link, actions, 3, 6)
    assert only(actions, Fetch).offset == 10  # type: ignore[union-attr]


@pytest.mark.parametrize("answer", [(5, 10), (-1, -1), (3, 11)])
def test_a_source_that_cannot_tell_is_read_all_the_same(answer: tuple[int, int]) -> None:
    link, actions = led(Span(5, 0, 7))
    assert only(answered(link, actions, *answer), Fetch)
    assert link.state is State.RUNNING


def test_an_epoch_that_ended_before_what_was_mirrored_stops_the_partition() -> None:
    link, actions = led(Span(5, 0, 7))
    actions = answered(link, actions, 5, 8)
    assert link.state is State.BACKING_OFF, "one answer may come too early"
    wake = only(actions, Wake)
    assert wake.after_ms == CONFIRM_MS  # type: ignore[union-attr]
    look = only(step(link, Woken(turn=wake.turn)), LocateTarget)  # type: ignore[union-attr]
    actions = step(link, TargetLocated(turn=look.turn, log_start=0, log_end=10))  # type: ignore[union-attr]
    actions = answered(link, actions, 5, 8)
    assert link.state is State.FAILED
    report = only(actions, Report)
    assert report.severe  # type: ignore[union-attr]
    assert (
        "was cut at offset 8, where its leader epoch 5 ends now, after it was mirrored up to offset 10" in link.reason
    )
    assert "what the target has from offset 8 on" in link.reason
    assert "delete the target topic" in link.reason


def test_a_suspicion_that_is_not_confirmed_is_forgotten() -> None:
    link, actions = led(Span(5, 0, 7))
    for end_offset in (8, 12, 8):
        actions = answered(link, actions, 5, end_offset)
        if link.state is State.RUNNING:
            actions = step(link, LookupFailed(turn=only(actions, Fetch).turn, trouble=Trouble.RETRY, reason="x"))  # type: ignore[union-attr]
        look = only(step(link, Woken(turn=only(actions, Wake).turn)), LocateTarget)  # type: ignore[union-attr]
        actions = step(link, TargetLocated(turn=look.turn, log_start=0, log_end=10))  # type: ignore[union-attr]
    assert link.state is State.LOCATING


def test_a_new_leader_is_a_reason_to_ask_and_asked_once() -> None:
    link, actions = led(Span(5, 0, 7))
    fetch = only(answered(link, actions, 5, 12), Fetch)
    news = Fetched(turn=fetch.turn, data=plain(10, 2, epoch=6), end=12)  # type: ignore[union-attr]
    actions = step(link, news)
    assert "a new leader (epoch 6)" in link.reason
    look = only(step(link, Woken(turn=only(actions, Wake).turn)), LocateTarget)  # type: ignore[union-attr]
    actions = step(link, TargetLocated(turn=look.turn, log_start=0, log_end=10))  # type: ignore[union-attr]
    fetch = only(answered(link, actions, 5, 10), Fetch)
    actions = step(link, Fetched(turn=fetch.turn, data=plain(10, 2, epoch=6), end=12))  # type: ignore[union-attr]
    assert only(actions, StoreRuns).spans == (Span(5, 0, 10), Span(6, 10, 12))  # type: ignore[union-attr]
    assert link.state is State.RUNNING


def test_what_the_map_knows_to_be_a_hole_is_read_again_and_not_lost() -> None:
    offsets = OffsetMap([Run(0, 0), Run(20, 10)])
    link = PartitionLink(producer_id=PID, offsets=offsets, reset=Reset.NONE)
    fetch = only(located(link, 10), Fetch)
    assert fetch.offset == 10, "a source that was cut may have something there by now"  # type: ignore[union-attr]
    lookup = only(step(link, OutOfRange(turn=fetch.turn)), LocateSource)  # type: ignore[union-attr]
    actions = step(link, SourceLocated(turn=lookup.turn, log_start=20, log_end=30))  # type: ignore[union-attr]
    assert only(actions, Fetch).offset == 20  # type: ignore[union-attr]
    assert link.progress.lost == 0


# -- a target that was put back to an older state


def test_a_mirror_with_nothing_to_send_looks_again_when_the_connection_to_the_target_is_lost() -> None:
    link, fetch = running()
    actions = step(link, Fetched(turn=fetch.turn, data=plain(0, 4), end=4))
    step(link, Produced(token=only(actions, Produce).token, target_offset=0))
    assert link.is_caught_up
    actions = step(link, TargetUnbound())
    assert only(actions, Wake).after_ms == 0
    actions = relocated(link, actions, 2, mirrored(0, 2))
    assert "lost 2 acknowledged records" in only(actions, Report).message
    fetch = only(actions, Fetch)
    assert fetch.offset == 0, "what is there is compared first"
    (produce,) = [a for a in step(link, Fetched(turn=fetch.turn, data=plain(0, 4), end=4)) if isinstance(a, Produce)]
    assert [record.offset for record in decode_records(BatchView(produce.batch))] == [0, 1]
    assert link.progress.source_next == 2


def test_nothing_is_sent_before_a_write_has_shown_that_the_stored_map_is_still_there() -> None:
    link, fetch = running()
    first = only(step(link, Fetched(turn=fetch.turn, data=bytearray(plain(0, 4)), end=4)), Produce)
    lost_it = step(link, lost(first.token))
    locate = only(step(link, Woken(turn=only(lost_it, Wake).turn)), LocateTarget)
    actions = step(link, TargetLocated(turn=locate.turn, log_start=0, log_end=0))
    assert not [action for action in actions if isinstance(action, Produce)]
    write = only(actions, StoreRuns)
    assert (write.segments, write.deleted) == ({}, ())
    only(step(link, RunsStored(token=write.token)), Produce)


def test_while_batches_are_on_their_way_their_answers_tell_that_the_connection_is_lost() -> None:
    link, fetch = running()
    only(step(link, Fetched(turn=fetch.turn, data=plain(0, 4), end=4)), Produce)
    assert step(link, TargetUnbound()) == []
    assert link.state is State.RUNNING
