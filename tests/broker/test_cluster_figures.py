"""A cluster counted by each of its nodes, while one of them goes and comes back."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.broker.broker_world import broker_and_client, wire_client
from tests.broker.handlers.data_path import make_topic, produce, records
from tests.broker.test_clustered import Cluster, cluster_of_three, make
from tidemill.broker.cluster_figures import ClusteredBroker, Replicas, take_cluster, take_replicas
from tidemill.broker.figures import PARTS, take_figures
from tidemill.broker.log.turns import Turns
from tidemill.broker.node import Broker
from tidemill.broker.quorum.image import PartitionImage, TopicImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.metric_parts import MetricParts
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest


def part(number: int, **what: Any) -> PartitionImage:
    first = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    return PartitionImage(partition=number, **{**first, **what})


def replica(end: int, min_in_sync: int = 2, committed: int = 0, **held: int) -> SimpleNamespace:
    progress = {int(node[1:]): SimpleNamespace(held=offset) for node, offset in held.items()}
    return SimpleNamespace(
        closed=False,
        log_start_offset=3,
        log_end_offset=end,
        log=SimpleNamespace(config=SimpleNamespace(min_insync_replicas=min_in_sync)),
        machine=SimpleNamespace(progress=progress.get, leader_high_watermark=committed),
    )


async def counted(partitions: tuple[PartitionImage, ...], here: dict[int, SimpleNamespace]) -> Replicas:
    async def without_logs(_turns: Turns) -> list[str]:
        return []

    topics = {"t": TopicImage(name="t", topic_id=cast(Any, None), partitions=partitions)}
    broker = SimpleNamespace(
        node_id=1,
        controller=SimpleNamespace(image=SimpleNamespace(topics=topics, partition_count=len(partitions))),
        replicas=SimpleNamespace(get=lambda _topic, number: here.get(number)),
        following=SimpleNamespace(without_logs=without_logs),
    )
    return await take_replicas(cast(ClusteredBroker, broker), Turns(lambda: 0.0))


async def test_partitions_are_told_by_what_they_lack() -> None:
    partitions = (
        part(0),
        part(1, isr=(1, 2)),
        part(2, isr=(1,)),
        part(3, leader=-1, isr=()),
        part(4, leader=2),
        part(5, leader=2, replicas=(2, 3), isr=(2,)),
        part(6, replicas=(1, 2, 3, 4), adding_replicas=(4,)),
        part(7),  # led here, and there is no log
    )
    end = {number: replica(10, n2=10, n3=8) for number in (0, 1, 2)}
    found = await counted(partitions, {**end, 4: replica(5, committed=9), 6: replica(20, n2=20, n3=20, n4=-1)})
    assert (found.here, found.led, found.topics, found.partitions) == (7, 5, 1, 8)
    assert (found.under_replicated, found.under_min_isr, found.at_min_isr) == (2, 1, 1), "who is added is not missed"
    assert (found.reassigning, found.unusable, found.not_preferred) == (1, 2, 1)
    assert found.lag_max == 4
    assert found.followers == {2: 0, 3: 2, 4: 17}, "whoever has not fetched yet lacks all there is"


async def test_a_node_by_itself_has_the_same_numbers(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await produce(client, await make_topic(broker), records(b"x"))
        found = take_cluster(broker)
        node = broker.node_id
        assert (found.active_controller, found.state, found.leader_id) == (True, "leader", node)
        assert (found.voters, found.observers, dict(found.lags)) == (1, 0, {node: 0})
        assert (found.brokers_active, found.brokers_fenced) == (1, 0)
        assert found.applied == found.log_end > 0
        replicas = (await take_figures(broker, 10, MetricParts(*PARTS))).replicas
        assert (replicas.under_replicated, replicas.under_min_isr, replicas.at_min_isr) == (0, 0, 1)
        assert (replicas.unusable, replicas.not_preferred, dict(replicas.followers)) == (0, 0, {})


async def soon(broker: Broker, true: Callable[[Any], bool], what: str) -> Any:
    """The figures, once that is true of them."""
    for _ in range(600):
        figures = await take_figures(broker, 10, MetricParts(*PARTS))
        assert figures.failed == frozenset()
        if true(figures):
            return figures
        await asyncio.sleep(0.05)
    raise AssertionError(f"never: {what}: {figures}")


async def ask_to_make(broker: Broker, name: str) -> None:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    async with wire_client(broker) as client:
        await client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=(wanted,), timeout_ms=1000))


@pytest.mark.integration
async def test_three_nodes_agree_and_miss_the_one_that_goes(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        await make(cluster.brokers[1], "t")
        leader = next(each for each in cluster.brokers.values() if each.controller.leads)
        follower = cluster.follower
        await ask_to_make(follower, "asked-elsewhere")
        assert take_cluster(follower).forwarded >= 1
        await _replication_is_counted_apart(cluster)
        found = await soon(leader, lambda all_of: not any(all_of.cluster.lags.values()), "nobody behind")
        assert (found.cluster.active_controller, found.cluster.state, set(found.cluster.lags)) == (
            True,
            "leader",
            {1, 2, 3},
        )
        theirs = take_cluster(follower)
        assert (theirs.active_controller, theirs.state, dict(theirs.lags)) == (False, "follower", {})
        assert (theirs.leader_id, theirs.epoch) == (leader.node_id, found.cluster.epoch)
        gone = follower.node_id
        await cluster.stop(gone)
        found = await soon(leader, lambda all_of: all_of.cluster.brokers_fenced == 1, "missed")
        assert found.cluster.brokers_active == 2
        assert found.cluster.elections >= 1
        led = cluster.brokers[leader.controller.image.topics["t"].partitions[0].leader]  # the controller may lead none
        lacking = await soon(led, lambda all_of: all_of.replicas.under_replicated > 0, "missed by its partitions")
        assert lacking.replicas.under_min_isr == 0
        assert gone in lacking.replicas.followers
        assert take_cluster(leader).isr_shrinks >= 1
        await cluster.start(gone)
        await soon(leader, lambda all_of: not all_of.cluster.brokers_fenced, "back")
        for each in cluster.brokers.values():
            await soon(each, lambda all_of: not all_of.replicas.under_replicated, "back in all partitions")
        assert take_cluster(leader).isr_expands >= 1


async def _replication_is_counted_apart(cluster: Cluster) -> None:
    topic = cluster.brokers[1].controller.image.topics["t"]
    led = cluster.brokers[topic.partitions[0].leader]
    batch = records(b"a", b"b")
    async with wire_client(led) as client:
        everybody = [each.following for each in cluster.brokers.values()]
        await soon(led, lambda _: all("t" in each.image.topics for each in everybody), "followed")
        code = ErrorCode.NOT_ENOUGH_REPLICAS  # while a node has just come, or is missed for a moment
        async with asyncio.timeout(30):
            while code == ErrorCode.NOT_ENOUGH_REPLICAS:
                code = ErrorCode((await produce(client, topic, batch, acks=-1)).error_code)
        assert code is ErrorCode.NONE
    for each in cluster.brokers.values():
        its = (await take_figures(each, 10, MetricParts(*PARTS))).topics["t"]
        if each is led:
            assert (its.messages_in, its.bytes_in, its.bytes_copied) == (2, len(batch), 0)
            assert take_cluster(each).bytes_to_followers >= 2 * len(batch)
        else:
            assert (its.messages_in, its.bytes_in, its.bytes_copied) == (0, 0, len(batch))
