"""What was asked of whom, and who is left alone for a moment

One request at a time for each node: an answer is one to that request, or it is too late and nobody listens. Whoever
changes role or epoch forgets what it has asked, so that nothing said to what it was is taken by what it is. What a
voter says of itself goes another way than its fetches, for the leader may need these to take it in.
"""

from typing import Final, NamedTuple

from tidemill.broker.quorum.raft.messages import FetchRequest, Request
from tidemill.broker.quorum.raft.settings import QuorumSettings

UPDATES: Final = -1
"""The way to the leader, whoever that is, on which a voter says where it is now; no node has this id."""


class Asked(NamedTuple):
    """One request under way."""

    request_id: int
    node_id: int
    request: Request
    sent_ms: int


class Peers:
    """Mutable: the requests under way, and the nodes that are not asked before some time."""

    __slots__ = ("_asked", "_not_before", "_request_id", "_settings")

    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self._request_id = 0
        self._asked: dict[int, Asked] = {}
        self._not_before: dict[int, int] = {}

    def may_ask(self, node_id: int, now_ms: int) -> bool:
        """Whether nothing is under way there (any more), and nothing failed a moment ago."""
        asked = self._asked.get(node_id)
        if asked is not None and now_ms < self._due_ms(asked):
            return False
        return now_ms >= self._not_before.get(node_id, now_ms)

    def sent(self, node_id: int, request: Request, now_ms: int) -> int:
        """Note a request; returns the id by which its answer is known."""
        self._request_id += 1
        self._asked[node_id] = Asked(self._request_id, node_id, request, now_ms)
        return self._request_id

    def take(self, request_id: int) -> Asked | None:
        """The request that this is about, which is over now; None if nobody waits for it."""
        asked = next((each for each in self._asked.values() if each.request_id == request_id), None)
        if asked is not None:
            del self._asked[asked.node_id]
        return asked

    def back_off(self, node_id: int, now_ms: int, for_ms: int | None = None) -> None:
        """It did not go well there: wait a little, or so long."""
        self._not_before[node_id] = now_ms + (self._settings.retry_backoff_ms if for_ms is None else for_ms)

    def forget(self) -> None:
        """Nothing is waited for any more."""
        self._asked.clear()
        self._not_before.clear()

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When somebody may be asked again who may not now."""
        ends = [self._due_ms(each) for each in self._asked.values()]
        return min([each for each in (*ends, *self._not_before.values()) if each > now_ms], default=None)

    def _due_ms(self, asked: Asked) -> int:
        """When a request is taken for lost; a leader may hold a fetch, and answers that when the quorum is idle."""
        held_ms = asked.request.wait_max_ms if isinstance(asked.request, FetchRequest) else 0
        return asked.sent_ms + self._settings.request_timeout_ms + held_ms
