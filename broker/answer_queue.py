"""The answers of one connection: in request order, and few enough

Requests that were started stand in a queue until their answers leave, which happens in the order of the requests
whatever order they are made in. What stands here takes memory, so the queue says whether another request may start
(`may_start`): too many requests in work, too many or too large ones whose answer is not known yet, too many bytes of
answers that have to wait for an earlier one, or a `Hold`, each keep it from starting, and only in this connection.

Not here: making answers (`dispatch`), futures and tasks that they wait for, the socket (`connection`).
"""

import enum
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.broker.dispatch import Chunks, Exchange

IN_FLIGHT_MAX = 1000  # requests of one connection in work; librdkafka has no limit of its own
PENDING_MAX = 64  # of those, requests whose answer is not known yet and may be large, or waits for other brokers
PENDING_BYTES_MAX = 64 * 1024  # of those, taken apart they are ten times as much; large ones are counted elsewhere


class Hold(enum.Enum):
    """Why no request of a connection may start for now, whatever else there is room for."""

    EXCLUSIVE = "a request must be answered before the next may start"
    TURN_IS_OVER = "other clients come first, then the rest of this one's requests"
    CLIENT_IS_SLOW = "the client does not take its answers"
    MUTED = "the client has had more than its share"
    ENDING = "the connection or the broker is about to end"

    __hash__ = object.__hash__  # each is there once; Enum's own is Python, and this is asked for with every request


class AnswerQueue:
    """The requests of one connection that are in work."""

    __slots__ = (
        "_exchanges",
        "_group",
        "_holds",
        "_pending",
        "_pending_bytes",
        "_waits_for",
        "bytes_max",
        "unsent_bytes",
    )

    def __init__(self, bytes_max: int = 0) -> None:
        self.bytes_max = bytes_max  # of answers that may be here when one more request starts
        self.unsent_bytes = 0  # of answers that cannot leave yet
        self._exchanges: deque[Exchange] = deque()
        self._holds: set[Hold] = set()
        self._pending = 0  # exchanges whose answer is not known yet ...
        self._pending_bytes = 0  # ... and the size of those requests that are not large
        self._waits_for: object = None  # what the newest exchange of `_group` is due after
        self._group: list[Exchange] = []

    def __len__(self) -> int:
        """Requests in work."""
        return len(self._exchanges)

    @property
    def pending(self) -> int:
        """Requests whose answer is not known yet and may be large."""
        return self._pending

    def may_start(self) -> bool:
        """Whether one more request may start now."""
        return (
            not self._holds
            and len(self._exchanges) < IN_FLIGHT_MAX
            and self._pending < PENDING_MAX
            and self._pending_bytes < PENDING_BYTES_MAX
            and self.unsent_bytes <= self.bytes_max
        )

    def hold(self, reason: Hold) -> None:
        """Let no request start while `reason` lasts."""
        self._holds.add(reason)

    def let_go(self, reason: Hold) -> None:
        """`reason` is over."""
        if self._holds:
            self._holds.discard(reason)

    def is_held(self, reason: Hold) -> bool:
        """Whether `reason` lasts."""
        return reason in self._holds

    def add(self, exchange: "Exchange", request_bytes: int) -> "list[Exchange] | None":
        """A request that has started; `request_bytes` are counted while its answer is pending.

        Those that wait for the same are one group; a new one is returned, which is `all_due` or fails in the end.
        """
        self._exchanges.append(exchange)
        if exchange.chunks is not None:
            exchange.request = None  # `answered` in place: with each request, a call counts
            for chunk in exchange.chunks:
                self.unsent_bytes += len(chunk)
        elif exchange.pending is not None:
            self._pending += 1
            self._pending_bytes += request_bytes
            exchange.pending_bytes = request_bytes
            if exchange.exclusive:
                self._holds.add(Hold.EXCLUSIVE)
        else:
            if exchange.by_others:
                self._pending += 1
            assert exchange.after is not None, "neither answered nor waiting for anything"
            if exchange.after is not self._waits_for:
                self._waits_for, self._group = exchange.after, [exchange]
                return self._group
            self._group.append(exchange)
        return None

    def leave(self, group: "list[Exchange]") -> None:
        """What `group` waited for is over: nobody joins it any more."""
        if group is self._group:
            self._waits_for, self._group = None, []

    def settle(self, exchange: "Exchange") -> int:
        """`exchange` waits no longer, whatever comes of it; returns the memory of a large request to be given back."""
        if exchange.by_others:
            self._pending -= 1
            exchange.by_others = False
        if exchange.pending is not None:
            self._pending -= 1
            self._pending_bytes -= exchange.pending_bytes
            if exchange.exclusive:
                self._holds.discard(Hold.EXCLUSIVE)
        memory_bytes, exchange.memory_bytes = exchange.memory_bytes, 0
        return memory_bytes

    def answered(self, exchange: "Exchange") -> None:
        """Count what has to stay here until it may leave."""
        exchange.request = None  # what it was taken apart into may be larger than the answer
        for chunk in exchange.chunks or ():
            self.unsent_bytes += len(chunk)

    def all_due(self, group: "list[Exchange]", now: float) -> None:
        """What was `due` to each of `group` may leave now."""
        for exchange in group:
            if exchange.by_others:
                self.settle(exchange)
            exchange.answered = now
            exchange.chunks = exchange.due
            exchange.request = None  # `answered` in place
            for chunk in exchange.due or ():
                self.unsent_bytes += len(chunk)

    def take(self, leaving: "list[Exchange] | None" = None) -> "Chunks":
        """What may leave now: the answers of the longest answered run at the head. Timed ones join `leaving`."""
        exchanges = self._exchanges
        out: Chunks = []
        while exchanges and (chunks := exchanges[0].chunks) is not None:
            out += chunks
            exchange = exchanges.popleft()
            if leaving is not None and exchange.weight:
                leaving.append(exchange)
        if not exchanges:
            self.unsent_bytes = 0
        else:
            for chunk in out:
                self.unsent_bytes -= len(chunk)
        return out

    def forget(self) -> "list[Exchange]":
        """No further answer will leave: returns what was in work, of which each is still to `settle`."""
        self._holds.add(Hold.ENDING)
        exchanges, self._exchanges = list(self._exchanges), deque()
        self.unsent_bytes = 0
        return exchanges
