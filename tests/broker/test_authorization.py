"""Rules, what they are about, and what is said of what they forbid"""

from types import SimpleNamespace

import pytest

from tests.broker.deny_some import DenySome
from tidemill.broker.authorization import (
    ALLOW_ALL,
    THE_CLUSTER,
    Resource,
    ResourceKind,
    authorized_operations,
    cluster_operations,
    group_named,
    on_each,
    on_the_cluster,
    on_the_group,
    permit,
    topic_named,
)
from tidemill.broker.dispatch import Peer
from tidemill.broker.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS, Operation
from tidemill.broker.routes import ROUTES
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.wire.api import ApiKey

WHO = Peer(client_host="10.0.0.9", listener="PLAINTEXT", connection_id="c1")
X = Resource(ResourceKind.TRANSACTIONAL_ID, "x")

Kinds = set[tuple[str, str]]

KAFKAS: dict[ApiKey, Kinds] = {
    ApiKey.PRODUCE: {("WRITE", "TOPIC"), ("WRITE", "TRANSACTIONAL_ID")},
    ApiKey.FETCH: {("READ", "TOPIC"), ("CLUSTER_ACTION", "CLUSTER")},
    ApiKey.LIST_OFFSETS: {("DESCRIBE", "TOPIC")},
    ApiKey.METADATA: {
        ("DESCRIBE", "TOPIC"),
        ("CREATE", "CLUSTER"),
        ("CREATE", "TOPIC"),
        ("DESCRIBE", "CLUSTER"),
    },
    ApiKey.OFFSET_COMMIT: {("READ", "GROUP"), ("READ", "TOPIC")},
    ApiKey.OFFSET_FETCH: {("DESCRIBE", "GROUP"), ("DESCRIBE", "TOPIC")},
    ApiKey.FIND_COORDINATOR: {("DESCRIBE", "GROUP")},
    ApiKey.JOIN_GROUP: {("READ", "GROUP")},
    ApiKey.HEARTBEAT: {("READ", "GROUP")},
    ApiKey.LEAVE_GROUP: {("READ", "GROUP")},
    ApiKey.SYNC_GROUP: {("READ", "GROUP")},
    ApiKey.DESCRIBE_GROUPS: {("DESCRIBE", "GROUP")},
    ApiKey.LIST_GROUPS: {("DESCRIBE", "CLUSTER"), ("DESCRIBE", "GROUP")},
    ApiKey.API_VERSIONS: set(),
    ApiKey.CREATE_TOPICS: {("CREATE", "CLUSTER"), ("CREATE", "TOPIC"), ("DESCRIBE_CONFIGS", "TOPIC")},
    ApiKey.DELETE_TOPICS: {("DELETE", "TOPIC"), ("DESCRIBE", "TOPIC")},
    ApiKey.DELETE_RECORDS: {("DELETE", "TOPIC")},
    ApiKey.INIT_PRODUCER_ID: {
        ("WRITE", "TRANSACTIONAL_ID"),
        ("IDEMPOTENT_WRITE", "CLUSTER"),
        ("WRITE", "TOPIC"),
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {("DESCRIBE", "TOPIC"), ("CLUSTER_ACTION", "CLUSTER")},
    ApiKey.DESCRIBE_CONFIGS: {("DESCRIBE_CONFIGS", kind) for kind in ("CLUSTER", "TOPIC", "GROUP")},
    ApiKey.ALTER_CONFIGS: {("ALTER_CONFIGS", kind) for kind in ("CLUSTER", "TOPIC", "GROUP")},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {("ALTER_CONFIGS", kind) for kind in ("CLUSTER", "TOPIC", "GROUP")},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {("ALTER", "CLUSTER")},
    ApiKey.DESCRIBE_LOG_DIRS: {("DESCRIBE", "CLUSTER")},
    ApiKey.CREATE_PARTITIONS: {("ALTER", "TOPIC")},
    ApiKey.DELETE_GROUPS: {("DELETE", "GROUP")},
    ApiKey.ELECT_LEADERS: {("ALTER", "CLUSTER")},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {("ALTER", "CLUSTER")},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {("DESCRIBE", "CLUSTER")},
    ApiKey.OFFSET_DELETE: {("DELETE", "GROUP"), ("READ", "TOPIC")},
    ApiKey.DESCRIBE_QUORUM: {("DESCRIBE", "CLUSTER")},
    ApiKey.UPDATE_FEATURES: {("ALTER", "CLUSTER")},
    ApiKey.DESCRIBE_CLUSTER: {("DESCRIBE", "CLUSTER")},
    ApiKey.DESCRIBE_PRODUCERS: {("READ", "TOPIC")},
    ApiKey.UNREGISTER_BROKER: {("ALTER", "CLUSTER")},
    ApiKey.LIST_CONFIG_RESOURCES: {("DESCRIBE_CONFIGS", "CLUSTER")},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {("DESCRIBE", "TOPIC")},
    ApiKey.ADD_RAFT_VOTER: {("ALTER", "CLUSTER")},
    ApiKey.REMOVE_RAFT_VOTER: {("ALTER", "CLUSTER")},
}
"""What Kafka's documentation says of each API (security, operations and resources on protocols), and its source where
that says more."""


def test_every_route_needs_what_kafkas_does() -> None:
    ours = {route.key: {(need.operation.name, need.kind.name) for need in route.needs} for route in ROUTES}
    assert ours == KAFKAS


@pytest.mark.parametrize("route", [route for route in ROUTES if route.shortcut], ids=lambda route: route.key.name)
def test_a_shortcut_is_past_no_need(route: object) -> None:
    assert not [need for need in route.needs if need.of]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (topic_named("t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (group_named("g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (THE_CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (X, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_refusal_says_who_may_not_do_what_and_no_name(resource: Resource, code: int) -> None:
    permit(ALLOW_ALL, WHO, Operation.WRITE, resource)
    with pytest.raises(KafkaError) as refused:
        permit(DenySome((Operation.WRITE, resource)), WHO, Operation.WRITE, resource)
    assert refused.value.code == code
    kind = resource.kind.name.lower().replace("_", " ")
    assert str(refused.value) == f"User:ANONYMOUS has no WRITE on this {kind}"


def test_a_need_about_the_whole_request_is_checked_and_one_about_each_is_left_to_the_handler() -> None:
    denying = DenySome((Operation.READ, group_named("g")), (Operation.READ, THE_CLUSTER))
    mine, other = SimpleNamespace(group_id="g"), SimpleNamespace(group_id="h")
    on_the_group(Operation.READ).check(denying, WHO, other)
    on_each(Operation.READ, ResourceKind.GROUP).check(denying, WHO, mine)
    with pytest.raises(KafkaError):
        on_the_group(Operation.READ).check(denying, WHO, mine)
    with pytest.raises(KafkaError):
        on_the_cluster(Operation.READ).check(denying, WHO, mine)


def test_operations_are_told_as_far_as_they_are_authorized() -> None:
    for resource, every in ((topic_named("t"), TOPIC_OPERATIONS), (group_named("g"), GROUP_OPERATIONS)):
        assert authorized_operations(ALLOW_ALL, WHO, resource) == every
        assert authorized_operations(DenySome(), WHO, resource) == every
        denying = DenySome((Operation.READ, resource))
        assert authorized_operations(denying, WHO, resource) == every - (1 << Operation.READ)
    assert cluster_operations(ALLOW_ALL, WHO) == CLUSTER_OPERATIONS
    assert cluster_operations(DenySome((Operation.DESCRIBE, THE_CLUSTER)), WHO) == 0
