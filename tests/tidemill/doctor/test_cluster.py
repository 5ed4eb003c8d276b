"""The doctor on the way to a real broker: well, told a wrong address, stopped, leading to somebody else."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client, running_broker
from tests.broker.handlers.data_path import make_topic
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemill.doctor.cluster import examine_cluster, is_local
from tidemill.doctor.judge import Finding, Level
from tidemill.free_ports import free_port


def failed(findings: list[Finding]) -> list[str]:
    return [finding.check for finding in findings if finding.level is Level.FAIL]


async def test_a_broker_that_is_well_has_no_fault(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker, partitions=3)
        findings = await examine_cluster(f"127.0.0.1:{broker.servers[0].port}")
        assert {finding.level for finding in findings} == {Level.OK}
        assert [finding.check for finding in findings][:2] == ["bootstrap", "advertised address of node 1"]
        assert "3 partitions, every one has a leader" in {finding.text for finding in findings}
        assert findings[-1].text.startswith("nothing to compare with")
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topics = (OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
        await client.ask(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g", topics=topics))
        findings = await examine_cluster(f"127.0.0.1:{broker.servers[0].port}")
        assert findings[-1].text == "not behind the broker's"
        long_ago = await examine_cluster(f"127.0.0.1:{broker.servers[0].port}", ManualClock(1_700_000_000_000))
        assert failed(long_ago) == ["clock"]


async def test_an_advertised_address_that_leads_nowhere_is_the_fault(tmp_path: Path) -> None:
    nowhere = free_port()
    async with running_broker(tmp_path, advertised_listeners=f"PLAINTEXT://127.0.0.1:{nowhere}") as broker:
        findings = await examine_cluster(f"127.0.0.1:{broker.servers[0].port}")
    assert failed(findings) == ["advertised address of node 1"]
    (finding,) = [each for each in findings if each.level is Level.FAIL]
    assert f"127.0.0.1:{nowhere}, which does not answer from here" in finding.text
    assert "advertised.listeners" in finding.advice


async def test_an_advertised_address_of_another_cluster_is_the_fault(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "other") as other:
        advertised = f"PLAINTEXT://127.0.0.1:{other.port}"
        async with running_broker(tmp_path / "this", advertised_listeners=advertised) as broker:
            findings = await examine_cluster(f"127.0.0.1:{broker.servers[0].port}")
    assert failed(findings) == ["advertised address of node 1"]


async def test_a_stopped_broker_is_told_once(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    assert failed(await examine_cluster(nowhere)) == ["bootstrap"]
    async with running_broker(tmp_path) as broker:
        findings = await examine_cluster(f"127.0.0.1:{broker.servers[0].port},{nowhere}")
    assert failed(findings) == ["bootstrap"]
    assert len(findings) == 5


@pytest.mark.parametrize(
    ("servers", "local"),
    [("localhost:1", True), ("[::1]:1", True), ("127.0.0.2:1", True), ("10.0.0.1:1", False), ("a:1,127.0.0.1:2", True)],
)
def test_loopback_addresses_are_local(servers: str, local: bool) -> None:
    assert is_local(servers) is local
