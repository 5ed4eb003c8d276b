"""Frames out of bytes that arrive anyhow, and memory that is always given back"""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.broker.input_buffer import (
    ARRIVAL_BYTES_PER_S,
    ARRIVAL_SECONDS,
    BUFFER_BUSY_BYTES,
    BUFFER_BYTES,
    BUFFER_IDLE_BYTES,
    BUFFER_KEPT_BYTES_MAX,
    FrameRefused,
    InputBuffer,
)

FRAME_BYTES_MAX = 400_000
SIZES = st.one_of(
    st.integers(1, 6000),
    st.sampled_from((BUFFER_IDLE_BYTES - 4, BUFFER_BYTES - 4, BUFFER_BYTES, BUFFER_BYTES + 1)),
    st.sampled_from((BUFFER_BUSY_BYTES - 5, BUFFER_BUSY_BYTES - 4, BUFFER_BUSY_BYTES, 200_000, FRAME_BYTES_MAX)),
)
STAYS = st.sampled_from(("in work", "for the next", "not at all"))
STEPS = st.one_of(st.integers(1, 20), st.sampled_from((3000, 30_000, 65_536, 65_536, 200_000)))


def payload(size: int, number: int) -> bytes:
    """A frame whose bytes tell it, and each place in it, from all others."""
    return random.Random(number).randbytes(size)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def receive(buffer: InputBuffer, data: bytes) -> int:
    """Put as much of `data` into the buffer as it has room for; returns how much that was."""
    room = buffer.room()
    count = min(len(room), len(data))
    room[:count] = data[:count]
    buffer.received(count)
    return count


def cut(buffer: InputBuffer) -> list[bytes]:
    """Every frame that is complete; large ones are granted what they claim and leave nothing behind."""
    frames = []
    while True:
        frame = buffer.next_frame()
        if frame is not None:
            frames.append(bytes(frame))
            if buffer.large_end:
                buffer.end_large()
                buffer.drop()
        elif buffer.announced_bytes:
            buffer.grant(buffer.claim(), 0.0)
            buffer.begin_large(0.0)
        else:
            return frames


def feed(buffer: InputBuffer, data: bytes) -> list[bytes]:
    """All of `data`, and the frames that it completes."""
    frames = []
    while data:
        data = data[receive(buffer, data) :]
        frames += cut(buffer)
    return frames


@given(st.lists(SIZES, max_size=8), st.lists(STEPS, min_size=1, max_size=20))
@settings(max_examples=60)
def test_any_split_of_the_bytes_gives_the_same_frames(sizes: list[int], steps: list[int]) -> None:
    frames = [payload(size, number) for number, size in enumerate(sizes)]
    stream, buffer, out = b"".join(map(framed, frames)), InputBuffer(FRAME_BYTES_MAX), list[bytes]()
    at = turn = 0
    while at < len(stream):
        step = max(steps[turn % len(steps)], len(stream) // 2000)
        out += feed(buffer, stream[at : at + step])
        at, turn = at + step, turn + 1
    assert out == frames
    assert (buffer.received_bytes, buffer.is_empty, buffer.granted_bytes) == (0, True, 0)


def test_one_byte_at_a_time() -> None:
    frames = [b"a", bytes(300), b"end"]
    buffer = InputBuffer(1000)
    assert [frame for byte in b"".join(map(framed, frames)) for frame in feed(buffer, bytes([byte]))] == frames


@pytest.mark.parametrize("size", [-1, 0, 1001, struct.unpack(">i", b"GET ")[0]])
def test_a_size_that_no_request_may_have_is_refused_at_the_prefix_and_after_what_came_before(size: int) -> None:
    buffer = InputBuffer(1000)
    receive(buffer, framed(b"first") + struct.pack(">i", size))
    frame = buffer.next_frame()
    assert frame is not None and bytes(frame) == b"first"
    with pytest.raises(FrameRefused, match=rf"a frame of {size} bytes; socket.request.max.bytes is 1000"):
        buffer.next_frame()


@given(st.binary(max_size=60))
def test_garbage_is_frames_or_refused_or_waited_for(data: bytes) -> None:
    buffer = InputBuffer(40)
    receive(buffer, data)
    cut_bytes = 0
    try:
        while (frame := buffer.next_frame()) is not None:
            cut_bytes += 4 + len(frame)
    except FrameRefused:
        pass
    assert buffer.received_bytes == len(data) - cut_bytes


def test_a_buffer_grows_with_what_has_arrived_and_not_with_what_is_promised() -> None:
    buffer = InputBuffer(10**9)
    receive(buffer, struct.pack(">i", 9 * 10**8))
    assert cut(buffer) == []
    assert buffer.capacity_bytes == BUFFER_IDLE_BYTES
    feed(buffer, bytes(1_000_000))
    assert 1_000_000 < buffer.capacity_bytes < 3_000_000 < buffer.granted_bytes


def test_a_buffer_that_was_left_behind_serves_the_next_large_request_without_a_claim() -> None:
    buffer = InputBuffer(10**7)
    for number in range(3):
        data = framed(payload(1_000_000, number))
        data = data[receive(buffer, data) :]
        assert buffer.next_frame() is None
        assert (buffer.claim() == 0) == (number > 0)
        if number == 0:
            buffer.grant(buffer.claim(), 0.0)
        buffer.begin_large(0.0)
        while data:
            data = data[receive(buffer, data) :]
        frame = buffer.next_frame()
        assert frame is not None and bytes(frame) == payload(1_000_000, number)
        assert buffer.end_large(), "worth keeping"
        assert buffer.capacity_bytes == buffer.granted_bytes == 2**20
        assert len(buffer.room()) == BUFFER_BUSY_BYTES, "only a large request may use what has grown for one"
    receive(buffer, framed(bytes(1_100_000))[:1000])
    assert buffer.next_frame() is None
    assert buffer.claim() == 2 * 2**20, "larger than what was left"


def test_a_very_large_buffer_is_not_worth_keeping() -> None:
    buffer = InputBuffer(10**8)
    data = framed(bytes(BUFFER_KEPT_BYTES_MAX + 1))
    data = data[receive(buffer, data) :]
    assert buffer.next_frame() is None
    buffer.grant(buffer.claim(), 0.0)
    buffer.begin_large(0.0)
    while data:
        data = data[receive(buffer, data) :]
    assert buffer.next_frame() is not None
    assert not buffer.end_large()
    assert buffer.drop() > BUFFER_KEPT_BYTES_MAX
    assert buffer.capacity_bytes == BUFFER_BUSY_BYTES


def test_a_view_of_a_frame_outlives_the_buffer_it_was_cut_from() -> None:
    buffer = InputBuffer(10**6)
    expected = payload(200_000, 5)
    data = framed(expected)
    data = data[receive(buffer, data) :]
    assert buffer.next_frame() is None
    buffer.grant(buffer.claim(), 0.0)
    buffer.begin_large(0.0)
    while data:
        data = data[receive(buffer, data) :]
    frame = buffer.next_frame()
    assert frame is not None
    assert buffer.hand_over() >= 200_004
    feed(buffer, framed(b"\xff" * 60_000) * 10)
    assert bytes(frame) == expected


def test_a_large_request_may_take_so_long_as_its_size_allows() -> None:
    buffer = InputBuffer(10**7)
    receive(buffer, struct.pack(">i", 10 * ARRIVAL_BYTES_PER_S))
    assert buffer.next_frame() is None
    assert not buffer.dawdles(10**9), "it waits for others, not they for it"
    buffer.grant(buffer.claim(), 100.0)
    buffer.begin_large(105.0)
    allowed_s = ARRIVAL_SECONDS + buffer.granted_bytes / ARRIVAL_BYTES_PER_S
    assert not buffer.dawdles(105.0 + allowed_s)
    assert buffer.dawdles(105.1 + allowed_s)


def test_a_silent_client_keeps_a_small_buffer() -> None:
    buffer = InputBuffer(10**6)
    feed(buffer, framed(bytes(60_000)) * 10 + b"\0\0")
    assert buffer.capacity_bytes == BUFFER_BUSY_BYTES
    assert buffer.shrink() == 0
    assert buffer.capacity_bytes == BUFFER_IDLE_BYTES
    assert feed(buffer, b"\0\1x") == [b"x"]


class Inputs(RuleBasedStateMachine):
    """Whoever owns the buffer does anything that it may do, in any order; others want the memory back at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = InputBuffer(FRAME_BYTES_MAX)
        self.sent: list[bytes] = []  # frames on their way, the first perhaps in part in the buffer
        self.stream = b""
        self.count = 0
        self.held_bytes = 0  # as whoever grants counts it
        self.handed_over: list[int] = []
        self.is_cut = True  # everything that can be

    @precondition(lambda self: len(self.stream) < 300_000)
    @rule(sizes=st.lists(SIZES, min_size=3, max_size=6))
    def client_sends(self, sizes: list[int]) -> None:
        for size in sizes:
            self.sent.append(payload(size, self.count))
            self.stream += framed(self.sent[-1])
            self.count += 1

    @precondition(lambda self: self.stream)
    @rule(most=STEPS, served=st.sampled_from((True, True, False)), stays=STAYS)
    def bytes_arrive(self, most: int, served: bool, stays: str) -> None:
        left = min(most, len(self.stream))
        while left and (self.is_cut or not (self.buffer.announced_bytes or self.buffer.is_crowded)):
            count = receive(self.buffer, self.stream[:left])
            assert count > 0, "there is always room"
            self.stream, left = self.stream[count:], left - count
            self.is_cut = False
            if served:
                self.serve(stays, granted=True)

    @precondition(lambda self: not self.is_cut)
    @rule(stays=STAYS, granted=st.booleans())
    def serve(self, stays: str, granted: bool) -> None:
        buffer = self.buffer
        self.is_cut = False
        while not self.is_cut:
            frame = buffer.next_frame()
            if frame is not None:
                assert bytes(frame) == self.sent.pop(0)
                if buffer.large_end:
                    self.large_started(stays)
            elif not buffer.announced_bytes:
                self.is_cut = True
            elif not self.begin(granted):
                return

    def large_started(self, stays: str) -> None:
        if stays == "in work":
            self.handed_over.append(self.buffer.hand_over())
        elif not self.buffer.end_large() or stays == "not at all":
            self.memory_is_wanted_back()

    def begin(self, granted: bool) -> bool:
        claim = self.buffer.claim()
        if claim and not granted:
            return False
        if claim:
            self.memory_is_wanted_back()
            assert self.buffer.granted_bytes == 0
            self.buffer.grant(claim, 0.0)
            self.held_bytes += claim
        self.buffer.begin_large(0.0)
        return True

    @precondition(lambda self: self.buffer.granted_bytes)
    @rule()
    def memory_is_wanted_back(self) -> None:
        given_back = self.buffer.drop()
        self.held_bytes -= given_back
        self.is_cut = self.is_cut and not given_back  # a large request that had begun is announced anew

    @precondition(lambda self: self.buffer.granted_bytes or self.count % 7 == 0)
    @rule()
    def client_is_silent(self) -> None:
        self.held_bytes -= self.buffer.shrink()

    @precondition(lambda self: self.handed_over)
    @rule()
    def large_is_answered(self) -> None:
        self.held_bytes -= self.handed_over.pop()

    @invariant()
    def buffer_is_no_larger_than_granted(self) -> None:
        buffer = self.buffer
        assert buffer.capacity_bytes <= max(BUFFER_BUSY_BYTES, buffer.granted_bytes)
        assert self.held_bytes == buffer.granted_bytes + sum(self.handed_over)
        if buffer.large_end:
            assert buffer.granted_bytes > 0
            assert buffer.received_bytes <= max(4 + len(self.sent[0]), BUFFER_BUSY_BYTES), "and nothing behind it"

    @invariant()
    def nothing_is_lost(self) -> None:
        waiting = sum(4 + len(frame) for frame in self.sent)
        assert self.buffer.received_bytes + len(self.stream) == waiting
        assert self.buffer.is_empty == (self.buffer.received_bytes == 0)

    def teardown(self) -> None:
        self.held_bytes -= self.buffer.close() + sum(self.handed_over)
        assert self.held_bytes == 0
        assert self.buffer.close() == 0


Inputs.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
test_whatever_happens_frames_come_out_and_memory_is_given_back = Inputs.TestCase
