"""OffsetForLeaderEpoch over the wire"""

from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import make_topic, records
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def ask(client: WireClient, name: str, epoch: int, version: int = 4, current: int = -1) -> EpochEndOffset:
    row = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic=name, partitions=(row,)),))
    response = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    answer: EpochEndOffset = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_an_epoch_ended(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker)
        log = broker.logs.get("t", 0)
        assert log is not None
        for epoch in (0, 3):
            result = log.append(records(b"a", b"b"), now_ms=broker.clock.now_ms(), leader_epoch=epoch)
            await log.durable(result.last_offset)
        for asked, expected in {0: (0, 2), 1: (0, 2), 3: (3, 4), 4: (-1, -1)}.items():
            answer = await ask(client, "t", asked, version)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected)


async def test_the_epoch_of_an_empty_log_ends_at_its_end(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        epoch = topic.partitions[0].leader_epoch
        for asked, expected in {epoch: (epoch, 0), epoch + 1: (-1, -1)}.items():
            answer = await ask(client, "t", asked)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected)


async def test_errors(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        assert (await ask(client, "nowhere", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        current = topic.partitions[0].leader_epoch + 1
        assert (await ask(client, "t", 0, current=current)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
