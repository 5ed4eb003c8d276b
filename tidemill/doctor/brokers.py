"""Several brokers, asked about what they hold together

What `tidemill cluster status` asks, and what it does not: how topics are kept, what each broker offers and how much
room it has, and the time at the active controller, which it tells with the state of the quorum. A broker that does not
answer is left out of what only it could say: that it does not is a finding already.
"""

import asyncio
from collections.abc import Sequence

from tidemill.cluster.asking import MIN_IN_SYNC, ask_status, settings_of_topics
from tidemill.cluster.status import ClusterStatus
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.metadata import ClusterView
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.net import Dialer
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidemill.doctor import judge_cluster
from tidemill.doctor.judge import Finding, Level
from tidemill.doctor.judge_cluster import BrokerDisk, TopicFacts

CALL_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 5_000


async def examine_brokers(servers: str, view: ClusterView, *, clock: Clock, dialer: Dialer) -> list[Finding]:
    """Findings about a cluster of several; none where there is one broker only, running or not."""
    async with ClusterClient(
        servers,
        client_id="tidemill-doctor",
        dialer=dialer,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        call_timeout_ms=CALL_TIMEOUT_MS,
    ) as client:
        begun_ms = clock.monotonic() * 1000
        try:
            status = await ask_status(client, clock.now_ms())
            if len(status.brokers) <= 1:
                return []
            took_ms = int(clock.monotonic() * 1000 - begun_ms)
            topics = await _topics(client, view)
        except (KafkaError, ConnectionFailed) as error:
            advice = "see the findings above; 'tidemill cluster status' asks again"
            return [Finding(check="cluster", level=Level.FAIL, text=f"does not tell how it is: {error}", advice=advice)]
        running = [each.node_id for each in status.brokers if not each.fenced]
        return [
            judge_cluster.brokers(status),
            *judge_cluster.quorum(status),
            judge_cluster.in_sync(status.unwell),
            judge_cluster.factors(topics),
            *judge_cluster.min_in_sync(topics),
            judge_cluster.racks(status, topics),
            judge_cluster.versions(await _versions(client, running)),
            *judge_cluster.disks(await _disks(client, running)),
            judge_cluster.clock_of_controller(_ahead_ms(status), took_ms),
        ]


def _ahead_ms(status: ClusterStatus) -> int | None:
    """Of the controller's clock, as of when the quorum was asked; None where it does not tell."""
    return None if status.told_ms is None else status.told_ms - status.asked_ms


async def _topics(client: ClusterClient, view: ClusterView) -> list[TopicFacts]:
    wanted = await settings_of_topics(client, sorted(view.topics), MIN_IN_SYNC)
    return [
        TopicFacts(
            name=name,
            replicas=tuple(each.replicas for each in topic.partitions.values()),
            min_in_sync=int(wanted[name]) if name in wanted else None,
        )
        for name, topic in sorted(view.topics.items())
    ]


async def _versions(client: ClusterClient, nodes: Sequence[int]) -> dict[int, dict[int, tuple[int, int]]]:
    found = {}
    for node in nodes:
        try:
            connection = await client.connection(node)
        except (KafkaError, ConnectionFailed):
            continue
        found[node] = {int(key): bounds for key, bounds in connection.versions.items()}
    return found


async def _disks(client: ClusterClient, nodes: Sequence[int]) -> list[BrokerDisk]:
    answers = await asyncio.gather(*(_disks_of(client, node) for node in nodes))
    return [disk for disks in answers for disk in disks]


async def _disks_of(client: ClusterClient, node: int) -> list[BrokerDisk]:
    try:
        answer = await client.call_node(
            node, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=()), DescribeLogDirsResponse
        )
    except (KafkaError, ConnectionFailed):
        return []
    return [
        BrokerDisk(
            node_id=node, folder=each.log_dir, free_bytes=each.usable_bytes, total_bytes=each.total_bytes
        )
        for each in answer.results
        if not each.error_code
    ]  # fmt: skip
