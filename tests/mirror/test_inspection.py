"""Status and proof from outside."""

import pytest

from tests.mirror.conftest import Pair
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.types import TopicPartition
from tidemill.mirror.inspection import FlowInspector

pytestmark = pytest.mark.integration


def inspector(pair: Pair) -> FlowInspector:
    config = pair.config()
    return FlowInspector(config, config.flow("A", "B"))


async def test_before_during_and_after(pair: Pair) -> None:
    await pair.create(partitions=2)
    await pair.write(0, [b"x"] * 3, "lz4")
    looking = inspector(pair)
    assert [(row.lag, row.verdict) async for row in looking.status()] == [(None, "not mirrored yet")] * 2
    assert [row async for row in looking.verify()] == []
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    assert [(row.lag, row.verdict) async for row in looking.status()] == [(0, "in step")] * 2, "one has no records"
    await pair.write(0, [b"y"])
    first, _ = [(row.lag, row.verdict) async for row in looking.status()]
    assert first == (1, "1 behind")
    proofs = [row async for row in looking.verify()]
    assert [(row.equal, row.records, row.batches_by_checksum, row.behind) for row in proofs] == [
        (True, 3, 1, 1),
        (True, 0, 0, 0),
    ]
    looking.close()


async def test_a_difference_is_shown(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    await pair.write(0, [b"mine"])
    theirs = build_batch([NewRecord(timestamp=5, key=b"k", value=b"theirs")])
    await pair.target.append(TopicPartition(pair.remote, 0), theirs)
    looking = inspector(pair)
    (proof,) = [row async for row in looking.verify()]
    looking.close()
    assert not proof.equal
    assert proof.problem == "the value differs at source offset 1, target offset 1"


async def test_a_surplus_record_is_shown(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    await pair.target.append(
        TopicPartition(pair.remote, 0), build_batch([NewRecord(timestamp=5, key=None, value=b"surplus")])
    )
    looking = inspector(pair)
    (proof,) = [row async for row in looking.verify()]
    looking.close()
    assert proof.problem == "2 records on the target, 1 found on the source"


async def test_a_source_made_anew_is_shown(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    await Admin(pair.source).delete_topics([pair.topic])
    await Admin(pair.source).create_topics([NewTopic(name=pair.topic, partitions=1)])
    looking = inspector(pair)
    (status,) = [row async for row in looking.status()]
    (proof,) = [row async for row in looking.verify()]
    looking.close()
    assert status.verdict == proof.problem == "the source topic was deleted and created again"
