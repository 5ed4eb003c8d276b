"""Whether a cluster answers

A flow that has nothing to write would not notice that its target is gone, so each cluster is asked for its brokers
every second, over a connection of its own: whatever else is slow does not make it look dead. After a failure the next
attempt starts from the bootstrap addresses without back-off, so the end of an outage is seen as fast as its beginning.
"""

import asyncio
from collections.abc import Callable

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock

PROBE_SECONDS = 1.0
PATIENCE_SECONDS = 3.0


class ClusterProbe:
    """One cluster, asked again and again; `connect` makes a fresh client."""

    def __init__(self, connect: Callable[[], ClusterClient], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._since: float | None = None
        self.reason = ""  # why it does not answer; empty while it does, and before the first answer

    @property
    def unreachable_seconds(self) -> float:
        """For how long it has not answered; 0 while it does."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since

    async def run(self) -> None:
        """Ask until cancelled."""
        client = self._connect()
        try:
            while True:
                try:
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await client.refresh(())
                except (ConnectionFailed, KafkaError, TimeoutError) as error:
                    client.close()
                    client = self._connect()
                    if self._since is None:
                        self._since = self._clock.monotonic()
                    self.reason = str(error) or f"{client.bootstrap}: no answer within {PATIENCE_SECONDS:.0f} s"
                else:
                    self._since, self.reason = None, ""
                await asyncio.sleep(PROBE_SECONDS)
        finally:
            client.close()
