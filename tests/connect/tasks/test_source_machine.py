"""Offsets never pass what is not acknowledged, and all of them get stored in the end"""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.tasks.source_machine import (
    Abandon,
    Delivered,
    DeliveryFailed,
    Drained,
    Fail,
    NotifyCommitted,
    OffsetsFailed,
    OffsetsStored,
    Polled,
    Produce,
    SourceMachine,
    Stop,
    StoreOffsets,
    Tick,
)


def machine(interval_ms: int = 1000, bytes_max: int = 1 << 20, records_max: int = 1000) -> SourceMachine:
    made = SourceMachine(
        flush_interval_ms=interval_ms, in_flight_bytes_max=bytes_max, in_flight_records_max=records_max
    )
    made.step(Tick(now_ms=0))
    return made


def polled(
    token: int, partition: bytes | None = b"p", *, records: int = 1, safe: bool = True, size: int = 10
) -> Polled:
    offset = {"token": token} if safe else None
    return Polled(token=token, partition=partition, offset=offset, records=records, size_bytes=size)


def flushed(subject: SourceMachine, now_ms: int) -> dict[bytes, int]:
    """The offsets a flush at `now_ms` stores, by partition; acknowledges the flush."""
    actions = subject.step(Tick(now_ms=now_ms))
    if not actions:
        return {}
    (store,) = actions
    assert isinstance(store, StoreOffsets)
    subject.step(OffsetsStored(flush=store.flush))
    return {partition: offset["token"] for partition, offset in store.offsets}


def test_an_offset_is_stored_once_everything_before_it_is_acknowledged() -> None:
    subject = machine()
    assert subject.step(polled(1)) == [Produce(token=1)]
    assert subject.step(polled(2, records=2)) == [Produce(token=2)]
    subject.step(Delivered(token=2, records=2))
    assert flushed(subject, 1000) == {}
    subject.step(Delivered(token=1, records=1))
    assert flushed(subject, 2000) == {b"p": 2}
    assert flushed(subject, 3000) == {}


def test_it_is_settled_when_all_is_acknowledged_and_stored() -> None:
    subject = machine()
    said = [subject.settled]
    for event in (polled(1), Delivered(token=1, records=1), Tick(now_ms=1000), OffsetsStored(flush=1), polled(2)):
        subject.step(event)
        said.append(subject.settled)
    assert said == [True, False, False, False, True, False]


def test_a_run_counts_when_its_last_record_is_acknowledged() -> None:
    subject = machine()
    subject.step(polled(1, records=3))
    subject.step(Delivered(token=1, records=2))
    assert flushed(subject, 1000) == {}
    assert subject.in_flight_records == 1
    subject.step(Delivered(token=1, records=1))
    assert (subject.in_flight_records, subject.in_flight_bytes) == (0, 0)
    assert flushed(subject, 2000) == {b"p": 1}


def test_an_offset_that_may_not_wait_is_stored_when_its_turn_comes() -> None:
    subject = machine()
    subject.step(polled(1))
    now = Polled(token=2, partition=b"p", offset={"token": 2}, records=0, size_bytes=0, offset_now=True)
    assert subject.step(now) == [], "what comes before it is not acknowledged"
    assert subject.step(Delivered(token=1, records=1)) == [StoreOffsets(flush=1, offsets=((b"p", {"token": 2}),))]
    again = Polled(token=3, partition=b"p", offset={"token": 3}, records=0, size_bytes=0, offset_now=True)
    assert subject.step(again) == [], "one flush at a time"
    assert subject.step(OffsetsStored(flush=1)) == [
        NotifyCommitted(partition=b"p", offset={"token": 2}),
        StoreOffsets(flush=2, offsets=((b"p", {"token": 3}),)),
    ]
    subject.step(OffsetsStored(flush=2))
    assert subject.step(polled(4, records=0)) == [], "others wait for the next flush"


def test_partitions_advance_apart() -> None:
    subject = machine()
    subject.step(polled(1, b"a"))
    subject.step(polled(2, b"b"))
    subject.step(Delivered(token=2, records=1))
    assert flushed(subject, 1000) == {b"b": 2}


def test_a_run_without_a_partition_holds_back_all() -> None:
    subject = machine()
    subject.step(polled(1, b"a"))
    subject.step(polled(2, None))
    subject.step(polled(3, b"b"))
    subject.step(Delivered(token=3, records=1))
    subject.step(Delivered(token=1, records=1))
    assert flushed(subject, 1000) == {b"a": 1}
    subject.step(Delivered(token=2, records=1))
    assert flushed(subject, 2000) == {b"b": 3}


def test_a_run_without_an_offset_waits_for_the_next_one() -> None:
    subject = machine()
    subject.step(polled(1))
    subject.step(polled(2, safe=False))
    subject.step(Delivered(token=1, records=1))
    subject.step(Delivered(token=2, records=1))
    assert flushed(subject, 1000) == {b"p": 1}
    subject.step(polled(3))
    subject.step(Delivered(token=3, records=1))
    assert flushed(subject, 2000) == {b"p": 3}


def test_a_run_of_nothing_moves_the_offset_when_its_turn_comes() -> None:
    subject = machine()
    subject.step(polled(1))
    assert subject.step(polled(2, records=0, size=0)) == []
    assert flushed(subject, 1000) == {}
    subject.step(Delivered(token=1, records=1))
    assert flushed(subject, 2000) == {b"p": 2}


def test_committed_is_told_after_the_offset_record_is_stored() -> None:
    subject = machine()
    subject.step(polled(1))
    subject.step(Delivered(token=1, records=1))
    (store,) = subject.step(Tick(now_ms=1000))
    assert isinstance(store, StoreOffsets)
    assert subject.flush_pending
    assert subject.step(OffsetsStored(flush=store.flush)) == [NotifyCommitted(partition=b"p", offset={"token": 1})]


def test_one_flush_at_a_time() -> None:
    subject = machine()
    subject.step(polled(1))
    subject.step(Delivered(token=1, records=1))
    (first,) = subject.step(Tick(now_ms=1000))
    assert isinstance(first, StoreOffsets)
    subject.step(polled(2))
    subject.step(Delivered(token=2, records=1))
    assert subject.step(Tick(now_ms=2000)) == []
    subject.step(OffsetsStored(flush=first.flush))
    assert flushed(subject, 3000) == {b"p": 2}


def test_back_pressure_by_records_and_by_bytes() -> None:
    subject = machine(records_max=2)
    subject.step(polled(1, records=2))
    assert not subject.accepts_more
    subject.step(Delivered(token=1, records=1))
    assert subject.accepts_more
    subject = machine(bytes_max=10)
    subject.step(polled(1, size=10))
    assert not subject.accepts_more
    subject.step(Delivered(token=1, records=1))
    assert subject.accepts_more


def test_stop_drains_then_stores_then_ends() -> None:
    subject = machine()
    subject.step(polled(1))
    assert subject.step(Stop()) == []
    assert not subject.accepts_more
    (store,) = subject.step(Delivered(token=1, records=1))
    assert isinstance(store, StoreOffsets)
    assert subject.step(OffsetsStored(flush=store.flush)) == [
        NotifyCommitted(partition=b"p", offset={"token": 1}),
        Drained(),
    ]
    assert subject.step(Tick(now_ms=9999)) == []


def test_stop_with_nothing_in_flight_ends_at_once() -> None:
    assert machine().step(Stop()) == [Drained()]


def test_offsets_that_cannot_be_stored_fail_the_task() -> None:
    subject = machine()
    subject.step(polled(1))
    assert subject.step(OffsetsFailed(flush=1, reason="too large")) == [Fail(reason="too large")]
    assert not subject.accepts_more
    assert subject.step(Delivered(token=1, records=1)) == []


def test_a_record_that_cannot_be_delivered_fails_the_task_once() -> None:
    subject = machine()
    subject.step(polled(1, records=2))
    assert subject.step(DeliveryFailed(token=1, reason="too large")) == [Fail(reason="too large")]
    assert not subject.accepts_more
    assert subject.step(DeliveryFailed(token=1, reason="too large")) == []


def test_what_was_acknowledged_before_the_bad_record_is_stored() -> None:
    subject = machine()
    for token in (1, 2, 3):
        subject.step(polled(token))
    subject.step(DeliveryFailed(token=2, reason="too large"))
    subject.step(Delivered(token=3, records=1))
    subject.step(Delivered(token=1, records=1))
    assert subject.step(Stop()) == [], "the bad record stays in flight"
    (store,) = subject.step(Abandon())
    assert isinstance(store, StoreOffsets) and dict(store.offsets) == {b"p": {"token": 1}}
    assert Drained() in subject.step(OffsetsStored(flush=store.flush))


def test_nothing_is_waited_for_once_it_is_abandoned() -> None:
    subject = machine()
    subject.step(polled(1))
    assert subject.step(Stop()) == []
    assert subject.step(Abandon()) == [Drained()]
    assert subject.step(Delivered(token=1, records=1)) == []


def test_more_acknowledgements_than_records_is_a_bug() -> None:
    subject = machine()
    subject.step(polled(1))
    with pytest.raises(AssertionError):
        subject.step(Delivered(token=1, records=2))


RUNS = st.tuples(st.sampled_from([b"a", b"b", None]), st.integers(0, 3), st.booleans())


@given(st.lists(st.one_of(RUNS, st.integers(0, 50), st.just("tick"), st.just("stored")), max_size=60))
def test_offsets_are_safe_and_complete(script: list[object]) -> None:
    """In any order of events: stored offsets cover only what is acknowledged, and in the end all of it."""
    subject = machine(interval_ms=1, records_max=10**6)
    runs: list[tuple[int, bytes | None, bool]] = []
    pending: dict[int, int] = {}
    stores: list[StoreOffsets] = []
    stored: dict[bytes, int] = {}
    told: dict[bytes, int] = {}

    def take(actions: list[object]) -> None:
        for action in actions:
            if isinstance(action, StoreOffsets):
                stores.append(action)
                for partition, offset in action.offsets:
                    for token, owner, _ in runs:
                        if token <= offset["token"] and owner in (partition, None):
                            assert not pending[token], "an offset passed an unacknowledged record"
            if isinstance(action, NotifyCommitted):
                assert stored[action.partition] == action.offset["token"], "told before it was stored"
                told[action.partition] = action.offset["token"]

    def acknowledge_store() -> None:
        store = stores.pop()
        stored.update({partition: offset["token"] for partition, offset in store.offsets})
        take(list(subject.step(OffsetsStored(flush=store.flush))))

    for now_ms, move in enumerate(script, 1):
        if isinstance(move, tuple):
            partition, records, safe = move
            token = len(runs) + 1
            runs.append((token, partition, safe))
            pending[token] = records
            take(list(subject.step(polled(token, partition, records=records, safe=safe))))
        elif move == "tick":
            take(list(subject.step(Tick(now_ms=now_ms))))
        elif move == "stored":
            if stores:
                acknowledge_store()
        elif isinstance(move, int):
            unacknowledged = [token for token, count in pending.items() if count]
            if unacknowledged:
                token = unacknowledged[move % len(unacknowledged)]
                pending[token] -= 1
                take(list(subject.step(Delivered(token=token, records=1))))
        assert subject.in_flight_records == sum(pending.values())

    ending = list(subject.step(Stop()))
    take(ending)
    for token, count in list(pending.items()):
        if count:
            pending[token] = 0
            more = list(subject.step(Delivered(token=token, records=count)))
            take(more)
            ending += more
    while stores:
        store = stores.pop()
        stored.update({partition: offset["token"] for partition, offset in store.offsets})
        more = list(subject.step(OffsetsStored(flush=store.flush)))
        take(more)
        ending += more
    last = {owner: token for token, owner, safe in runs if owner is not None and safe}
    assert stored == last == told
    assert Drained() in ending


def test_what_follows_in_vain_takes_no_memory() -> None:
    """A filter leaves nothing of what is read while one record waits for its acknowledgement."""
    subject = machine()
    subject.step(polled(0))
    tracemalloc.start()
    for token in range(1, 20_001):
        subject.step(polled(token, records=0, size=0))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000
    assert flushed(subject, 1000) == {}
    subject.step(Delivered(token=0, records=1))
    assert flushed(subject, 2000) == {b"p": 20_000}


def test_what_follows_in_vain_does_not_pass_a_run_without_a_partition() -> None:
    subject = machine()
    subject.step(polled(0))
    subject.step(polled(1, None))
    subject.step(polled(2, records=0, size=0))
    subject.step(Delivered(token=0, records=1))
    assert flushed(subject, 1000) == {b"p": 0}
    subject.step(Delivered(token=1, records=1))
    assert flushed(subject, 2000) == {b"p": 2}
