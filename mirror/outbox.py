"""Batches of one partition on their way to the target

A batch is queued, then in flight, then answered. One whose outcome is not known when the connection breaks is in doubt:
it may be in the log and not be visible yet, or still be read by the broker. Until the log's end has passed it, those
very bytes are sent again and nothing else at their place, because the source may have been compacted meanwhile and what
is fetched anew would not be what the target has under the same sequence number.

Counts what the batches keep in memory: those that are part of a fetch answer keep the whole answer (its frame), which
the others may share; the rest count by themselves. A batch in doubt is copied out of its frame.
"""

from collections import Counter, deque
from dataclasses import dataclass, replace

from tidemill.mirror.passthrough import Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A batch with what the machine knows about it."""

    item: Outgoing
    needs: int  # map write that must be confirmed first
    frame: int = 0  # the answer whose bytes it is part of; 0 for bytes of its own
    in_doubt: bool = False

    @property
    def size_bytes(self) -> int:
        """Length of the batch."""
        return len(self.item.batch)


class Outbox:
    """What is queued, what is in flight and what came back."""

    def __init__(self) -> None:
        self.buffered_bytes = 0  # of all batches that are held
        self.own_bytes = 0  # of those that are no part of a frame
        self._queue: deque[Parcel] = deque()
        self._flying: dict[int, Parcel] = {}  # by token
        self._returned: list[Parcel] = []
        self._frames: Counter[int] = Counter()
        self._released: list[int] = []
        self._spoilt_from: int | None = None
        self._lost_doubt = False  # a batch in doubt was forgotten
        self._next_token = 0

    @property
    def is_empty(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self._queue and not self._flying

    @property
    def in_flight(self) -> int:
        """Batches sent and not answered."""
        return len(self._flying)

    @property
    def last(self) -> Outgoing | None:
        """The last batch in the queue."""
        return self._queue[-1].item if self._queue else None

    # -- sending

    def put(self, parcel: Parcel) -> None:
        """Queue a batch behind all others."""
        self._queue.append(parcel)
        self._count(parcel, 1)

    def send(self, confirmed: int) -> tuple[int, Parcel] | None:
        """The next batch to send, with a token of its own, if its map write is confirmed."""
        if not self._queue or self._queue[0].needs > confirmed:
            return None
        self._next_token = token = self._next_token + 1
        self._flying[token] = parcel = self._queue.popleft()
        return token, parcel

    def land(self, token: int) -> Parcel | None:
        """Take an answered batch out of flight; None for an answer that nobody waits for."""
        parcel = self._flying.pop(token, None)
        if parcel is not None:
            self._count(parcel, -1)
        return parcel

    # -- trouble

    def take_back(self, parcel: Parcel, *, in_doubt: bool) -> None:
        """Keep a batch that was sent and not acknowledged until the target's log end tells what became of it."""
        self._keep(replace(parcel, in_doubt=parcel.in_doubt or in_doubt))

    def drop_queue(self) -> None:
        """Forget what was not sent since the last look at the log end; what is in doubt from before it stays."""
        for parcel in self._queue:
            self._count(parcel, -1)
            if parcel.in_doubt:
                self._keep(parcel)
        self._queue.clear()

    def spoil(self, parcel: Parcel) -> None:
        """Forget a batch and what was sent behind it: its bytes are damaged, and no broker takes them."""
        target_offset = parcel.item.target_offset
        if self._spoilt_from is None or target_offset < self._spoilt_from:
            self._spoilt_from = target_offset
        self._lost_doubt = self._lost_doubt or parcel.in_doubt

    def drop_all(self) -> None:
        """Forget everything that is not in flight."""
        for parcel in (*self._queue, *self._returned):
            self._count(parcel, -1)
        self._queue.clear()
        self._returned.clear()

    def resume(self, log_end: int) -> bool:
        """Queue again what may still arrive behind the log's end; False when something in doubt had to be forgotten.

        A batch that was refused is kept only for the sake of one behind it.
        """
        assert self.is_empty
        ahead = []
        for parcel in sorted(self._returned, key=lambda parcel: parcel.item.target_offset):
            self._count(parcel, -1)
            if parcel.item.target_end <= log_end:
                continue
            if self._spoilt_from is not None and parcel.item.target_offset >= self._spoilt_from:
                self._lost_doubt = self._lost_doubt or parcel.in_doubt
            else:
                ahead.append(parcel)
        self._returned, self._spoilt_from = [], None
        while ahead and not ahead[-1].in_doubt:
            ahead.pop()
        expected = log_end
        for parcel in ahead:
            if parcel.item.target_offset != expected:
                ahead, self._lost_doubt = [], True
                break
            expected = parcel.item.target_end
        for parcel in ahead:
            self.put(parcel)
        lost_doubt, self._lost_doubt = self._lost_doubt, False
        return not lost_doubt

    # -- memory

    def open(self, frame: int) -> None:
        """A fetch answer is being read."""
        if frame:
            self._frames[frame] += 1

    def close(self, frame: int) -> None:
        """It is read; what is not queued of it is not needed any more."""
        if frame:
            self._let_go(frame)

    def released(self) -> list[int]:
        """The fetch answers that are not needed any more, each told once."""
        if not self._released:
            return []
        released, self._released = self._released, []
        return released

    def _let_go(self, frame: int) -> None:
        self._frames[frame] -= 1
        if not self._frames[frame]:
            del self._frames[frame]
            self._released.append(frame)

    def _keep(self, parcel: Parcel) -> None:
        if parcel.frame:
            parcel = replace(parcel, item=replace(parcel.item, batch=bytes(parcel.item.batch)), frame=0)
        self._returned.append(parcel)
        self._count(parcel, 1)

    def _count(self, parcel: Parcel, sign: int) -> None:
        size = sign * len(parcel.item.batch)
        self.buffered_bytes += size
        if not parcel.frame:
            self.own_bytes += size
        elif sign > 0:
            self._frames[parcel.frame] += 1
        else:
            self._let_go(parcel.frame)
