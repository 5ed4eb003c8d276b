"""The settings of a worker and those every connector has

Three tables with Kafka Connect's names and defaults: the worker's, every connector's, and what sources and sinks have
on top. The worker's file of Apache Connect is accepted as it is; keys of it that have nothing to act on here (plugin
paths, group timeouts) are known and without effect, an unknown key is an error that names the nearest one.

What may be left out differs from Apache in one respect: everything may. A worker started with nothing but an address
of a Kafka cluster has a group, its three topics and JSON converters.

Keys of Apache's worker whose effect somebody relies on and does not get here (REST extensions, TLS listeners, config
providers, exactly-once sources) are refused by name: a worker must not be open where its file says that it is not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from tidemill.connect import group_keys, inter_worker, process_commands, task_isolation, task_limits
from tidemill.connect.api import ConverterSpec
from tidemill.connect.client_settings import (
    RENAMED,
    SAME,
    SECURITY_PREFIXES,
    TLS,
    WITHOUT_EFFECT,
    security_settings,
    translate,
    with_prefix,
)
from tidemill.connect.environments import settings as environment_settings
from tidemill.connect.environments.settings import EnvironmentSettings
from tidemill.connect.inter_worker import InterWorker
from tidemill.connect.references import references
from tidemill.connect.topic_log import TopicSpec
from tidemill.core.config import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    Importance,
    Validator,
    Value,
    in_range,
    not_empty,
)

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _key(
    name: str,
    type: ConfigType,
    default: Value,
    doc: str,
    importance: Importance = LOW,
    valid: Validator | None = None,
) -> ConfigKey:
    return ConfigKey(name=name, type=type, default=default, doc=doc, importance=importance, valid=valid)


def _required(name: str, doc: str, valid: Validator | None = None) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.STRING, default=REQUIRED, doc=doc, importance=HIGH, valid=valid)


# ------------------------------------------------------------------ converters

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"

CONVERTERS: Final[Mapping[str, str]] = {
    JSON_CONVERTER: "json",
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "JsonConverter": "json",
    "StringConverter": "string",
    "ByteArrayConverter": "bytes",
    "json": "json",
    "string": "string",
    "bytes": "bytes",
}
"""Every spelling of a converter, and its kind."""


def converter_problem(value: Value) -> str | None:
    """Validator of a converter setting."""
    if value in CONVERTERS:
        return None
    known = ", ".join(name for name in CONVERTERS if "." in name)
    return f"Class {value} could not be found: available converters are {known}, or json, string, bytes"


def header_notes(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Settings of header converters that are taken, so that Kafka's files pass, and do not change what headers are."""
    if CONVERTERS.get(config.get("header.converter", "").strip()) == "json":
        yield "header.converter", "has no effect: headers pass as they are, not as JSON"
    for option in sorted(with_prefix(config, "header.converter.").keys() - {"plugin.version"}):
        yield f"header.converter.{option}", "has no effect: headers pass as they are"


def converter(config: Mapping[str, str], role: str) -> ConverterSpec | None:
    """The converter that `config` names for `role` (`key` or `value`), with its options; None if it names none."""
    name = config.get(f"{role}.converter")
    kind = None if name is None else CONVERTERS.get(name.strip())
    return None if kind is None else ConverterSpec(kind=kind, options=with_prefix(config, f"{role}.converter."))


# ---------------------------------------------------------------------- worker

_COPIES = in_range(-1, 32767)
_COPIES_DOC = "Its copies, if it is created; when not set, no more than there are brokers"
_LISTENERS = "Address of the REST API, which asks nobody who they are; without a host every interface"


def _http_listener(value: Value) -> str | None:
    if isinstance(value, tuple) and len(value) > 1:
        return "the REST API listens on one address only"
    for listener in value if isinstance(value, tuple) else ():
        if not listener.lower().startswith("http://"):
            return f"{listener} is not an http:// address"
        try:
            Address.parse(listener)
        except ValueError as error:
            return str(error)
    return not_empty(value)


_POLICIES = ("All", "None", "Principal")
_POLICY_SUFFIX = "ConnectorClientConfigOverridePolicy"


def override_policy(text: str) -> str:
    """The short name of a policy, from that or from the name of its Java class."""
    return text.rpartition(".")[2].removesuffix(_POLICY_SUFFIX)


def _policy(value: Value) -> str | None:
    return None if override_policy(str(value)) in _POLICIES else f"it is not one of {', '.join(_POLICIES)}"


WORKER: Final = ConfigTable(
    [
        _key("bootstrap.servers", ConfigType.LIST, ("localhost:9092",), "Kafka cluster to work on", HIGH, not_empty),
        _key("group.id", ConfigType.STRING, "connect-cluster", "Workers of one group share the work", HIGH, not_empty),
        _key("config.storage.topic", ConfigType.STRING, "connect-configs", "Topic of what should run", HIGH, not_empty),
        _key("config.storage.replication.factor", ConfigType.SHORT, 3, _COPIES_DOC, LOW, _COPIES),
        _key("offset.storage.topic", ConfigType.STRING, "connect-offsets", "Topic of source offsets", HIGH, not_empty),
        _key("offset.storage.partitions", ConfigType.INT, 25, "Its partitions, if it is created", LOW, in_range(-1)),
        _key("offset.storage.replication.factor", ConfigType.SHORT, 3, _COPIES_DOC, LOW, _COPIES),
        _key("status.storage.topic", ConfigType.STRING, "connect-status", "Topic of what runs", HIGH, not_empty),
        _key("status.storage.partitions", ConfigType.INT, 5, "Its partitions, if it is created", LOW, in_range(-1)),
        _key("status.storage.replication.factor", ConfigType.SHORT, 3, _COPIES_DOC, LOW, _COPIES),
        _key("key.converter", ConfigType.CLASS, JSON_CONVERTER, "Converter of keys", HIGH, converter_problem),
        _key("value.converter", ConfigType.CLASS, JSON_CONVERTER, "Converter of values", HIGH, converter_problem),
        _key("listeners", ConfigType.LIST, ("http://127.0.0.1:8083",), _LISTENERS, MEDIUM, _http_listener),
        _key("rest.advertised.host.name", ConfigType.STRING, None, "Host others reach the REST API under"),
        _key("rest.advertised.port", ConfigType.INT, None, "Port others reach the REST API under"),
        _key("client.id", ConfigType.STRING, "", "Prefix of the names this worker's clients show to the cluster"),
        _key(
            "offset.flush.interval.ms",
            ConfigType.LONG,
            60_000,
            "Time between commits of source offsets",
            LOW,
            in_range(1),
        ),
        _key("offset.flush.timeout.ms", ConfigType.LONG, 5_000, "How long such a commit may take", LOW, in_range(1)),
        _key(
            "task.shutdown.graceful.timeout.ms",
            ConfigType.LONG,
            5_000,
            "Time a task has to stop by itself",
            LOW,
            in_range(0),
        ),
        _key("request.timeout.ms", ConfigType.INT, 40_000, "How long to wait for Kafka", LOW, in_range(1, 3_600_000)),
        *group_keys.KEYS,
        _key(
            "tidemill.task.cgroup",
            ConfigType.STRING,
            "auto",
            "Where tasks get control groups: `auto`, below the worker's own if it is alone in there; a folder of "
            "cgroup v2; or `none`",
            LOW,
            not_empty,
        ),
        task_isolation.WORKER_KEY,
        _key("topic.creation.enable", ConfigType.BOOLEAN, True, "Whether sources may create topics by their own rules"),
        _key("topic.tracking.enable", ConfigType.BOOLEAN, True, "Whether topics a connector used are recorded"),
        _key("topic.tracking.allow.reset", ConfigType.BOOLEAN, True, "Whether that record may be emptied by REST"),
        _key(
            "connector.client.config.override.policy",
            ConfigType.STRING,
            "All",
            "All, None or Principal: client settings a connector may override",
            LOW,
            _policy,
        ),
        process_commands.KEY,
        *environment_settings.KEYS,
        *inter_worker.KEYS,
    ]
)
"""Every key with an effect."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORKER_WITHOUT_EFFECT: Final = _names(
    """
    auto.include.jmx.reporter client.dns.lookup connect.protocol connections.max.idle.ms internal.key.converter
    internal.value.converter metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms plugin.discovery plugin.path
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms worker.sync.timeout.ms
    worker.unsync.backoff.ms
    """
)
"""Keys of Apache's worker that are accepted because files have them, and that nothing here reads."""

_PROXY = "put a reverse proxy in front of the REST API that does this, and let the worker listen on 127.0.0.1"
_SECRETS = "references to secrets are not resolved yet; write the values themselves"

WORKER_REFUSED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "access.control.allow.methods": (frozenset({""}), _PROXY),
    "access.control.allow.origin": (frozenset({""}), _PROXY),
    "admin.listeners": (frozenset(), "the admin endpoints are served with all others; " + _PROXY),
    "config.providers": (frozenset({""}), _SECRETS),
    "exactly.once.source.support": (frozenset({"", "disabled"}), "sources deliver at least once here"),
    "header.converter": (
        frozenset({"org.apache.kafka.connect.storage.SimpleHeaderConverter", "SimpleHeaderConverter", *CONVERTERS}),
        "headers pass as they are; remove the setting",
    ),
    **{
        f"{role}.converter.plugin.version": (frozenset({""}), "converters are part of the worker; remove the setting")
        for role in ("key", "value", "header")
    },
    "response.http.headers.config": (frozenset({""}), _PROXY),
    "rest.advertised.listener": (frozenset({"", "http"}), _PROXY),
    "rest.extension.classes": (frozenset({""}), "extensions of the REST API are Java classes; " + _PROXY),
}
"""Keys of Apache's worker that would change what people get: the values that mean what happens anyway, and advice."""

WORKER_PREFIXES_REFUSED: Final[Mapping[str, str]] = {
    "listeners.https.": "the REST API speaks HTTP only; " + _PROXY,
    "config.providers.": _SECRETS,
    "rest.extension.": "extensions of the REST API are Java classes; " + _PROXY,
}
"""The same for families of keys."""

WORKER_PREFIXES: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "metrics.context.",
    "internal.",
    *SECURITY_PREFIXES,
)
"""Families of keys that are passed on or have no effect as a whole."""


class Address(NamedTuple):
    """Where the REST API listens; an empty host is every interface, port 0 any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `HOST:PORT`, `:PORT`, `[V6]:PORT` or any of them after `http://`."""
        parts = urlsplit(text if "//" in text else f"//{text}")
        try:
            port = parts.port
        except ValueError:
            port = None
        if port is None or parts.path.strip("/"):
            raise ValueError(f"{text} is not HOST:PORT")
        return cls(parts.hostname or "", port)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A worker's settings, parsed."""

    bootstrap_servers: str
    group_id: str
    config_topic: TopicSpec
    offset_topic: TopicSpec
    status_topic: TopicSpec
    key_converter: ConverterSpec
    value_converter: ConverterSpec
    listener: Address
    advertised_host: str | None
    advertised_port: int | None
    client_id: str
    client: Mapping[str, str]  # librdkafka settings of every client
    producer: Mapping[str, str]  # further ones of sources' producers
    consumer: Mapping[str, str]  # further ones of sinks' consumers
    offset_flush_interval_ms: int
    offset_flush_timeout_ms: int
    task_shutdown_ms: int
    request_timeout_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    return_ms: int
    group_protocol: str
    task_cgroup: str
    task_shared_max: int
    topic_creation: bool
    topic_tracking: bool
    topic_tracking_reset: bool
    override_policy: str
    process_commands: tuple[tuple[str, ...], ...]  # beginnings of what may be run
    environments: EnvironmentSettings
    inter_worker: InterWorker
    notes: tuple[str, ...]  # what was accepted but does nothing, for the log


def parse_worker(raw: Mapping[str, str]) -> WorkerConfig:
    """Read a worker's settings; raises one ConfigError that lists every problem."""
    known = {name: value for name, value in raw.items() if name in WORKER}
    rest = {name: value for name, value in raw.items() if name not in WORKER}
    problems = [*_refused(rest), *(problem.text for problem in references(raw))]
    problems += [WORKER.unknown(name) for name in rest if not _is_known(name)]
    values: dict[str, Value] = {}
    try:
        values = WORKER.parse(known)
    except ConfigError as error:
        problems.extend(error.problems)
    problems += inter_worker.problems(values)
    problems += [*group_keys.problems(values), *environment_settings.problems(values)]
    if problems:
        raise ConfigError(problems)
    client = translate(security_settings(rest))
    producer, consumer = (translate(with_prefix(rest, prefix)) for prefix in ("producer.", "consumer."))
    ignored = [f"{name} has no effect" for name in rest if name in WORKER_WITHOUT_EFFECT]
    ignored += [f"{name} {text}" for name, text in header_notes(rest)]
    for prefix, translation in (("", client), ("producer.", producer), ("consumer.", consumer)):
        refused = translation.reasons
        problems += [f"{prefix}{name} cannot be honoured: {reason}" for name, reason in refused.items()]
        left = (name for name in translation.unknown if name not in refused)
        ignored += [f"{prefix}{name} has no counterpart in librdkafka" for name in left]
    if problems:
        raise ConfigError(problems)
    return _worker_config(values, raw, rest, client.settings, producer.settings, consumer.settings, tuple(ignored))


def known_names(_given: Mapping[str, str] | None = None) -> Iterator[str]:
    """Every key of a worker that has a fixed name, whatever else was given; families have more (`WORKER_PREFIXES`)."""
    yield from WORKER.names()
    yield from WORKER_WITHOUT_EFFECT
    yield from WORKER_REFUSED
    for role in ("key", "value"):
        yield f"{role}.converter.schemas.enable"
    client = (*SAME, *TLS, *RENAMED, "sasl.jaas.config", "buffer.memory", "partition.assignment.strategy")
    yield from (name for name in client if name.startswith(SECURITY_PREFIXES))
    yield from (f"{role}.{name}" for role in ("producer", "consumer") for name in (*client, *WITHOUT_EFFECT))


def _is_known(name: str) -> bool:
    families = (*WORKER_PREFIXES, *WORKER_PREFIXES_REFUSED)
    return name in WORKER_WITHOUT_EFFECT or name in WORKER_REFUSED or name.startswith(families)


def _refused(settings: Mapping[str, str]) -> Iterator[str]:
    for name, value in settings.items():
        if name in WORKER_REFUSED:
            harmless, advice = WORKER_REFUSED[name]
            if value.strip() not in harmless:
                yield f"{name}={value} is not supported: {advice}"
            continue
        for prefix, advice in WORKER_PREFIXES_REFUSED.items():
            if name.startswith(prefix):
                yield f"{name} is not supported: {advice}"


def _worker_config(
    values: Mapping[str, Value],
    raw: Mapping[str, str],
    rest: Mapping[str, str],
    client: Mapping[str, str],
    producer: Mapping[str, str],
    consumer: Mapping[str, str],
    notes: tuple[str, ...],
) -> WorkerConfig:
    def text(name: str) -> str:
        return str(values[name])

    def number(name: str) -> int:
        return cast(int, values[name])

    def several(name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", values[name])

    def topic(role: str, partitions: int) -> TopicSpec:
        prefix = f"{role}.storage."
        further = {
            k: v for k, v in with_prefix(rest, prefix).items() if k not in ("topic", "partitions", "replication.factor")
        }
        return TopicSpec(
            name=text(f"{prefix}topic"),
            partitions=partitions,
            replication_factor=number(f"{prefix}replication.factor"),
            at_most=f"{prefix}replication.factor" not in raw,
            config=further,
        )

    def role_converter(role: str) -> ConverterSpec:
        return ConverterSpec(
            kind=CONVERTERS[text(f"{role}.converter")], options=with_prefix(rest, f"{role}.converter.")
        )

    bootstrap = ",".join(several("bootstrap.servers"))
    group = text("group.id")
    return WorkerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        config_topic=topic("config", 1),
        offset_topic=topic("offset", number("offset.storage.partitions")),
        status_topic=topic("status", number("status.storage.partitions")),
        key_converter=role_converter("key"),
        value_converter=role_converter("value"),
        listener=Address.parse(several("listeners")[0]),
        advertised_host=cast("str | None", values["rest.advertised.host.name"]),
        advertised_port=cast("int | None", values["rest.advertised.port"]),
        client_id=text("client.id") or f"connect-{group}",
        client={"bootstrap.servers": bootstrap, **client},
        producer=producer,
        consumer=consumer,
        offset_flush_interval_ms=number("offset.flush.interval.ms"),
        offset_flush_timeout_ms=number("offset.flush.timeout.ms"),
        task_shutdown_ms=number("task.shutdown.graceful.timeout.ms"),
        request_timeout_ms=number("request.timeout.ms"),
        session_timeout_ms=number("session.timeout.ms"),
        heartbeat_interval_ms=number("heartbeat.interval.ms"),
        rebalance_timeout_ms=number("rebalance.timeout.ms"),
        return_ms=number("scheduled.rebalance.max.delay.ms"),
        group_protocol=text("tidemill.group.protocol"),
        task_cgroup=text("tidemill.task.cgroup"),
        task_shared_max=number(task_isolation.SHARED_MAX),
        topic_creation=bool(values["topic.creation.enable"]),
        topic_tracking=bool(values["topic.tracking.enable"]),
        topic_tracking_reset=bool(values["topic.tracking.allow.reset"]),
        override_policy=override_policy(text("connector.client.config.override.policy")),
        process_commands=process_commands.parsed(values),
        environments=environment_settings.parsed(values),
        inter_worker=inter_worker.parsed(values),
        notes=notes,
    )


# ------------------------------------------------------------------ connectors


class ConnectorKey(NamedTuple):
    """A setting of a connector, with what a form needs to show it."""

    key: ConfigKey
    group: str
    order: int
    width: str
    display_name: str


_COMMON, _ERRORS, _CREATION, _EXACTLY_ONCE = "Common", "Error Handling", "Topic Creation", "Exactly Once Support"


def _connector_name(value: Value) -> str | None:
    if not value:
        return "String may not be empty"
    if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in str(value)):
        return "String may not contain control sequences but had the following ASCII chars: control characters"
    return None


def _either(*choices: str) -> Validator:
    """One of some words, refused in Connect's."""
    return lambda value: None if value in choices else f"String must be one of: {', '.join(choices)}"


def _regex(value: Value) -> str | None:
    try:
        re.compile(str(value))
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


def _row(group: str, order: int, width: str, display_name: str, key: ConfigKey) -> ConnectorKey:
    return ConnectorKey(key, group, order, width, display_name)


CONNECTOR: Final = (
    _row(
        _COMMON,
        1,
        "MEDIUM",
        "Connector name",
        _required("name", "Name of the connector, unique in the group.", _connector_name),
    ),
    _row(
        _COMMON,
        2,
        "LONG",
        "Connector class",
        _required(
            "connector.class",
            "Plugin to run: its name, its Java class, or either without package and Connector suffix.",
        ),
    ),
    _row(
        _COMMON,
        3,
        "MEDIUM",
        "Connector version",
        _key(
            "connector.plugin.version", ConfigType.STRING, None, "Version of the plugin, or a range: [1.0,2.0).", MEDIUM
        ),
    ),
    _row(
        _COMMON,
        4,
        "SHORT",
        "Tasks max",
        _key("tasks.max", ConfigType.INT, 1, "Most tasks the connector may be split into.", HIGH, in_range(1)),
    ),
    _row(
        _COMMON,
        5,
        "SHORT",
        "Enforce tasks max",
        _key("tasks.max.enforce", ConfigType.BOOLEAN, True, "Whether more tasks than tasks.max are a failure."),
    ),
    _row(
        _COMMON,
        6,
        "SHORT",
        "Key converter class",
        _key(
            "key.converter",
            ConfigType.CLASS,
            None,
            "Converter of keys; the worker's if absent.",
            LOW,
            converter_problem,
        ),
    ),
    _row(
        _COMMON,
        8,
        "SHORT",
        "Value converter class",
        _key(
            "value.converter",
            ConfigType.CLASS,
            None,
            "Converter of values; the worker's if absent.",
            LOW,
            converter_problem,
        ),
    ),
    _row(
        _COMMON,
        10,
        "SHORT",
        "Header converter class",
        _key("header.converter", ConfigType.CLASS, None, "No effect: headers pass as bytes."),
    ),
    _row(
        "Transforms",
        12,
        "LONG",
        "Transforms",
        _key("transforms", ConfigType.LIST, (), "Aliases of the transformations to apply, in order."),
    ),
    _row(
        "Predicates",
        13,
        "LONG",
        "Predicates",
        _key("predicates", ConfigType.LIST, (), "Aliases of the predicates transformations use."),
    ),
    _row(
        _COMMON,
        14,
        "MEDIUM",
        "Reload Action",
        _key(
            "config.action.reload",
            ConfigType.STRING,
            "restart",
            "What to do when a referenced secret changes: none or restart.",
            LOW,
            _either("none", "restart"),
        ),
    ),
    _row(
        _COMMON,
        15,
        "SHORT",
        "Restart after transient failures",
        _key("tidemill.restart.transient", ConfigType.BOOLEAN, False, "Whether tasks try transient failures again."),
    ),
    *(_row(_COMMON, 16 + number, "SHORT", name, key) for number, (name, key) in enumerate(task_limits.KEYS)),
    _row(_COMMON, 16 + len(task_limits.KEYS), "SHORT", "Task isolation", task_isolation.KEY),
    _row(
        _ERRORS,
        1,
        "MEDIUM",
        "Retry Timeout for Errors",
        _key(
            "errors.retry.timeout",
            ConfigType.LONG,
            0,
            "How long a failing operation is repeated, in ms; -1 is for ever.",
            MEDIUM,
            in_range(-1),
        ),
    ),
    _row(
        _ERRORS,
        2,
        "MEDIUM",
        "Maximum Delay Between Retries for Errors",
        _key(
            "errors.retry.delay.max.ms",
            ConfigType.LONG,
            60_000,
            "Longest pause between repetitions.",
            MEDIUM,
            in_range(1),
        ),
    ),
    _row(
        _ERRORS,
        3,
        "SHORT",
        "Error Tolerance",
        _key(
            "errors.tolerance",
            ConfigType.STRING,
            "none",
            "none: the first bad record fails the task; all: bad records are skipped.",
            MEDIUM,
            _either("none", "all"),
        ),
    ),
    _row(
        _ERRORS,
        4,
        "SHORT",
        "Log Errors",
        _key("errors.log.enable", ConfigType.BOOLEAN, False, "Whether tolerated errors are logged.", MEDIUM),
    ),
    _row(
        _ERRORS,
        5,
        "SHORT",
        "Log Error Details",
        _key("errors.log.include.messages", ConfigType.BOOLEAN, False, "Whether that log shows the record.", MEDIUM),
    ),
)
"""What every connector may set."""

SOURCE: Final = (
    _row(
        _CREATION,
        1,
        "LONG",
        "Topic Creation Groups",
        _key("topic.creation.groups", ConfigType.LIST, (), "Groups of settings for topics the connector creates."),
    ),
    _row(
        _EXACTLY_ONCE,
        2,
        "SHORT",
        "Exactly once support",
        _key(
            "exactly.once.support",
            ConfigType.STRING,
            "requested",
            "requested or required.",
            MEDIUM,
            _either("requested", "required"),
        ),
    ),
    _row(
        _EXACTLY_ONCE,
        3,
        "SHORT",
        "Transaction Boundary",
        _key(
            "transaction.boundary",
            ConfigType.STRING,
            "poll",
            "poll, interval or connector.",
            MEDIUM,
            _either("poll", "interval", "connector"),
        ),
    ),
    _row(
        _EXACTLY_ONCE,
        4,
        "SHORT",
        "Transaction boundary interval",
        _key(
            "transaction.boundary.interval.ms",
            ConfigType.LONG,
            None,
            "Time between commits with transaction.boundary=interval.",
        ),
    ),
    _row(
        "offsets.topic",
        1,
        "LONG",
        "Offsets topic",
        _key("offsets.storage.topic", ConfigType.STRING, None, "A topic of its own for the connector's offsets."),
    ),
)
"""What sources may set on top."""

SINK: Final = (
    _row(_COMMON, 4, "LONG", "Topics", _key("topics", ConfigType.LIST, (), "Topics to read.", HIGH)),
    _row(
        _COMMON,
        4,
        "LONG",
        "Topics regex",
        _key("topics.regex", ConfigType.STRING, "", "Regular expression of the topics to read.", HIGH, _regex),
    ),
    _row(
        _ERRORS,
        6,
        "MEDIUM",
        "Dead Letter Queue Topic Name",
        _key(
            "errors.deadletterqueue.topic.name",
            ConfigType.STRING,
            "",
            "Topic for records that could not be handled.",
            MEDIUM,
        ),
    ),
    _row(
        _ERRORS,
        7,
        "MEDIUM",
        "Dead Letter Queue Topic Replication Factor",
        _key(
            "errors.deadletterqueue.topic.replication.factor",
            ConfigType.SHORT,
            3,
            "Its copies, if it is created.",
            MEDIUM,
        ),
    ),
    _row(
        _ERRORS,
        8,
        "MEDIUM",
        "Enable Error Context Headers",
        _key(
            "errors.deadletterqueue.context.headers.enable",
            ConfigType.BOOLEAN,
            False,
            "Whether such a record carries headers that say what happened.",
            MEDIUM,
        ),
    ),
)
"""What sinks may set on top."""

CONNECTOR_PREFIXES: Final = (
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "transforms.",
    "predicates.",
    "topic.creation.",
    "producer.override.",
    "consumer.override.",
    "admin.override.",
)
"""Families of settings that belong to Connect, not to the plugin."""


def groups(rows: Iterable[ConnectorKey]) -> list[str]:
    """Group names in the order in which they first appear."""
    return list(dict.fromkeys(row.group for row in rows))
