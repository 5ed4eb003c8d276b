"""The line in which partitions wait to be read

A request names many partitions, and a broker fills its answer in the order in which they are named: those at the end
may get nothing although it has data for them. So whoever comes back from an answer with data goes to the end of the
line, and so does who has read everything there is; who was passed over for others comes back to where it stood.

Therefore nobody waits for ever: a broker gives its batch to the first one of a request that has any, who leaves that
place; and who stands behind is passed by nobody who came later. A broker that begins its answers elsewhere each time
gives everybody a turn by itself, and does no harm here.
"""

from typing import Generic, TypeVar

from tidemill.core.types import TopicPartition

WishT = TypeVar("WishT")


class WaitingLine(Generic[WishT]):
    """Partitions with what each wants, in the order of their tickets."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[int, WishT]] = {}
        self._kept: dict[TopicPartition, int] = {}  # tickets of those that were passed over
        self._next = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def join(self, partition: TopicPartition, wish: WishT) -> None:
        """Wait for a turn; a newer wish of one that waits replaces the older one."""
        known = self._waiting.get(partition)
        if known is not None:
            self._waiting[partition] = (known[0], wish)
            return
        ticket = self._kept.pop(partition, None)
        if ticket is None:
            ticket, self._next = self._next, self._next + 1
        self._waiting[partition] = (ticket, wish)

    def leave(self, partition: TopicPartition) -> tuple[int, WishT]:
        """It is this one's turn; returns its ticket and what it wants."""
        return self._waiting.pop(partition)

    def keep_place(self, partition: TopicPartition, ticket: int) -> None:
        """It was passed over: it comes back to where it stood."""
        self._kept[partition] = ticket

    def in_order(self) -> list[TopicPartition]:
        """Everybody, the first first."""
        return sorted(self._waiting, key=lambda partition: self._waiting[partition][0])
