"""Which brokers were heard of lately

The active controller's own memory: it is not in the log, so a controller that becomes active knows nothing and begins
anew, with a full session for every broker that is not fenced. Until these are over nobody is fenced who was only
talking to the controller before.

A controller that was stopped itself, by a pause of its machine or a long turn of its event loop, has heard of nobody
and has nobody to blame: what it misses beyond `LOOK_INTERVAL_MS` is added to every session. So it has to be looked at
(`expired`) that often.

Pure: the time comes in. Not here: what becomes of a broker whose session is over (`tidemill.broker.quorum.brokers`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemill.broker.quorum.image import BrokerImage

SESSION_TIMEOUT_MS: Final = 9_000
"""Kafka's `broker.session.timeout.ms`: four heartbeats and a half."""

LOOK_INTERVAL_MS: Final = 1_000
"""How often somebody has to look whether sessions are over; a second late in nine is no harm."""


class Session(NamedTuple):
    """What is known of one incarnation; `left_at` is an offset from which on it leads nothing."""

    epoch: int
    ends_ms: int
    metadata_offset: int
    left_at: int | None


class Sessions:
    """Mutable: the sessions of all brokers, also of fenced ones that are coming up."""

    def __init__(self, *, timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, Session] = {}
        self._looked_ms: int | None = None

    def begin(self, brokers: Mapping[int, BrokerImage], now_ms: int) -> None:
        """This controller is the active one from now on; these are the brokers that it knows of."""
        self._looked_ms = now_ms
        self._sessions = {
            node: self._new(broker.epoch, now_ms) for node, broker in brokers.items() if not broker.fenced
        }

    def heard(
        self, broker_id: int, epoch: int, now_ms: int, *, metadata_offset: int = -1, left_at: int | None = None
    ) -> None:
        """A registration or a heartbeat was granted; what an earlier incarnation has said late means nothing."""
        before = self._sessions.get(broker_id)
        if before is None or epoch > before.epoch:
            before = self._new(epoch, now_ms)
        elif epoch < before.epoch:
            return
        self._sessions[broker_id] = Session(
            epoch,
            max(before.ends_ms, now_ms + self._timeout_ms),
            max(before.metadata_offset, metadata_offset),
            left_at if before.left_at is None else before.left_at,
        )

    def forget(self, broker_id: int, epoch: int) -> None:
        """This incarnation has stopped in order, or is unregistered."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch <= epoch:
            del self._sessions[broker_id]

    def end(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """This incarnation is gone, as far as is known; a heartbeat of it says otherwise."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            self._sessions[broker_id] = session._replace(ends_ms=now_ms)

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        """Whether some incarnation of the broker was heard of lately."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.ends_ms

    def others_know(self, broker_id: int, brokers: Mapping[int, BrokerImage], now_ms: int) -> bool:
        """Whether every other broker that is not fenced has taken in that this one leads nothing any more."""
        session = self._sessions.get(broker_id)
        if session is None or session.left_at is None:
            return False
        last = session.left_at - 1
        return all(
            node == broker_id or broker.fenced or not self.is_live(node, now_ms) or self._offset_of(node) >= last
            for node, broker in brokers.items()
        )

    def expired(self, brokers: Mapping[int, BrokerImage], now_ms: int) -> tuple[tuple[int, int], ...]:
        """Ids and epochs of brokers that are not fenced and have not been heard of for a session.

        They are named again until they are fenced. One that is not fenced and has no session gets one.
        """
        self._credit(now_ms)
        over: list[tuple[int, int]] = []
        for node, broker in brokers.items():
            if broker.fenced:
                continue
            session = self._sessions.get(node)
            if session is None or session.epoch < broker.epoch:
                self._sessions[node] = self._new(broker.epoch, now_ms)
            elif session.ends_ms <= now_ms:
                over.append((node, broker.epoch))
        for node in [node for node, session in self._sessions.items() if session.ends_ms <= now_ms]:
            if node not in brokers or brokers[node].fenced:
                del self._sessions[node]
        return tuple(over)

    def _credit(self, now_ms: int) -> None:
        """Add what nobody could have been heard in to every session."""
        late_ms = 0 if self._looked_ms is None else now_ms - self._looked_ms - LOOK_INTERVAL_MS
        self._looked_ms = now_ms
        if late_ms > LOOK_INTERVAL_MS:
            full_ms = now_ms + self._timeout_ms
            self._sessions = {
                node: each._replace(ends_ms=min(each.ends_ms + late_ms, full_ms))
                for node, each in self._sessions.items()
            }

    def _new(self, epoch: int, now_ms: int) -> Session:
        return Session(epoch, now_ms + self._timeout_ms, -1, None)

    def _offset_of(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset
