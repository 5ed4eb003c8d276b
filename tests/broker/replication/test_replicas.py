"""Replicas come with the image and with the logs, and go with them"""

import uuid
from pathlib import Path

from tests.broker.broker_world import broker_and_client, running_broker
from tests.broker.handlers.data_path import make_topic, produce, records
from tests.broker.log.log_world import NOW_MS, batch
from tidemill.broker.config import BrokerConfig
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.image import PartitionImage, TopicImage
from tidemill.broker.quorum.metadata import TopicRef
from tidemill.broker.replication.actions import ProposeIsr
from tidemill.broker.replication.replicas import Replicas
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition

ID = uuid.UUID(int=3)


def topic(*leaders: int, version: int = 0) -> TopicImage:
    partitions = tuple(
        PartitionImage(
            partition=number, replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=0, partition_epoch=version
        )
        for number, leader in enumerate(leaders)
    )
    return TopicImage(name="t", topic_id=ID, partitions=partitions)


async def test_there_is_one_for_each_partition_that_has_a_log(tmp_path: Path) -> None:
    logs = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    logs.open_all()
    logs.create("t", ID, 0, LogConfig())
    replicas = Replicas(1, logs, SystemClock().monotonic)
    replicas.assign(topic(1, 2))
    first = replicas.get("t", 0)
    assert first is not None
    assert (first.machine.leads, replicas.get("t", 1)) == (True, None)
    logs.create("t", ID, 1, LogConfig())
    replicas.assign(topic(1, 2, version=1))
    second = replicas.get("t", 1)
    assert second is not None
    assert (replicas.get("t", 0), second.machine.leads, second.machine.leader) == (first, False, 2)
    replicas.forget("t")
    assert list(replicas) == []
    replicas.forget("t")
    await logs.close()


async def test_one_whose_log_was_closed_is_made_anew(tmp_path: Path) -> None:
    logs = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    logs.open_all()
    logs.create("t", ID, 0, LogConfig())
    replicas = Replicas(1, logs, SystemClock().monotonic)
    replicas.assign(topic(1))
    before = replicas.get("t", 0)
    await logs.delete("t")
    logs.create("t", ID, 0, LogConfig())
    replicas.assign(topic(1, version=1))
    assert replicas.get("t", 0) is not before
    assert len(list(replicas)) == 1
    await logs.close()


async def test_a_log_of_another_topic_of_the_same_name_gets_none(tmp_path: Path) -> None:
    logs = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    logs.open_all()
    logs.create("t", uuid.UUID(int=4), 0, LogConfig())
    replicas = Replicas(1, logs, SystemClock().monotonic)
    replicas.assign(topic(1))
    assert list(replicas) == [], "it is about to be removed, and with it what would be written to it"
    await logs.close()


async def test_those_that_there_are_hear_of_an_image_and_those_that_are_forgotten_know_none(tmp_path: Path) -> None:
    logs = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    logs.open_all()
    logs.create("t", ID, 0, LogConfig())
    replicas = Replicas(1, logs, SystemClock().monotonic)
    replicas.tell(topic(1, 1))
    assert list(replicas) == []
    replicas.assign(topic(1, 1))
    logs.create("t", ID, 1, LogConfig())
    later = topic(2, 1, version=1)
    replicas.tell(later)
    (replica,) = replicas
    assert (replica.image, replica.machine.leads) == (later.partitions[0], False)
    replicas.forget("t")
    assert replica.image is None
    await logs.close()


async def test_high_watermarks_outlive_a_restart(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        made = await make_topic(_, partitions=2)
        await produce(client, made, records(b"a", b"b"))
    assert sorted((tmp_path / "replication-offset-checkpoint").read_text().splitlines()) == ["0", "2", "t 0 2", "t 1 0"]
    async with running_broker(tmp_path) as broker:
        assert broker.logs.high_watermarks[TopicPartition("t", 0)] == 2
        assert [replica.high_watermark for replica in broker.replicas] == [2, 0]


async def test_a_start_begins_with_the_high_watermarks_it_is_given(tmp_path: Path) -> None:
    logs = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1, flush_policy="os")
    logs.open_all()
    log = logs.create("t", ID, 0, LogConfig())
    replicas = Replicas(1, logs, SystemClock().monotonic)
    replicas.assign(topic(2), {TopicPartition("t", 0): 7})
    replica = replicas.get("t", 0)
    assert replica is not None
    assert (replica.high_watermark, log.committed_offset) == (0, 0), "bounded by the log"
    for _ in range(3):
        log.append(batch(1), now_ms=NOW_MS)
    replicas.forget("t")
    replicas.assign(topic(2), {TopicPartition("t", 0): 2})
    again = replicas.get("t", 0)
    assert again is not None
    assert (again.high_watermark, log.committed_offset, log.log_end_offset) == (2, 2, 3)
    await logs.close()


async def test_the_lag_that_is_waited_for_is_a_setting(tmp_path: Path) -> None:
    assert BrokerConfig.parse({"replica.lag.time.max.ms": "700"}).replica_lag_time_max_ms == 700
    logs = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    logs.open_all()
    logs.create("t", ID, 0, LogConfig())
    replicas = Replicas(1, logs, SystemClock().monotonic, lag_max_ms=700)
    replicas.assign(topic(1))
    replica = replicas.get("t", 0)
    assert replica is not None
    replica.log.append(batch(1), now_ms=NOW_MS)
    begun_ms = int(SystemClock().monotonic() * 1000)
    assert replica.machine.tick(begun_ms + 600, 1) == []
    (asked,) = replica.machine.tick(begun_ms + 60_000, 1)
    assert isinstance(asked, ProposeIsr)
    assert asked.isr == (1,)
    await logs.close()


async def test_a_brokers_replicas_follow_its_topics(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        made = await make_topic(broker, partitions=2)
        assert [replica.machine.alone for replica in broker.replicas] == [True, True]
        first = broker.replicas.get("t", 0)
        assert first is not None
        assert first.image is made.partitions[0]
        await broker.controller.delete_topics([TopicRef(name="t")])
        assert (list(broker.replicas), first.closed) == ([], True)
        await make_topic(broker)
    async with running_broker(tmp_path) as broker:
        assert [replica.machine.leads for replica in broker.replicas] == [True]
