"""Readers: they read partitions from anywhere, and all of everything when they are asked to"""

import uuid
from typing import TYPE_CHECKING, Final

from tests.sim.world.clients import PARTITIONS, TOPICS, Client
from tests.sim.world.events import Fetched, OutOfRange
from tests.sim.world.insight import PROMISES_NOTHING
from tidemill.core.error_code import ErrorCode
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.record import decode_records
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from tests.sim.world.world import World

FETCH_TRIES: Final = 10
"""More than it ever takes, where connections end while a large answer is on its way."""


class Reader(Client):
    """Reads partitions from anywhere, mostly where they end, and all of everything when it is asked to."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._ends: dict[tuple[uuid.UUID, int], int] = {}

    async def step(self) -> None:
        await self.pause(0.3)
        topic_id = await self.some_topic()
        if topic_id is not None:
            partition = self.rng.randrange(PARTITIONS)
            end = self._ends.get((topic_id, partition), 0)
            offset = self.rng.choice((end, end, end, 0, self.rng.randrange(end + 1)))
            await self.fetch(topic_id, partition, offset, self.rng.choice((0, 500)))

    async def fetch(self, topic_id: uuid.UUID, partition: int, offset: int, wait_ms: int = 0) -> Fetched | None:
        """What is there from `offset` on."""
        led = await self.leader_of(topic_id, partition)
        wanted = FetchPartition(
            partition=partition, current_leader_epoch=led.epoch, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),)
        )
        asked_at = self.now
        epoch = led.epoch if self.world.is_settled(led.node_id, topic_id, partition) else PROMISES_NOTHING
        answer = await self.ask(ApiKey.FETCH, request, FetchResponse, node_id=led.node_id)
        if answer is None:
            return None
        found = answer.responses[0].partitions[0] if answer.responses else None
        self._ends.pop((topic_id, partition), None)
        if answer.error_code or found is None or found.error_code:
            code = answer.error_code or (found.error_code if found else 0)
            self.refused("fetch", code)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.tell(OutOfRange(self.now, self.name, topic_id, partition, asked_at, led.epoch, offset))
            self.wrong(topic_id, partition, code)
            return None
        records = []
        for view in iter_batches(found.records or b""):
            assert view.verify_crc(), "a batch was served whose checksum is wrong"
            for record in decode_records(view):
                found_here = (record.offset, view.leader_epoch, (record.value or b"").rstrip(b"."))
                records += [found_here] if record.offset >= offset else []
        event = Fetched(
            self.now,
            self.name,
            topic_id,
            partition,
            asked_at,
            epoch,
            offset,
            found.high_watermark,
            tuple(records),
            self.world.newest_epoch(topic_id, partition),
        )
        self.tell(event)
        self._ends[topic_id, partition] = found.high_watermark
        return event

    async def fetch_on(self, topic_id: uuid.UUID, partition: int, offset: int) -> Fetched | None:
        """The same at last: who is cut off goes on from where it was, and does not begin anew."""
        for _ in range(FETCH_TRIES):
            found = await self.fetch(topic_id, partition, offset)
            if found is not None:
                return found
        return None

    async def read_everything(self) -> bool:
        """All of every partition; False if somebody did not answer."""
        await self.look_at_topics()
        for topic_id in [self.topics[name] for name in TOPICS if name in self.topics]:
            for partition in range(PARTITIONS):
                offset = 0
                while True:
                    found = await self.fetch_on(topic_id, partition, offset)
                    if found is None:
                        return False
                    if not found.records:
                        break
                    offset = found.records[-1][0] + 1
                if offset < found.high_watermark:
                    raise AssertionError(f"nothing to read at {offset} below {found.high_watermark}")
        return True
