"""Naming results of MirrorMaker 2's own classes, and the cycle rule."""

import pytest

from tidemill.mirror.naming import (
    DefaultPolicy,
    IdentityPolicy,
    is_cycle,
    is_heartbeats,
    is_internal,
    offset_map_topic,
)

# topic, source, upstream, original, remote name under alias A: read off DefaultReplicationPolicy
DEFAULT = [
    ("a.b.c", "a", "b.c", "c", "A.a.b.c"),
    ("a", None, None, "a", "A.a"),
    ("a.", None, None, "a.", "A.a."),
    (".x", "", "x", "x", "A..x"),
    ("..", None, None, "..", "A..."),
    ("a..b", "a", ".b", "b", "A.a..b"),
    ("heartbeats", None, None, "heartbeats", "A.heartbeats"),
    ("B.A.heartbeats", "B", "A.heartbeats", "heartbeats", "A.B.A.heartbeats"),
    ("A.checkpoints.internal", "A", "checkpoints.internal", "internal", "A.A.checkpoints.internal"),
]
# the same for IdentityReplicationPolicy with source A
IDENTITY = [
    ("a.b.c", "A", "a.b.c", "a.b.c", "a.b.c"),
    (".x", "A", ".x", ".x", ".x"),
    ("heartbeats", None, None, "heartbeats", "A.heartbeats"),
    ("A.heartbeats", "A", "heartbeats", "heartbeats", "A.A.heartbeats"),
    ("B.A.heartbeats", "B", "A.heartbeats", "heartbeats", "A.B.A.heartbeats"),
]


@pytest.mark.parametrize(("topic", "source", "upstream", "original", "remote"), DEFAULT)
def test_default_policy(topic: str, source: str | None, upstream: str | None, original: str, remote: str) -> None:
    policy = DefaultPolicy()
    assert policy.topic_source(topic) == source
    assert policy.upstream_topic(topic) == upstream
    assert policy.original_topic(topic) == original
    assert policy.format_remote_topic("A", topic) == remote


@pytest.mark.parametrize(("topic", "source", "upstream", "original", "remote"), IDENTITY)
def test_identity_policy(topic: str, source: str | None, upstream: str | None, original: str, remote: str) -> None:
    policy = IdentityPolicy(source_alias="A")
    assert policy.topic_source(topic) == source
    assert policy.upstream_topic(topic) == upstream
    assert policy.original_topic(topic) == original
    assert policy.format_remote_topic("A", topic) == remote


def test_names_of_internal_topics() -> None:
    custom = DefaultPolicy(separator="__", internal_separator=False)
    shared = DefaultPolicy(separator="__")
    assert DefaultPolicy().offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert DefaultPolicy().checkpoints_topic("A") == "A.checkpoints.internal"
    assert custom.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert shared.checkpoints_topic("A") == "A__checkpoints__internal"
    assert IdentityPolicy(source_alias="A").checkpoints_topic("A") == "A.checkpoints.internal"
    assert is_internal(shared.checkpoints_topic("A"))
    assert is_internal(offset_map_topic("A"))


def test_internal_topics_are_recognised() -> None:
    assert all(map(is_internal, ("x.internal", "my-internal", "__x", ".hidden")))
    assert not any(map(is_internal, ("orders", "internal", "xinternal", "heartbeats")))


def test_heartbeats_are_recognised_through_hops() -> None:
    policy = DefaultPolicy()
    assert is_heartbeats(policy, "heartbeats")
    assert is_heartbeats(policy, "B.A.heartbeats")
    assert not is_heartbeats(policy, "my-heartbeats")


def test_a_topic_does_not_return_to_a_cluster_it_came_through() -> None:
    policy = DefaultPolicy()
    assert is_cycle(policy, "B.orders", "B")
    assert is_cycle(policy, "C.B.orders", "B")
    assert not is_cycle(policy, "C.orders", "B")
    assert not is_cycle(policy, "orders", "B")


def test_identity_names_cannot_show_a_cycle() -> None:
    policy = IdentityPolicy(source_alias="A")
    assert not is_cycle(policy, "orders", "B")
    assert is_cycle(policy, "B.heartbeats", "B")
