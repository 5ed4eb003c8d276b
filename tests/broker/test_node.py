"""A whole broker: what it refuses, what it finds again, how it follows the image."""

import asyncio
import errno
import itertools
import logging
import os
import shutil
import uuid
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.broker.broker_world import broker_and_client, running_broker
from tests.broker.handlers.data_path import instead_of_a_sync, make_topic, produce, records
from tidemill.broker.config import BrokerConfig
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN
from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.log.store import LogStore
from tidemill.broker.node import StartRefused, open_broker
from tidemill.broker.quorum.metadata import (
    NewTopic,
    PartitionIncrease,
    TopicRef,
)
from tidemill.broker.quorum.store import FILE, FOLDER
from tidemill.broker.surroundings import Surroundings
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaStorageError
from tidemill.core.records.batch import iter_batches
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidemill.core.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidemill.core.wire.messages.metadata import MetadataRequest


async def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        with pytest.raises(FolderRefused, match="in use by another process"):
            async with running_broker(tmp_path):
                pass


async def test_another_node_id_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        cluster_id = broker.cluster_id
    with pytest.raises(FolderRefused, match=r"belongs to node\.id 1"):
        async with running_broker(tmp_path, node_id="2"):
            pass
    async with running_broker(tmp_path) as broker:
        assert broker.cluster_id == cluster_id


async def test_an_address_in_use_is_refused_in_a_sentence(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as broker:
        taken = f"PLAINTEXT://127.0.0.1:{broker.port}"
        with pytest.raises(StartRefused, match=r"cannot listen on 127\.0\.0\.1:\d+: .*--listen HOST:PORT"):
            async with running_broker(tmp_path / "b", listeners=taken):
                pass
    async with running_broker(tmp_path / "b"):
        pass  # nothing was left locked


async def test_an_address_of_several_is_changed_where_they_are_listed(tmp_path: Path) -> None:
    named = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "log.dirs": str(tmp_path / "b")}
    async with running_broker(tmp_path / "a") as broker:
        taken = f"A://127.0.0.1:0,B://127.0.0.1:{broker.port}"
        with pytest.raises(StartRefused, match=r"choose another address with listeners=B://HOST:PORT"):
            async with open_broker(BrokerConfig.parse({**named, "listeners": taken})):
                pass


async def test_a_start_that_is_refused_does_not_mark_logs_that_it_never_opened_as_closed_in_order(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="a")])
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    log = tmp_path / FOLDER / FILE
    whole = log.read_bytes()
    log.write_bytes(b"?" + whole)
    with pytest.raises(StartRefused):
        async with running_broker(tmp_path):
            pass
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    log.write_bytes(whole)
    async with running_broker(tmp_path):
        pass
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


async def test_a_corrupt_metadata_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="a")])
        await broker.controller.create_topics([NewTopic(name="b")])
    log = tmp_path / FOLDER / FILE
    damaged = bytearray(log.read_bytes())
    damaged[30] ^= 1
    log.write_bytes(damaged)
    with pytest.raises(StartRefused, match="corrupt at byte 0"):
        async with running_broker(tmp_path):
            pass
    assert log.read_bytes() == damaged


async def test_several_listeners_each_on_its_port(tmp_path: Path) -> None:
    listeners = {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0"}
    config = BrokerConfig.parse(
        {**listeners, "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "log.dirs": str(tmp_path)}
    )
    with capture_logs() as lines:
        async with open_broker(config) as broker:
            ports = [server.port for server in broker.servers]
            registered = broker.controller.image.brokers[1].end_points
    assert len(set(ports)) == 2
    assert [(entry.name, entry.port) for entry in registered] == list(zip("AB", ports, strict=True))
    (told,) = [line["listeners"] for line in lines if line["event"] == "broker started"]
    assert told == f"A://127.0.0.1:{ports[0]},B://127.0.0.1:{ports[1]}"


async def test_topics_and_their_logs_are_found_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="t", partitions=2, configs={"segment.bytes": "999"})])
        await broker.controller.create_partitions([PartitionIncrease(name="t", count=3)])
        image = broker.controller.image
    async with running_broker(tmp_path) as broker:
        assert broker.controller.image.topics == image.topics
        assert [str(partition) for partition in broker.logs.partitions()] == ["t-0", "t-1", "t-2"]
        assert all(partition_log.config.segment_bytes == 999 for partition_log in broker.logs)
        assert all(entry.topic_id == image.topics["t"].topic_id for entry in broker.logs)


async def test_a_deleted_topic_is_gone_and_its_name_is_free_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for _ in range(5):
            await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
            await broker.controller.delete_topics([TopicRef(name="t")])
        assert broker.logs.partitions() == []
        (created,) = await broker.controller.create_topics([NewTopic(name="t")])
    async with running_broker(tmp_path) as broker:
        (partition_log,) = broker.logs
        assert partition_log.topic_id == created.topic_id
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-stray")]


async def test_a_log_that_died_between_the_decision_and_its_folder_is_made_at_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
    shutil.rmtree(tmp_path / "t-1")
    async with running_broker(tmp_path) as broker:
        assert broker.logs.get("t", 1) is not None


async def test_a_folder_of_an_unknown_topic_is_kept_aside(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as broker:
        await broker.controller.create_topics([NewTopic(name="t")])
    async with running_broker(tmp_path / "b"):
        pass
    shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    async with running_broker(tmp_path / "b") as broker:
        assert broker.logs.partitions() == []
    assert [name for name in os.listdir(tmp_path / "b") if name.startswith("t-0.") and name.endswith("-stray")]


async def test_a_start_says_which_partitions_begin_empty_because_their_folder_is_gone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="t")])
    shutil.rmtree(tmp_path / "t-0")
    for said in (1, 0):
        with capture_logs() as lines:
            async with running_broker(tmp_path):
                pass
        told = [line for line in lines if line["event"] == "partitions without a folder begin empty"]
        assert [(line["partitions"], line["first"]) for line in told] == [(1, "t-0")] * said


async def test_a_disk_that_fails_stops_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with running_broker(tmp_path) as broker:
        await make_topic(broker)
        with monkeypatch.context() as patched:
            instead_of_a_sync(patched, broken)
            next(iter(broker.logs)).append(records(b"a"), now_ms=broker.clock.now_ms())
            async with asyncio.timeout(10):
                await broker.stop.wait()
        assert broker.failure is not None


async def test_a_metadata_log_that_cannot_be_synced_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="a")])
        with monkeypatch.context() as patched:
            instead_of_a_sync(patched, broken)
            with pytest.raises(KafkaStorageError, match="repair the disk and start again"):
                await broker.controller.create_topics([NewTopic(name="b")])
            async with asyncio.timeout(10):
                await broker.stop.wait()
        assert broker.failure is not None
    async with running_broker(tmp_path) as broker:
        assert list(broker.controller.image.topics) == ["a"]


async def test_leader_epochs_rise_after_a_stop_out_of_order_and_only_then(tmp_path: Path) -> None:
    async def epochs() -> set[int]:
        async with running_broker(tmp_path) as broker:
            if not broker.controller.image.topics:
                await broker.controller.create_topics([NewTopic(name="t", partitions=3), NewTopic(name="u")])
            topics = broker.controller.image.topics.values()
            return {partition.leader_epoch for topic in topics for partition in topic.partitions}

    assert await epochs() == {0}
    assert await epochs() == {0}
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    assert await epochs() == {1}
    assert await epochs() == {1}
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(StartRefused, match="cannot listen"):  # refused after the epochs are written: closed in order
        async with running_broker(tmp_path, listeners="PLAINTEXT://192.0.2.1:0"):
            pass
    assert await epochs() == {2}


async def test_every_answer_carries_the_leader_epoch_that_a_stop_out_of_order_began(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        await produce(client, topic, records(b"before"))
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    async with broker_and_client(tmp_path) as (broker, client):
        topic = broker.controller.image.topics["t"]
        assert topic.partitions[0].leader_epoch == 1
        await produce(client, topic, records(b"after"))

        async def fetched(current: int) -> PartitionData:
            row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=current)
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=(FetchTopic(topic="t", partitions=(row,)),)
            )
            found: PartitionData = (await client.ask(ApiKey.FETCH, 12, request)).responses[0].partitions[0]
            return found

        assert [view.leader_epoch for view in iter_batches((await fetched(1)).records or b"")] == [0, 1]
        assert (await fetched(0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        described = await client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        assert described.topics[0].partitions[0].leader_epoch == 1
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=1)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(asked,)),))
        (found,) = (await client.ask(ApiKey.LIST_OFFSETS, 7, request)).topics[0].partitions
        assert (found.offset, found.leader_epoch) == (2, 1)


async def test_the_metadata_log_stays_small(tmp_path: Path) -> None:
    """The setting has effect, in the broker as a whole."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    config = BrokerConfig.parse({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **settings})
    folder = tmp_path / FOLDER
    async with open_broker(config) as broker:
        for number in range(100):
            await broker.controller.create_topics([NewTopic(name="t", configs={"segment.bytes": "999"})])
            await broker.controller.delete_topics([TopicRef(name="t")])
            if number % 10 == 0:
                await asyncio.sleep(0.01)
        await broker.controller.create_topics([NewTopic(name="kept", partitions=2)])
        async with asyncio.timeout(20):
            while len(list(folder.glob("*.checkpoint"))) < 2 or (folder / FILE).exists():
                await asyncio.sleep(0.01)
                await broker.controller.allocate_producer_ids()
        image = broker.controller.image
    assert sum(each.stat().st_size for each in folder.iterdir()) < 20_000
    async with open_broker(config) as broker:
        assert broker.controller.image.topics == image.topics
        assert [str(partition) for partition in broker.logs.partitions()] == ["kept-0", "kept-1"]


async def test_a_full_disk_at_start_keeps_the_earlier_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        epoch = broker.controller.image.brokers[1].epoch

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        async with running_broker(tmp_path) as broker:
            assert broker.controller.image.brokers[1].epoch <= epoch + 2
        with pytest.raises((StartRefused, FolderRefused), match="No space left"):
            async with running_broker(tmp_path / "new"):
                pass


async def test_identities_come_from_the_given_source(tmp_path: Path) -> None:
    numbers = itertools.count(1)
    config = BrokerConfig.parse({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    async with open_broker(config, around=Surroundings(new_uuid=lambda: uuid.UUID(int=next(numbers)))) as broker:
        (first,) = await broker.controller.create_topics([NewTopic(name="a")])
        (second,) = await broker.controller.create_topics([NewTopic(name="b")])
        assert second.topic_id.int > first.topic_id.int
        assert (await broker.producer_ids.take(), await broker.producer_ids.take()) == (0, 1)


async def test_the_jobs_have_names(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert set(broker.jobs.names()) == {
            "log-retention",
            "log-checkpoint",
            "group-expiry",
            "metadata-snapshot",
            "missing-logs",
        }


async def test_all_listeners_share_the_memory_and_the_counts_of_connections(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    security = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    settings = {"listeners": listeners, "listener_security_protocol_map": security}
    async with running_broker(tmp_path, queued_max_request_bytes="12345", **settings) as broker:
        assert len(broker.servers) == 2
        assert {server.memory.limit_bytes for server in broker.servers} == {12345}
        assert broker.servers[0].memory is broker.servers[1].memory
        assert broker.servers[0].counts is broker.servers[1].counts


async def test_a_job_that_runs_when_the_broker_stops_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    async def endless(_self: LogStore) -> None:
        begun.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(LogStore, "enforce_retention", lambda self, _now_ms: endless(self))
        async with running_broker(tmp_path) as broker:
            broker.jobs.run_now("log-retention")
            await begun.wait()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
