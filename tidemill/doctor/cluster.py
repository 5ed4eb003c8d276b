"""The way to a cluster, walked as a client walks it

A client asks the bootstrap address for the cluster and from then on uses only the addresses that it was told. Most
trouble with a new cluster is there: the first address works and the others do not. So every advertised address is
connected to and asked who it is. What several brokers hold together is looked at behind that (`brokers`).
"""

import asyncio
import ipaddress
from collections.abc import Sequence

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import Address, Connection, ConnectionFailed, parse_addresses
from tidemill.core.client.metadata import ClusterView, parse_metadata
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.core.runtime.net import Dialer, TcpDialer
from tidemill.core.types import TopicPartition
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidemill.doctor import judge
from tidemill.doctor.brokers import examine_brokers
from tidemill.doctor.judge import Finding

TIMEOUT_MS = 5_000
OFFSETS_TOPIC = "__consumer_offsets"  # its records are stamped by the brokers' clocks
MAX_TIMESTAMP = -3  # ListOffsets: the record with the largest timestamp


async def examine_cluster(servers: str, clock: Clock | None = None, dialer: Dialer | None = None) -> list[Finding]:
    """Findings about every bootstrap address and all that it leads to; `dialer` is the way there."""
    dialer = dialer or TcpDialer()
    clock = clock or SystemClock()
    findings: list[Finding] = []
    views: list[tuple[Address, ClusterView]] = []
    for address in parse_addresses(servers):
        begun = clock.monotonic()
        view, problem = await _ask(address, dialer)
        findings.append(judge.bootstrap(str(address), problem, (clock.monotonic() - begun) * 1000))
        if view is not None:
            views.append((address, view))
    if not views:
        return findings
    findings += await _examine_advertised(views, dialer)
    view = views[0][1]
    named = [
        (f"{topic.name}-{number}", partition.leader)
        for topic in view.topics.values()
        for number, partition in topic.partitions.items()
    ]
    without = [name for name, leader in named if leader not in view.nodes]
    findings.append(judge.leaders(without, len(named)))
    findings += await examine_brokers(str(views[0][0]), view, clock=clock, dialer=dialer)
    findings.append(judge.clock_behind(await _newest_stamp(str(views[0][0]), view, dialer), clock.now_ms()))
    return findings


def is_local(servers: str) -> bool:
    """Whether one of the addresses is on this machine, as far as its text tells."""
    return any(_is_loopback(address.host) for address in parse_addresses(servers))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _examine_advertised(views: Sequence[tuple[Address, ClusterView]], dialer: Dialer) -> list[Finding]:
    told: dict[tuple[int, Address], tuple[Address, ClusterView]] = {}
    for via, view in views:
        for node_id, address in view.nodes.items():
            told.setdefault((node_id, address), (via, view))
    answers = await asyncio.gather(*(_ask(address, dialer) for _, address in told))
    findings: list[Finding] = []
    for ((node_id, address), (via, view)), (found, problem) in zip(told.items(), answers, strict=True):
        ids = {str(each.cluster_id) for each in (view, found) if each is not None}
        findings.append(judge.advertised(node_id, str(address), str(via), problem, ids))
    return findings


async def _ask(address: Address, dialer: Dialer) -> tuple[ClusterView | None, str | None]:
    """The cluster as the broker at `address` sees it, or why there is no answer."""
    try:
        connection = await Connection.open(
            address,
            client_id="tidemill-doctor",
            dialer=dialer,
            connect_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
        )
    except ConnectionFailed as failed:
        return None, failed.reason
    except KafkaError as error:
        return None, str(error)
    try:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return parse_metadata(await connection.request(ApiKey.METADATA, request, MetadataResponse)), None
    except ConnectionFailed as failed:
        return None, failed.reason
    except KafkaError as error:
        return None, str(error)
    finally:
        connection.close()


async def _newest_stamp(servers: str, view: ClusterView, dialer: Dialer) -> int | None:
    """Milliseconds since 1970 in the newest record that a broker's clock has stamped, if there is one."""
    topic = view.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return None
    wanted = {TopicPartition(OFFSETS_TOPIC, number): MAX_TIMESTAMP for number in topic.partitions}
    async with ClusterClient(
        servers, client_id="tidemill-doctor", dialer=dialer, request_timeout_ms=TIMEOUT_MS, call_timeout_ms=TIMEOUT_MS
    ) as client:
        try:
            found = await client.list_offsets(wanted)
        except (KafkaError, ConnectionFailed):
            return None
    stamps = [answer.timestamp for answer in found.values() if answer.error_code == 0 and answer.timestamp >= 0]
    return max(stamps, default=None)
