"""Size-prefixed frames over TCP, read without copying

A Kafka connection carries frames: a 4-byte big-endian size, then that many bytes. `FrameStream` is the receiving half
of `asyncio` turned to that shape: small frames are cut out of one staging buffer, and as soon as a frame larger than
that is announced the kernel writes straight into the buffer that will be handed out. The frame is a `bytearray`, so
a receiver that owns it may edit it in place.

Memory for large frames is new, and cleared, each time, unless a reader that has done with a frame gives it back to the
`FrameBuffers` that its dialer was made with.

Frames are delivered by callback in order, on the event loop's thread, with no task in between. Writes never block;
`drain` waits while the peer is slow. TLS is an `ssl.SSLContext` that the dialer asks for with every connection.

Not here: what is in a frame (`tidemill.core.wire`), whom to call and when to try again (`tidemill.core.client`).
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from .tls import client_trouble

SIZE_BYTES = 4
HUNG_UP = "the broker hung up during the TLS handshake: is this its TLS port? See security.protocol, and its log"
STAGING_BYTES = 64 * 1024  # one recv of a busy loopback or a burst of small answers
FRAME_BYTES_MAX = 256 * 1024 * 1024  # beyond any sane fetch.max.bytes; a larger size is garbage, not a frame

_size_at = struct.Struct(">i").unpack_from

OnFrame = Callable[[bytearray], None]
OnLost = Callable[[Exception | None], None]


class FrameSizeError(ConnectionError):
    """The peer announced a frame that cannot be one: it does not speak the Kafka protocol."""


class FrameBuffers:
    """Memory of large frames, used again once nobody looks at it any more.

    A frame that is given back while there is still a view of it is forgotten instead. May be called from any thread.
    """

    def __init__(self, spares_max: int = 2) -> None:
        self._spares: deque[bytearray] = deque(maxlen=spares_max)

    def take(self, size: int) -> bytearray:
        """A frame of `size` bytes, whatever is in them."""
        try:
            spare = self._spares.popleft()
        except IndexError:
            return bytearray(size)
        if size < len(spare) // 2:  # for a larger one
            self._spares.append(spare)
            return bytearray(size)
        if size > len(spare) + STAGING_BYTES:
            return bytearray(size)
        try:
            spare.append(0)  # refused while there is a view
            del spare[size:]
            spare.extend(bytes(size - len(spare)))
        except BufferError:
            return bytearray(size)
        return spare

    def give(self, frame: bytearray) -> None:
        """Hand back a frame that nobody refers to but the caller."""
        if len(frame) > STAGING_BYTES:  # smaller ones are cut out of the staging buffer
            self._spares.append(frame)


class Stream(Protocol):
    """An open connection that delivers frames to the callbacks it was dialled with."""

    def write(self, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
        """Queue bytes for sending, in order."""
        ...

    @property
    def writable(self) -> bool:
        """Whether the queue is short enough to add to it."""
        ...

    async def drain(self) -> None:
        """Wait until it is."""
        ...

    def close(self) -> None:
        """Drop the connection; `on_lost` follows."""
        ...


class Dialer(Protocol):
    """Opens streams: the network as a constructor argument."""

    async def dial(self, host: str, port: int, on_frame: OnFrame, on_lost: OnLost) -> Stream:
        """Connect; raises OSError when nobody answers."""
        ...


class FrameStream(asyncio.BufferedProtocol):
    """Frames out of, and bytes into, one asyncio transport."""

    def __init__(
        self,
        on_frame: OnFrame,
        on_lost: OnLost,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        buffers: FrameBuffers | None = None,
    ) -> None:
        self._new_frame = bytearray if buffers is None else buffers.take
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._frame_bytes_max = frame_bytes_max
        self._staging = bytearray(STAGING_BYTES)
        self._staged = 0  # bytes of `_staging` in use
        self._frame: bytearray | None = None  # a frame larger than the staging buffer, being filled
        self._filled = 0
        self._transport: asyncio.Transport | None = None
        self.writable = True  # the peer keeps up
        self._resumed = asyncio.Event()
        self._resumed.set()

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; small requests must not wait for more to come."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour, not by class
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of a large frame, else the free part of the staging buffer."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._staging)[self._staged :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out every frame that is complete now."""
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._on_frame(frame)
            return
        self._staged += nbytes
        at = 0
        while self._staged - at >= SIZE_BYTES:
            size = _size_at(self._staging, at)[0]
            if not 0 <= size <= self._frame_bytes_max:
                self._abort(FrameSizeError(f"peer announced a frame of {size} bytes: is this a Kafka port?"))
                return
            body, end = at + SIZE_BYTES, at + SIZE_BYTES + size
            if end <= self._staged:
                self._on_frame(self._staging[body:end])
                at = end
                continue
            if SIZE_BYTES + size > STAGING_BYTES:  # will never fit: let the kernel write into the frame itself
                self._frame = self._new_frame(size)
                self._filled = self._staged - body
                self._frame[: self._filled] = self._staging[body : self._staged]
                at = self._staged
            break
        rest = self._staged - at
        if at and rest:
            self._staging[:rest] = self._staging[at : self._staged]
        self._staged = rest

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end once."""
        self.resume_writing()
        self._transport = None
        self._on_lost(exc)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self.writable = False
        self._resumed.clear()

    def resume_writing(self) -> None:
        """The queue is short again."""
        self.writable = True
        self._resumed.set()

    # -- our side

    def write(self, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
        """Queue bytes for sending; on a dead connection they are dropped, `on_lost` has already told."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(chunks)

    async def drain(self) -> None:
        """Wait while the peer is slow."""
        await self._resumed.wait()

    def close(self) -> None:
        """Drop the connection at once; what is queued is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _abort(self, error: Exception) -> None:
        transport, self._transport = self._transport, None
        self._staged = 0
        on_lost, self._on_lost = self._on_lost, lambda _: None
        if transport is not None:
            transport.abort()
        on_lost(error)


class HandshakeFailed(ConnectionError):
    """The peer was reached and no encrypted connection came of it; the message says what to do."""


class TcpDialer:
    """The real network; with a `context` all of it is encrypted."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext] | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        buffers: FrameBuffers | None = None,
    ) -> None:
        self._context = context
        self._frame_bytes_max = frame_bytes_max
        self._buffers = buffers

    async def dial(self, host: str, port: int, on_frame: OnFrame, on_lost: OnLost) -> Stream:
        """Connect over TCP, with TLS when the dialer has a context; raises OSError, HandshakeFailed among them."""
        loop = asyncio.get_running_loop()
        context = None if self._context is None else self._context()
        try:
            _, stream = await loop.create_connection(
                lambda: FrameStream(on_frame, on_lost, self._frame_bytes_max, self._buffers),
                host,
                port,
                ssl=context,
                server_hostname=host if context else None,
            )
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise
            raise HandshakeFailed(client_trouble(error, host) or HUNG_UP) from error
        return stream
