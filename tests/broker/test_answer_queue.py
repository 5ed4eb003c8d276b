"""Answers in request order, and counts that come back to nothing"""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.broker.answer_queue import IN_FLIGHT_MAX, PENDING_BYTES_MAX, PENDING_MAX, AnswerQueue, Hold
from tidemill.broker.dispatch import Exchange
from tidemill.core.wire.framing import RequestHeader

BYTES_MAX = 1000


def exchange(number: int, chunks: list[bytes] | None = None) -> Exchange:
    made = Exchange(RequestHeader(0, 0, number, None), "request", cast(Any, None))
    made.chunks = cast(Any, chunks)
    return made


def pending(number: int, *, exclusive: bool = False) -> Exchange:
    made = exchange(number)
    made.pending = cast(Any, "something to wait for")
    made.exclusive = exclusive
    return made


def waiting(number: int, after: object, *, by_others: bool = False) -> Exchange:
    made = exchange(number)
    made.by_others = by_others
    made.after = cast("asyncio.Future[None]", after)
    made.due = [b"due"]
    return made


def answer(queue: AnswerQueue, one: Exchange, chunks: list[bytes]) -> None:
    queue.settle(one)
    one.chunks = cast(Any, chunks)
    queue.answered(one)


def test_answers_leave_in_the_order_of_the_requests() -> None:
    queue = AnswerQueue(BYTES_MAX)
    first, third = pending(1), pending(3)
    for one in (first, exchange(2, [b"2a", b"2b"]), third, exchange(4, [b"4"])):
        queue.add(one, 10)
    answer(queue, third, [b"3"])
    assert (queue.take(), queue.unsent_bytes, len(queue)) == ([], 6, 4)
    answer(queue, first, [b"1"])
    assert (queue.take(), queue.unsent_bytes, len(queue)) == ([b"1", b"2a", b"2b", b"3", b"4"], 0, 0)


def test_a_request_without_a_response_is_in_nobodys_way() -> None:
    queue = AnswerQueue(BYTES_MAX)
    queue.add(exchange(1, []), 10)
    queue.add(exchange(2, [b"2"]), 10)
    assert queue.take() == [b"2"]


def test_what_was_decoded_is_forgotten_once_it_is_answered() -> None:
    queue, one, other = AnswerQueue(BYTES_MAX), exchange(1, [b"1"]), pending(2)
    queue.add(one, 10)
    queue.add(other, 10)
    assert (one.request, other.request) == (None, "request")
    answer(queue, other, [b"2"])
    assert other.request is None


@pytest.mark.parametrize("reason", Hold)
def test_each_hold_keeps_the_next_request_from_starting(reason: Hold) -> None:
    queue = AnswerQueue(BYTES_MAX)
    queue.hold(reason)
    queue.hold(Hold.CLIENT_IS_SLOW)
    queue.let_go(reason)
    assert queue.may_start() == (reason is Hold.CLIENT_IS_SLOW)
    queue.let_go(Hold.CLIENT_IS_SLOW)
    assert queue.may_start()


def test_limits() -> None:
    queue = AnswerQueue(BYTES_MAX)
    for number in range(PENDING_MAX):
        assert queue.may_start()
        queue.add(pending(number), 10)
    assert not queue.may_start(), "too many"
    queue = AnswerQueue(BYTES_MAX)
    queue.add(pending(1), PENDING_BYTES_MAX)
    assert not queue.may_start(), "too large"
    queue = AnswerQueue(BYTES_MAX)
    queue.add(pending(1), 10)
    queue.add(exchange(2, [bytes(BYTES_MAX)]), 10)
    assert queue.may_start()
    queue.add(exchange(3, [b"x"]), 10)
    assert not queue.may_start(), "too much that cannot leave"
    queue = AnswerQueue(BYTES_MAX)
    queue.add(pending(1), 10)
    for number in range(IN_FLIGHT_MAX - 1):
        assert queue.may_start()
        queue.add(exchange(number, []), 10)
    assert not queue.may_start(), "too many in work"


def test_those_that_wait_for_the_same_are_one_group_until_it_is_over() -> None:
    queue, one, other = AnswerQueue(BYTES_MAX), object(), object()
    exchanges = [waiting(number, after) for number, after in enumerate((one, one, other, other, one, one))]
    groups = [queue.add(each, 10) for each in exchanges]
    assert [group is not None for group in groups] == [True, False, True, False, True, False]
    assert groups[0] == exchanges[:2] and groups[2] == exchanges[2:4] and groups[4] == exchanges[4:]
    queue.leave(groups[0] or [])
    assert queue.add(waiting(6, one), 10) is None, "another group for the same is still open"
    queue.leave(groups[4] or [])
    assert queue.add(waiting(7, one), 10) is not None


def test_one_that_nothing_would_answer_is_refused() -> None:
    with pytest.raises(AssertionError, match="neither answered nor waiting"):
        AnswerQueue(BYTES_MAX).add(exchange(1), 10)


class Answers(RuleBasedStateMachine):
    """Requests start when they may and are answered in any order; the client may go away."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = AnswerQueue(BYTES_MAX)
        self.count = 0
        self.in_work: list[Exchange] = []
        self.unsettled: list[tuple[Exchange, int]] = []  # with what is counted of the request
        self.groups: list[tuple[object, list[Exchange]]] = []
        self.by_others = 0
        self.memory_bytes = 0
        self.answered: dict[int, bytes] = {}
        self.holds: set[Hold] = set()
        self.is_gone = False

    def start(self, one: Exchange, request_bytes: int) -> list[Exchange] | None:
        group = self.queue.add(one, request_bytes)
        self.in_work.append(one)
        self.count += 1
        return group

    @precondition(lambda self: self.queue.may_start())
    @rule(size=st.integers(0, 600))
    def answered_at_once(self, size: int) -> None:
        chunk = b"%d:" % self.count + bytes(size)
        self.answered[self.count] = chunk
        self.start(exchange(self.count, [chunk]), 50)

    @precondition(lambda self: self.queue.may_start())
    @rule(
        size=st.sampled_from((10, 20_000, 30_000)), exclusive=st.sampled_from((False, False, True)), large=st.booleans()
    )
    def answer_is_pending(self, size: int, exclusive: bool, large: bool) -> None:
        one = pending(self.count, exclusive=exclusive)
        self.unsettled.append((one, 0 if large else size))
        self.start(one, 0 if large else size)
        if large:
            one.memory_bytes = size
            self.memory_bytes += size

    @precondition(lambda self: self.queue.may_start())
    @rule(new=st.booleans(), by_others=st.booleans())
    def due_after(self, new: bool, by_others: bool) -> None:
        after = self.groups[-1][0] if self.groups and not new else object()
        one = waiting(self.count, after, by_others=by_others)
        self.by_others += by_others
        group = self.start(one, 50)
        if group is not None:
            self.groups.append((after, group))

    @precondition(lambda self: self.unsettled)
    @rule(which=st.integers(0, 10**6), size=st.integers(0, 600))
    def one_is_done(self, which: int, size: int) -> None:
        one, _ = self.unsettled.pop(which % len(self.unsettled))
        self.memory_bytes -= self.queue.settle(one)
        if not self.is_gone:
            self.set_answer(one, size)

    @precondition(lambda self: self.groups)
    @rule(which=st.integers(0, 10**6))
    def what_a_group_waited_for_is_done(self, which: int) -> None:
        group = self.leave(which)
        if self.is_gone:
            for one in group:
                self.queue.settle(one)
            return
        self.queue.all_due(group, 5.0)
        for one in group:
            number = one.header.correlation_id
            assert (one.answered, one.request, one.chunks) == (5.0, None, one.due)
            one.chunks = [b"due"]
            self.answered[number] = b"due"

    def leave(self, which: int) -> list[Exchange]:
        _, group = self.groups.pop(which % len(self.groups))
        self.queue.leave(group)
        self.by_others -= sum(one.by_others for one in group)
        return group

    @precondition(lambda self: self.groups)
    @rule(which=st.integers(0, 10**6))
    def what_a_group_waited_for_failed(self, which: int) -> None:
        for one in self.leave(which):
            self.memory_bytes -= self.queue.settle(one)
            if not self.is_gone:
                self.set_answer(one, 3)

    def set_answer(self, one: Exchange, size: int) -> None:
        number = one.header.correlation_id
        self.answered[number] = b"%d:" % number + bytes(size)
        one.chunks = [self.answered[number]]
        one.pending = None
        self.queue.answered(one)

    @precondition(lambda self: self.answered)
    @rule()
    def answers_leave(self) -> None:
        expected = []
        while self.in_work and (chunk := self.answered.get(self.in_work[0].header.correlation_id)) is not None:
            expected.append(chunk)
            del self.answered[self.in_work.pop(0).header.correlation_id]
        assert self.queue.take() == expected

    @precondition(lambda self: self.count % 5 == 0 or self.is_gone)
    @rule()
    def client_is_slow(self) -> None:
        self.queue.hold(Hold.CLIENT_IS_SLOW)
        self.holds.add(Hold.CLIENT_IS_SLOW)

    @precondition(lambda self: Hold.CLIENT_IS_SLOW in self.holds)
    @rule()
    def client_has_caught_up(self) -> None:
        self.queue.let_go(Hold.CLIENT_IS_SLOW)
        self.holds.discard(Hold.CLIENT_IS_SLOW)

    @precondition(lambda self: self.count > 20 and not self.is_gone)
    @rule()
    def client_goes_away(self) -> None:
        assert self.queue.forget() == self.in_work
        self.in_work.clear()
        self.answered.clear()
        self.holds.add(Hold.ENDING)
        self.is_gone = True

    @invariant()
    def counts_are_what_waits(self) -> None:
        assert len(self.queue) == len(self.in_work)
        assert self.queue.unsent_bytes == sum(map(len, self.answered.values()))
        assert self.queue.pending == len(self.unsettled) + self.by_others
        assert self.memory_bytes == sum(one.memory_bytes for one, _ in self.unsettled)

    @invariant()
    def requests_start_when_there_is_room(self) -> None:
        assert self.queue.may_start() == (
            not self.holds
            and not any(one.exclusive for one, _ in self.unsettled)
            and len(self.in_work) < IN_FLIGHT_MAX
            and len(self.unsettled) + self.by_others < PENDING_MAX
            and sum(size for _, size in self.unsettled) < PENDING_BYTES_MAX
            and sum(map(len, self.answered.values())) <= BYTES_MAX
        )

    def teardown(self) -> None:
        while self.unsettled:
            self.one_is_done(0, 5)
        while self.groups:
            self.what_a_group_waited_for_is_done(0)
        self.answers_leave()
        assert (len(self.queue), self.queue.pending, self.queue.unsent_bytes, self.memory_bytes) == (0, 0, 0, 0)
        self.queue.let_go(Hold.CLIENT_IS_SLOW)
        assert self.queue.may_start() != self.is_gone


Answers.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
test_whatever_happens_answers_are_in_order_and_counts_are_right = Answers.TestCase
