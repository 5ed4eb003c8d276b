"""What clients of a cluster of five are told: by whom they are asked, in which version, by which listener"""

import pytest

from tests.broker.handlers.five_brokers import cluster, context
from tidemill.broker.coordination.runtime import partition_of
from tidemill.broker.handlers import cluster as cluster_handlers
from tidemill.broker.handlers import groups, metadata
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

OK, AWAY, NO_LISTENER = ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND
GONE_OUTSIDE, GONE_INSIDE = (3, 4, 5), (3, 5)
T = (MetadataRequestTopic(name="t"),)


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("EXTERNAL", [(1, "external-1", "a"), (2, "external-2", "b")]),
        ("PLAINTEXT", [(1, "plaintext-1", "a"), (2, "plaintext-2", "b"), (4, "plaintext-4", None)]),
    ],
)
async def test_the_brokers_that_a_client_can_turn_to(
    listener: str, expected: list[tuple[int, str, str | None]]
) -> None:
    response = await metadata.handle(cluster(), MetadataRequest(topics=()), context(12, listener))
    assert [(each.node_id, each.host, each.rack) for each in response.brokers] == expected
    assert [each.port for each in response.brokers] == [9000 + node_id for node_id, _, _ in expected]
    assert response.controller_id == 1
    described = await cluster_handlers.describe_cluster(cluster(), DescribeClusterRequest(), context(2, listener))
    assert [(each.broker_id, each.host, each.rack) for each in described.brokers] == expected
    assert described.controller_id == 1


async def test_fenced_brokers_are_told_to_who_asks_for_them() -> None:
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = await cluster_handlers.describe_cluster(cluster(), request, context(2))
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [(1, False), (2, False), (3, True)]


@pytest.mark.parametrize(
    ("version", "listener", "leaders"),
    [
        (12, "EXTERNAL", [(1, OK), (2, OK), (-1, AWAY), (-1, NO_LISTENER), (-1, AWAY), (-1, AWAY)]),
        (6, "PLAINTEXT", [(1, OK), (2, OK), (-1, AWAY), (4, OK), (-1, AWAY), (-1, AWAY)]),
        (5, "EXTERNAL", [(1, OK), (2, OK), (-1, AWAY), (-1, AWAY), (-1, AWAY), (-1, AWAY)]),
    ],
)
async def test_leaders_that_a_client_can_turn_to(
    version: int, listener: str, leaders: list[tuple[int, ErrorCode]]
) -> None:
    response = await metadata.handle(cluster(), MetadataRequest(topics=T), context(version, listener))
    partitions = response.topics[0].partitions
    assert [(each.leader_id, each.error_code) for each in partitions] == leaders
    gone = GONE_OUTSIDE if listener == "EXTERNAL" else GONE_INSIDE
    assert {each.offline_replicas for each in partitions} == {gone}
    assert {(each.replica_nodes, each.isr_nodes) for each in partitions} == {((1, 2, 3, 4, 5), (1, 2, 4))}
    assert {each.leader_epoch for each in partitions} == {7}


async def test_the_first_version_names_nobody_that_it_does_not_list() -> None:
    response = await metadata.handle(cluster(), MetadataRequest(topics=T), context(0))
    (first, _, third, *_) = response.topics[0].partitions
    assert (first.error_code, first.replica_nodes, first.isr_nodes) == (
        ErrorCode.REPLICA_NOT_AVAILABLE,
        (1, 2),
        (1, 2),
    )
    assert (third.error_code, third.leader_id) == (AWAY, -1)


async def test_partitions_are_described_alike_page_by_page() -> None:
    request = DescribeTopicPartitionsRequest(response_partition_limit=2000)
    response = await cluster_handlers.describe_topic_partitions(cluster(), request, context(0))
    topics = {topic.name: topic.partitions for topic in response.topics}
    told = await metadata.handle(cluster(), MetadataRequest(topics=T), context(12))
    assert [(each.leader_id, each.error_code, each.offline_replicas) for each in topics["t"]] == [
        (each.leader_id, each.error_code, each.offline_replicas) for each in told.topics[0].partitions
    ]


@pytest.mark.parametrize(
    ("leader", "listener", "found"),
    [
        (1, "EXTERNAL", (1, "external-1", 9001)),
        (2, "EXTERNAL", (2, "external-2", 9002)),
        (4, "PLAINTEXT", (4, "plaintext-4", 9004)),
        (4, "EXTERNAL", None),
        (3, "EXTERNAL", None),
        (5, "EXTERNAL", None),
        (-1, "EXTERNAL", None),
    ],
)
@pytest.mark.parametrize("version", [0, 3, 4, 6])
async def test_a_group_is_kept_where_its_partition_is_led(
    version: int, leader: int, listener: str, found: tuple[int, str, int] | None
) -> None:
    leaders = [1, 2, 3]
    leaders[partition_of("g", 3)] = leader
    request = FindCoordinatorRequest(key="g", coordinator_keys=("g",) if version >= 4 else ())
    response = await groups.find_coordinator(
        cluster(offsets_led_by=tuple(leaders)), request, context(version, listener)
    )
    row = response.coordinators[0] if version >= 4 else response
    expected = ErrorCode.NONE if found else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (row.error_code, (row.node_id, row.host, row.port)) == (expected, found or (-1, "", -1))


async def test_a_broker_that_keeps_no_group_says_nothing_of_its_own_troubles() -> None:
    broker = cluster(offsets_led_by=(2,))
    broker.groups.trouble = lambda _group: "no room"
    response = await groups.find_coordinator(broker, FindCoordinatorRequest(key="g"), context(3))
    assert (response.error_code, response.node_id) == (ErrorCode.NONE, 2)
    broker = cluster(offsets_led_by=(1,))
    broker.groups.trouble = lambda _group: "no room"
    response = await groups.find_coordinator(broker, FindCoordinatorRequest(key="g"), context(3))
    assert (response.error_code, response.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room")
