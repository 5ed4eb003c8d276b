"""Reading many partitions over few connections."""

import asyncio
import uuid
from dataclasses import dataclass, field

import pytest

from tests.mirror.conftest import Pair
from tidemill.core.client.admin import Admin
from tidemill.core.client.batches import Fetched as BrokerAnswer
from tidemill.core.client.batches import FetchWant
from tidemill.core.records.batch import iter_batches
from tidemill.core.types import ZERO_UUID, TopicPartition
from tidemill.mirror.fetching import LANES, LANES_MAX, PARTITIONS_PER_REQUEST, Fetcher, lanes_for
from tidemill.mirror.link_events import Event, Fetch, Fetched, LookupFailed, OutOfRange
from tidemill.mirror.memory import MEMORY_BYTES_MAX, Memory

pytestmark = pytest.mark.integration


@dataclass
class Partition:
    source: TopicPartition
    source_id: uuid.UUID = ZERO_UUID
    answers: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    async def next(self) -> Event:
        return await asyncio.wait_for(self.answers.get(), 10)


class Reading:
    """A fetcher at work for the length of a `with`."""

    def __init__(self, pair: Pair) -> None:
        self.memory = Memory()
        config = pair.config("A.consumer.fetch.max.wait.ms = 5000\n").clusters["A"]
        self.fetcher: Fetcher[Partition] = Fetcher(
            pair.source, config, lambda partition, event: partition.answers.put_nowait(event), self.memory
        )

    async def __aenter__(self) -> Fetcher[Partition]:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._work = self._group.create_task(self.fetcher.run())
        return self.fetcher

    async def __aexit__(self, *exc_info: object) -> None:
        self._work.cancel()
        await self._group.__aexit__(None, None, None)


def fetch(offset: int, turn: int = 1) -> Fetch:
    return Fetch(turn=turn, offset=offset, max_bytes=100_000)


async def test_idle_partitions_do_not_hold_up_busy_ones(pair: Pair) -> None:
    await pair.create(partitions=3)
    busy, *idle = (Partition(TopicPartition(pair.topic, number)) for number in range(3))
    await pair.write(0, [b"0"])
    async with Reading(pair) as fetcher:
        for partition in (busy, *idle):
            fetcher.want(partition, fetch(0))
        for offset in range(1, 20):
            answer = await busy.next()
            assert isinstance(answer, Fetched)
            assert [view.base_offset for view in iter_batches(answer.data)] == [offset - 1]
            assert answer.end == offset
            await pair.write(0, [b"%d" % offset])
            fetcher.want(busy, fetch(offset))
            for partition in idle:  # those of the first answer, empty, come back at once
                while not partition.answers.empty():
                    assert isinstance(partition.answers.get_nowait(), Fetched)
                    fetcher.want(partition, fetch(0))


@pytest.mark.parametrize(("is_strict", "servings", "least"), [(False, 480, 1), (True, 240, 9)])
async def test_of_many_busy_partitions_each_has_its_turn(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_strict: bool, servings: int, least: int
) -> None:
    """Kafka fills an answer strictly in the order of the request; our broker begins elsewhere, by chance, each time."""
    await pair.create(partitions=24)
    partitions = [Partition(TopicPartition(pair.topic, number)) for number in range(24)]
    for partition in partitions:
        await pair.write(partition.source.partition, [bytes(300_000)])
    served = dict.fromkeys(range(24), 0)
    config = pair.config("A.consumer.fetch.max.bytes = 1000000\n").clusters["A"]
    enough, memory = asyncio.Event(), Memory()

    def deliver(partition: Partition, event: Event) -> None:
        assert isinstance(event, Fetched)
        served[partition.source.partition] += len(event.data) > 0
        if event.frame:
            memory.release(event.frame)
        fetcher.want(partition, again)  # there is always more
        if sum(served.values()) >= servings:
            enough.set()

    fetcher: Fetcher[Partition] = Fetcher(pair.source, config, deliver, memory)
    again = Fetch(turn=1, offset=0, max_bytes=1_000_000)
    fetch = pair.source.fetch

    async def in_order(node_id: int, wants: list[FetchWant], **kind: object) -> list[BrokerAnswer]:
        some, rest = wants[:3], wants[3:]
        answers = await fetch(node_id, some, **{**kind, "max_bytes": 10_000_000})  # type: ignore[arg-type]
        empty = answers[0]._replace(data=answers[0].data[:0])
        return [*answers, *(empty._replace(partition=want.partition) for want in rest)]

    if is_strict:
        monkeypatch.setattr(pair.source, "fetch", in_order)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(fetcher.run())
        for partition in partitions:
            fetcher.want(partition, again)
        await asyncio.wait_for(enough.wait(), 60)
        work.cancel()
    assert min(served.values()) >= least, served


async def test_an_offset_out_of_range_is_told_apart(pair: Pair) -> None:
    await pair.create(partitions=2)
    await pair.write(0, [b"0"])
    beyond, fine = (Partition(TopicPartition(pair.topic, number)) for number in (1, 0))
    async with Reading(pair) as fetcher:
        fetcher.want(beyond, fetch(77, turn=5))
        fetcher.want(fine, fetch(0))
        assert await beyond.next() == OutOfRange(turn=5)
        assert isinstance(await fine.next(), Fetched)


async def test_a_missing_topic_is_a_reason_to_try_again(pair: Pair) -> None:
    missing = Partition(TopicPartition("no-such-topic", 0))
    async with Reading(pair) as fetcher:
        fetcher.want(missing, fetch(0, turn=2))
        answer = await missing.next()
    assert isinstance(answer, LookupFailed)
    assert answer.turn == 2


async def test_a_topic_that_took_the_name_of_another_is_not_read(pair: Pair) -> None:
    await pair.create(partitions=1)
    first = (await pair.source.metadata()).topic_id(pair.topic)
    await Admin(pair.source).delete_topics([pair.topic])
    await pair.create(partitions=1)
    await pair.write(0, [b"of the new one"])
    partition = Partition(TopicPartition(pair.topic, 0), first)
    async with Reading(pair) as fetcher:
        fetcher.want(partition, fetch(0))
        answer = await partition.next()
    assert isinstance(answer, LookupFailed)
    assert "deleted" in answer.reason


async def test_reading_pauses_while_memory_is_full(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"0"])
    partition = Partition(TopicPartition(pair.topic, 0))
    reading = Reading(pair)
    reading.memory.own_bytes = MEMORY_BYTES_MAX
    async with reading as fetcher:
        fetcher.want(partition, fetch(0))
        for _ in range(50):
            await asyncio.sleep(0)
        assert partition.answers.empty()
        reading.memory.own_bytes = 0
        fetcher.wake()
        assert isinstance(await partition.next(), Fetched)


async def test_an_answer_counts_whole_until_its_readers_let_go_of_it(pair: Pair) -> None:
    await pair.create(partitions=2)
    for number, size in ((0, 10), (1, 50_000)):
        await pair.write(number, [bytes(size)])
    small, large = (Partition(TopicPartition(pair.topic, number)) for number in (0, 1))
    reading = Reading(pair)
    async with reading as fetcher:
        fetcher.want(small, fetch(0))
        fetcher.want(large, fetch(0))
        answers = [await small.next(), await large.next()]
        assert all(isinstance(answer, Fetched) and answer.frame for answer in answers)
        frames = [answer.frame for answer in answers if isinstance(answer, Fetched)]
        assert reading.memory.held_bytes > 50_000
        assert not reading.memory.release(frames[1]) or frames[0] != frames[1]
        reading.memory.release(frames[0])
        assert reading.memory.held_bytes == 0


async def test_a_fetch_on_its_way_counts_with_the_most_it_may_bring(pair: Pair) -> None:
    await pair.create(partitions=1)
    partition = Partition(TopicPartition(pair.topic, 0))
    reading = Reading(pair)
    async with reading as fetcher:
        fetcher.want(partition, fetch(0))
        for _ in range(1000):
            if reading.memory.in_flight_bytes:
                break
            await asyncio.sleep(0.01)
        assert reading.memory.held_bytes >= 1024 * 1024
        await pair.write(0, [b"x"])
        await partition.next()
        assert reading.memory.in_flight_bytes == 0


async def test_an_unreachable_source_fails_what_was_asked_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.create(partitions=1)
    await pair.source.ensure_fresh([pair.topic])
    from tidemill.core.client.connection import Address, ConnectionFailed

    async def unreachable(*_: object, **__: object) -> None:
        raise ConnectionFailed(Address("h", 1), "gone")

    monkeypatch.setattr(pair.source, "fetch", unreachable)
    partition = Partition(TopicPartition(pair.topic, 0))
    async with Reading(pair) as fetcher:
        fetcher.want(partition, fetch(0, turn=3))
        answer = await partition.next()
    assert isinstance(answer, LookupFailed)
    assert answer.reason == "h:1: gone"


async def test_many_partitions_are_spread_over_requests(pair: Pair) -> None:
    count = 2 * PARTITIONS_PER_REQUEST + 5
    await pair.create(partitions=count)
    partitions = [Partition(TopicPartition(pair.topic, number)) for number in range(count)]
    async with Reading(pair) as fetcher:
        for partition in partitions:
            fetcher.want(partition, fetch(0))
        await pair.write(count - 1, [b"x"])
        answer = await partitions[-1].next()
        assert isinstance(answer, Fetched)
        while not len(answer.data):
            fetcher.want(partitions[-1], fetch(0))
            answer = await partitions[-1].next()
            assert isinstance(answer, Fetched)
        assert partitions[0].answers.empty(), "a partition of another request is not disturbed"
    assert [lanes_for(number) for number in (1, count, 10**6)] == [LANES, LANES + 2, LANES_MAX]
