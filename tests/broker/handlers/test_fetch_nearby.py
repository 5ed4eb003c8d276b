"""Where consumers are sent that name their rack, and what a follower gives them"""

import uuid
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import fetch, fetch_request, make_topic, produce, records
from tests.broker.handlers.test_fetch_follower import OTHER, copy, offsets, replicated
from tidemill.broker.config import RACK_AWARE
from tidemill.broker.node import Broker
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.quorum.metadata import NewTopic, RegisterBroker
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey

NEARBY = {"replica_selector_class": RACK_AWARE, "broker_rack": "a"}


async def registered(broker: Broker, rack: str | None = "b", listener: str = "PLAINTEXT") -> None:
    """The follower, as one that runs."""
    at = BrokerEndpoint(name=listener, host="far", port=9092, security_protocol=0)
    request = RegisterBroker(
        broker_id=OTHER, incarnation_id=uuid.UUID(int=7), end_points=(at,), rack=rack, fenced=False
    )
    await broker.controller.decide(request)


async def copied(broker: Broker, client: WireClient) -> TopicImage:
    """A topic of two records, which the follower holds."""
    topic = await make_topic(broker)
    replicated(broker, topic)
    for value in (b"a", b"b"):
        await produce(client, topic, records(value), acks=1)
    for offset in (0, 2):
        await copy(client, topic, offset)
    return topic


@pytest.mark.parametrize("version", [11, 12, 18])
async def test_a_consumer_is_sent_to_the_replica_of_its_rack(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        await registered(broker)
        sent = await fetch(client, topic, version=version, rack_id="b", max_wait_ms=60_000)
        assert (sent.preferred_read_replica, offsets(sent), sent.error_code) == (OTHER, [], 0)
        for rack in ("a", "", "elsewhere"):
            here = await fetch(client, topic, version=version, rack_id=rack)
            assert (here.preferred_read_replica, offsets(here)) == (-1, [0, 1])


async def test_versions_that_know_no_racks_are_served_by_the_leader(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        await registered(broker)
        assert offsets(await fetch(client, topic, version=10)) == [0, 1]


async def test_without_the_setting_everybody_reads_at_the_leader(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, broker_rack="a") as (broker, client):
        topic = await copied(broker, client)
        await registered(broker)
        here = await fetch(client, topic, rack_id="b")
        assert (here.preferred_read_replica, offsets(here)) == (-1, [0, 1])
        replicated(broker, topic, leader=OTHER)
        assert (await fetch(client, topic, rack_id="a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("why", ["behind", "not in sync", "not there", "other listener"])
async def test_nobody_is_sent_where_he_would_be_sent_back(tmp_path: Path, why: str) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        if why != "not there":
            await registered(broker, listener="INTERNAL" if why == "other listener" else "PLAINTEXT")
        if why == "behind":
            replicated(broker, topic, leader_epoch=4)  # the follower has not been heard of in this epoch
        if why == "not in sync":
            replicated(broker, topic, isr=(broker.node_id,))
        here = await fetch(client, topic, rack_id="b")
        assert (here.preferred_read_replica, offsets(here)) == (-1, [0, 1])


async def test_a_follower_serves_what_is_committed(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        replica = broker.replicas.get(topic.name, 0)
        assert replica is not None
        await produce(client, topic, records(b"c"), acks=1)
        replicated(broker, topic, leader=OTHER, leader_epoch=4)
        assert replica.high_watermark == 2
        read = await fetch(client, topic, rack_id="a")
        assert (offsets(read), read.high_watermark, read.error_code) == ([0, 1], 2, 0)
        ahead = await fetch(client, topic, 3, rack_id="a")
        assert (offsets(ahead), ahead.error_code) == ([], 0), "it is known to be there soon"
        assert (await fetch(client, topic, 9, rack_id="a")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_what_is_nowhere_any_more_is_told_by_the_leader(tmp_path: Path) -> None:
    """Sent to the follower, who sends back, a consumer would go to and fro for ever and never hear of it."""
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        await registered(broker)
        replica = broker.replicas.get(topic.name, 0)
        assert replica is not None
        assert replica.log.advance_log_start(1)
        gone = await fetch(client, topic, 0, rack_id="b")
        assert (gone.preferred_read_replica, gone.error_code) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert (await fetch(client, topic, 1, rack_id="b")).preferred_read_replica == OTHER


async def test_what_the_follower_has_no_more_is_read_at_the_leader(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        await registered(broker)
        await copy(client, topic, 2, log_start_offset=1)
        here = await fetch(client, topic, 0, rack_id="b")
        assert (here.preferred_read_replica, offsets(here)) == (-1, [0, 1])
        assert (await fetch(client, topic, 1, rack_id="b")).preferred_read_replica == OTHER


async def test_nobody_is_sent_to_a_process_that_has_just_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        await registered(broker)
        monkeypatch.setattr(broker, "misses", lambda node: node == OTHER)
        here = await fetch(client, topic, rack_id="b")
        assert (here.preferred_read_replica, offsets(here)) == (-1, [0, 1])


async def test_a_consumer_without_a_rack_is_not_served_by_a_follower(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        replicated(broker, topic, leader=OTHER, leader_epoch=4)
        assert (await fetch(client, topic)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert offsets(await fetch(client, topic, rack_id="a")) == [0, 1]


async def test_a_follower_that_is_not_in_sync_sends_back_to_the_leader(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        replicated(broker, topic, leader=OTHER, leader_epoch=4)
        assert offsets(await fetch(client, topic, rack_id="a")) == [0, 1]
        replicated(broker, topic, leader=OTHER, leader_epoch=4, isr=(OTHER,))
        assert (await fetch(client, topic, rack_id="a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_that_is_cut_off_sends_back_to_the_leader(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, **NEARBY) as (broker, client):
        topic = await copied(broker, client)
        replicated(broker, topic, leader=OTHER, leader_epoch=4)
        now_ms = int(broker.clock.monotonic() * 1000)
        broker.replicas.heard_ms[OTHER] = now_ms - broker.replicas.lag_max_ms + 10_000
        assert offsets(await fetch(client, topic, rack_id="a")) == [0, 1]
        broker.replicas.heard_ms[OTHER] = now_ms - broker.replicas.lag_max_ms - 1
        cut_off = await fetch(client, topic, rack_id="a")
        assert (cut_off.error_code, offsets(cut_off)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        broker.replicas.heard_ms[OTHER] = now_ms
        assert offsets(await fetch(client, topic, rack_id="a")) == [0, 1]
        broker.replicas.failing_since_ms = lambda _: now_ms - broker.replicas.lag_max_ms - 1
        assert (await fetch(client, topic, rack_id="a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [12, 15, 16, 18])
async def test_who_is_sent_away_is_told_who_leads_and_where(tmp_path: Path, version: int) -> None:
    """KIP-951, at a broker where followers are read and at any other."""
    async with broker_and_client(tmp_path) as (broker, client):
        await registered(broker)
        (made,) = await broker.controller.create_topics([NewTopic(name="t", assignments={0: (OTHER,)})])
        assert made.error is None
        topic = broker.controller.image.topics["t"]
        response = await client.ask(ApiKey.FETCH, version, fetch_request(topic, {0: 0}, version))
        (row,) = response.responses[0].partitions
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        told = [(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        if version >= 16:
            assert (row.current_leader.leader_id, told) == (OTHER, [(OTHER, "far", 9092, "b")])
            assert row.current_leader.leader_epoch == topic.partitions[0].leader_epoch
        else:
            assert (row.current_leader.leader_id, told) == (-1, [])
