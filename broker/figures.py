"""A broker in numbers, as of now

Taken on the event loop, in short turns, so that ten thousand partitions keep no client waiting; written out elsewhere
(`tidemill.broker.metrics`). Numbers of one log belong together, those of two logs may be some milliseconds apart. What
counts up never goes back: a topic's traffic stays in that of all topics when the topic is deleted.

What there may be any number of (topics, partitions, groups, offsets of groups) has at most `series_max` rows of each
kind, the first ones there are; sums are over all, and `left_out` says how many have no row.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidemill.broker.cluster_figures import Cluster, ClusteredBroker, Replicas, take_cluster, take_replicas
from tidemill.broker.coordination.leaderships import ShardState
from tidemill.broker.groups.coordinator import GroupCoordinator
from tidemill.broker.groups.states import GroupState
from tidemill.broker.log.cleaner import LogCleaner
from tidemill.broker.log.partition import Traffic
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.turns import Turns
from tidemill.broker.refusals import Refusal
from tidemill.broker.request_meter import RequestMeter
from tidemill.broker.server import Server
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.metric_parts import MetricParts

if TYPE_CHECKING:
    from tidemill.broker.tls_watch import ListenerTls

GROUP_ID_CHARACTERS_MAX: Final = 255
"""Of a group that has rows of its own: an id may have 32 thousand, and whoever makes groups chooses it."""

TOPICS, PARTITIONS, GROUPS, OFFSETS = "topics", "partitions", "groups", "offsets"

OF_LOGS, OF_REPLICAS, OF_CLUSTER, OF_GROUPS = "logs", "replicas", "cluster", "groups"
OF_REQUESTS, OF_LISTENERS = "requests", "listeners"
PARTS = (OF_LOGS, OF_REPLICAS, OF_CLUSTER, OF_GROUPS, OF_REQUESTS, OF_LISTENERS)
"""What is taken by itself, so that one that cannot be taken costs no other."""

KINDS_OF: Final = {OF_LOGS: (TOPICS, PARTITIONS), OF_GROUPS: (GROUPS, OFFSETS)}
"""Which part leaves them out."""


class LogRow(NamedTuple):
    """One partition's log."""

    topic: str
    partition: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    segments: int


class GroupRow(NamedTuple):
    """One consumer group."""

    group_id: str
    members: int


class PositionRow(NamedTuple):
    """How far a group has come in a partition; `lag` is None where the partition has no log here."""

    group_id: str
    topic: str
    partition: int
    offset: int
    lag: int | None


class TimesRow(NamedTuple):
    """The timed requests of one API, as `tidemill.broker.request_meter` has them; times are sums in seconds."""

    api_key: int
    requests: int
    queue_s: float
    local_s: float
    remote_s: float
    response_queue_s: float
    send_s: float
    total_s: float
    buckets: tuple[int, ...]


class ListenerRow(NamedTuple):
    """One listener."""

    name: str
    connections: int
    connections_made: int
    refused: Mapping[str, int]
    certificate: "CertificateRow | None" = None


class CertificateRow(NamedTuple):
    """What a listener that speaks TLS shows, and how many have not got in: of controllers nobody counts that."""

    not_after_s: int
    stale: bool
    reload_failures: int
    handshakes_failed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The consumer groups."""

    states: Mapping[GroupState, int]
    offsets: int
    rows: tuple[GroupRow, ...]
    positions: tuple[PositionRow, ...]
    partitions: Mapping[ShardState, int]
    """Of the topic that keeps them, those led here by what can be done with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All of it."""

    traffic: Traffic
    topics: Mapping[str, Traffic]
    logs: tuple[LogRow, ...]
    replicas: Replicas
    cluster: Cluster
    groups: Groups
    requests: Mapping[int, int]
    times: tuple[TimesRow, ...]
    errors: Mapping[tuple[int, int], int]
    refused: Mapping[Refusal, int]
    listeners: tuple[ListenerRow, ...]
    control: tuple[str, CertificateRow] | None = None
    syncs: int
    sync_s: float
    uncleanable: int
    left_out: Mapping[str, int]
    failed: frozenset[str] = frozenset()
    """Of `PARTS`, what could not be taken: what is said of it is nothing."""


NO_PARTITIONS: Final = dict.fromkeys((ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED), 0)

NOTHING: Final = Figures(
    traffic=Traffic(0, 0, 0),
    topics={},
    logs=(),
    replicas=Replicas(),
    cluster=Cluster(),
    groups=Groups(states=dict.fromkeys(GroupState, 0), offsets=0, rows=(), positions=(), partitions=NO_PARTITIONS),
    requests={},
    times=(),
    errors={},
    refused={},
    listeners=(),
    syncs=0,
    sync_s=0.0,
    uncleanable=0,
    left_out={},
)
"""Before anything is counted."""


class CountedBroker(ClusteredBroker, Protocol):
    """What is counted; `tidemill.broker.node.Broker` is the real one."""

    clock: Clock
    logs: LogStore
    groups: GroupCoordinator
    cleaner: LogCleaner
    meter: RequestMeter | None
    servers: list[Server]

    @property
    def control_tls(self) -> "ListenerTls | None":
        """What is shown to controllers, where they speak TLS."""


async def take_figures(broker: CountedBroker, series_max: int, parts: MetricParts) -> Figures:
    """Go over everything there is; `parts` hears of what cannot be taken."""
    left_out: Counter[str] = Counter()
    failed: set[str] = set()
    turns = Turns(broker.clock.monotonic)  # one for all walks, or the end of one and the beginning of the next are two
    figures = NOTHING
    with parts.part(OF_LOGS, failed):
        traffic, topics, logs = await _take_logs(broker, turns, series_max, left_out)
        syncs, sync_s = broker.logs.flusher.syncs
        uncleanable = len(broker.cleaner.failures)
        figures = replace(
            figures, traffic=traffic, topics=topics, logs=logs, syncs=syncs, sync_s=sync_s, uncleanable=uncleanable
        )
    with parts.part(OF_REPLICAS, failed):
        figures = replace(figures, replicas=await take_replicas(broker, turns))
    with parts.part(OF_CLUSTER, failed):
        figures = replace(figures, cluster=take_cluster(broker))
    with parts.part(OF_GROUPS, failed):
        figures = replace(figures, groups=await _take_groups(broker, turns, series_max, left_out))
    meter = broker.meter
    if meter is not None:
        with parts.part(OF_REQUESTS, failed):
            requests = {key: count for key, count in enumerate(meter.counts) if count}
            errors, refused = dict(meter.errors), dict(meter.refused)
            figures = replace(figures, requests=requests, times=_times(meter), errors=errors, refused=refused)
    with parts.part(OF_LISTENERS, failed):
        listeners = [
            ListenerRow(
                each.listener, len(each.connections), each.connections_made, dict(each.refused), _certificate(each)
            )
            for each in broker.servers
        ]
        figures = replace(figures, listeners=tuple(listeners), control=_control(broker.control_tls))
    return replace(figures, left_out=left_out, failed=frozenset(failed))


def _certificate(server: Server) -> CertificateRow | None:
    tls = server.tls
    return None if tls is None else _shown(tls, server.handshakes_failed)


def _control(tls: "ListenerTls | None") -> tuple[str, CertificateRow] | None:
    return None if tls is None or not tls.shows_any else (tls.listener, _shown(tls, None))


def _shown(tls: "ListenerTls", failed: int | None) -> CertificateRow:
    return CertificateRow(tls.certificate.not_after_s, tls.stale is not None, tls.reload_failures, failed)


async def _take_logs(
    broker: CountedBroker, turns: Turns, series_max: int, left_out: Counter[str]
) -> tuple[Traffic, Mapping[str, Traffic], tuple[LogRow, ...]]:
    total = list(broker.logs.removed_traffic)  # a log that goes from here on is still gone over
    topics: dict[str, list[int]] = {}
    unnamed: set[str] = set()
    rows: list[LogRow] = []
    for log in broker.logs:
        (topic, partition), its = log.topic_partition, log.traffic
        total = [*map(add, total, its)]
        if not log.closed:
            of_topic = topics.get(topic)
            if of_topic is not None or len(topics) < series_max:
                topics[topic] = [*its] if of_topic is None else [*map(add, of_topic, its)]
            else:
                unnamed.add(topic)
            if len(rows) < series_max:
                segments = len(log.segments)
                rows.append(
                    LogRow(topic, partition, log.size_bytes, log.log_start_offset, log.log_end_offset, segments)
                )
            else:
                left_out[PARTITIONS] += 1
        await turns.give_way()
    left_out[TOPICS] = len(unnamed)
    by_topic = {topic: Traffic(*sums) for topic, sums in topics.items()}
    return Traffic(*total), by_topic, tuple(rows)


async def _take_groups(broker: CountedBroker, turns: Turns, series_max: int, left_out: Counter[str]) -> Groups:
    groups = broker.groups
    states = dict.fromkeys(GroupState, 0)
    offsets = 0
    rows: list[GroupRow] = []
    positions: list[PositionRow] = []
    for group_id in groups.group_ids():
        await turns.give_way()
        standing = groups.standing(group_id)
        if standing is None:
            continue
        states[standing.state] += 1
        offsets += standing.offsets
        is_long = len(group_id) > GROUP_ID_CHARACTERS_MAX
        if len(rows) < series_max and not is_long:
            rows.append(GroupRow(group_id, standing.members))
        else:
            left_out[GROUPS] += 1
        if len(positions) + standing.offsets > series_max or is_long:  # all of a group or nothing
            left_out[OFFSETS] += standing.offsets
            continue
        for (topic, partition), committed in groups.positions(group_id).items():
            replica = broker.replicas.get(topic, partition)
            lag = None if replica is None or replica.closed else max(replica.high_watermark - committed.offset, 0)
            positions.append(PositionRow(group_id, topic, partition, committed.offset, lag))
            await turns.give_way()
    return Groups(
        states=states,
        offsets=offsets,
        rows=tuple(rows),
        positions=tuple(positions),
        partitions=groups.partition_states(),
    )


def _times(meter: RequestMeter) -> tuple[TimesRow, ...]:
    return tuple(
        TimesRow(
            key,
            stats.count,
            stats.queue_s,
            stats.local_s,
            stats.remote_s,
            stats.response_queue_s,
            stats.send_s,
            stats.total_s,
            tuple(stats.buckets),
        )
        for key, stats in sorted(meter.times.items())
    )
