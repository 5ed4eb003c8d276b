"""Status and proof from outside."""

from dataclasses import replace

import pytest

from tests.mirror.conftest import Pair
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.config import parse_properties
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.config import parse_mirror_config
from tidemill.mirror.inspection import FlowInspector, Life
from tidemill.mirror.status_records import FlowState, StatusRow, status_topic
from tidemill.mirror.table_topic import TableTopic

pytestmark = pytest.mark.integration


def inspector(pair: Pair) -> FlowInspector:
    config = pair.config()
    return FlowInspector(config, config.flow("A", "B"))


async def test_before_during_and_after(pair: Pair) -> None:
    await pair.create(partitions=2)
    await pair.write(0, [b"x"] * 3, "lz4")
    looking = inspector(pair)
    assert [(row.lag, row.verdict) async for row in looking.status()] == [(None, "not mirrored yet")] * 2
    proofs = [row async for row in looking.verify()]
    assert [(row.equal, row.records, row.behind, row.problem) for row in proofs] == [
        (False, 0, 3, "not mirrored yet"),
        (True, 0, 0, ""),
    ], "nothing is equal to nothing"
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


@pytest.mark.parametrize("state", [FlowState.RUNNING, FlowState.STOPPED], ids=str)
async def test_a_mirror_that_is_gone_is_remembered_while_that_of_the_other_direction_tells_on(
    pair: Pair, state: FlowState
) -> None:
    text = f"clusters = S, T\nS.bootstrap.servers = {pair.a}\nT.bootstrap.servers = {pair.b}\n"
    config = parse_mirror_config(parse_properties(text + "S->T.enabled = true\nT->S.enabled = true\n"))
    row = StatusRow(flow="S->T", mirror="gone:1:1", state=state, started_ms=1, written_ms=2)
    other = [
        replace(row, flow="T->S", mirror="host:2:1", written_ms=number, state=FlowState.RUNNING)
        for number in range(250)
    ]
    topic = TableTopic(pair.target, status_topic("S"), factor=1, clock=SystemClock())
    for batch in ([row], other):
        await topic.append([(each.key(), each.value()) for each in batch])
    inspector = FlowInspector(config, config.flow("S", "T"))
    report = await inspector.report()
    inspector.close()
    await Admin(pair.target).delete_topics([status_topic("S")])
    assert report.row == row
    assert report.life is (Life.STOPPED if state is FlowState.STOPPED else Life.SILENT)
