"""Java client settings in librdkafka's words

People's worker files and connector configurations carry settings of Kafka's Java clients: security of the worker, and
whatever stands behind `producer.`, `consumer.`, `admin.` or a connector's `…override.` prefixes. The clients here are
librdkafka. Most names are the same; the rest is one table of other spellings and a few that need thought (JAAS
sentences, class names, units). A setting without counterpart is reported, never silently dropped.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemill.core.security.client_tls import for_librdkafka


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAME = _names(
    """
    acks auto.commit.interval.ms auto.offset.reset batch.size bootstrap.servers check.crcs client.id client.rack
    compression.type connections.max.idle.ms delivery.timeout.ms enable.auto.commit enable.idempotence fetch.max.bytes
    fetch.min.bytes group.id group.instance.id heartbeat.interval.ms isolation.level linger.ms
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms metadata.max.age.ms
    queue.buffering.max.kbytes queue.buffering.max.messages reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.service.name sasl.mechanism
    sasl.password sasl.username security.protocol session.timeout.ms socket.connection.setup.timeout.ms
    transaction.timeout.ms transactional.id
    """
)
"""Settings both families spell alike, with librdkafka's own spelling of what Java keeps elsewhere."""

TLS = _names(
    """
    enable.ssl.certificate.verification ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type
    """
)
"""Settings of TLS that something comes of, by either family's name."""

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
}
"""Java's spelling to librdkafka's; that of TLS has a module of its own (`tidemill.core.security.client_tls`)."""

WITHOUT_EFFECT = _names(
    """
    allow.auto.create.topics auto.include.jmx.reporter client.dns.lookup default.api.timeout.ms exclude.internal.topics
    interceptor.classes key.deserializer key.serializer max.block.ms max.poll.records metadata.max.idle.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.class socket.connection.setup.timeout.max.ms value.deserializer value.serializer
    """
)
"""Java settings that have nothing to act on here."""

ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}

_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([^\s;]+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Settings for librdkafka, and the names of those that say nothing to it."""

    settings: Mapping[str, str]
    unknown: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)  # of those that are unknown for a particular one


def translate(java: Mapping[str, str]) -> Translation:
    """Put settings of a Java client into librdkafka's words.

    >>> translate({"fetch.max.wait.ms": "100", "key.serializer": "x", "nonsense": "1"})
    Translation(settings={'fetch.wait.max.ms': '100'}, unknown=('nonsense',), reasons={})
    """
    tls = for_librdkafka({name: value for name, value in java.items() if name in TLS})
    settings: dict[str, str] = {**tls.settings}
    unknown = [*tls.refused]
    for name, value in java.items():
        if name in TLS:
            continue
        if name in SAME:
            settings[name] = value
        elif name in RENAMED:
            settings[RENAMED[name]] = value
        elif name not in WITHOUT_EFFECT:
            pairs = dict(_special(name, value))
            settings.update(pairs)
            if not pairs:
                unknown.append(name)
    return Translation(settings=settings, unknown=tuple(unknown), reasons=tls.refused)


def _special(name: str, value: str) -> Iterator[tuple[str, str]]:
    match name:
        case "buffer.memory" if value.strip().isdigit():
            yield "queue.buffering.max.kbytes", str(max(1, int(value) // 1024))
        case "partition.assignment.strategy":
            yield name, ",".join(ASSIGNORS.get(part.strip(), part.strip()) for part in value.split(","))
        case "sasl.jaas.config":
            yield from _jaas(value)


def _jaas(sentence: str) -> Iterator[tuple[str, str]]:
    """User and password of a JAAS login sentence."""
    options = {
        m[1]: next(group for group in m.groups()[1:] if group is not None) for m in _JAAS_OPTION.finditer(sentence)
    }
    for option, setting in (("username", "sasl.username"), ("password", "sasl.password")):
        if option in options:
            yield setting, re.sub(r"\\(.)", r"\1", options[option])


def with_prefix(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings behind `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


SECURITY_PREFIXES = ("ssl.", "sasl.", "security.")


def security_settings(worker: Mapping[str, str]) -> dict[str, str]:
    """What a worker's own file says about reaching the Kafka cluster, for every client it makes."""
    return {name: value for name, value in worker.items() if name.startswith(SECURITY_PREFIXES)}
