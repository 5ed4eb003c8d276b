"""The requests that move replicas: Kafka's own

Any cluster of Apache Kafka takes them as well. What moves is the cluster's business once it was told
(AlterPartitionReassignments): it goes on whoever asked, and whoever asks again finds it (ListPartitionReassignments).
The throttle is settings of brokers and topics, which stay until somebody takes them away.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tidemill.cluster.moving import LIST_KEYS, RATE_KEYS, Situation, Throttles
from tidemill.core.client.admin import BROKER_RESOURCE, DELETE, SET, TOPIC_RESOURCE
from tidemill.core.client.balance import Holdings, Move, Place
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.retries import fault
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidemill.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidemill.core.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidemill.core.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tidemill.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidemill.core.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

FENCED_VERSION: Final = 2  # of DescribeCluster: from here on who is not told is unregistered, not only away
PREFERRED: Final = 0
MOVES_MAX: Final = 2_000
"""Partitions in one request."""

TOPICS_MAX: Final = 1_000
"""Topics whose settings are asked for at once."""

DYNAMIC_TOPIC, DYNAMIC_BROKER = 1, 2
GONE_OR_NONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
ELECTED: Final = GONE_OR_NONE | {ErrorCode.ELECTION_NOT_NEEDED}


class Reassigner:
    """What is asked of a cluster, and told it, about its replicas. All raise ConnectionFailed and KafkaError."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.running: tuple[int, ...] = ()

    # -- asking

    async def situation(self) -> Situation:
        """Brokers, replicas, sizes, and what moves already."""
        racks, away, knows_all = await self._brokers()
        ongoing = await self.ongoing()
        moving = {Place(each.topic, each.partition) for each in ongoing}
        view = await self._client.metadata(None)
        replicas = {
            Place(topic.name, number): partition.replicas
            for topic in view.topics.values()
            for number, partition in topic.partitions.items()
            if Place(topic.name, number) not in moving and partition.replicas
        }
        if not knows_all:  # who is not told may be back
            unseen = {node for nodes in replicas.values() for node in nodes if node not in racks}
            racks, away = {**racks, **dict.fromkeys(unseen)}, away | unseen
        self.running = tuple(node for node in sorted(racks) if node not in away)
        sizes, free = await self._sizes()
        return Situation(
            holdings=Holdings(racks=racks, away=frozenset(away), replicas=replicas),
            sizes=sizes,
            ongoing=ongoing,
            free=free,
        )

    async def _brokers(self) -> tuple[dict[int, str | None], set[int], bool]:
        async def attempt() -> tuple[DescribeClusterResponse, bool]:
            connection = await self._client.any_connection()
            fenced_too = connection.version_of(ApiKey.DESCRIBE_CLUSTER) >= FENCED_VERSION
            request = DescribeClusterRequest(include_fenced_brokers=fenced_too)
            return await self._client.call(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse), fenced_too

        answer, knows_all = await self._client.retrying(attempt)
        _check(answer)
        racks = {each.broker_id: each.rack for each in answer.brokers}
        return racks, {each.broker_id for each in answer.brokers if each.is_fenced}, knows_all

    async def ongoing(self) -> tuple[Move, ...]:
        """What moves."""
        answer = await self._client.retrying(
            lambda: self._client.call(
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                ListPartitionReassignmentsRequest(),
                ListPartitionReassignmentsResponse,
            )
        )
        _check(answer)
        return tuple(
            Move(
                topic=topic.name,
                partition=each.partition_index,
                before=tuple(node for node in each.replicas if node not in each.adding_replicas),
                after=tuple(node for node in each.replicas if node not in each.removing_replicas),
            )
            for topic in answer.topics
            for each in topic.partitions
        )

    async def _sizes(self) -> tuple[dict[Place, int], dict[int, int]]:
        sizes: dict[Place, int] = {}
        there, free = await self.sizes_at(self.running, None)
        for (place, _node), size in there.items():
            sizes[place] = max(size, sizes.get(place, 0))
        return sizes, free

    async def sizes_at(
        self, nodes: Iterable[int], places: Iterable[Place] | None
    ) -> tuple[dict[tuple[Place, int], int], dict[int, int]]:
        """Bytes of each partition at each of these brokers, and the room that they have, as far as they tell."""
        topics = None
        if places is not None:
            topics = tuple(
                DescribableLogDirTopic(topic=topic, partitions=tuple(numbers))
                for topic, numbers in _by_topic(places).items()
            )
        sizes: dict[tuple[Place, int], int] = {}
        free: dict[int, int] = {}
        for node in nodes:
            try:
                answer = await self._to(
                    node, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse
                )
            except (ConnectionFailed, KafkaError):
                continue  # it has just gone: the rest is known all the same
            for folder in answer.results:
                if folder.usable_bytes >= 0:
                    free[node] = free.get(node, 0) + folder.usable_bytes
                for topic in folder.topics:
                    for each in topic.partitions:
                        key = Place(topic.name, each.partition_index), node
                        sizes[key] = sizes.get(key, 0) + each.partition_size
        return sizes, free

    async def who_runs(self) -> tuple[int, ...]:
        """Brokers that are not fenced."""
        racks, away, _ = await self._brokers()
        self.running = tuple(node for node in sorted(racks) if node not in away)
        return self.running

    # -- moving

    async def move(self, wanted: Mapping[Place, Sequence[int] | None]) -> dict[Place, str]:
        """Have partitions moved, or with None that taken back; what was refused, with the reason.

        None gets more or fewer replicas than it has (where the cluster can be told so, KIP-860).
        """
        refused: dict[Place, str] = {}
        places = list(wanted)
        for first in range(0, len(places), MOVES_MAX):
            some = _by_topic(places[first : first + MOVES_MAX])
            request = AlterPartitionReassignmentsRequest(
                allow_replication_factor_change=False,
                topics=tuple(
                    ReassignableTopic(
                        name=topic,
                        partitions=tuple(
                            ReassignablePartition(partition_index=number, replicas=_row(wanted[Place(topic, number)]))
                            for number in numbers
                        ),
                    )
                    for topic, numbers in some.items()
                ),
            )
            refused |= await self._alter(request)
        return refused

    async def _alter(self, request: AlterPartitionReassignmentsRequest) -> dict[Place, str]:
        async def attempt() -> AlterPartitionReassignmentsResponse:
            answer = await self._client.call(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, AlterPartitionReassignmentsResponse
            )
            _check(answer)
            return answer

        answer = await self._client.retrying(attempt)
        return {
            Place(topic.name, each.partition_index): each.error_message or ErrorCode(each.error_code).name
            for topic in answer.responses
            for each in topic.partitions
            if each.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        }

    async def elect_preferred(self, places: Iterable[Place]) -> dict[Place, str]:
        """Let whoever is preferred lead; what was refused, with the reason."""
        request = ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=tuple(
                TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in _by_topic(places).items()
            ),
        )
        if not request.topic_partitions:
            return {}
        answer = await self._client.retrying(
            lambda: self._client.call(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)
        )
        _check(answer)
        return {
            Place(topic.topic, each.partition_id): each.error_message or ErrorCode(each.error_code).name
            for topic in answer.replica_election_results
            for each in topic.partition_result
            if each.error_code not in ELECTED
        }

    async def unregister(self, node_id: int) -> None:
        """Have a broker forgotten."""

        async def attempt() -> None:
            request = UnregisterBrokerRequest(broker_id=node_id)
            _check(await self._client.call(ApiKey.UNREGISTER_BROKER, request, UnregisterBrokerResponse))

        await self._client.retrying(attempt)

    # -- the throttle

    async def throttles(self) -> Throttles:
        """What is set of it, at the brokers that run and for all topics."""
        rates: dict[int, Mapping[str, str]] = {}
        for node in self.running:
            with contextlib.suppress(ConnectionFailed):  # it has just gone
                found = await self._given(BROKER_RESOURCE, [str(node)], RATE_KEYS, node)
                if settings := found.get(str(node)):
                    rates[node] = settings
        names = sorted((await self._client.metadata(None)).topics)
        lists: dict[str, Mapping[str, str]] = {}
        for first in range(0, len(names), TOPICS_MAX):
            lists |= await self._given(TOPIC_RESOURCE, names[first : first + TOPICS_MAX], LIST_KEYS)
        return Throttles(rates=rates, lists=lists)

    async def set_lists(self, topics: Mapping[str, Mapping[str, str | None]]) -> None:
        """Name the throttled replicas of topics, with None none any more."""
        await self._set(TOPIC_RESOURCE, topics)

    async def set_rates(self, node: int, settings: Mapping[str, str | None]) -> None:
        """Set the rates of a broker, with None those that it has by itself."""
        await self._set(BROKER_RESOURCE, {str(node): settings}, node)

    async def _given(
        self, resource_type: int, names: Sequence[str], keys: tuple[str, ...], node: int | None = None
    ) -> dict[str, dict[str, str]]:
        """What is set of `keys`, by name."""
        request = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
                for name in names
            )
        )

        async def attempt() -> DescribeConfigsResponse:
            answer: DescribeConfigsResponse = await self._to(
                node, ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse
            )
            for each in answer.results:
                if each.error_code not in GONE_OR_NONE:
                    raise fault(each.error_code, f"settings of {each.resource_name!r}", each.error_message)
            return answer

        answer = await self._client.retrying(attempt)
        own = DYNAMIC_BROKER if resource_type == BROKER_RESOURCE else DYNAMIC_TOPIC
        found: dict[str, dict[str, str]] = {}
        for result in answer.results:
            for each in result.configs:
                if each.name in keys and each.config_source == own and each.value:
                    found.setdefault(result.resource_name, {})[each.name] = each.value
        return found

    async def _set(
        self, resource_type: int, changes: Mapping[str, Mapping[str, str | None]], node: int | None = None
    ) -> None:
        if not changes:
            return
        request = IncrementalAlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=tuple(
                        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
                        for key, value in settings.items()
                    ),
                )
                for name, settings in changes.items()
            )
        )

        async def attempt() -> None:
            key, expect = ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsResponse
            try:
                answer = await self._to(node, key, request, expect)
            except ConnectionFailed:
                if node is None or node in (await self._client.refresh(())).nodes:
                    raise
                answer = await self._to(None, key, request, expect)  # ours take it for who is away, Kafka's refuse
            for each in answer.responses:
                if each.error_code not in GONE_OR_NONE:
                    raise fault(each.error_code, f"settings of {each.resource_name!r}", each.error_message)

        await self._client.retrying(attempt)

    async def _to(self, node: int | None, key: ApiKey, request: Any, expect: Any) -> Any:
        """Settings of a broker are its own to tell and to take, in Apache Kafka; of topics any broker's."""
        if node is None:
            return await self._client.call(key, request, expect)
        if node not in self._client.view.nodes:
            await self._client.refresh(())
        return await self._client.call_node(node, key, request, expect)


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place.partition)
    return found


def _row(replicas: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if replicas is None else tuple(replicas)


def _check(answer: Any) -> None:
    if answer.error_code:
        raise error_for_code(answer.error_code, getattr(answer, "error_message", None) or "")


async def moved_to(client: ClusterClient, moves: Collection[Move], seconds: float) -> list[Place]:
    """Those that are not where they were to be; what has just been decided may take a moment to get around."""
    for _ in range(max(1, int(seconds / 0.5))):
        view = await client.metadata(None)
        amiss = [
            Place(each.topic, each.partition)
            for each in moves
            if (topic := view.topics.get(each.topic)) is not None
            and each.partition in topic.partitions
            and set(topic.partitions[each.partition].replicas) != set(each.after)
        ]
        if not amiss:
            break
        await asyncio.sleep(0.5)
    return amiss
