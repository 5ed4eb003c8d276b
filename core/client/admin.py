"""Administration: topics, configurations, groups, producers

Thin calls over `ClusterClient`: each builds one request, sends it where it belongs (the controller, a coordinator, a
leader, any node), retries what passes by itself, and returns plain values. Errors per topic or group are returned
beside the results where a caller has several in one call, raised where it has one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..error_code import ErrorCode
from ..errors import KafkaError, UnknownTopicOrPartition
from ..types import TopicPartition
from ..wire.api import ApiKey
from ..wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ..wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ..wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ..wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ..wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ..wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from ..wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ..wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ..wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ..wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ..wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from .cluster import ClusterClient
from .retries import fault

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
DEFAULT_CONFIG_SOURCE = 5
TOPIC_CONFIG_SOURCE = 1
GROUP_OFFSETS_NAMES_MAX = 9  # last OffsetFetch and OffsetCommit versions that name topics
OFFSET_FETCH_GROUPS_MIN = 8  # first OffsetFetch version whose request holds several groups
ADMIN_TIMEOUT_MS = 30_000
EMPTY_STATES = frozenset({"Empty", "Dead"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting of a topic or broker as the cluster has it."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        """Whether nobody set it for this resource."""
        return self.source != TOPIC_CONFIG_SOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One consumer group of the cluster; `state` is empty on brokers that do not say."""

    group: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A group's position in one partition."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    """What a partition remembers of one idempotent producer."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """Who a cluster is."""

    cluster_id: str
    controller_id: int
    node_ids: tuple[int, ...]


class Admin:
    """The calls, over one client."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    # -- topics

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, KafkaError | None]:
        """Create topics; the error of each, None where it was created."""
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=tuple(CreatableTopicConfig(name=key, value=val) for key, val in topic.configs.items()),
                )
                for topic in topics
            ),
            timeout_ms=ADMIN_TIMEOUT_MS,
        )

        async def attempt() -> dict[str, KafkaError | None]:
            node_id = await self._controller()
            answer = await self._client.call_node(node_id, ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
            return self._outcomes((row.name, row.error_code, row.error_message) for row in answer.topics)

        return await self._client.retrying(attempt)

    async def create_partitions(self, counts: Mapping[str, int]) -> dict[str, KafkaError | None]:
        """Grow topics to the given partition counts."""
        request = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()
            ),
            timeout_ms=ADMIN_TIMEOUT_MS,
        )

        async def attempt() -> dict[str, KafkaError | None]:
            node_id = await self._controller()
            answer = await self._client.call_node(node_id, ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse)
            return self._outcomes((row.name, row.error_code, row.error_message) for row in answer.results)

        return await self._client.retrying(attempt)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Delete topics by name."""
        request = DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=name) for name in names),
            topic_names=tuple(names),
            timeout_ms=ADMIN_TIMEOUT_MS,
        )

        async def attempt() -> dict[str, KafkaError | None]:
            node_id = await self._controller()
            answer = await self._client.call_node(node_id, ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
            return self._outcomes((row.name or "", row.error_code, row.error_message) for row in answer.responses)

        return await self._client.retrying(attempt)

    # -- configurations

    async def topic_configs(
        self, names: Sequence[str], keys: tuple[str, ...] | None = None
    ) -> dict[str, tuple[ConfigEntry, ...]]:
        """Settings of topics, all of them or those of these `keys`; a topic that is gone is left out."""
        return await self._configs(TOPIC_RESOURCE, names, keys)

    async def broker_configs(self, node_id: int) -> tuple[ConfigEntry, ...]:
        """All settings of one broker, as that broker has them."""
        request = DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(
                    resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=None
                ),
            )
        )
        answer = await self._client.retrying(
            lambda: self._client.call_node(node_id, ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
        )
        return next(iter(_config_rows(answer, f"settings of broker {node_id}").values()), ())

    async def _configs(
        self, resource_type: int, names: Sequence[str], keys: tuple[str, ...] | None
    ) -> dict[str, tuple[ConfigEntry, ...]]:
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
                for name in names
            )
        )
        answer = await self._client.retrying(
            lambda: self._client.call(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
        )
        return _config_rows(answer, f"{self._client.bootstrap}: topic settings")

    async def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, KafkaError | None]:
        """Set topic settings; None takes one back to its default. Settings not named stay as they are."""
        request = IncrementalAlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=topic,
                    configs=tuple(
                        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
                        for key, value in settings.items()
                    ),
                )
                for topic, settings in changes.items()
            )
        )

        async def attempt() -> dict[str, KafkaError | None]:
            node_id = await self._controller()
            answer = await self._client.call_node(
                node_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse
            )
            return self._outcomes((row.resource_name, row.error_code, row.error_message) for row in answer.responses)

        return await self._client.retrying(attempt)

    # -- groups

    async def list_groups(self) -> list[GroupListing]:
        """Every group of every node; raises if one does not answer, since a part would look like the whole."""

        async def attempt() -> list[GroupListing]:
            view = await self._client.refresh(tuple(self._client.view.topics))
            found: dict[str, GroupListing] = {}
            for node_id in view.nodes:
                answer = await self._client.call_node(
                    node_id, ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse
                )
                if answer.error_code:
                    raise fault(answer.error_code, f"groups of {view.nodes[node_id]}")
                for row in answer.groups:
                    found[row.group_id] = GroupListing(
                        group=row.group_id, protocol_type=row.protocol_type, state=row.group_state
                    )
            return list(found.values())

        return await self._client.retrying(attempt)

    async def group_state(self, group: str) -> str:
        """State of a group as its coordinator names it: Empty, Stable, Dead, ..."""

        async def attempt() -> str:
            node_id = await self._client.coordinator(group)
            answer = await self._client.call_node(
                node_id, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=(group,)), DescribeGroupsResponse
            )
            row = answer.groups[0]
            if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return "Dead"
            if row.error_code:
                raise fault(row.error_code, f"{self._client.bootstrap}: group {group!r}")
            return row.group_state

        return await self._client.retrying(attempt)

    async def committed_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Every position the group has committed; partitions without one are left out."""

        async def attempt() -> dict[TopicPartition, CommittedOffset]:
            connection = await self._client.connection(await self._client.coordinator(group))
            version = connection.version_of(ApiKey.OFFSET_FETCH, GROUP_OFFSETS_NAMES_MAX)
            if version >= OFFSET_FETCH_GROUPS_MIN:
                request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
            else:
                request = OffsetFetchRequest(group_id=group, topics=None)
            answer = await connection.request(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=version)
            return _committed(answer, version, f"{self._client.bootstrap}: offsets of group {group!r}")

        return await self._client.retrying(attempt)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit positions from outside the group, which only an empty or absent group allows."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, committed in offsets.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=committed.offset,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(rows)) for name, rows in topics.items()),
        )

        async def attempt() -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._client.coordinator(group)
            answer = await self._client.call_node(
                node_id, ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, cap=GROUP_OFFSETS_NAMES_MAX
            )
            where = f"{self._client.bootstrap}: commit for group {group!r}"
            result: dict[TopicPartition, KafkaError | None] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    error = fault(row.error_code, where) if row.error_code else None
                    if error is not None and error.retriable:
                        raise error
                    result[TopicPartition(topic.name, row.partition_index)] = error
            return result

        return await self._client.retrying(attempt)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget positions the group has committed, and no others; a group that reads the topic refuses."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for partition in partitions:
            row = OffsetDeleteRequestPartition(partition_index=partition.partition)
            topics.setdefault(partition.topic, []).append(row)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=tuple(OffsetDeleteRequestTopic(name=name, partitions=tuple(rows)) for name, rows in topics.items()),
        )

        async def attempt() -> dict[TopicPartition, KafkaError | None]:
            node_id = await self._client.coordinator(group)
            answer = await self._client.call_node(node_id, ApiKey.OFFSET_DELETE, request, OffsetDeleteResponse)
            where = f"{self._client.bootstrap}: offsets of group {group!r}"
            if answer.error_code:
                raise fault(answer.error_code, where)
            return {
                TopicPartition(topic.name, row.partition_index): (
                    fault(row.error_code, where) if row.error_code else None
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._client.retrying(attempt)

    # -- the rest

    async def describe_producers(self, partition: TopicPartition) -> tuple[ProducerRow, ...]:
        """The idempotent producers a partition remembers."""
        request = DescribeProducersRequest(
            topics=(TopicRequest(name=partition.topic, partition_indexes=(partition.partition,)),)
        )

        async def attempt() -> tuple[ProducerRow, ...]:
            node_id = await self._client.leader(partition)
            answer = await self._client.call_node(
                node_id, ApiKey.DESCRIBE_PRODUCERS, request, DescribeProducersResponse
            )
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code:
                        raise fault(row.error_code, f"producers of {partition}", row.error_message)
                    return tuple(
                        ProducerRow(
                            producer_id=state.producer_id,
                            epoch=state.producer_epoch,
                            last_sequence=state.last_sequence,
                            last_timestamp_ms=state.last_timestamp,
                        )
                        for state in row.active_producers
                    )
            raise UnknownTopicOrPartition(f"{partition}: the broker did not answer for it")

        return await self._client.retrying(attempt)

    async def describe_cluster(self) -> ClusterDescription:
        """Id, controller and nodes; falls back to metadata on brokers without the API."""
        connection = await self._client.retrying(self._client.any_connection)
        if not connection.serves(ApiKey.DESCRIBE_CLUSTER):
            view = await self._client.metadata(())
            return ClusterDescription(
                cluster_id=view.cluster_id or "", controller_id=view.controller_id, node_ids=tuple(sorted(view.nodes))
            )
        answer = await self._client.retrying(
            lambda: self._client.call(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), DescribeClusterResponse)
        )
        if answer.error_code:
            raise fault(answer.error_code, self._client.bootstrap, answer.error_message)
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            node_ids=tuple(sorted(broker.broker_id for broker in answer.brokers)),
        )

    async def _controller(self) -> int:
        """The controller's node; a node of a cluster whose controller takes no clients forwards instead."""
        view = self._client.view
        if view.controller_id not in view.nodes:
            view = await self._client.refresh(tuple(view.topics))
        if view.controller_id in view.nodes:
            return view.controller_id
        return next(iter(view.nodes))

    def _outcomes(self, rows: Iterable[tuple[str, int, str | None]]) -> dict[str, KafkaError | None]:
        """Errors by name; raises the first that a retry may cure."""
        result: dict[str, KafkaError | None] = {}
        for name, code, message in rows:
            error = fault(code, f"{self._client.bootstrap}: {name}", message) if code else None
            if error is not None and error.retriable and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
            result[name] = error
        return result


def _config_rows(answer: DescribeConfigsResponse, where: str) -> dict[str, tuple[ConfigEntry, ...]]:
    rows: dict[str, tuple[ConfigEntry, ...]] = {}
    for result in answer.results:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if result.error_code:
            raise fault(result.error_code, where, result.error_message)
        rows[result.resource_name] = tuple(
            ConfigEntry(
                name=config.name,
                value=config.value,
                source=config.config_source,
                read_only=config.read_only,
                sensitive=config.is_sensitive,
            )
            for config in result.configs
        )
    return rows


def _committed(answer: OffsetFetchResponse, version: int, where: str) -> dict[TopicPartition, CommittedOffset]:
    if version >= OFFSET_FETCH_GROUPS_MIN:
        group = answer.groups[0]
        code, rows = group.error_code, [(topic.name, row) for topic in group.topics for row in topic.partitions]
        found = [(name, row.partition_index, row.error_code, row.committed_offset, row.metadata) for name, row in rows]
    else:
        code = answer.error_code
        found = [
            (topic.name, row.partition_index, row.error_code, row.committed_offset, row.metadata)
            for topic in answer.topics
            for row in topic.partitions
        ]
    for error in (code, *(item[2] for item in found)):
        if error:
            raise fault(error, where)
    return {
        TopicPartition(name, index): CommittedOffset(offset=offset, metadata=metadata or "")
        for name, index, _, offset, metadata in found
        if offset >= 0
    }
