"""A cluster asked how it is

Five questions, to whichever broker answers: who the brokers are (DescribeCluster), who agrees on the metadata
(DescribeQuorum), who leads and copies what (Metadata), and of the topics that lack replicas which of these are being
added (ListPartitionReassignments), and `min.insync.replicas`. All of them are Kafka's, so the answers of a foreign
cluster are read as well; one without a Raft quorum says so.
"""

from collections.abc import Iterable, Mapping, Sequence

from tidemill.cluster.status import BrokerStatus, ClusterStatus, ControllerStatus, PartitionStatus
from tidemill.core.client.admin import Admin
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.metadata import ClusterView, TopicView
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidemill.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionQuery,
    ReplicaState,
    TopicQuery,
)
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

METADATA_TOPIC = "__cluster_metadata"
MIN_IN_SYNC = "min.insync.replicas"
TOPICS_AT_ONCE = 1_000  # asked for their settings in one request
FENCED_VERSION = 2  # of DescribeCluster: it tells of fenced brokers too (KIP-1073)


async def ask_status(client: ClusterClient, now_ms: int) -> ClusterStatus:
    """The state of the cluster; `now_ms` is the time of day. Raises ConnectionFailed, KafkaError."""
    view = await client.metadata(None)
    brokers = await _brokers(client)
    trouble = ""
    quorum, nodes = PartitionData(leader_id=-1), dict[int, str]()
    try:
        quorum, nodes = await client.retrying(lambda: describe_quorum(client))
    except (KafkaError, ConnectionFailed) as error:  # a broker that finds no active controller is silent for long
        trouble = str(error)
    return ClusterStatus(
        cluster_id=view.cluster_id or "",
        asked_ms=now_ms,
        told_ms=(told_ms := _time_of_leader(quorum)),
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        brokers=brokers,
        controllers=_controllers(quorum, nodes, now_ms if told_ms is None else told_ms),
        topics=len(view.topics),
        partitions=sum(len(topic.partitions) for topic in view.topics.values()),
        unwell=await _unwell(client, view, decides=not trouble and quorum.leader_id >= 0),
        trouble=trouble,
    )


async def _brokers(client: ClusterClient) -> tuple[BrokerStatus, ...]:
    async def attempt() -> DescribeClusterResponse:
        connection = await client.any_connection()
        fenced_too = connection.version_of(ApiKey.DESCRIBE_CLUSTER) >= FENCED_VERSION
        request = DescribeClusterRequest(include_fenced_brokers=fenced_too)
        return await client.call(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)

    answer = await client.retrying(attempt)
    if answer.error_code:
        raise error_for_code(answer.error_code, answer.error_message)
    return tuple(
        BrokerStatus(node_id=each.broker_id, address=f"{each.host}:{each.port}", rack=each.rack, fenced=each.is_fenced)
        for each in sorted(answer.brokers, key=lambda each: each.broker_id)
    )


async def describe_quorum(client: ClusterClient) -> tuple[PartitionData, dict[int, str]]:
    """The metadata quorum, and where its members listen as far as the cluster says; raises KafkaError."""
    request = DescribeQuorumRequest(
        topics=(TopicQuery(topic_name=METADATA_TOPIC, partitions=(PartitionQuery(partition_index=0),)),)
    )
    answer = await client.call(ApiKey.DESCRIBE_QUORUM, request, DescribeQuorumResponse)
    if answer.error_code:
        raise error_for_code(answer.error_code, answer.error_message)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise error_for_code(found.error_code, found.error_message)
    return found, {each.node_id: f"{at.host}:{at.port}" for each in answer.nodes for at in each.listeners[:1]}


def _time_of_leader(quorum: PartitionData) -> int | None:
    """What the active controller's clock says, by which it tells when others were caught up."""
    stamps = [each.last_caught_up_timestamp for each in quorum.current_voters if each.replica_id == quorum.leader_id]
    return stamps[0] if stamps and stamps[0] > 0 else None


def _controllers(quorum: PartitionData, nodes: Mapping[int, str], now_ms: int) -> tuple[ControllerStatus, ...]:
    replicas = [(each, True) for each in quorum.current_voters] + [(each, False) for each in quorum.observers]
    end = max((each.log_end_offset for each, _ in replicas), default=-1)

    def status(each: ReplicaState, voter: bool) -> ControllerStatus:
        leads = each.replica_id == quorum.leader_id
        caught_up = each.last_caught_up_timestamp
        return ControllerStatus(
            node_id=each.replica_id,
            address=nodes.get(each.replica_id, ""),
            voter=voter,
            leads=leads,
            behind=end - each.log_end_offset if each.log_end_offset >= 0 else None,
            caught_up_ms_ago=0 if leads else max(0, now_ms - caught_up) if caught_up >= 0 else None,
        )

    return tuple(status(each, voter) for each, voter in sorted(replicas, key=lambda pair: pair[0].replica_id))


async def _unwell(client: ClusterClient, view: ClusterView, *, decides: bool) -> tuple[PartitionStatus, ...]:
    """`decides` is whether there is an active controller, which tells what is being moved."""
    topics = [topic for _, topic in sorted(view.topics.items()) if list(_lacks(topic))]
    adding = await _adding(client) if topics and decides else {}
    wanted = await settings_of_topics(client, [topic.name for topic in topics], MIN_IN_SYNC)
    return tuple(
        PartitionStatus(
            name=f"{topic.name}-{number}",
            leader=topic.partitions[number].leader,
            replicas=topic.partitions[number].replicas,
            isr=topic.partitions[number].isr,
            min_insync_replicas=int(wanted[topic.name]) if topic.name in wanted else None,
            adding=adding.get((topic.name, number), ()),
        )
        for topic in topics
        for number in _lacks(topic)
    )


async def _adding(client: ClusterClient) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas that reassignments give to partitions; none where nobody tells."""
    request = ListPartitionReassignmentsRequest()
    try:
        answer = await client.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, ListPartitionReassignmentsResponse)
    except (KafkaError, ConnectionFailed):
        return {}
    return {
        (topic.name, each.partition_index): each.adding_replicas for topic in answer.topics for each in topic.partitions
    }


def _lacks(topic: TopicView) -> Iterable[int]:
    """The partitions that have no leader, or fewer replicas in sync than replicas."""
    return (
        number
        for number, partition in topic.partitions.items()
        if partition.leader < 0 or len(partition.isr) < len(partition.replicas)
    )


async def settings_of_topics(client: ClusterClient, names: Sequence[str], key: str) -> dict[str, str]:
    """One setting of topics, as it holds for each; topics that are gone are left out."""
    found: dict[str, str] = {}
    for first in range(0, len(names), TOPICS_AT_ONCE):
        configs = await Admin(client).topic_configs(names[first : first + TOPICS_AT_ONCE], keys=(key,))
        for name, entries in configs.items():
            found |= {name: entry.value for entry in entries if entry.name == key and entry.value}  # noqa: B035
    return found
