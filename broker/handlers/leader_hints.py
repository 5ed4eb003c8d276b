"""Who leads a partition, told beside the answer about it (KIP-951)

versions: Produce 10-13, Fetch 16-18

A client that writes to a broker which does not lead, or reads there, hears in the refusal who does and where that one
is, and need not ask for metadata first.
"""

import uuid
from typing import Final, NamedTuple

from tidemill.broker.dispatch import BrokerServices, Peer, RequestContext
from tidemill.broker.endpoints import Endpoint, endpoint_of
from tidemill.broker.quorum.image import PartitionImage
from tidemill.core.error_code import ErrorCode

HINTS_FROM: Final = 10
"""The first version of Produce that has a field for them."""


class Leading(NamedTuple):
    """Who leads, and in which epoch."""

    leader_id: int = -1
    leader_epoch: int = -1


NOBODY: Final = Leading()

_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHints:
    """What one response says of leaders; `endpoints` are those of whom it has named."""

    __slots__ = ("_broker", "_client", "_endpoints")

    def __init__(self, broker: BrokerServices, client: RequestContext | Peer) -> None:
        self._broker = broker
        self._client = client
        self._endpoints: dict[int, Endpoint] = {}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """For the response."""
        return tuple(self._endpoints.values())

    def beside(self, error_code: int, name: str, topic_id: uuid.UUID, index: int) -> Leading:
        """Beside an error: who leads, if that is somebody else whom the client can reach."""
        if error_code not in _ELSEWHERE:
            return NOBODY
        found = self._partition(name, topic_id, index)
        if found is None or found.leader == self._broker.node_id or self._broker.misses(found.leader):
            return NOBODY
        if found.leader not in self._endpoints:
            registered = self._broker.controller.image.brokers.get(found.leader)
            endpoint = None if registered is None else endpoint_of(self._broker, self._client, registered)
            if endpoint is None:
                return NOBODY
            self._endpoints[found.leader] = endpoint
        return Leading(found.leader, found.leader_epoch)

    def _partition(self, name: str, topic_id: uuid.UUID, index: int) -> PartitionImage | None:
        image = self._broker.controller.image
        topic = image.topics.get(name or image.topic_names.get(topic_id) or "")
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None
