"""The doctor on a cluster of three: well, with a topic that is kept once, and without one of its brokers."""

from pathlib import Path

import pytest

from tests.broker.test_clustered import Cluster, cluster_of_three, make, until
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.doctor.cluster import examine_cluster
from tidemill.doctor.judge import Finding, Level

pytestmark = pytest.mark.integration


async def examined(cluster: Cluster) -> dict[str, Finding]:
    any_of = next(iter(cluster.brokers.values()))
    return {each.check: each for each in await examine_cluster(f"127.0.0.1:{any_of.servers[0].port}")}


def in_sync(cluster: Cluster, count: int) -> bool:
    return all(
        len(partition.isr) == count
        for broker in cluster.brokers.values()
        for partition in broker.controller.image.topics["t"].partitions
    )


async def test_what_the_next_broker_to_go_takes_along(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        await make(cluster.brokers[1], "t")
        found = await examined(cluster)
        bad = {check: each for check, each in found.items() if each.level is not Level.OK}
        assert not {check for check in bad if not check.startswith("disk space")}, bad
        assert found["quorum"].text.endswith("; 1 may go")
        assert {f"disk space of broker {node}" for node in (1, 2, 3)} <= found.keys()
        assert "offer the same requests" in found["versions"].text
        async with ClusterClient(f"127.0.0.1:{cluster.brokers[1].servers[0].port}") as client:
            await Admin(client).create_topics([NewTopic(name="once", partitions=1, replication_factor=1, configs={})])
        gone = cluster.follower.node_id
        await cluster.stop(gone)
        await until(lambda: in_sync(cluster, 2), "out of sync")
        found = await examined(cluster)
        assert found["replication factor"].text.endswith("once")
        assert found["brokers"].level is Level.FAIL
        assert found["brokers"].text.endswith(f"not heard of: {gone}")
        assert found["replicas in sync"].level is Level.WARN
        assert f"disk space of broker {gone}" not in found
