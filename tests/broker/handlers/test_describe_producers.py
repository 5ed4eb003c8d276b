"""DescribeProducers over the wire"""

from pathlib import Path
from typing import Any

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import make_topic, produce, records
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

T0 = 1_700_000_000_000


async def ask(client: WireClient, name: str, *partitions: int) -> Any:
    request = DescribeProducersRequest(topics=(TopicRequest(name=name, partition_indexes=partitions),))
    return (await client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request)).topics[0].partitions


async def test_last_sequence_numbers_also_after_a_restart(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        for sequence in (0, 2):
            batch = records(b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=sequence, timestamp=T0)
            await produce(client, topic, batch)
        (first, second) = await ask(client, "t", 0, 1)
        (state,) = first.active_producers
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 1, 3)
        assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (T0 + 1, -1, -1)
        assert second.active_producers == ()
    async with broker_and_client(tmp_path) as (_, client):
        (answer,) = await ask(client, "t", 0)
        assert answer.active_producers == first.active_producers


async def test_unknown_partitions(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker)
        (answer,) = await ask(client, "t", 4)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "no partition 4" in answer.error_message
        (answer,) = await ask(client, "nowhere", 0)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (answer,) = await ask(client, "a/b", 0)
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
