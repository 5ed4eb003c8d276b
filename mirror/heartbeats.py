"""Heartbeats: a record a second that says a flow is alive

The heartbeat of the flow A->B is written into B. Mirrored on from there, as `B.heartbeats` and so forth, heartbeats
show every path through a topology and how far behind it is; that is why they are written into every cluster that is
named as a target, also where no topics are mirrored.
"""

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.runtime.clock import Clock
from tidemill.mirror.config import FlowConfig
from tidemill.mirror.formats import Heartbeat
from tidemill.mirror.naming import HEARTBEATS
from tidemill.mirror.table_topic import TableTopic


class Heartbeats:
    """The heart of one flow."""

    def __init__(self, config: FlowConfig, target: ClusterClient, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        factor = config.replication_factors["heartbeats"]
        self._topic = TableTopic(target, HEARTBEATS, factor=factor, clock=clock)

    async def beat(self) -> None:
        """Write one."""
        record = Heartbeat(
            source_alias=self._config.source, target_alias=self._config.target, timestamp_ms=self._clock.now_ms()
        )
        await self._topic.append([(record.key(), record.value())])
