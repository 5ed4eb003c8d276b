"""Replication policies: how a topic is called on the other side

MirrorMaker 2 keeps the topology in topic names: `orders` of cluster A is `A.orders` on B, so every reader of a name
knows where its records come from and a flow can see that a topic would travel in a circle. The identity policy keeps
names unchanged, which gives up both; only heartbeats keep their prefix there, because hop counting needs it.

The results of both classes are MirrorMaker 2's, oddities included: a dotted business topic looks remote (`a.b.c` comes
from `a`), and a name with nothing but separators after the first part has no source.

Not here: which topics are chosen (`tidemill.mirror.selection`).
"""

from dataclasses import dataclass
from typing import Protocol

HEARTBEATS = "heartbeats"
_SYNCS_PREFIX = "mm2-offset-syncs"
_CHECKPOINTS = "checkpoints"
_INTERNAL = "internal"
MAP_TOPIC_PREFIX = "tidemill-offset-map"


class ReplicationPolicy(Protocol):
    """Names of remote topics, and what a name says about its origin."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Name on the target of `topic` from the cluster `source_alias`."""
        ...

    def topic_source(self, topic: str) -> str | None:
        """Alias of the cluster that `topic` was mirrored from, None for a local topic."""
        ...

    def upstream_topic(self, topic: str) -> str | None:
        """Name of `topic` one hop closer to its origin, None for a local topic."""
        ...

    def original_topic(self, topic: str) -> str:
        """Name of `topic` at its origin."""
        ...

    def offset_syncs_topic(self, alias: str) -> str:
        """Name of MirrorMaker 2's offset-sync topic for the other cluster `alias`."""
        ...

    def checkpoints_topic(self, alias: str) -> str:
        """Name of the checkpoint topic for groups of the cluster `alias`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPolicy:
    """`alias + separator + topic`."""

    separator: str = "."
    internal_separator: bool = True  # the separator is used inside internal topic names too

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Prefix `topic` with the alias of its cluster."""
        return source_alias + self.separator + topic

    def topic_source(self, topic: str) -> str | None:
        """Text before the first separator; None without one, or with nothing after it."""
        head, found, tail = topic.partition(self.separator)
        return head if found and tail.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> str | None:
        """Strip the first prefix."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Strip prefixes until none is left."""
        while (upstream := self.upstream_topic(topic)) is not None:
            topic = upstream
        return topic

    def offset_syncs_topic(self, alias: str) -> str:
        """`mm2-offset-syncs.<alias>.internal`."""
        return self._internal(_SYNCS_PREFIX, alias)

    def checkpoints_topic(self, alias: str) -> str:
        """`<alias>.checkpoints.internal`."""
        return self._internal(alias, _CHECKPOINTS)

    def _internal(self, first: str, second: str) -> str:
        return (self.separator if self.internal_separator else ".").join((first, second, _INTERNAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityPolicy:
    """Same name on both sides, heartbeats excepted."""

    source_alias: str  # every topic but a heartbeat is taken to come from here
    separator: str = "."
    internal_separator: bool = True

    @property
    def _prefixed(self) -> DefaultPolicy:
        return DefaultPolicy(separator=self.separator, internal_separator=self.internal_separator)

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Keep the name; prefix a heartbeat topic."""
        return self._prefixed.format_remote_topic(source_alias, topic) if _looks_like_heartbeat(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        """The configured source, for anything but a heartbeat."""
        return self._prefixed.topic_source(topic) if _looks_like_heartbeat(topic) else self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        """The same name, for anything but a heartbeat."""
        return self._prefixed.upstream_topic(topic) if _looks_like_heartbeat(topic) else topic

    def original_topic(self, topic: str) -> str:
        """The same name, for anything but a heartbeat."""
        return self._prefixed.original_topic(topic) if _looks_like_heartbeat(topic) else topic

    def offset_syncs_topic(self, alias: str) -> str:
        """`mm2-offset-syncs.<alias>.internal`."""
        return self._prefixed.offset_syncs_topic(alias)

    def checkpoints_topic(self, alias: str) -> str:
        """`<alias>.checkpoints.internal`."""
        return self._prefixed.checkpoints_topic(alias)


def _looks_like_heartbeat(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)


def offset_map_topic(alias: str) -> str:
    """Name of Tidemill's exact offset map for partitions of the cluster `alias`; lives on the target."""
    return f"{MAP_TOPIC_PREFIX}.{alias}.{_INTERNAL}"


def is_heartbeats(policy: ReplicationPolicy, topic: str) -> bool:
    """Whether `topic` holds heartbeats, of this cluster or mirrored from another."""
    return policy.original_topic(topic) == HEARTBEATS


def is_internal(topic: str) -> bool:
    """Whether `topic` belongs to Kafka, Connect or a mirror: such topics are never mirrored.

    >>> [is_internal(name) for name in ("x.internal", "my-internal", "__x", ".hidden", "xinternal")]
    [True, True, True, True, False]
    """
    return topic.startswith(("__", ".")) or topic.endswith((".internal", "-internal", f"__{_INTERNAL}"))


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Whether `topic` has already passed through the cluster `target_alias`.

    With the identity policy names do not tell, so this is always false there unless the source is the target;
    `tidemill.mirror.config` refuses circles of identity flows instead.
    """
    while (source := policy.topic_source(topic)) is not None:
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        topic = upstream
    return False
