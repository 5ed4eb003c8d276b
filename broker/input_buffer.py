"""The input of one connection: frames cut out of a buffer that grows

What is received goes into `room()`, and `next_frame` cuts the next frame out of it, however the bytes arrived. Nothing
is copied: a frame is a view, to be used before the next bytes are received. The buffer grows with what has arrived,
never with what a size prefix promises, and a prefix above the limit is refused before its body is read.

An ordinary buffer has at most `BUFFER_BUSY_BYTES`. A request larger than `BUFFER_BYTES` is announced instead of cut
(`announced_bytes`) until its `claim` has been granted and it has been begun; its buffer never becomes larger than what
was granted. Until it has arrived in full, nothing else is received into what has grown for it: so between two large
requests there is at most an ordinary buffer's worth to be kept, and the buffer can be replaced at any time. What was
granted is given back exactly once: by `hand_over` with the request, or by `drop`, `shrink` or `close`, which return it.

Not here: who grants and who else needs the memory (`server_limits`), sockets, what a frame means.
"""

import struct

BUFFER_IDLE_BYTES = 4 * 1024  # of a connection that has not sent much yet, or not for a while: there may be thousands
BUFFER_BYTES = 64 * 1024  # holds a burst of small requests; requests larger than this are counted one by one
BUFFER_BUSY_BYTES = 128 * 1024  # of a connection that sends more than it holds: a tenth less CPU for batches of 16 KiB
BUFFER_KEPT_BYTES_MAX = 16 * 1024 * 1024  # one grown beyond this goes with the request that it was grown for
ARRIVAL_SECONDS = 30.0  # a large request may take so long to arrive, whatever its size ...
ARRIVAL_BYTES_PER_S = 64 * 1024  # ... and longer at this rate, if others wait for the memory that it holds

_SIZE = struct.Struct(">i")
_read_size = _SIZE.unpack_from
PREFIX_BYTES = 4


class FrameRefused(ValueError):
    """A size prefix that no request may have."""


class InputBuffer:
    """Received bytes that have not been served yet."""

    __slots__ = (
        "_buffer",
        "_end",
        "_frame_bytes_max",
        "_large_since",
        "_ordinary_bytes_max",
        "_start",
        "_stop",
        "_view",
        "announced_bytes",
        "granted_bytes",
        "is_empty",
        "large_end",
    )

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._ordinary_bytes_max = min(frame_bytes_max, BUFFER_BYTES)
        self._buffer = bytearray(BUFFER_IDLE_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the first frame that has not been cut
        self._end = 0  # of the received bytes
        self._stop = BUFFER_IDLE_BYTES  # how far may be received: what has grown for a large request is for it alone
        self._large_since = 0.0
        self.is_empty = True  # all that was received has been cut
        self.announced_bytes = 0  # of the large request that comes next and has not been begun, prefix included
        self.granted_bytes = 0  # for the large request that is being received, or the buffer that one has left
        self.large_end = 0  # of the large request that is being received; 0 if there is none

    @property
    def capacity_bytes(self) -> int:
        """How large the buffer is now."""
        return len(self._buffer)

    @property
    def received_bytes(self) -> int:
        """Bytes that no frame has been cut out of yet."""
        return self._end - self._start

    @property
    def is_crowded(self) -> bool:
        """Whether half of it is full: if no request may start now, the rest shall stay where it comes from."""
        end = self._end
        return end == self._stop or (end - self._start) * 2 > self._stop

    # -- receiving

    def room(self) -> memoryview:
        """Where the next bytes go; never empty once all frames that are complete have been cut."""
        if self._end == self._stop:
            self._make_room()
        return self._view[self._end : self._stop]

    def received(self, count: int) -> None:
        """So many bytes have been put into `room()`."""
        self._end += count
        self.is_empty = False

    def begins_with(self, data: bytes) -> bool:
        """Whether these bytes are what has not been served yet, as far as they are here."""
        start = self._start
        return bytes(self._buffer[start : min(start + len(data), self._end)]) == data

    def next_frame(self) -> memoryview | None:
        """The next frame without its prefix; None if it is not complete or has to be begun first.

        Raises FrameRefused for a size that no request may have.
        """
        begin = self._start + PREFIX_BYTES
        received = self._end
        if received < begin:
            return None
        size: int = _read_size(self._buffer, begin - PREFIX_BYTES)[0]
        if not 0 < size <= self._ordinary_bytes_max:
            if not 0 < size <= self._frame_bytes_max:
                raise FrameRefused(f"a frame of {size} bytes; socket.request.max.bytes is {self._frame_bytes_max}")
            if not self.large_end:
                self.announced_bytes = PREFIX_BYTES + size
                return None
        end = begin + size
        if end < received:
            self._start = end
        elif end == received:
            self._start = self._end = 0
            self.is_empty = True
        else:
            return None
        return self._view[begin:end]

    # -- a large request

    def claim(self) -> int:
        """What has to be granted before the announced request may begin; 0 if what an earlier one left will do."""
        frame_bytes = self.announced_bytes
        return _buffer_bytes(frame_bytes) if frame_bytes > self.granted_bytes else 0

    def grant(self, size_bytes: int, now: float) -> None:
        """The claim has been counted; what an earlier request left behind was dropped before."""
        assert not self.granted_bytes
        self.granted_bytes = size_bytes
        self._large_since = now

    def begin_large(self, now: float) -> None:
        """Receive the announced request, for which enough was granted."""
        assert self.announced_bytes <= self.granted_bytes
        self._large_since = now
        self.large_end, self.announced_bytes = self._start + self.announced_bytes, 0
        self._limit_room()

    def hand_over(self) -> int:
        """The large request that was cut last is still in work: its memory stays with it, and an ordinary buffer here.

        Returns what was granted, which is the request's from now on.
        """
        self.large_end = 0
        self._become_ordinary()
        return self._give_up()

    def end_large(self) -> bool:
        """The large request that was cut last is done; True if its buffer is worth keeping for the next."""
        self.large_end = 0
        self._limit_room()
        return BUFFER_BUSY_BYTES < len(self._buffer) <= BUFFER_KEPT_BYTES_MAX

    def drop(self) -> int:
        """Go on with an ordinary buffer, unless it cannot hold any more what has arrived of a large request.

        Returns what is given back. A large request that had begun is announced anew.
        """
        if self.large_end and self._end - self._start >= BUFFER_BUSY_BYTES:
            return 0
        self.large_end = 0
        self._become_ordinary()
        return self._give_up()

    def shrink(self) -> int:
        """The client is silent: go on with a small buffer if that will do. Returns what is given back."""
        if self.large_end or not self._end - self._start < BUFFER_IDLE_BYTES < len(self._buffer):
            return 0
        self._replace(BUFFER_IDLE_BYTES)
        return self._give_up()

    def close(self) -> int:
        """Nothing more will be received. Returns what is given back."""
        return self._give_up()

    def dawdles(self, now: float) -> bool:
        """Whether the large request that is being received takes longer than it may."""
        allowed_s = ARRIVAL_SECONDS + self.granted_bytes / ARRIVAL_BYTES_PER_S
        return self.granted_bytes > 0 and now - self._large_since > allowed_s

    def excuse(self, now: float) -> None:
        """Nothing was received for a while for no fault of the client's: its large request has all its time again."""
        self._large_since = now

    # -- the buffer

    def _make_room(self) -> None:
        """Move what is left to the front, or grow with what has arrived, or because it arrives so fast."""
        left, size = self._end - self._start, len(self._buffer)
        limit = self.granted_bytes if self.large_end else BUFFER_BUSY_BYTES
        if size < limit and (left > size // 2 or BUFFER_BYTES <= size < BUFFER_BUSY_BYTES):
            self._replace(min(max(size * 2, BUFFER_BYTES), limit))
        else:
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._is_at_front(left)

    def _become_ordinary(self) -> None:
        if len(self._buffer) > BUFFER_BUSY_BYTES:
            self._replace(BUFFER_BUSY_BYTES)
        self._limit_room()

    def _replace(self, size_bytes: int) -> None:
        """A larger or smaller buffer; slices of the old one stay valid for whoever holds them."""
        other, left = bytearray(size_bytes), self._end - self._start
        other[:left] = self._view[self._start : self._end]
        self._buffer, self._view = other, memoryview(other)
        self._is_at_front(left)

    def _is_at_front(self, left: int) -> None:
        if self.large_end:
            self.large_end -= self._start
        self._start, self._end = 0, left
        self._limit_room()

    def _limit_room(self) -> None:
        self._stop = max(self._end, min(len(self._buffer), self.large_end or BUFFER_BUSY_BYTES))

    def _give_up(self) -> int:
        granted, self.granted_bytes = self.granted_bytes, 0
        return granted


def _buffer_bytes(frame_bytes: int) -> int:
    """How large a buffer grows for a frame: its neighbours shall fit too."""
    unit = min(1 << (frame_bytes - 1).bit_length(), 2**20)
    return -(-frame_bytes // unit) * unit
