"""Log ends and tails from a real broker."""

import asyncio
import uuid
from dataclasses import dataclass, field

import pytest

from tests.mirror.conftest import Pair
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.connection import Connection
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.types import ZERO_UUID, TopicPartition
from tidemill.mirror.link_events import (
    EpochEndFound,
    Event,
    LocateEpochEnd,
    LocateSource,
    LocateTarget,
    LookupFailed,
    SourceLocated,
    TargetLocated,
    Trouble,
)
from tidemill.mirror.locating import TAIL_BYTES, Locator
from tidemill.mirror.producing import PRODUCE_LANE

pytestmark = pytest.mark.integration


@dataclass
class Asker:
    source: TopicPartition
    target: TopicPartition
    target_id: uuid.UUID = ZERO_UUID
    target_node: int = -1
    connection: Connection | None = None
    answers: list[Event] = field(default_factory=list)


async def ask(pair: Pair, askers: list[Asker], action: LocateTarget | LocateSource | LocateEpochEnd) -> None:
    done = asyncio.Event()

    def deliver(asker: Asker, event: Event) -> None:
        asker.answers.append(event)
        if all(each.answers for each in askers):
            done.set()

    locator: Locator[Asker] = Locator(pair.source, pair.target, deliver)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(locator.run())
        for asker in askers:
            locator.ask(asker, action)
        await asyncio.wait_for(done.wait(), 20)
        work.cancel()


def askers(pair: Pair, count: int) -> list[Asker]:
    return [Asker(TopicPartition(pair.topic, n), TopicPartition(pair.topic, n)) for n in range(count)]


async def test_target_ends_and_their_last_batches(pair: Pair) -> None:
    await Admin(pair.target).create_topics([NewTopic(name=pair.topic, partitions=3)])
    rows = [NewRecord(timestamp=1, key=None, value=bytes(TAIL_BYTES // 3))] * 2
    for number in range(2):
        for producer in (7, 8):
            batch = build_batch(rows, producer_id=producer, producer_epoch=0, base_sequence=0)
            await pair.target.append(TopicPartition(pair.topic, number), batch)
    found = askers(pair, 3)
    await ask(pair, found, LocateTarget(turn=4))
    for asker in found[:2]:
        (answer,) = asker.answers
        assert isinstance(answer, TargetLocated)
        assert (answer.turn, answer.log_start, answer.log_end) == (4, 0, 4)
        view = BatchView(answer.tail)
        assert (view.producer_id, view.base_offset, view.last_offset) == (8, 2, 3)
        assert asker.connection is pair.target.open_connection(asker.target_node, PRODUCE_LANE)
    assert found[2].answers == [TargetLocated(turn=4, log_start=0, log_end=0, tail=b"")]


async def test_a_missing_target_is_a_reason_to_try_again(pair: Pair) -> None:
    found = askers(pair, 1)
    await ask(pair, found, LocateTarget(turn=1))
    (answer,) = found[0].answers
    assert isinstance(answer, LookupFailed)
    assert answer.trouble is Trouble.RETRY
    assert "does not exist" in answer.reason


async def test_source_ends(pair: Pair) -> None:
    await pair.create(partitions=2)
    await pair.write(1, [b"a", b"b"])
    found = askers(pair, 2)
    await ask(pair, found, LocateSource(turn=9))
    assert [asker.answers for asker in found] == [[SourceLocated(turn=9, log_start=0, log_end=end)] for end in (0, 2)]


async def test_where_an_epoch_of_the_source_ended(pair: Pair) -> None:
    await pair.create(partitions=2)
    await pair.write(1, [b"a", b"b"])
    found = askers(pair, 2)
    await ask(pair, found, LocateEpochEnd(turn=9, epoch=0))
    assert [asker.answers for asker in found] == [[EpochEndFound(turn=9, epoch=0, end_offset=end)] for end in (0, 2)]
    found = askers(pair, 1)
    await ask(pair, found, LocateEpochEnd(turn=9, epoch=7))
    assert found[0].answers == [EpochEndFound(turn=9, epoch=-1, end_offset=-1)], "an epoch that never was"


async def test_a_source_partition_that_is_not_there_is_asked_again(pair: Pair) -> None:
    found = askers(pair, 1)
    await ask(pair, found, LocateEpochEnd(turn=1, epoch=0))
    (answer,) = found[0].answers
    assert isinstance(answer, LookupFailed)
    assert answer.trouble is Trouble.RETRY


async def test_a_topic_that_took_the_name_of_another_is_not_found(pair: Pair) -> None:
    await Admin(pair.target).create_topics([NewTopic(name=pair.topic, partitions=1)])
    (asker,) = askers(pair, 1)
    asker.target_id = (await pair.target.metadata()).topic_id(pair.topic)
    await ask(pair, [asker], LocateTarget(turn=1))
    assert isinstance(asker.answers.pop(), TargetLocated)
    await Admin(pair.target).delete_topics([pair.topic])
    await Admin(pair.target).create_topics([NewTopic(name=pair.topic, partitions=1)])
    await ask(pair, [asker], LocateTarget(turn=2))
    assert isinstance(asker.answers.pop(), LookupFailed)
