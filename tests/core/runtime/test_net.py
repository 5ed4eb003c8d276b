"""Frames out of a byte stream, however it arrives, and over a real socket."""

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.runtime.net import STAGING_BYTES, FrameBuffers, FrameSizeError, FrameStream, TcpDialer

SIZES = st.lists(st.one_of(st.integers(0, 200), st.integers(65_000, 66_000)), max_size=8)


class Pipe(asyncio.Transport):
    """A transport whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def connect(frame_bytes_max: int = 1 << 20) -> tuple[FrameStream, Pipe, list[bytes], list[Exception | None]]:
    frames: list[bytes] = []
    ends: list[Exception | None] = []
    stream = FrameStream(lambda frame: frames.append(bytes(frame)), ends.append, frame_bytes_max)
    pipe = Pipe()
    stream.connection_made(pipe)
    return stream, pipe, frames, ends


def receive(stream: FrameStream, data: bytes, most: int = 1 << 30) -> None:
    """As a selector would: into the buffer the stream offers."""
    while data:
        room = stream.get_buffer(-1)
        count = min(len(room), len(data), most)
        assert count > 0
        room[:count] = data[:count]
        room.release()
        stream.buffer_updated(count)
        data = data[count:]


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@given(SIZES, st.integers(100, 100_000))
def test_frames_come_out_whole_and_in_order(sizes: list[int], step: int) -> None:
    frames = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    stream, _, received, _ = connect()
    receive(stream, framed(frames), step)
    assert received == frames


def test_byte_by_byte() -> None:
    frames = [b"", b"a", b"bc" * 300]
    stream, _, received, _ = connect()
    receive(stream, framed(frames), 1)
    assert received == frames


@pytest.mark.parametrize("size", [STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES - 3, STAGING_BYTES, 500_000])
def test_around_the_size_of_the_staging_buffer(size: int) -> None:
    frames = [b"x" * 10, b"y" * size, b"z" * 10]
    stream, _, received, _ = connect()
    receive(stream, framed(frames))
    assert received == frames


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", struct.pack(">i", (1 << 20) + 1), b"HTTP"])
def test_a_size_that_cannot_be_one_ends_the_connection(prefix: bytes) -> None:
    stream, pipe, received, ends = connect()
    receive(stream, framed([b"ok"]) + prefix)
    assert received == [b"ok"]
    assert pipe.aborted
    assert isinstance(ends[0], FrameSizeError)
    assert "is this a Kafka port?" in str(ends[0])
    stream.connection_lost(None)
    assert len(ends) == 1, "the end is reported once"


def test_a_frame_given_back_is_used_again_unless_somebody_looks_at_it() -> None:
    size = 3 * STAGING_BYTES
    buffers = FrameBuffers()
    frames: list[bytearray] = []
    stream = FrameStream(frames.append, lambda _: None, buffers=buffers)
    stream.connection_made(Pipe())

    def frame(length: int, fill: bytes) -> bytearray:
        receive(stream, struct.pack(">i", length) + fill * length)
        assert frames[-1] == fill * length
        return frames[-1]

    first = frame(size, b"a")
    buffers.give(first)
    second = frame(size - 1_000, b"b")
    assert second is first
    buffers.give(second)
    third = frame(size + 1_000, b"c")
    assert third is first
    buffers.give(third)
    assert frame(STAGING_BYTES + 1, b"d") is not first  # it is for a larger one
    assert frame(size, b"e") is first
    view = memoryview(first)
    buffers.give(first)
    assert frame(size, b"f") is not first
    assert view[0] == ord("e")
    buffers.give(bytearray(10))
    assert len(frame(10 * size, b"g")) == 10 * size


async def test_writing_waits_for_a_slow_peer() -> None:
    stream, pipe, _, _ = connect()
    stream.write([b"a", memoryview(b"bc")])
    assert pipe.written == b"abc"
    stream.pause_writing()
    assert not stream.writable
    waiting = asyncio.get_running_loop().create_future()
    stream_drain = asyncio.wait_for(stream.drain(), 0.01)
    with pytest.raises(TimeoutError):
        await stream_drain
    stream.resume_writing()
    await stream.drain()
    waiting.cancel()


def test_a_closed_stream_drops_what_is_written() -> None:
    stream, pipe, _, ends = connect()
    stream.close()
    stream.write([b"late"])
    stream.connection_lost(None)
    stream.write([b"later"])
    assert (pipe.written, ends) == (b"", [None])


async def test_over_a_real_socket() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    received: asyncio.Queue[bytearray] = asyncio.Queue()
    ended = asyncio.get_running_loop().create_future()
    async with server:
        stream = await TcpDialer().dial(host, port, received.put_nowait, ended.set_result)
        for size in (0, 5, 3_000_000):
            body = bytes(range(256)) * (size // 256) + b"!" * (size % 256)
            stream.write([struct.pack(">i", size), body])
            await stream.drain()
            frame = await asyncio.wait_for(received.get(), 10)
            assert isinstance(frame, bytearray)
            assert frame == body
        stream.close()
        assert await asyncio.wait_for(ended, 10) is None
