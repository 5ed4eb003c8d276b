"""DescribeQuorum on the wire, in every version."""

import struct
from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.broker.handlers.describe_quorum import ROUTES
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.ids import encode_id
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionQuery, TopicQuery

(ROUTE,) = ROUTES


def ask_for(topic: str, *partitions: int) -> DescribeQuorumRequest:
    queries = tuple(PartitionQuery(partition_index=index) for index in partitions)
    return DescribeQuorumRequest(topics=(TopicQuery(topic_name=topic, partitions=queries),))


@pytest.mark.parametrize("version", range(ROUTE.min_version, ROUTE.max_version + 1))
async def test_the_quorum_of_one_leads_itself_and_is_caught_up(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        before_ms = broker.clock.now_ms()
        response = await client.ask(ApiKey.DESCRIBE_QUORUM, version, ask_for("__cluster_metadata", 0))
        ((quorum,),) = (entry.partitions for entry in response.topics)
        assert (response.error_code, quorum.error_code, quorum.leader_id) == (0, 0, 1)
        (voter,) = quorum.current_voters
        assert (voter.replica_id, voter.log_end_offset, quorum.observers) == (1, quorum.high_watermark, ())
        data = (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()
        last_base, _, epoch = struct.unpack_from(">qii", data, position := _last_batch(data))
        assert quorum.leader_epoch == epoch
        (delta,) = struct.unpack_from(">i", data, position + 23)
        assert quorum.high_watermark == last_base + delta + 1, "the end of the file"
        if version >= 1:
            assert before_ms <= voter.last_fetch_timestamp == voter.last_caught_up_timestamp <= broker.clock.now_ms()
        if version >= 2:
            assert encode_id(voter.replica_directory_id) in (tmp_path / "meta.properties").read_text()
            ((address,),) = (node.listeners for node in response.nodes)
            assert (address.name, address.host, address.port) == ("PLAINTEXT", "127.0.0.1", broker.servers[0].port)
        else:
            assert (voter.replica_directory_id, response.nodes) == (ZERO_UUID, ())


def _last_batch(data: bytes) -> int:
    position = last = 0
    while position < len(data):
        last = position
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return last


@pytest.mark.parametrize("version", range(ROUTE.min_version, ROUTE.max_version + 1))
async def test_no_other_partition_has_a_quorum(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        for topic, partition in (("__cluster_metadata", 1), ("t", 0)):
            response = await client.ask(ApiKey.DESCRIBE_QUORUM, version, ask_for(topic, partition))
            ((quorum,),) = (entry.partitions for entry in response.topics)
            assert (quorum.partition_index, quorum.error_code) == (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert (quorum.current_voters, response.nodes) == ((), ())


async def test_nothing_is_asked_and_nothing_told(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        response = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest())
        assert (response.error_code, response.topics, response.nodes) == (0, (), ())
