"""Readers: they read partitions from anywhere, and all of everything when they are asked to; one reads near by"""

import uuid
from typing import TYPE_CHECKING, Final

from tests.sim.world.clients import PARTITIONS, TOPICS, Client, Led
from tests.sim.world.events import Fetched, OutOfRange
from tests.sim.world.insight import PROMISES_NOTHING
from tests.sim.world.topology import NEAR, reads_nearby
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

    rack = ""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._ends: dict[tuple[uuid.UUID, int], int] = {}
        self._starts: dict[tuple[uuid.UUID, int], int] = {}

    async def step(self) -> None:
        await self.pause(0.3)
        topic_id = await self.some_topic()
        if topic_id is not None:
            partition = self.rng.randrange(PARTITIONS)
            end = self._ends.get((topic_id, partition), 0)
            offset = self.rng.choice((end, end, end, 0, self.rng.randrange(end + 1)))
            await self.fetch(topic_id, partition, offset, self.rng.choice((0, 500)))

    async def fetch(self, topic_id: uuid.UUID, partition: int, offset: int, wait_ms: int = 0) -> Fetched | None:
        """What is there from `offset` on, at the leader."""
        led = await self.leader_of(topic_id, partition)
        epoch = led.epoch if self.world.is_settled(led.node_id, topic_id, partition) else PROMISES_NOTHING
        return await self.fetch_at(led, epoch, topic_id, partition, offset, wait_ms)

    async def fetch_at(
        self, led: Led, epoch: int, topic_id: uuid.UUID, partition: int, offset: int, wait_ms: int
    ) -> Fetched | None:
        """The same at that node; the answer has to be as new as all that was promised in `epoch`."""
        wanted = FetchPartition(
            partition=partition, current_leader_epoch=led.epoch, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
            rack_id=self.rack,
        )
        asked_at = self.now
        answer = await self.ask(ApiKey.FETCH, request, FetchResponse, node_id=led.node_id)
        if answer is None:
            return None
        found = answer.responses[0].partitions[0] if answer.responses else None
        self._ends.pop((topic_id, partition), None)
        if answer.error_code or found is None or found.error_code:
            code = answer.error_code or (found.error_code if found else 0)
            self.refused("fetch", code)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                believed = led.epoch if self.rack != NEAR else epoch  # a follower need not have it yet
                self._starts[topic_id, partition] = found.log_start_offset if found else -1
                told = (topic_id, partition, asked_at, believed, offset, self._starts[topic_id, partition])
                self.tell(OutOfRange(self.now, self.name, *told))
            self.wrong(topic_id, partition, code)
            return None
        if found.preferred_read_replica >= 0:
            self.sent_on(topic_id, partition, found.preferred_read_replica)
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
            found.log_start_offset,
            led.epoch,
        )
        self.tell(event)
        self._ends[topic_id, partition] = found.high_watermark
        return event

    def sent_on(self, topic_id: uuid.UUID, partition: int, node_id: int) -> None:
        """A leader has said who is nearer."""
        raise AssertionError(f"{self.name} has named no rack, and is sent on to {node_id}")

    async def fetch_on(self, topic_id: uuid.UUID, partition: int, offset: int) -> Fetched | None:
        """The same at last, or from where the log begins; who is cut off goes on from where it was."""
        for _ in range(FETCH_TRIES):
            found = await self.fetch(topic_id, partition, offset)
            if found is not None:
                return found
            offset = max(offset, self._starts.get((topic_id, partition), 0))
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
                    offset = found.offset
                    if not found.records:
                        break
                    offset = found.records[-1][0] + 1
                if offset < found.high_watermark:
                    raise AssertionError(f"nothing to read at {offset} below {found.high_watermark}")
        return True


class NearbyReader(Reader):
    """Reads at the replica of its rack that a leader has named, until that one sends it back (KIP-392).

    Such a replica may tell of a record later than the leader does: what it tells of is committed all the same, so a
    leader has to have it from then on. What it says is held to that, and to nothing else that was promised.
    """

    rack = NEAR

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._near: dict[tuple[uuid.UUID, int], int] = {}
        self.found_near = 0

    @classmethod
    def is_in(cls, nodes: int, seed: int) -> bool:
        """Whether a world has one."""
        return reads_nearby(nodes, seed)

    def sent_on(self, topic_id: uuid.UUID, partition: int, node_id: int) -> None:
        self._near[topic_id, partition] = node_id

    async def fetch(self, topic_id: uuid.UUID, partition: int, offset: int, wait_ms: int = 0) -> Fetched | None:
        """What is there from `offset` on, near by if that is known."""
        if (topic_id, partition) not in self._near or self.rng.random() < 0.05:
            return await super().fetch(topic_id, partition, offset, wait_ms)
        led = await self.leader_of(topic_id, partition)
        near = Led(self._near[topic_id, partition], led.epoch)
        found = await self.fetch_at(near, PROMISES_NOTHING, topic_id, partition, offset, wait_ms)
        if found is None:
            self._near.pop((topic_id, partition), None)
        else:
            self.found_near += len(found.records)
        return found
