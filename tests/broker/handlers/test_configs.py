"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources on the wire."""

from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tidemill.broker.config import BROKER_CONFIG
from tidemill.broker.handlers.configs import ROUTES
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.broker.topic_config import TOPIC_CONFIG
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import NotController
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages import alter_configs as legacy
from tidemill.core.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemill.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidemill.core.wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER = 2, 4


def describe(kind: int, name: str, *keys: str, synonyms: bool = True) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    return DescribeConfigsRequest(resources=(resource,), include_synonyms=synonyms, include_documentation=True)


async def alter(client: WireClient, kind: int, name: str, key: str, value: str | None, op: int = 0) -> int:
    change = AlterableConfig(name=key, config_operation=op, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=(change,))
    response = await client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=(resource,))
    )
    return int(response.responses[0].error_code)


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_shows_what_holds_and_where_it_comes_from(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path, log_retention_hours="1") as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t", configs={"segment.bytes": "1000"})])
        response = await client.ask(ApiKey.DESCRIBE_CONFIGS, version, describe(TOPIC, "t"))
        (result,) = response.results
        rows = {row.name: row for row in result.configs}
        assert set(rows) == set(TOPIC_CONFIG.names())
        assert (rows["segment.bytes"].value, rows["segment.bytes"].config_source) == ("1000", 1)
        assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("3600000", 4)
        assert [(step.name, step.source) for step in rows["retention.ms"].synonyms] == [
            ("log.retention.hours", 4),
            ("log.retention.hours", 5),
        ]
        assert not rows["retention.ms"].read_only
        if version >= 3:
            assert rows["retention.ms"].config_type == 5
            assert rows["retention.ms"].documentation


async def test_only_the_keys_that_were_asked_for(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        request = describe(TOPIC, "t", "retention.ms", "nonsense", synonyms=False)
        response = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
        assert [(row.name, row.synonyms) for row in response.results[0].configs] == [("retention.ms", ())]


async def test_all_keys_when_none_is_named(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        for keys in (None, ()):
            resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=keys)
            response = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(resource,)))
            assert [row.name for row in response.results[0].configs] == list(TOPIC_CONFIG.names())


async def test_the_broker_shows_its_settings(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, num_partitions="3") as (_, client):
        response = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, describe(BROKER, "1"))
        rows = {row.name: row for row in response.results[0].configs}
        assert set(rows) == set(BROKER_CONFIG.names())
        assert (rows["num.partitions"].value, rows["num.partitions"].config_source) == ("3", 4)
        assert rows["num.partitions"].read_only
        assert not rows["log.retention.ms"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (16, "metrics", ErrorCode.NONE),
        (32, "group", ErrorCode.NONE),
        (32, "", ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.NONE),
    ],
)
async def test_resources_that_are_not_here(tmp_path: Path, kind: int, name: str, code: ErrorCode) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        response = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, describe(kind, name))
        result = response.results[0]
        assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
        assert (result.error_message is None) == (code is ErrorCode.NONE)


async def test_a_changed_topic_setting_reaches_the_log(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        assert await alter(client, TOPIC, "t", "retention.ms", "77") == 0
        assert [partition_log.config.retention_ms for partition_log in broker.logs] == [77, 77]
        assert await alter(client, TOPIC, "t", "retention.ms", None, op=1) == 0
        assert [partition_log.config.retention_ms for partition_log in broker.logs] == [604_800_000] * 2
        assert await alter(client, TOPIC, "t", "retention.ms", "soon") == ErrorCode.INVALID_CONFIG
        assert await alter(client, TOPIC, "x", "retention.ms", "1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_changed_broker_setting_reaches_every_log_that_does_not_say_otherwise(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics(
            [NewTopic(name="follows"), NewTopic(name="own", configs={"retention.ms": "5"})]
        )
        assert await alter(client, BROKER, "", "log.retention.ms", "100") == 0
        assert await alter(client, BROKER, "1", "log.retention.ms", "200") == 0
        kept = {str(entry.topic_partition): entry.config.retention_ms for entry in broker.logs}
        assert kept == {"follows-0": 200, "own-0": 5}
        response = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, describe(BROKER, "", "log.retention.ms"))
        assert [(row.value, row.config_source) for row in response.results[0].configs] == [("100", 3)]
        assert await alter(client, BROKER, "1", "num.partitions", "3") == ErrorCode.INVALID_REQUEST


async def test_changed_settings_survive_a_restart(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        await alter(client, TOPIC, "t", "retention.ms", "77")
        await alter(client, BROKER, "1", "log.segment.bytes", "5000")
    async with broker_and_client(tmp_path) as (broker, _):
        (partition_log,) = broker.logs
        assert (partition_log.config.retention_ms, partition_log.config.segment_bytes) == (77, 5000)


def replacement(kind: int, name: str, **configs: str | None) -> legacy.AlterConfigsResource:
    return legacy.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            legacy.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ),
    )


@pytest.mark.parametrize("version", range(3))
async def test_the_old_way_replaces_all_that_was_set(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t", configs={"retention.ms": "5", "segment.ms": "7"})])
        await alter(client, BROKER, "1", "log.retention.bytes", "12345")
        request = legacy.AlterConfigsRequest(
            resources=(
                replacement(TOPIC, "t", segment_ms="8"),
                replacement(TOPIC, "missing", segment_ms="8"),
                replacement(BROKER, "1", log_retention_ms="600000"),
                replacement(BROKER, "", num_partitions="3"),
            )
        )
        trial = legacy.AlterConfigsRequest(resources=request.resources, validate_only=True)
        for asked in (trial, request):
            response = await client.ask(ApiKey.ALTER_CONFIGS, version, asked)
            assert [(row.resource_type, row.resource_name, row.error_code) for row in response.responses] == [
                (TOPIC, "t", 0),
                (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (BROKER, "1", 0),
                (BROKER, "", ErrorCode.INVALID_REQUEST),
            ]
            assert response.responses[0].error_message is None
            assert "Cannot update these configs dynamically: [num.partitions]" in response.responses[3].error_message
            (partition_log,) = broker.logs
            config = partition_log.config
            expected = (5, 7, 12345) if asked is trial else (600_000, 8, -1)
            assert (config.retention_ms, config.segment_ms, config.retention_bytes) == expected


async def test_what_a_tool_deletes_need_never_have_been_set(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        for name in ("leader.replication.throttled.rate", "num.partitions", "a.key.of.another.broker"):
            assert await alter(client, BROKER, "1", name, None, op=1) == 0


@pytest.mark.parametrize(
    ("types", "listed"),
    [
        ((), [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1")]),
        ((TOPIC,), [(TOPIC, "a"), (TOPIC, "b")]),
        ((BROKER, BROKER), [(BROKER, "1")]),
        ((8, 16, 32), []),
    ],
)
async def test_resources_that_have_settings_are_listed(
    tmp_path: Path, types: tuple[int, ...], listed: list[tuple[int, str]]
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="b"), NewTopic(name="a")])
        response = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=types))
        assert response.error_code == 0
        assert [(row.resource_type, row.resource_name) for row in response.config_resources] == listed
        for row in response.config_resources:
            described = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, describe(row.resource_type, row.resource_name))
            assert described.results[0].error_code == 0, "what is listed can be described"


async def test_there_are_no_client_metrics_and_no_other_types(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        response = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, 0, ListConfigResourcesRequest())
        assert (response.error_code, response.config_resources) == (0, ())
        request = ListConfigResourcesRequest(resource_types=(TOPIC, 64))
        response = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, request)
        assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())


def test_a_failure_of_the_whole_request_names_every_resource() -> None:
    route = {route.key: route for route in ROUTES}[ApiKey.ALTER_CONFIGS]
    request = legacy.AlterConfigsRequest(resources=(replacement(TOPIC, "t"), replacement(BROKER, "1")))
    assert route.error_response is not None
    response = route.error_response(request, NotController(), 2)
    assert [(row.resource_type, row.resource_name, row.error_code) for row in response.responses] == [
        (TOPIC, "t", ErrorCode.NOT_CONTROLLER),
        (BROKER, "1", ErrorCode.NOT_CONTROLLER),
    ]


async def test_a_resource_that_is_named_often_is_described_once(tmp_path: Path) -> None:
    """Ten bytes would be another ten kilobytes, and milliseconds, each."""
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        named = (("t", ("retention.ms",)), ("u", ("segment.bytes",)), ("t", ("segment.bytes",)), ("u", None))
        resources = tuple(
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
            for name, keys in named
        )
        response = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources))
        described = {result.resource_name: {row.name for row in result.configs} for result in response.results}
        assert described == {"t": {"retention.ms", "segment.bytes"}, "u": set(TOPIC_CONFIG.names())}
        assert len(response.results) == 2
