"""The list of served APIs: the windows that clients need, an error for every request, an answer to any request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.broker.broker_world import broker_and_client
from tests.core.wire.message_strategies import messages, sample
from tidemill.broker.dispatch import Route, served_apis, top_level_error
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.broker.routes import ROUTES
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import ClusterAuthorizationFailed
from tidemill.core.wire.api import ApiKey, api
from tidemill.core.wire.framing import decode_response, encode_response
from tidemill.core.wire.message import Message
from tidemill.core.wire.schema import load_schemas

WINDOWS = {
    # what Kafka 4.3 serves, as far as this broker goes
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}


@pytest.mark.parametrize("key", WINDOWS)
def test_the_whole_window_is_served(key: ApiKey) -> None:
    assert served_apis(ROUTES)[key] == WINDOWS[key]


def test_no_api_is_served_twice() -> None:
    keys = [route.key for route in ROUTES]
    assert len(keys) == len(set(keys))


SCHEMAS = {schema.key: schema for schema in load_schemas()}
EVERY_VERSION = [
    pytest.param(route, version, id=f"{route.key.name}-v{version}")
    for route in ROUTES
    for version in range(route.min_version, route.max_version + 1)
]


def error_codes(value: Any) -> Iterator[int]:
    """Every error code anywhere in a response."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        for item in value:
            yield from error_codes(item)
    elif isinstance(value, Message | tuple):
        for name in value._fields if isinstance(value, tuple) else value.__slots__:  # a row or a message
            inner = getattr(value, name)
            if name == "error_code":
                yield inner
            else:
                yield from error_codes(inner)


@pytest.mark.parametrize(("route", "version"), EVERY_VERSION)
def test_every_api_can_say_that_a_request_failed(route: Route, version: int) -> None:
    request = sample(SCHEMAS[route.key], "request", version)
    build = route.error_response or top_level_error(api(route.key).response)
    response = build(request, ClusterAuthorizationFailed("no"), version)
    frame = b"".join(encode_response(route.key, version, 7, response))
    correlation, decoded = decode_response(route.key, version, frame[4:])
    assert correlation == 7
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in set(error_codes(decoded))


ADMIN = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.UNREGISTER_BROKER,
)


def drawn(key: ApiKey, version: int) -> list[Message]:
    """Random requests; strings are often the name of a topic that is there, see the strategies."""
    requests = [sample(SCHEMAS[key], "request", version)]

    @settings(max_examples=10, suppress_health_check=list(HealthCheck), database=None)
    @given(messages(SCHEMAS[key], "request", version))
    def draw(request: Message) -> None:
        requests.append(request)

    draw()
    return requests


@pytest.mark.parametrize("key", ADMIN, ids=lambda key: key.name)
async def test_whatever_an_administrator_asks_is_answered_and_never_breaks_the_broker(
    tmp_path: Path, key: ApiKey
) -> None:
    route = {route.key: route for route in ROUTES}[key]
    async with broker_and_client(tmp_path, max_topics="20", max_partitions="50") as (broker, client):
        await broker.controller.create_topics([NewTopic(name="orders", partitions=3)])
        for version in range(route.min_version, route.max_version + 1):
            for request in drawn(key, version):
                response = await client.ask(key, version, request)
                assert ErrorCode.UNKNOWN_SERVER_ERROR not in set(error_codes(response)), request
