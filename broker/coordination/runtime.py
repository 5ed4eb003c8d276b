"""A shard for every partition of a coordinator's topic that is led here

An image says which partitions to take up and which to give up (`leaderships`); it is told here before anything else is
done about it, so that a leadership that is over is over here first. A shard is loaded when its log is here and led in
the epoch that the image spoke of; until then, and while it is read, those who ask are told to come again. Loading gives
way to others batch by batch. A load that failed is tried again after a while, a shard that failed at once.

Used on the event loop only. Not here: any rule about what is coordinated.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Generic

import structlog

from tidemill.broker.coordination.contract import Duty, ImageChanged, MachineT, RecordT, Tick
from tidemill.broker.coordination.leaderships import Leadership, ShardState, turnover
from tidemill.broker.coordination.shard import CoordinatedLogs, Shard
from tidemill.broker.log.turns import Turns
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.repeated_warnings import RepeatedWarnings
from tidemill.core.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.broker.coordination")

LOAD_PAUSE_S: Final = 1.0
"""How long a partition that could not be loaded is left alone; clients come back at about this pace by themselves."""


def partition_of(key: str, partition_count: int) -> int:
    """The partition that keeps a key: Java's string hash, so that Kafka's tools look in the same place.

    >>> partition_of("console-consumer-1", 50)
    24
    """
    raw = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(raw), 2):
        value = (value * 31 + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % partition_count


class CoordinatorRuntime(Generic[MachineT, RecordT]):
    """Who coordinates what on this broker."""

    def __init__(self, duty: Duty[MachineT, RecordT], *, node_id: int, logs: CoordinatedLogs, clock: Clock) -> None:
        self._duty = duty
        self._node_id = node_id
        self._logs = logs
        self._clock = clock
        self.image = ClusterImage()  # the last that was heard of, to be read only
        self._shards: dict[int, Shard[MachineT, RecordT]] = {}
        self._deadline_moved = asyncio.Event()
        self._to_load = asyncio.Event()
        self._warnings = RepeatedWarnings()  # one that cannot be read is tried again every second

    # --- what there is

    @property
    def partition_count(self) -> int:
        """Of the topic; 0 while it is not there."""
        topic = self.image.topics.get(self._duty.topic)
        return 0 if topic is None else len(topic.partitions)

    def shard_of(self, key: str) -> Shard[MachineT, RecordT]:
        """The shard that keeps `key`, and can answer.

        Raises CoordinatorNotAvailable, NotCoordinator, CoordinatorLoadInProgress.
        """
        count = self.partition_count
        if not count:
            raise CoordinatorNotAvailable(f"{self._duty.topic} is not there yet")
        shard = self._shards.get(partition_of(key, count))
        if shard is None:
            raise NotCoordinator(f"another broker coordinates {key!r}")
        shard.check_active()
        return shard

    def active(self) -> Iterator[Shard[MachineT, RecordT]]:
        """The shards that can answer, one by one; some may end between two."""
        for shard in list(self._shards.values()):
            if shard.state is ShardState.ACTIVE:
                yield shard

    def states(self) -> Mapping[ShardState, int]:
        """How many of the partitions led here are being taken up, can answer, and cannot be used."""
        found = Counter(ShardState.FAILED if shard.trouble else shard.state for shard in self._shards.values())
        failed = found[ShardState.FAILED] + found[ShardState.OVER]  # one that found out before the image said so
        return {
            ShardState.LOADING: found[ShardState.LOADING],
            ShardState.ACTIVE: found[ShardState.ACTIVE],
            ShardState.FAILED: failed,
        }

    def all_loaded(self) -> Iterator[Shard[MachineT, RecordT]]:
        """The same for an answer about everything; raises CoordinatorLoadInProgress while there is more to come."""
        for shard in list(self._shards.values()):
            if shard.state is ShardState.LOADING:
                shard.check_active()
        return self.active()

    def trouble(self, key: str, pause_ms: int) -> str | None:
        """Why nothing about `key` can be kept at the moment; None when all is well as far as is known.

        A log that has refused is not tried for `pause_ms`, nor is any other: they share a disk.
        """
        count = self.partition_count
        if not count or self._logs.get(self._duty.topic, partition_of(key, count)) is None:
            return f"{self._duty.topic} is not there yet"
        shard = self._shards.get(partition_of(key, count))
        if shard is not None and shard.trouble:
            return shard.trouble
        since_ms = int(self._clock.monotonic() * 1000) - pause_ms
        refused = (shard.refused for shard in self._shards.values())
        return next((each[1] for each in refused if each is not None and each[0] > since_ms), None)

    # --- what happens

    def image_changed(self, image: ClusterImage, gone: frozenset[str]) -> None:
        """The cluster is another one; topics that had the names in `gone` are not there any more."""
        before, self.image = self.image, image
        if before.topics.get(self._duty.topic) is not image.topics.get(self._duty.topic):
            self._turn_over()
        for shard in self.active():
            shard.tell(ImageChanged(image=image, gone=gone))

    def _turn_over(self) -> None:
        held = {partition: shard.leadership for partition, shard in self._shards.items()}
        change = turnover(held, self.image.topics.get(self._duty.topic), self._node_id)
        for partition in change.given_up:
            shard = self._shards.pop(partition)
            log.info("given up", topic=self._duty.topic, partition=partition)
            if shard.state is not ShardState.OVER:
                shard.give_up()
        for partition, leadership in change.goes_on.items():
            self._shards[partition].leadership = leadership
        for partition, leadership in change.taken_up.items():
            self._shards[partition] = self._new(partition, leadership)
            self._to_load.set()

    def _new(self, partition: int, leadership: Leadership) -> Shard[MachineT, RecordT]:
        return Shard(
            self._duty,
            partition,
            leadership,
            logs=self._logs,
            clock=self._clock,
            deadline_moved=self._deadline_moved.set,
            went_astray=self._to_load.set,
        )

    # --- loading

    def take_up(self) -> None:
        """Partitions may have got their logs, or may be led now: load what is to be loaded, what is new at once."""
        for shard in self._loadable():
            if shard.is_new:
                shard.activate(self.image)
            else:
                self._to_load.set()

    def load_now(self) -> int:
        """Load all that can be, before anybody is let in; the number of records.

        A partition that cannot be read is offline, and tried again by `run`; it keeps no other from its work.
        """
        count = 0
        for shard in self._loadable():
            try:
                count += sum(shard.load())
            except Exception as error:
                self._not_loaded(shard, error)
            else:
                shard.activate(self.image)
        return count

    def _not_loaded(self, shard: Shard[MachineT, RecordT], error: Exception) -> None:
        untold = self._warnings.take((shard.partition, str(error)), self._clock.monotonic())
        if untold is not None:
            tell = log.error if isinstance(error, KafkaError) else log.exception  # what is no bug needs no traceback
            reason = str(error)
            tell("not loaded", topic=self._duty.topic, partition=shard.partition, reason=reason, untold=untold)
        if shard.state is ShardState.LOADING:
            shard.fail(f"{self._duty.topic}-{shard.partition} cannot be read: {error}")

    async def load(self) -> None:
        """Load all that can be, and let others have their turns."""
        turns = Turns(self._clock.monotonic)
        for shard in self._loadable():
            began_s, count = self._clock.monotonic(), 0
            try:
                for records in shard.load():
                    count += records
                    await turns.give_way()
                    if shard.state is not ShardState.LOADING:
                        break  # given up meanwhile
                else:
                    shard.activate(self.image)
            except Exception as error:
                self._not_loaded(shard, error)
                continue
            seconds = round(self._clock.monotonic() - began_s, 3)
            log.info("loaded", topic=self._duty.topic, partition=shard.partition, records=count, seconds=seconds)

    def _loadable(self) -> list[Shard[MachineT, RecordT]]:
        for partition, shard in list(self._shards.items()):
            if shard.state in (ShardState.FAILED, ShardState.OVER):
                again = self._shards[partition] = self._new(partition, shard.leadership)
                again.trouble = shard.trouble  # it is so until it has been read
        return [shard for shard in self._shards.values() if shard.state is ShardState.LOADING and shard.is_ready]

    @property
    def _waits_for_load(self) -> bool:
        return any(shard.state is not ShardState.ACTIVE for shard in self._shards.values())

    # --- work

    async def run(self) -> None:
        """Load what is to be loaded, and tick the machines whenever a deadline comes; runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_loading())
            tasks.create_task(self._keep_time())

    async def _keep_loading(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOAD_PAUSE_S if self._waits_for_load else None):
                    await self._to_load.wait()
            except TimeoutError:
                pass
            self._to_load.clear()
            await self.load()

    async def _keep_time(self) -> None:
        while True:
            self._deadline_moved.clear()
            deadline_ms = self.next_deadline_ms()
            now_ms = int(self._clock.monotonic() * 1000)
            delay_s = None if deadline_ms is None else max(deadline_ms - now_ms, 0) / 1000
            try:
                async with asyncio.timeout(delay_s):
                    await self._deadline_moved.wait()
            except TimeoutError:
                self.tick()

    def next_deadline_ms(self) -> int | None:
        """When the first machine needs a tick, on the monotonic clock."""
        deadlines = (shard.machine.next_deadline_ms() for shard in self.active())
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self) -> None:
        """Do what is due by the clock."""
        for shard in self.active():
            shard.tell(Tick())
