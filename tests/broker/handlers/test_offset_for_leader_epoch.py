"""OffsetForLeaderEpoch over the wire"""

from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import make_topic, records
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.handlers.offset_for_leader_epoch import handle
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONTEXT = RequestContext(api_version=4, client_id="c", client_host="::1", listener="PLAINTEXT", connection_id="1")


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


@pytest.mark.parametrize("replica_id", [-1, -2, 2], ids=["consumer", "debugging consumer", "follower"])
async def test_an_epoch_ends_where_the_log_does_and_not_where_it_is_visible(tmp_path: Path, replica_id: int) -> None:
    """As with Kafka 4.3.1, asked while its only follower stood still.

    A leader's high watermark may be behind what a consumer got from the one before: it would believe that records are
    gone which are there. A follower would truncate what it must keep.
    """
    async with broker_and_client(tmp_path) as (broker, _):
        await make_topic(broker)
        log = broker.logs.get("t", 0)
        assert log is not None
        log.append(records(b"a", b"b"), now_ms=broker.clock.now_ms(), leader_epoch=0)
        assert (log.committed_offset, log.log_end_offset) == (0, 2)
        row = OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
        request = OffsetForLeaderEpochRequest(
            replica_id=replica_id, topics=(OffsetForLeaderTopic(topic="t", partitions=(row,)),)
        )
        answer = handle(broker, request, CONTEXT).topics[0].partitions[0]
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 2)


async def test_epochs_in_which_nothing_was_written_end_where_the_log_does(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker)
        await make_topic(broker, "empty")
        log = broker.logs.get("t", 0)
        assert log is not None
        result = log.append(records(b"a", b"b"), now_ms=broker.clock.now_ms(), leader_epoch=0)
        await log.durable(result.last_offset)
    for _ in range(3):
        (tmp_path / CLEAN_SHUTDOWN).unlink()
        async with broker_and_client(tmp_path) as (broker, client):
            led = broker.controller.image.topics["t"].partitions[0].leader_epoch
    assert led == 3
    async with broker_and_client(tmp_path) as (broker, client):
        for asked, expected in {0: (0, 2), 1: (0, 2), 2: (0, 2), 3: (3, 2), 4: (-1, -1)}.items():
            answer = await ask(client, "t", asked, current=3)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected)
        for asked, expected in {0: (0, 0), 2: (2, 0), 3: (3, 0), 4: (-1, -1)}.items():
            answer = await ask(client, "empty", asked, current=3)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected)


async def test_errors(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        assert (await ask(client, "nowhere", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        current = topic.partitions[0].leader_epoch + 1
        assert (await ask(client, "t", 0, current=current)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
