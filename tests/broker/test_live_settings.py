"""Settings of the node that change while it runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, running_broker, wire_client
from tests.broker.log.rejection_table import NOW_MS, with_records
from tidemill.broker.config import BrokerConfig
from tidemill.broker.live_settings import cleaner_settings, producer_id_expiration_ms, server_limits
from tidemill.broker.log.cleaner import CleanerSettings
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.node import Broker
from tidemill.broker.quorum.metadata import ConfigChange, ConfigOp, NewTopic, ResourceChange
from tidemill.broker.topic_config import Layers
from tidemill.core.errors import InvalidRecord
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


def test_the_stronger_layer_holds() -> None:
    config = BrokerConfig.parse({"max.connections": "50", "connections.max.idle.ms": "7"})
    limits = server_limits(config, Layers(dynamic_broker={}, dynamic_default={}, static=config.static))
    assert (limits.max_connections, limits.max_connections_per_ip) == (50, 2**31 - 1)
    assert limits.connections_max_idle_ms == 7
    layers = Layers(
        dynamic_broker={"max.connections": "5"},
        dynamic_default={"max.connections": "6", "max.connections.per.ip": "3"},
        static=config.static,
    )
    limits = server_limits(config, layers)
    assert (limits.max_connections, limits.max_connections_per_ip) == (5, 3)


async def set_most_connections(broker: Broker, value: str | None) -> None:
    change = ConfigChange(name="max.connections", op=ConfigOp.DELETE if value is None else ConfigOp.SET, value=value)
    (result,) = await broker.controller.alter_configs(
        [ResourceChange(resource_type=4, resource_name="1", changes=(change,))]
    )
    assert result.error is None


async def served(client: WireClient) -> bool:
    try:
        await client.ask(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
    except (EOFError, ConnectionError):
        return False
    return True


async def test_fewer_connections_are_let_in_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, wire_client(broker) as first:
        assert await served(first)
        await set_most_connections(broker, "1")
        async with wire_client(broker) as second:
            assert not await served(second)
        assert await served(first), "who is in stays in"
    async with running_broker(tmp_path) as broker, wire_client(broker) as first:
        assert await served(first)
        async with wire_client(broker) as second:
            assert not await served(second)
        await set_most_connections(broker, None)
        async with wire_client(broker) as second:
            assert await served(second)


@pytest.mark.parametrize("value", ["0", "many"])
async def test_a_limit_that_nobody_could_live_with_is_refused(tmp_path: Path, value: str) -> None:
    async with running_broker(tmp_path) as broker:
        with pytest.raises(AssertionError):
            await set_most_connections(broker, value)
        assert broker.servers[0].limits.max_connections == 10_000


CLEANER = {
    "log.cleaner.dedupe.buffer.size": "2000000",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.max.bytes.per.second": "1e6",
    "log.cleaner.backoff.ms": "250",
}
CHANGED = CleanerSettings(dedupe_buffer_bytes=2_000_000, load_factor=0.5, io_bytes_per_second_max=1e6, backoff_ms=250)


async def alter(client: WireClient, changes: dict[str, str | None], name: str = "1") -> tuple[int, str]:
    """One IncrementalAlterConfigs about the broker, None deletes; the error and its text."""
    rows = tuple(
        AlterableConfig(name=key, config_operation=ConfigOp.DELETE if value is None else ConfigOp.SET, value=value)
        for key, value in changes.items()
    )
    resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=rows)
    response = await client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=(resource,))
    )
    return response.responses[0].error_code, response.responses[0].error_message or ""


def test_the_cleaner_and_the_producers_follow_the_stronger_layer() -> None:
    config = BrokerConfig.parse({"log.cleaner.backoff.ms": "50", "producer.id.expiration.ms": "70"})
    plain = Layers(dynamic_broker={}, dynamic_default={}, static=config.static)
    assert cleaner_settings(plain) == CleanerSettings(backoff_ms=50)
    assert producer_id_expiration_ms(plain) == 70
    layers = Layers(
        dynamic_broker={"log.cleaner.backoff.ms": "5"},
        dynamic_default={**CLEANER, "producer.id.expiration.ms": "6"},
        static=config.static,
    )
    assert cleaner_settings(layers) == CleanerSettings(
        dedupe_buffer_bytes=2_000_000, load_factor=0.5, io_bytes_per_second_max=1e6, backoff_ms=5
    )
    assert producer_id_expiration_ms(layers) == 6


@pytest.mark.parametrize("name", ["1", ""])
async def test_the_cleaner_takes_its_settings_at_once_and_after_a_restart(tmp_path: Path, name: str) -> None:
    async with running_broker(tmp_path, log_cleaner_backoff_ms="777") as broker, wire_client(broker) as client:
        assert broker.cleaner.settings == CleanerSettings(backoff_ms=777)
        assert await alter(client, dict(CLEANER), name) == (0, "")
        assert broker.cleaner.settings == CHANGED
    async with running_broker(tmp_path, log_cleaner_backoff_ms="777") as broker, wire_client(broker) as client:
        assert broker.cleaner.settings == CHANGED
        assert await alter(client, dict.fromkeys(CLEANER), name) == (0, "")
        assert broker.cleaner.settings == CleanerSettings(backoff_ms=777), "what the file says holds again"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("log.cleaner.dedupe.buffer.size", "1000", "must be at least 1048576"),
        ("log.cleaner.io.max.bytes.per.second", "0", "must be at least 1"),
        ("log.cleaner.io.buffer.load.factor", "2", "must be no more than 1"),
        ("log.cleaner.backoff.ms", "-1", "must be at least 0"),
        ("producer.id.expiration.ms", "0", "must be at least 1"),
        ("log.cleaner.enable", "false", "Cannot update these configs dynamically"),
        ("log.cleaner.threads", "4", "one thread compacts"),
        ("log.cleaner.io.buffer.size", "1000000", "batch by batch"),
    ],
)
async def test_what_cannot_hold_is_refused_and_changes_nothing(
    tmp_path: Path, name: str, value: str, text: str
) -> None:
    async with running_broker(tmp_path) as broker, wire_client(broker) as client:
        code, message = await alter(client, {name: value})
        assert code != 0 and text in message
        assert broker.cleaner.settings == CleanerSettings()


async def write(broker: Broker, log: PartitionLog, count: int, **producer: int) -> None:
    for _ in range(count):
        now_ms = broker.clock.now_ms()
        batch = build_batch([NewRecord(now_ms, b"k", b"x" * 200)], **producer)
        await log.durable(log.append(batch, now_ms=now_ms).last_offset)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


async def created(broker: Broker, **configs: str) -> PartitionLog:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await broker.controller.create_topics([NewTopic(name="t", configs=settings)])
    log = broker.logs.get("t", 0)
    assert log is not None
    return log


async def test_what_makes_a_log_due_can_be_changed_under_a_running_cleaner(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, log_cleaner_backoff_ms="20", log_cleaner_min_cleanable_ratio="1") as broker,
        wire_client(broker) as client,
    ):
        log = await created(broker, cleanup_policy="compact", segment_bytes="2000")
        await write(broker, log, 60)
        await broker.logs.checkpoint()
        await asyncio.sleep(0.1)
        assert broker.logs.cleaned_offset(log.topic_partition) is None, "no log is dirtier than 1"
        changes = {
            "log.cleaner.min.cleanable.ratio": "0.1",
            "log.cleaner.delete.retention.ms": "5",
            "log.cleaner.min.compaction.lag.ms": "6",
            "log.cleaner.max.compaction.lag.ms": "7000000",
        }
        assert await alter(client, dict(changes)) == (0, "")
        await until(lambda: broker.logs.cleaned_offset(log.topic_partition) == log.active.base_offset)
        held = (0.1, 5, 6, 7_000_000)
        config = log.config
        assert (
            config.min_cleanable_dirty_ratio,
            config.delete_retention_ms,
            config.min_compaction_lag_ms,
            config.max_compaction_lag_ms,
        ) == held
    async with running_broker(tmp_path) as broker:
        again = broker.logs.get("t", 0)
        assert again is not None and again.config == config


async def test_idle_producers_are_forgotten_when_the_changed_time_has_passed(tmp_path: Path) -> None:
    settings = {"log_retention_check_interval_ms": "20"}
    async with running_broker(tmp_path, **settings) as broker, wire_client(broker) as client:
        log = await created(broker)
        await write(broker, log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
        await asyncio.sleep(0.1)
        assert len(log.producers) == 1
        assert await alter(client, {"producer.id.expiration.ms": "1"}) == (0, "")
        await until(lambda: len(log.producers) == 0)
    async with running_broker(tmp_path, **settings) as broker:
        assert broker.logs.producer_id_expiration_ms == 1


async def test_records_are_looked_at_when_the_setting_says_so_also_after_a_restart(tmp_path: Path) -> None:
    unreadable = with_records(b"\xff" * 12, count=1)
    async with running_broker(tmp_path) as broker, wire_client(broker) as client:
        log = await created(broker)
        log.append(unreadable, now_ms=NOW_MS)
        assert await alter(client, {"log.record.validation": "records"}) == (0, "")
        with pytest.raises(InvalidRecord):
            log.append(unreadable, now_ms=NOW_MS)
    async with running_broker(tmp_path) as broker:
        again = broker.logs.get("t", 0)
        assert again is not None
        with pytest.raises(InvalidRecord):
            again.append(unreadable, now_ms=NOW_MS)
