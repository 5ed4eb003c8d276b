"""Producer states against a twin that keeps everything"""

import gc
import weakref
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log import producers
from tidemill.broker.log.producers import (
    BATCHES_KEPT,
    KNOWN_BY_SEQUENCE,
    SEQUENCE_END,
    KeptBatch,
    ProducerState,
    ProducerStates,
    unbroken_run,
)
from tidemill.core.errors import (
    InvalidProducerEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from tidemill.core.records.batch import TRANSACTIONAL_BIT


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A batch as a producer sends it."""

    producer_id: int = 1
    producer_epoch: int = 0
    base_sequence: int = 0
    count: int = 1
    transactional: bool = False

    @property
    def attributes(self) -> int:
        return TRANSACTIONAL_BIT if self.transactional else 0

    @property
    def last_offset_delta(self) -> int:
        return self.count - 1

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.count - 1) % SEQUENCE_END


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A marker as a coordinator writes it."""

    producer_id: int = 1
    producer_epoch: int = 0
    coordinator_epoch: int = 0
    count: int = 1


def storage_error() -> KafkaStorageError:
    return KafkaStorageError("no space left")


def test_what_comes_behind_a_batch_that_was_refused_is_refused_for_the_same() -> None:
    states = ProducerStates()
    states.update(Sent(base_sequence=0), 10, 0, 0)
    states.refuse(Sent(base_sequence=1, count=2), storage_error(), now_ms=0)
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="number 1 of the same producer was refused: no space"):
            states.check(Sent(base_sequence=3))
        states.refuse(Sent(base_sequence=3), storage_error(), now_ms=0)  # which says nothing new
    assert states.check(Sent(base_sequence=1, count=2)) is None
    states.update(Sent(base_sequence=1, count=2), 11, 0, 0)
    assert states.check(Sent(base_sequence=3)) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=4))


def test_so_it_is_for_the_first_batches_of_a_producer_and_of_an_epoch() -> None:
    states = ProducerStates()
    for epoch in (0, 1):
        states.refuse(Sent(base_sequence=0, producer_epoch=epoch), storage_error(), now_ms=0)
        with pytest.raises(KafkaStorageError):
            states.check(Sent(base_sequence=1, producer_epoch=epoch))
        assert states.check(Sent(base_sequence=0, producer_epoch=epoch)) is None
        states.update(Sent(base_sequence=0, producer_epoch=epoch), epoch, 0, 0)
        assert states.check(Sent(base_sequence=1, producer_epoch=epoch)) is None


def test_a_refusal_is_nothing_to_others_and_is_no_excuse_in_another_epoch() -> None:
    states = ProducerStates()
    for producer in (1, 2):
        states.update(Sent(base_sequence=0, producer_id=producer), producer, 0, 0)
    states.refuse(Sent(base_sequence=1), storage_error(), now_ms=0)
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=2, producer_id=2))
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=2, producer_epoch=1))
    assert states.check(Sent(base_sequence=0, producer_epoch=1)) is None
    states.refuse(
        Sent(base_sequence=0), storage_error(), now_ms=0
    )  # a duplicate is stored, whatever became of it this time
    states.refuse(Sent(producer_id=-1, base_sequence=-1), storage_error(), now_ms=0)


def followed(states: ProducerStates, batch: Sent, *, epoch: int = 3, now_ms: int = 0) -> None:
    """A follower in that epoch refuses it."""
    states.refuse(batch, NotLeaderOrFollower("2 does"), followed_epoch=epoch, now_ms=now_ms)


def test_a_follower_that_leads_now_knows_what_it_has_refused_before() -> None:
    states = ProducerStates()
    for sequence in (0, 1):  # the first is stored by the leader before, and has not come yet
        followed(states, Sent(base_sequence=sequence))
    states.update(Sent(base_sequence=0), 10, 0, 0, 3)
    states.cut(11, ProducerStates())
    with pytest.raises(NotLeaderOrFollower, match="number 0 of the same producer was refused: 2 does"):
        states.check(Sent(base_sequence=2))
    assert states.check(Sent(base_sequence=0)) is not None
    assert states.check(Sent(base_sequence=1)) is None
    states.update(Sent(base_sequence=1), 11, 0, 0)
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=3))


def test_what_a_follower_has_refused_is_over_when_another_leader_has_stored_something() -> None:
    states = ProducerStates()
    followed(states, Sent(base_sequence=0))
    states.update(Sent(base_sequence=0), 10, 0, 0, 4)
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=2))


def test_what_a_follower_has_refused_is_over_after_a_while_unless_it_does_so_again() -> None:
    states = ProducerStates()
    states.update(Sent(base_sequence=0), 10, 0, 0)
    followed(states, Sent(base_sequence=1))
    followed(states, Sent(base_sequence=2), now_ms=1)
    states.expire(producers.REFUSED_MS, 10**9)
    with pytest.raises(NotLeaderOrFollower, match="number 1 of"):
        states.check(Sent(base_sequence=3))
    states.expire(producers.REFUSED_MS + 1, 10**9)
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=3))


def test_what_is_said_of_a_refused_batch_does_not_grow_with_what_comes_behind_it() -> None:
    states = ProducerStates()
    states.update(Sent(base_sequence=0), 10, 0, 0)
    followed(states, Sent(base_sequence=2))
    told = []
    for _ in range(3):
        with pytest.raises(NotLeaderOrFollower) as raised:
            states.check(Sent(base_sequence=3))
        states.refuse(Sent(base_sequence=3), raised.value, followed_epoch=4, now_ms=0)
        told.append(str(raised.value))
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("order", [(3, 4, 0, 1), (0, 1, 3, 4), (4, 3, 1, 0)])
def test_what_comes_before_all_that_was_refused_is_let_in_whichever_came_first(order: tuple[int, ...]) -> None:
    """Of a client that has some under way to the leader before as well."""
    states = ProducerStates()
    for number in order:
        followed(states, Sent(base_sequence=(SEQUENCE_END - 2 + number) % SEQUENCE_END))
    assert states.check(Sent(base_sequence=SEQUENCE_END - 2)) is None
    for number in (1, 2, 3, 4):
        with pytest.raises(NotLeaderOrFollower):
            states.check(Sent(base_sequence=(SEQUENCE_END - 2 + number) % SEQUENCE_END))


@pytest.mark.parametrize("by_follower", [True, False])
def test_what_was_stored_and_is_cut_off_again_is_let_in_before_what_was_refused(by_follower: bool) -> None:
    states = ProducerStates()
    states.update(Sent(base_sequence=0), 10, 0, 0)
    if by_follower:
        followed(states, Sent(base_sequence=1))
    else:
        states.refuse(Sent(base_sequence=1), storage_error(), now_ms=0)
    states.cut(10, ProducerStates())
    assert states.check(Sent(base_sequence=0)) is None
    with pytest.raises(NotLeaderOrFollower if by_follower else KafkaStorageError):
        states.check(Sent(base_sequence=2))


def test_a_straggler_of_an_older_epoch_changes_nothing_of_what_is_known() -> None:
    states = ProducerStates()
    followed(states, Sent(base_sequence=0, producer_epoch=1))
    followed(states, Sent(base_sequence=50))
    with pytest.raises(NotLeaderOrFollower):
        states.check(Sent(base_sequence=1, producer_epoch=1))


def test_refusals_are_remembered_of_so_many_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "REFUSED_MAX", 2)
    states = ProducerStates()
    for producer in range(3):
        states.refuse(Sent(producer_id=producer), storage_error(), now_ms=0)
    assert states.check(Sent(producer_id=0, base_sequence=1)) is None, "the first is forgotten, and so not known"
    for producer in (1, 2):
        with pytest.raises(KafkaStorageError):
            states.check(Sent(producer_id=producer, base_sequence=1))


def test_what_is_remembered_of_a_refusal_keeps_nothing_of_the_request() -> None:
    class Request:
        """Megabytes, in the frames of whoever refuses it."""

    states = ProducerStates()

    def refuse() -> "weakref.ref[Request]":
        request = Request()
        try:
            raise storage_error()
        except KafkaStorageError as error:
            states.refuse(Sent(), error, now_ms=0)
        return weakref.ref(request)

    request = refuse()
    gc.collect()
    assert request() is None


class Twin:
    """The rules said once more, on the full history."""

    def __init__(self) -> None:
        self.stored: list[tuple[Sent | Ended, int]] = []

    def judge(self, batch: Sent | Ended) -> int | type[KafkaError] | None:
        """The original's offset, the error, or None for a batch that is new."""
        mine = [(old, offset) for old, offset in self.stored if old.producer_id == batch.producer_id]
        if not mine:
            return None
        epoch = mine[-1][0].producer_epoch
        if batch.producer_epoch < epoch:
            return InvalidProducerEpoch
        if isinstance(batch, Ended):
            ended = [old.coordinator_epoch for old, _ in mine if isinstance(old, Ended)]
            return TransactionCoordinatorFenced if ended and batch.coordinator_epoch < ended[-1] else None
        if batch.producer_epoch > epoch:
            return None if batch.base_sequence == 0 else OutOfOrderSequenceNumber
        current = [(old, offset) for old, offset in mine if isinstance(old, Sent) and old.producer_epoch == epoch]
        for old, offset in current[-BATCHES_KEPT:]:
            if (old.base_sequence, old.last_sequence) == (batch.base_sequence, batch.last_sequence):
                return offset
        due = (current[-1][0].last_sequence + 1) % SEQUENCE_END if current else batch.base_sequence
        if batch.base_sequence == due:
            return None
        numbers = [(old.base_sequence + each) % SEQUENCE_END for old, _ in current for each in range(old.count)]
        wanted = [(batch.base_sequence + each) % SEQUENCE_END for each in range(batch.count)]
        known = any(numbers[at : at + batch.count] == wanted for at in range(len(numbers)))
        return KNOWN_BY_SEQUENCE if known else OutOfOrderSequenceNumber

    def first_undecided(self, high_watermark: int) -> int | None:
        """Where the first transaction began that has not ended below there."""
        found, began = [], dict[int, int]()
        for old, offset in self.stored:
            if isinstance(old, Ended):
                start = began.pop(old.producer_id, None)
                if start is not None and offset >= high_watermark:
                    found.append(start)
            elif old.transactional:
                began.setdefault(old.producer_id, offset)
        return min([*found, *began.values()], default=None)


sends = st.lists(
    st.one_of(
        st.builds(
            Sent,
            producer_id=st.integers(1, 2),
            producer_epoch=st.integers(0, 2),
            base_sequence=st.one_of(st.integers(0, 8), st.integers(SEQUENCE_END - 3, SEQUENCE_END - 1)),
            count=st.integers(1, 3),
            transactional=st.booleans(),
        ),
        st.builds(
            Ended,
            producer_id=st.integers(1, 2),
            producer_epoch=st.integers(0, 2),
            coordinator_epoch=st.integers(0, 2),
        ),
    ),
    max_size=60,
)


def note(states: ProducerStates, batch: Sent | Ended, offset: int) -> None:
    """As the log does with what it has stored."""
    if isinstance(batch, Sent):
        states.update(batch, offset, timestamp=offset, now_ms=0)
    else:
        states.end_transaction(batch, offset, batch.coordinator_epoch, now_ms=0)


def played(batches: list[Sent | Ended]) -> tuple[ProducerStates, Twin, int]:
    """Those of `batches` that are stored; each is judged by both."""
    states, twin, end = ProducerStates(), Twin(), 0
    for batch in batches:
        expected = twin.judge(batch)
        if isinstance(expected, type):
            with pytest.raises(expected):
                judge(states, batch)
            continue
        original = judge(states, batch)
        assert (None if original is None else original.base_offset) == expected
        if original is None:
            note(states, batch, end)
            twin.stored.append((batch, end))
            end += batch.count
    return states, twin, end


def judge(states: ProducerStates, batch: Sent | Ended) -> KeptBatch | None:
    if isinstance(batch, Sent):
        return states.check(batch)
    states.check_marker(batch.producer_id, batch.producer_epoch, batch.coordinator_epoch)
    return None


@given(sends)
def test_states_judge_like_their_twin(batches: list[Sent | Ended]) -> None:
    states, twin, end = played(batches)
    for high_watermark in range(end + 1):
        assert states.first_undecided(high_watermark) == twin.first_undecided(high_watermark)


@given(sends, st.data())
def test_cut_states_are_those_of_the_log_that_is_left(batches: list[Sent | Ended], draw: st.DataObject) -> None:
    states, twin, _ = played(batches)
    offset = draw.draw(st.sampled_from([0, *(offset for _, offset in twin.stored)]))
    before = ProducerStates()
    for batch, at in twin.stored:
        if at < offset:
            note(before, batch, at)
    states.cut(offset, before)
    assert {state.producer_id: state for state in states} == {state.producer_id: state for state in before}
    assert states.first_undecided(offset) == before.first_undecided(offset)


def test_a_producer_in_step_is_never_refused_and_every_late_retry_is_recognised() -> None:
    states = ProducerStates()
    sequence = SEQUENCE_END - 20
    history: list[tuple[Sent, int]] = []
    for number in range(40):
        batch = Sent(base_sequence=sequence, count=number % 3 + 1)
        assert states.check(batch) is None
        states.update(batch, number * 10, timestamp=0, now_ms=0)
        history.append((batch, number * 10))
        sequence = (batch.last_sequence + 1) % SEQUENCE_END
        for old, offset in history[-BATCHES_KEPT:]:
            kept = states.check(old)
            assert kept is not None
            assert kept.base_offset == offset
        for old, _ in history[:-BATCHES_KEPT]:
            found = states.check(old)
            assert found is not None
            assert (found.base_offset, found.last_offset) == (KNOWN_BY_SEQUENCE, number * 10 + batch.count - 1)


def in_order(states: ProducerStates, first: int, last: int, **other: int) -> None:
    """Batches of one record each, all stored."""
    for sequence in range(first, last + 1):
        states.update(Sent(base_sequence=sequence, **other), sequence, timestamp=0, now_ms=0)


def test_only_what_lies_in_the_unbroken_run_is_a_duplicate() -> None:
    states = ProducerStates()
    in_order(states, 10, 20)  # a producer whose history has expired
    assert states.check(Sent(base_sequence=10, count=3)) is not None, "split otherwise than it was stored"
    for base_sequence, count in ((9, 1), (9, 3), (20, 2), (22, 1), (9, 13), (SEQUENCE_END - 1, 1)):
        with pytest.raises(OutOfOrderSequenceNumber):
            states.check(Sent(base_sequence=base_sequence, count=count))
    in_order(states, 30, 40)  # as nobody but a damaged log has it
    assert states.check(Sent(base_sequence=30)) is not None
    for base_sequence in (12, 25):
        with pytest.raises(OutOfOrderSequenceNumber):
            states.check(Sent(base_sequence=base_sequence))


def test_a_new_epoch_begins_a_new_run_and_a_marker_does_not_end_it() -> None:
    states = ProducerStates()
    in_order(states, 0, 9)
    states.end_transaction(Ended(), 10, 0, now_ms=0)
    in_order(states, 10, 19)
    assert states.check(Sent(base_sequence=3)) is not None
    in_order(states, 0, 9, producer_epoch=1)
    assert states.check(Sent(base_sequence=3, producer_epoch=1)) is not None
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=12, producer_epoch=1))
    states.end_transaction(Ended(producer_epoch=2), 40, 0, now_ms=0)
    in_order(states, 5, 12, producer_epoch=2)
    with pytest.raises(OutOfOrderSequenceNumber):
        states.check(Sent(base_sequence=3, producer_epoch=2))


def test_what_is_stored_is_a_duplicate_even_behind_what_was_refused() -> None:
    states = ProducerStates()
    followed(states, Sent(base_sequence=0))
    for sequence in range(10):
        states.update(Sent(base_sequence=sequence), sequence, 0, 0, 3)  # copied from whoever led then
    assert states.check(Sent(base_sequence=2)) is not None


@pytest.mark.parametrize(
    ("numbers", "run"),
    [
        ([], 0),
        ([(4, 6)], 3),
        ([(4, 6), (7, 7)], 4),
        ([(4, 6), (8, 9)], 2),
        ([(SEQUENCE_END - 2, 0), (1, 1)], 4),
    ],
)
def test_the_run_in_kept_batches(numbers: list[tuple[int, int]], run: int) -> None:
    assert unbroken_run([KeptBatch(first, last, first, last, 0) for first, last in numbers]) == run


def test_expiry_goes_by_when_a_producer_was_heard_of_not_by_its_timestamps() -> None:
    states = ProducerStates()
    states.update(Sent(producer_id=1), 0, timestamp=1, now_ms=10_000)
    states.update(Sent(producer_id=2), 1, timestamp=99_999, now_ms=5_000)
    assert states.expire(now_ms=10_500, expiration_ms=1_000) == 1
    assert [state.producer_id for state in states] == [1]


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    states = ProducerStates()
    states.update(Sent(producer_id=1, transactional=True), 0, timestamp=1, now_ms=0)
    assert states.expire(now_ms=10_000, expiration_ms=1) == 0
    states.end_transaction(Ended(producer_id=1), 1, 0, now_ms=0)
    assert states.expire(now_ms=10_000, expiration_ms=1) == 1


def test_a_restored_batch_is_recognised() -> None:
    states = ProducerStates()
    states.restore(ProducerState(7, 3, (KeptBatch(10, 12, 100, 102, 5),), 0))
    state = states.get(7)
    assert state is not None
    assert (state.epoch, state.last_sequence, state.last_timestamp) == (3, 12, 5)
    assert states.check(Sent(producer_id=7, producer_epoch=3, base_sequence=10, count=3)) == state.batches[0]
    assert states.check(Sent(producer_id=7, producer_epoch=3, base_sequence=13)) is None
    states.clear()
    assert len(states) == 0
