"""What clients share: limits, memory, connections

Every connection may have an ordinary buffer, and so much memory is what `max.connections` allows. Requests too large
for it, and the buffers that have grown for them, are counted in one `RequestMemory` for all listeners. The memory of a
request is promised before any of it is used; the buffer that is left behind by a request stays with its connection for
the next one only as long as nobody else needs the memory: then those not used for longest are dropped, at once.

Not here: sockets, and what a limit is about (`tidemill.broker.server`, `tidemill.broker.input_buffer`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What clients may use, named after Kafka's keys."""

    socket_request_max_bytes: int = 100 * 2**20
    connections_max_idle_ms: int = 600_000
    max_connections: int = 10_000
    max_connections_per_ip: int = 2**31 - 1
    queued_max_request_bytes: int = 512 * 2**20


class RequestMemory:
    """What all connections together may hold beyond their ordinary buffers.

    The first request is always let in, whatever its size, so that one that is larger than the whole still gets through.
    Those that have to wait are let in in the order in which they came. What somebody `keep`s is still counted, and
    is there for the asking.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._kept: dict[Callable[[], None], None] = {}  # what drops it; unused for longest first

    def take(self, size_bytes: int, let_in: Callable[[], None]) -> bool:
        """Take `size_bytes` now, or have `let_in` called when they have been taken."""
        if not self._waiting:
            while self._kept and not self._fits(size_bytes):
                drop = next(iter(self._kept))
                del self._kept[drop]
                drop()
            if self._fits(size_bytes):
                self.held_bytes += size_bytes
                return True
        self._waiting.append((size_bytes, let_in))
        return False

    def keep(self, drop: Callable[[], None]) -> bool:
        """Go on holding what was taken, until `drop` is called to have it given back; False if somebody waits for it.

        Whoever is in the middle of using it when `drop` is called gives it back afterwards.
        """
        self._kept.pop(drop, None)
        if self._waiting:
            return False
        self._kept[drop] = None
        return True

    def give_back(self, size_bytes: int, drop: Callable[[], None] | None = None) -> None:
        """Let in as many of those that wait as fit now; `drop` is what was given to `keep`."""
        if drop is not None:
            self._kept.pop(drop, None)
        self.held_bytes -= size_bytes
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, let_in = self._waiting.popleft()
            self.held_bytes += size_bytes
            let_in()

    def stop_waiting(self, let_in: Callable[[], None]) -> None:
        """Forget a request that waits; its client has gone."""
        self._waiting = deque(row for row in self._waiting if row[1] != let_in)
        self.give_back(0)  # it may have been in the way of smaller ones

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size_bytes <= self.limit_bytes


class ConnectionCounts:
    """How many connections there are, in all and from each address."""

    def __init__(self) -> None:
        self.count = 0
        self.per_host: dict[str, int] = {}

    def has_room(self, host: str, limits: ServerLimits, at_the_door: int = 0) -> bool:
        """Whether one more from `host` may enter, of which so many others are about to."""
        of_host = self.per_host.get(host, 0) + at_the_door
        return self.count < limits.max_connections and of_host < limits.max_connections_per_ip

    def enter(self, host: str, limits: ServerLimits) -> bool:
        """Count one more from `host`, unless there are too many already."""
        if not self.has_room(host, limits):
            return False
        self.count += 1
        self.per_host[host] = self.per_host.get(host, 0) + 1
        return True

    def leave(self, host: str) -> None:
        """One that had entered is gone."""
        self.count -= 1
        self.per_host[host] -= 1
        if not self.per_host[host]:
            del self.per_host[host]
