"""What clients of a cluster of five are told: by whom they are asked, in which version, by which listener"""

import pytest

from tests.broker.handlers.five_brokers import cluster, context
from tidemill.broker.coordination.runtime import partition_of
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.handlers import cluster as cluster_handlers
from tidemill.broker.handlers import describe_quorum, elect_leaders, groups, metadata, reassignments
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionQuery, TopicQuery
from tidemill.core.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidemill.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
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


async def test_a_client_is_not_sent_back_to_a_broker_whose_process_has_just_gone() -> None:
    broker = cluster(offsets_led_by=(2,), missed=(2,))
    response = await metadata.handle(broker, MetadataRequest(topics=T), context(12))
    assert [(each.leader_id, each.error_code) for each in response.topics[0].partitions][:2] == [(1, OK), (-1, AWAY)]
    assert [each.node_id for each in response.brokers] == [1, 2], "it is still a broker of the cluster"
    asked = DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),))
    described = await cluster_handlers.describe_topic_partitions(broker, asked, context(0))
    assert [each.leader_id for each in described.topics[0].partitions][:2] == [1, -1]
    kept = await groups.find_coordinator(broker, FindCoordinatorRequest(key="g"), context(3))
    assert (kept.error_code, kept.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_a_broker_that_keeps_no_group_says_nothing_of_its_own_troubles() -> None:
    broker = cluster(offsets_led_by=(2,))
    broker.groups.trouble = lambda _group: "no room"
    response = await groups.find_coordinator(broker, FindCoordinatorRequest(key="g"), context(3))
    assert (response.error_code, response.node_id) == (ErrorCode.NONE, 2)
    broker = cluster(offsets_led_by=(1,))
    broker.groups.trouble = lambda _group: "no room"
    response = await groups.find_coordinator(broker, FindCoordinatorRequest(key="g"), context(3))
    assert (response.error_code, response.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room")


PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED, NO_PREFERRED = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("election", "codes"),
    [(PREFERRED, [NOT_NEEDED, OK, OK, OK, OK, OK]), (UNCLEAN, [NOT_NEEDED] * 5 + [OK])],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_elections_follow_from_who_is_there(version: int, election: int, codes: list[ErrorCode]) -> None:
    asked = (TopicPartitions(topic="t", partitions=tuple(range(6))), TopicPartitions(topic="t", partitions=(9,)))
    request = ElectLeadersRequest(election_type=election, topic_partitions=asked)
    response = await elect_leaders.handle(cluster(), request, context(version))
    first, second = response.replica_election_results
    assert [(each.partition_id, each.error_code) for each in first.partition_result] == list(enumerate(codes))
    assert [each.error_message is None for each in first.partition_result] == [code is OK for code in codes]
    assert [each.error_code for each in second.partition_result] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_all_partitions_may_be_asked_for_an_election() -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
    response = await elect_leaders.handle(cluster(offsets_led_by=(1, 1)), request, context(2))
    found = {
        row.topic: [(each.partition_id, each.error_code) for each in row.partition_result]
        for row in response.replica_election_results
    }
    assert found == {OFFSETS_TOPIC: [], "t": [(number, OK) for number in range(1, 6)]}


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((1, 2, 3, 4, 5), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 3, 4), OK),
        ((3, 4), OK),
        ((2, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, OK),
    ],
)
async def test_reassignments_follow_from_who_is_there(replicas: tuple[int, ...] | None, code: ErrorCode) -> None:
    asked = ReassignablePartition(partition_index=1, replicas=replicas)
    missing = ReassignablePartition(partition_index=7, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=(
            ReassignableTopic(name="t", partitions=(asked, missing)),
            ReassignableTopic(name="x", partitions=(asked,)),
        )
    )
    broker = cluster(moving_partitions=(1,))
    response = await reassignments.alter_partition_reassignments(broker, request, context(1))
    rows = [
        (row.name, [(each.partition_index, each.error_code) for each in row.partitions]) for row in response.responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows == [("t", [(1, code), (7, unknown)]), ("x", [(1, unknown)])]


async def test_what_is_at_rest_cannot_be_taken_back_and_the_number_of_replicas_may_be_fixed() -> None:
    at_rest = ReassignablePartition(partition_index=0, replicas=None)
    fewer = ReassignablePartition(partition_index=1, replicas=(1, 2))
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False,
        topics=(ReassignableTopic(name="t", partitions=(at_rest, fewer)),),
    )
    response = await reassignments.alter_partition_reassignments(cluster(), request, context(1))
    assert not response.allow_replication_factor_change
    assert [each.error_code for each in response.responses[0].partitions] == [
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        (None, {"t": [1, 4]}),
        ((("t", (0, 1, 9, -1)), ("x", (0,))), {"t": [1]}),
        ((("t", (0,)),), {}),
        ((), {}),
    ],
)
async def test_reassignments_that_are_under_way_are_listed(
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None, found: dict[str, list[int]]
) -> None:
    named = (
        None
        if topics is None
        else tuple(ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers) for name, numbers in topics)
    )
    request = ListPartitionReassignmentsRequest(topics=named)
    response = reassignments.list_partition_reassignments(cluster(moving_partitions=(1, 4)), request, context(0))
    assert {row.name: [each.partition_index for each in row.partitions] for row in response.topics} == found
    for row in response.topics:
        assert {(each.replicas, each.adding_replicas, each.removing_replicas) for each in row.partitions} == {
            ((1, 2, 3, 4, 5), (1, 3), (4, 5))
        }


@pytest.mark.parametrize(
    ("listener", "addresses"),
    [
        ("EXTERNAL", {1: ["external-1"], 2: ["external-2"], 4: [], 5: []}),
        ("PLAINTEXT", {1: ["plaintext-1"], 2: ["plaintext-2"], 4: ["plaintext-4"], 5: []}),
    ],
)
async def test_the_quorum_is_described_as_it_says_it_is(listener: str, addresses: dict[int, list[str]]) -> None:
    query = TopicQuery(topic_name="__cluster_metadata", partitions=(PartitionQuery(partition_index=0),))
    request = DescribeQuorumRequest(topics=(query,))
    response = describe_quorum.handle(cluster(), request, context(2, listener))
    ((quorum,),) = (row.partitions for row in response.topics)
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == (2, 17, 90)
    assert [(each.replica_id, each.log_end_offset) for each in quorum.current_voters] == [(1, 91), (2, 92), (4, 94)]
    assert [
        (each.replica_id, each.last_fetch_timestamp, each.last_caught_up_timestamp) for each in quorum.observers
    ] == [(5, 7, 6)]
    assert {each.node_id: [address.host for address in each.listeners] for each in response.nodes} == addresses
