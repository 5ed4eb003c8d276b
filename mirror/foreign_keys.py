"""Keys of MirrorMaker 2, Connect and Kafka's clients that do nothing here

Each is one of two kinds. A harmless one tunes how those programs work (threads, buffers, their own internal topics,
their metrics): what arrives on the target is the same without it. It is accepted and reported once. A key that would
change what arrives is refused with the reason, unless its value asks for no more than what is done anyway: to take it
and do nothing would hand over something else than what was asked for.

Pure: `tidemill.mirror.config` sorts the keys of a file and asks here about those it does not honour.
"""

from dataclasses import dataclass

_MM2 = "org.apache.kafka.connect.mirror."
_BYTES = frozenset({"org.apache.kafka.connect.converters.bytearrayconverter"})
_AS_BYTES = "batches are mirrored as bytes"
CLIENT_ROLES = ("consumer", "producer", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a key is not taken, and the values (in lower case) with which it asks for nothing more than is done."""

    reason: str
    harmless: frozenset[str] = frozenset()


_FLOW_REFUSED: dict[str, Refusal] = {
    "topic.filter.class": Refusal(
        reason="topics are chosen by `topics` and `topics.exclude` alone; remove it",
        harmless=frozenset({f"{_MM2}DefaultTopicFilter".lower()}),
    ),
    "group.filter.class": Refusal(
        reason="groups are chosen by `groups` and `groups.exclude` alone; remove it",
        harmless=frozenset({f"{_MM2}DefaultGroupFilter".lower()}),
    ),
    "config.property.filter.class": Refusal(
        reason="settings are chosen by `config.properties.exclude` alone; remove it",
        harmless=frozenset({f"{_MM2}DefaultConfigPropertyFilter".lower()}),
    ),
    "forwarding.admin.class": Refusal(
        reason="topics are created and changed on the target itself; remove it",
        harmless=frozenset({"org.apache.kafka.clients.admin.forwardingadmin"}),
    ),
    "sync.topic.acls.enabled": Refusal(
        reason="ACLs are not mirrored; set it to false and create them on the target", harmless=frozenset({"false"})
    ),
    "transforms": Refusal(reason=f"{_AS_BYTES}, no transform is applied; remove it", harmless=frozenset({""})),
    "predicates": Refusal(reason=f"{_AS_BYTES}, no transform is applied; remove it", harmless=frozenset({""})),
    "key.converter": Refusal(reason=f"{_AS_BYTES}, nothing is converted; remove it", harmless=_BYTES),
    "value.converter": Refusal(reason=f"{_AS_BYTES}, nothing is converted; remove it", harmless=_BYTES),
    "header.converter": Refusal(
        reason=f"{_AS_BYTES}, nothing is converted; remove it",
        harmless=_BYTES | {"org.apache.kafka.connect.storage.simpleheaderconverter"},
    ),
    "errors.tolerance": Refusal(
        reason="no record is ever left out: a partition with one that the target refuses waits and says so; remove it",
        harmless=frozenset({"none"}),
    ),
    "config.providers": Refusal(
        reason="values are taken as they are written, ${…} is not looked up; write them out and remove it",
        harmless=frozenset({""}),
    ),
    "topics.blacklist": Refusal(reason="it is called `topics.exclude` now"),
    "groups.blacklist": Refusal(reason="it is called `groups.exclude` now"),
    "config.properties.blacklist": Refusal(reason="it is called `config.properties.exclude` now"),
    "topics.regex": Refusal(reason="`topics` takes regular expressions"),
    "source.cluster.alias": Refusal(reason="the key's flow, as in `A->B.topics`, names the clusters"),
    "target.cluster.alias": Refusal(reason="the key's flow, as in `A->B.topics`, names the clusters"),
}
_FLOW_REFUSED_PREFIXES = ("transforms.", "predicates.", "config.providers.")

FLOW_HARMLESS = frozenset(
    {
        "add.source.alias.to.metrics",
        "admin.listeners",
        "admin.timeout.ms",
        "auto.include.jmx.reporter",
        "client.id",
        "config.action.reload",
        "config.storage.replication.factor",
        "config.storage.topic",
        "connect.protocol",
        "connector.class",
        "connector.client.config.override.policy",
        "consumer.poll.timeout.ms",
        "dedicated.mode.enable.internal.rest",
        "errors.log.enable",
        "errors.log.include.messages",
        "errors.retry.delay.max.ms",
        "errors.retry.timeout",
        "exactly.once.source.support",
        "exactly.once.support",
        "group.id",
        "heartbeat.interval.ms",
        "listeners",
        "metric.names.formats",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "name",
        "offset.flush.interval.ms",
        "offset.flush.timeout.ms",
        "offset.lag.max",
        "offset.storage.partitions",
        "offset.storage.replication.factor",
        "offset.storage.topic",
        "offsets.storage.topic",
        "plugin.discovery",
        "plugin.path",
        "rebalance.timeout.ms",
        "response.http.headers.config",
        "rest.advertised.host.name",
        "rest.advertised.listener",
        "rest.advertised.port",
        "rest.extension.classes",
        "scheduled.rebalance.max.delay.ms",
        "session.timeout.ms",
        "source.cluster.producer.enable.idempotence",
        "status.storage.partitions",
        "status.storage.replication.factor",
        "status.storage.topic",
        "sync.topic.acls.interval.seconds",
        "target.cluster.producer.enable.idempotence",
        "task.shutdown.graceful.timeout.ms",
        "tasks.max",
        "tasks.max.enforce",
        "topic.creation.enable",
        "topic.creation.groups",
        "topic.tracking.allow.reset",
        "topic.tracking.enable",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "worker.sync.timeout.ms",
        "worker.unsync.backoff.ms",
    }
)
"""Settings of flows and workers that change nothing that arrives."""

_FLOW_HARMLESS_PREFIXES = ("access.control.", "inter.worker.", "listeners.", "topic.creation.")

_CLIENT_REFUSED: dict[str, Refusal] = {
    "compression.type": Refusal(
        reason="batches keep the codec of the source; remove it, or set compression.type of the target's topics",
        harmless=frozenset({"none", "producer"}),
    ),
    "interceptor.classes": Refusal(reason=f"{_AS_BYTES}, nothing intercepts them; remove it", harmless=frozenset({""})),
}

CLIENT_HARMLESS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "batch.size",
        "bootstrap.controllers",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "key.deserializer",
        "key.serializer",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "throw.on.fetch.stable.offset.unsupported",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
        "transactional.id",
        "value.deserializer",
        "value.serializer",
    }
)
"""Settings of Kafka's clients that change nothing that arrives."""


def without_role(key: str) -> str:
    """A client setting without its role.

    >>> without_role("consumer.fetch.min.bytes"), without_role("source.consumer.client.id"), without_role("topics")
    ('fetch.min.bytes', 'client.id', 'topics')
    """
    for side in ("source.cluster.", "target.cluster.", "source.", "target."):
        key = key.removeprefix(side)
    role, dot, rest = key.partition(".")
    return rest if dot and role in CLIENT_ROLES else key


def judge(key: str, value: str) -> str | None:
    """Why a key that is not honoured is refused with this value; empty if it is harmless, None if nobody knows it."""
    name = without_role(key)
    refusal = _FLOW_REFUSED.get(key) or _CLIENT_REFUSED.get(name)
    if refusal is not None:
        return "" if value.strip().lower() in refusal.harmless else refusal.reason
    if key.startswith(_FLOW_REFUSED_PREFIXES):
        return _FLOW_REFUSED[next(prefix for prefix in _FLOW_REFUSED_PREFIXES if key.startswith(prefix))[:-1]].reason
    if key in FLOW_HARMLESS or key.startswith(_FLOW_HARMLESS_PREFIXES) or name in CLIENT_HARMLESS:
        return ""
    return None
