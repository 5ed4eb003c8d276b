"""Who leads a partition, told beside the answer about it (KIP-951)

versions: Produce 10-13

A client that wrote to a broker which does not lead hears in the refusal who does and where that one is, and need not
ask for metadata first.
"""

import uuid
from typing import Final

from tidemill.broker.dispatch import BrokerServices, Peer, RequestContext
from tidemill.broker.endpoints import Endpoint, endpoint_of
from tidemill.broker.quorum.image import PartitionImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint

HINTS_FROM: Final = 10
"""The first version that has a field for them."""

NOBODY: Final = LeaderIdAndEpoch()

_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHints:
    """What one response says of leaders; `endpoints` are those of whom it has named."""

    __slots__ = ("_broker", "_client", "_endpoints")

    def __init__(self, broker: BrokerServices, client: RequestContext | Peer) -> None:
        self._broker = broker
        self._client = client
        self._endpoints: dict[int, Endpoint] = {}

    @property
    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """For the response."""
        return tuple(
            NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in self._endpoints.values()
        )

    def beside(self, error_code: int, name: str, topic_id: uuid.UUID, index: int) -> LeaderIdAndEpoch:
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
        return LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.leader_epoch)

    def _partition(self, name: str, topic_id: uuid.UUID, index: int) -> PartitionImage | None:
        image = self._broker.controller.image
        topic = image.topics.get(name or image.topic_names.get(topic_id) or "")
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None
