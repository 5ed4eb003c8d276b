"""ElectLeaders on the wire, in every version."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.broker.handlers.elect_leaders import PREFERRED, ROUTES, UNCLEAN
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

(ROUTE,) = ROUTES
NAMED = (TopicPartitions(topic="t", partitions=(1, 7)), TopicPartitions(topic="x", partitions=(0,)))


def codes(response: ElectLeadersResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        entry.topic: [(result.partition_id, result.error_code) for result in entry.partition_result]
        for entry in response.replica_election_results
    }


@pytest.mark.parametrize("version", range(ROUTE.min_version, ROUTE.max_version + 1))
async def test_a_partition_that_is_led_needs_no_election(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t", partitions=2), NewTopic(name="a")])
        for election in (PREFERRED, UNCLEAN) if version >= 1 else (PREFERRED,):
            request = ElectLeadersRequest(election_type=election, topic_partitions=NAMED)
            response = await client.ask(ApiKey.ELECT_LEADERS, version, request)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert codes(response) == {"t": [(1, ErrorCode.ELECTION_NOT_NEEDED), (7, missing)], "x": [(0, missing)]}
            assert all(result.error_message for t in response.replica_election_results for result in t.partition_result)
            request = ElectLeadersRequest(election_type=election, topic_partitions=None)
            response = await client.ask(ApiKey.ELECT_LEADERS, version, request)
            assert (response.error_code, codes(response)) == (0, {"a": [], "t": []})


async def test_another_type_of_election_does_not_exist(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = ElectLeadersRequest(election_type=2, topic_partitions=NAMED)
        response = await client.ask(ApiKey.ELECT_LEADERS, 2, request)
        wrong = ErrorCode.INVALID_REQUEST
        assert (response.error_code, codes(response)) == (wrong, {"t": [(1, wrong), (7, wrong)], "x": [(0, wrong)]})
