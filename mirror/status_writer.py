"""Writing the newest status of a flow into one cluster

A cluster that is slow or away gets the newest record when it is back and none of those in between; the record for the
other cluster does not wait for it. After a failure a fresh client tries again without back-off: a mirror that is well
again should not look dead for as long as it takes to try once more. A cluster that forbids it is asked again now and
then, and the other cluster is told.
"""

import asyncio
from collections.abc import Callable

import structlog

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.retries import Retry, retry_of
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock
from tidemill.mirror.status_records import TOPIC_SETTINGS, StatusRow
from tidemill.mirror.table_topic import TableTopic

PAUSE_SECONDS = 0.5  # after a failure
REFUSED_SECONDS = 30.0  # after one that does not pass by itself
LAST_SECONDS = 2.0  # for the record that says that it stopped


class StatusWriter:
    """One flow's records for one cluster; `connect` makes a fresh client.

    `failing` gets an entry, named after the topic, while the cluster answers and does not take the records.
    """

    def __init__(
        self, connect: Callable[[], ClusterClient], topic: str, *, factor: int, clock: Clock, failing: dict[str, str]
    ) -> None:
        self._connect = connect
        self._name = topic
        self._factor = factor
        self._clock = clock
        self._failing = failing
        self._client: ClusterClient | None = None
        self._topic: TableTopic | None = None
        self._newest: StatusRow | None = None
        self._wake = asyncio.Event()
        self._told = False
        self._log = structlog.get_logger("tidemill.mirror")

    def put(self, row: StatusRow) -> None:
        """Write `row` next."""
        self._newest = row
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._newest is not None:
                await self._write(self._newest)

    async def last(self, row: StatusRow) -> None:
        """Write the last row, if that can be done at once; `run` must have ended."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._write(row)
        except TimeoutError:
            return

    def close(self) -> None:
        """Drop the connections."""
        if self._client is not None:
            self._client.close()
            self._client = self._topic = None

    async def _write(self, row: StatusRow) -> None:
        if self._topic is None:
            self._client = self._connect()
            self._topic = TableTopic(
                self._client, self._name, factor=self._factor, clock=self._clock, settings=TOPIC_SETTINGS
            )
        try:
            await self._topic.append([(row.key(), row.value())])
        except (ConnectionFailed, KafkaError) as error:
            self.close()
            if not self._told:
                self._told = True
                self._log.warning("status cannot be written", flow=row.flow, topic=self._name, error=str(error))
            if isinstance(error, KafkaError):
                self._failing[self._name] = str(error)
            await asyncio.sleep(REFUSED_SECONDS if retry_of(error) is Retry.NO else PAUSE_SECONDS)
        else:
            self._told = False
            self._failing.pop(self._name, None)
