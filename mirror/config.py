"""`mm2.properties`: clusters, flows and their settings

MirrorMaker 2's grammar. `clusters = A, B` names the clusters; `A.bootstrap.servers` and `A.consumer.…`, `A.producer.…`,
`A.admin.…` belong to one of them; `A->B.<key>` belongs to a flow and a bare `<key>` to every flow. A flow is off until
`A->B.enabled = true`, but heartbeats go into every cluster that is named as a target, since otherwise the enabled
flows would have none to carry.

A key nobody knows is an error that names the nearest known one. A key of MirrorMaker 2, Connect or Kafka's clients that
is not honoured here is refused where what arrives would differ, and otherwise accepted and reported once
(`MirrorConfig.without_effect`); `tidemill.mirror.foreign_keys` says which is which.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemill.core.client.batches import READ_COMMITTED, READ_UNCOMMITTED
from tidemill.core.client.connection import parse_addresses
from tidemill.core.config import ConfigError, ConfigKey, ConfigTable, ConfigType, Importance, Value, in_range, one_of
from tidemill.core.security.client_tls import CLIENT_NAMES, client_tls
from tidemill.mirror.foreign_keys import CLIENT_HARMLESS, CLIENT_ROLES, FLOW_HARMLESS, judge, without_role
from tidemill.mirror.link_events import Reset
from tidemill.mirror.naming import DefaultPolicy, IdentityPolicy, ReplicationPolicy
from tidemill.mirror.selection import BadPattern, NameFilter, TopicSelection

ARROW = "->"
_MM2 = "org.apache.kafka.connect.mirror."
_POLICIES = {
    "default": False,
    f"{_MM2}DefaultReplicationPolicy": False,
    "identity": True,
    f"{_MM2}IdentityReplicationPolicy": True,
}
_BOOL, _INT, _STR, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, ConfigType.LIST


def _key(name: str, kind: ConfigType, default: Value, doc: str, *, high: bool = False) -> ConfigKey:
    valid = in_range(low=1) if kind is _INT else None
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        doc=doc,
        valid=valid,
        importance=Importance.HIGH if high else Importance.MEDIUM,
    )


def _interval(name: str, enabled: bool, seconds: int, doc: str) -> tuple[ConfigKey, ConfigKey]:
    return (
        _key(f"{name}.enabled", _BOOL, enabled, doc, high=True),
        _key(f"{name}.interval.seconds", _INT, seconds, f"how often: {doc}"),
    )


FLOW_TABLE = ConfigTable(
    [
        _key("enabled", _BOOL, False, "mirror topics along this flow", high=True),
        _key("topics", _LIST, (".*",), "patterns of topics to mirror", high=True),
        _key("topics.exclude", _LIST, (r".*[\-\.]internal", r".*\.replica", "__.*"), "patterns of topics not to"),
        _key("groups", _LIST, (".*",), "patterns of consumer groups whose positions are carried", high=True),
        _key("groups.exclude", _LIST, ("console-consumer-.*", "connect-.*", "__.*"), "patterns of groups not to"),
        _key(
            "config.properties.exclude",
            _LIST,
            (
                r"follower\.replication\.throttled\.replicas",
                r"leader\.replication\.throttled\.replicas",
                r"message\.timestamp\.difference\.max\.ms",
                r"message\.timestamp\.type",
                r"unclean\.leader\.election\.enable",
                r"min\.insync\.replicas",
            ),
            "patterns of topic settings not to carry",
        ),
        ConfigKey(
            name="use.defaults.from",
            type=_STR,
            default="target",
            doc="whose default a topic setting has that the source leaves at its default",
            valid=one_of("source", "target"),
        ),
        _key("replication.factor", _INT, 2, "replicas of mirrored topics; fewer where the target has fewer brokers"),
        _key("offset-map.topic.replication.factor", _INT, 3, "replicas of the offset map's topic"),
        _key("offset-syncs.topic.replication.factor", _INT, 3, "replicas of the offset-sync topic"),
        _key("checkpoints.topic.replication.factor", _INT, 3, "replicas of the checkpoint topic"),
        _key("heartbeats.topic.replication.factor", _INT, 3, "replicas of the heartbeat topic"),
        ConfigKey(
            name="offset-syncs.topic.location",
            type=_STR,
            default="source",
            doc="which cluster holds the offset-sync topic",
            valid=one_of("source", "target"),
        ),
        ConfigKey(
            name="replication.policy.class",
            type=ConfigType.CLASS,
            default="default",
            doc="`default` prefixes topics with their source, `identity` keeps names; the Java class names work too",
            valid=one_of(*_POLICIES),
            importance=Importance.HIGH,
        ),
        _key("replication.policy.separator", _STR, ".", "between alias and topic"),
        _key("replication.policy.internal.topic.separator.enabled", _BOOL, True, "use it in internal topic names too"),
        *_interval("refresh.topics", True, 600, "look for new topics and partitions"),
        _key("refresh.groups.enabled", _BOOL, True, "look for new consumer groups, not only at the start", high=True),
        _key(
            "refresh.groups.interval.seconds",
            _INT,
            600,
            "changes nothing: groups are looked for whenever checkpoints are written or positions committed",
        ),
        *_interval("sync.topic.configs", True, 600, "carry changed topic settings"),
        *_interval("emit.checkpoints", True, 60, "write checkpoints"),
        *_interval("sync.group.offsets", False, 60, "commit translated positions for groups idle on the target"),
        *_interval("emit.heartbeats", True, 1, "write heartbeats into the target"),
        _key("emit.offset-syncs.enabled", _BOOL, True, "write MirrorMaker 2's offset syncs"),
        _key("heartbeats.replication.enabled", _BOOL, True, "mirror heartbeat topics whatever `topics` says"),
    ]
)
"""Every setting of a flow that has an effect."""

CONSUMER_TABLE = ConfigTable(
    [
        ConfigKey(
            name="auto.offset.reset",
            type=_STR,
            default=Reset.EARLIEST.value,
            doc="where a new partition starts, and whether to go on (earliest) when the source has deleted the next "
            "records; otherwise the partition stops",
            valid=one_of(*(reset.value for reset in Reset)),
        ),
        ConfigKey(
            name="isolation.level",
            type=_STR,
            default="read_committed",
            doc="read_committed leaves aborted transactions out; MirrorMaker 2 copies them by default",
            valid=one_of("read_committed", "read_uncommitted"),
        ),
        _key("fetch.max.wait.ms", _INT, 500, "how long a fetch waits for records"),
        _key("fetch.max.bytes", _INT, 16 * 1024 * 1024, "most bytes of one fetch answer"),
    ]
)
"""Settings under `<cluster>.consumer.` that have an effect."""

_SECURITY_PREFIXES = ("sasl.", "ssl.")
_NEAREST = 0.8  # how alike a key has to be before it is suggested


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster and how to read from it."""

    alias: str
    bootstrap_servers: str
    reset: Reset = Reset.EARLIEST
    isolation_level: int = READ_COMMITTED
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 16 * 1024 * 1024
    security: Mapping[str, str] = field(default_factory=dict, repr=False)  # `security.protocol` and `ssl.*`


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Something done regularly, or not at all."""

    enabled: bool
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """One direction between two clusters."""

    source: str
    target: str
    enabled: bool
    policy: ReplicationPolicy
    selection: TopicSelection
    groups: NameFilter
    configs_exclude: NameFilter  # `accepts` means: do not carry
    defaults_from_source: bool
    replication_factor: int
    replication_factors: Mapping[str, int]  # of internal topics: offset-map, offset-syncs, checkpoints, heartbeats
    syncs_on_source: bool
    refresh_topics: Interval
    refresh_groups: bool
    sync_topic_configs: Interval
    emit_checkpoints: Interval
    sync_group_offsets: Interval
    emit_heartbeats: Interval
    emit_offset_syncs: bool

    @property
    def name(self) -> str:
        """`A->B`."""
        return f"{self.source}{ARROW}{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """The whole file."""

    clusters: Mapping[str, ClusterConfig]
    flows: tuple[FlowConfig, ...]  # every ordered pair of clusters; most are not enabled
    without_effect: tuple[str, ...] = field(default=())

    def flow(self, source: str, target: str) -> FlowConfig:
        """The flow between two named clusters."""
        return next(flow for flow in self.flows if (flow.source, flow.target) == (source, target))

    def enabled_flows(self, targets: Iterable[str] | None = None) -> tuple[FlowConfig, ...]:
        """Flows that mirror, only those into `targets` if given."""
        return tuple(flow for flow in self.flows if flow.enabled and (targets is None or flow.target in set(targets)))


def known_names(given: Mapping[str, str]) -> Iterator[str]:
    """Every key with an effect, for the clusters that `given` names."""
    yield "clusters"
    yield from FLOW_TABLE.names()
    aliases = tuple(filter(None, (part.strip() for part in given.get("clusters", "").split(","))))
    for alias in aliases:
        yield f"{alias}.bootstrap.servers"
        yield from (f"{alias}.{name}" for name in CLIENT_NAMES)
        yield from (f"{alias}.consumer.{name}" for name in CONSUMER_TABLE.names())
        others = (other for other in aliases if other != alias)
        yield from (f"{alias}{ARROW}{other}.{name}" for other in others for name in FLOW_TABLE.names())


def parse_mirror_config(raw: Mapping[str, str]) -> MirrorConfig:
    """Read the settings of an `mm2.properties` file; raises ConfigError listing every problem."""
    return _Parser(raw).parse()


class _Parser:
    """Sorts keys by what they belong to, collecting problems on the way."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = raw
        self._aliases = tuple(filter(None, (part.strip() for part in raw.get("clusters", "").split(","))))
        self._problems: list[str] = []
        self._without_effect: list[str] = []
        self._cluster_keys: dict[str, dict[str, str]] = {alias: {} for alias in self._aliases}
        self._flow_keys: dict[tuple[str, str], dict[str, str]] = {}
        self._bare: dict[str, str] = {}
        self._security: dict[str, dict[str, str]] = {alias: {} for alias in ("", *self._aliases)}  # "": of them all

    def parse(self) -> MirrorConfig:
        if len(self._aliases) < 2:
            raise ConfigError(["clusters must name at least two clusters, as in `clusters = A, B`"])
        if len(set(self._aliases)) < len(self._aliases):
            raise ConfigError([f"clusters names one twice: {', '.join(self._aliases)}"])
        for name, value in self._raw.items():
            if name != "clusters":
                self._sort(name, value)
        clusters = {alias: self._cluster(alias) for alias in self._aliases}
        flows = [self._flow(source, target) for source, target in self._pairs()]
        if not self._problems:
            self._problems.extend(identity_circles(flow for flow in flows if flow is not None))
        if self._problems:
            raise ConfigError(self._problems)
        return MirrorConfig(
            clusters={alias: cluster for alias, cluster in clusters.items() if cluster is not None},
            flows=tuple(flow for flow in flows if flow is not None),
            without_effect=tuple(self._without_effect),
        )

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for source in self._aliases:
            for target in self._aliases:
                if source != target:
                    yield source, target

    # -- sorting keys

    def _sort(self, name: str, value: str) -> None:
        source, arrow, rest = name.partition(ARROW)
        if arrow:
            target = next((alias for alias in self._by_length() if rest.startswith(alias + ".")), None)
            if source not in self._aliases or target is None:
                self._problems.append(f"{name!r} names a cluster that is not in clusters = {', '.join(self._aliases)}")
                return
            self._flow_keys.setdefault((source, target), {})[rest[len(target) + 1 :]] = value
            self._check_flow_key(name, rest[len(target) + 1 :])
            return
        alias = next((alias for alias in self._by_length() if name.startswith(alias + ".")), None)
        if alias is not None:
            self._cluster_keys[alias][name[len(alias) + 1 :]] = value
            return
        self._bare[name] = value
        self._check_flow_key(name, name)

    def _by_length(self) -> list[str]:
        return sorted(self._aliases, key=len, reverse=True)

    def _check_flow_key(self, full: str, key: str) -> None:
        if key in FLOW_TABLE:
            return
        role, _, rest = key.partition(".")
        if without_role(key) == "security.protocol" or without_role(key).startswith(_SECURITY_PREFIXES):
            if ARROW in full:
                self._problems.append(f"{full} belongs to a cluster: write it as <alias>.{without_role(key)}")
            else:
                self._security[""][without_role(key)] = self._raw[full]
            return
        if role == "consumer" and rest in CONSUMER_TABLE:
            self._problems.append(f"{full} belongs to the cluster that is read: write it as <alias>.{key}")
            return
        self._judge(full, key, (*FLOW_TABLE.names(), *FLOW_HARMLESS, "clusters"))

    def _judge(self, full: str, key: str, known: Iterable[str]) -> None:
        """Take note of a key that is not honoured: harmless, refused, or unknown."""
        refused = judge(key, self._raw[full])
        if refused is None:
            near = difflib.get_close_matches(key, list(known), n=1, cutoff=_NEAREST)
            hint = f": did you mean {full.removesuffix(key) + near[0]!r}?" if near else ""
            self._problems.append(f"Unknown configuration {full!r}{hint}")
        elif refused:
            self._problems.append(f"{full} = {self._raw[full]}: {refused}")
        else:
            self._without_effect.append(full)

    # -- clusters

    def _cluster(self, alias: str) -> ClusterConfig | None:
        consumer: dict[str, str] = {}
        bootstrap = ""
        for key, value in self._cluster_keys[alias].items():
            full = f"{alias}.{key}"
            role, _, rest = key.partition(".")
            if key == "bootstrap.servers":
                bootstrap = value.strip()
            elif role == "consumer" and rest in CONSUMER_TABLE:
                consumer[rest] = value
            elif without_role(key) == "security.protocol" or without_role(key).startswith(_SECURITY_PREFIXES):
                self._note_security(alias, full, without_role(key), value)
            else:
                known = (
                    "bootstrap.servers",
                    *CLIENT_NAMES,
                    *FLOW_HARMLESS,
                    *(f"consumer.{name}" for name in CONSUMER_TABLE.names()),
                    *(f"{role}.{name}" for name in CLIENT_HARMLESS for role in CLIENT_ROLES),
                )
                self._judge(full, key, known)
        return self._build_cluster(alias, bootstrap, consumer)

    def _build_cluster(self, alias: str, bootstrap: str, consumer: Mapping[str, str]) -> ClusterConfig | None:
        security = self._read_security(alias)
        if not bootstrap:
            self._problems.append(f"{alias}.bootstrap.servers is missing: give host:port of a broker of {alias}")
            return None
        try:
            parse_addresses(bootstrap)
            values = CONSUMER_TABLE.parse(consumer)
        except ConfigError as error:
            self._problems.extend(f"{alias}.consumer: {problem}" for problem in error.problems)
            return None
        except ValueError as error:
            self._problems.append(f"{alias}.bootstrap.servers: {error}")
            return None
        committed = values["isolation.level"] == "read_committed"
        return ClusterConfig(
            alias=alias,
            bootstrap_servers=bootstrap,
            reset=Reset(str(values["auto.offset.reset"])),
            isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
            fetch_wait_ms=_number(values["fetch.max.wait.ms"]),
            fetch_bytes_max=_number(values["fetch.max.bytes"]),
            security=security,
        )

    def _note_security(self, alias: str, full: str, name: str, value: str) -> None:
        """What is said of one of a cluster's clients is said of all of them here."""
        known = self._security[alias].setdefault(name, value)
        if known != value:
            self._problems.append(f"{full} contradicts another: every client of {alias} is the same here")

    def _read_security(self, alias: str) -> Mapping[str, str]:
        merged = {**self._security[""], **self._security[alias]}
        try:
            if client_tls(merged) is None:
                self._without_effect += [
                    f"{alias}.{name}" for name in self._security[alias] if name != "security.protocol"
                ]
        except ConfigError as error:
            self._problems.extend(f"{alias}: {problem}" for problem in error.problems)
        return merged

    # -- flows

    def _flow(self, source: str, target: str) -> FlowConfig | None:
        given = {**self._bare, **self._flow_keys.get((source, target), {})}
        name = f"{source}{ARROW}{target}"
        try:
            values = FLOW_TABLE.parse({key: value for key, value in given.items() if key in FLOW_TABLE})
            return _flow_config(source, target, values)
        except ConfigError as error:
            fresh = [f"{name}: {problem}" for problem in error.problems]
        except BadPattern as error:
            fresh = [f"{name}: {error}"]
        self._problems.extend(fresh)
        return None


def _flow_config(source: str, target: str, values: Mapping[str, Value]) -> FlowConfig:
    separator = str(values["replication.policy.separator"])
    internal_separator = bool(values["replication.policy.internal.topic.separator.enabled"])
    policy: ReplicationPolicy
    if _POLICIES[str(values["replication.policy.class"])]:
        policy = IdentityPolicy(source_alias=source, separator=separator, internal_separator=internal_separator)
    else:
        policy = DefaultPolicy(separator=separator, internal_separator=internal_separator)
    return FlowConfig(
        source=source,
        target=target,
        enabled=bool(values["enabled"]),
        policy=policy,
        selection=TopicSelection(
            policy=policy,
            topics=NameFilter.of(_names(values["topics"]), _names(values["topics.exclude"])),
            target_alias=target,
            heartbeats=bool(values["heartbeats.replication.enabled"]),
        ),
        groups=NameFilter.of(_names(values["groups"]), _names(values["groups.exclude"])),
        configs_exclude=NameFilter.of(_names(values["config.properties.exclude"]), ()),
        defaults_from_source=values["use.defaults.from"] == "source",
        replication_factor=_number(values["replication.factor"]),
        replication_factors={
            topic: _number(values[f"{topic}.topic.replication.factor"])
            for topic in ("offset-map", "offset-syncs", "checkpoints", "heartbeats")
        },
        syncs_on_source=values["offset-syncs.topic.location"] == "source",
        refresh_topics=_interval_of(values, "refresh.topics"),
        refresh_groups=bool(values["refresh.groups.enabled"]),
        sync_topic_configs=_interval_of(values, "sync.topic.configs"),
        emit_checkpoints=_interval_of(values, "emit.checkpoints"),
        sync_group_offsets=_interval_of(values, "sync.group.offsets"),
        emit_heartbeats=_interval_of(values, "emit.heartbeats"),
        emit_offset_syncs=bool(values["emit.offset-syncs.enabled"]),
    )


def _interval_of(values: Mapping[str, Value], name: str) -> Interval:
    return Interval(enabled=bool(values[f"{name}.enabled"]), seconds=_number(values[f"{name}.interval.seconds"]))


def _names(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def identity_circles(flows: Iterable[FlowConfig]) -> list[str]:
    """Circles of enabled flows that keep names: records would travel for ever, and no name would show it."""
    follows: dict[str, list[str]] = {}
    for flow in flows:
        if flow.enabled and isinstance(flow.policy, IdentityPolicy):
            follows.setdefault(flow.source, []).append(flow.target)
    found: dict[frozenset[str], str] = {}

    def walk(path: tuple[str, ...]) -> None:
        for target in follows.get(path[-1], []):
            if target == path[0]:
                found.setdefault(frozenset(path), ARROW.join((*path, target)))
            elif target not in path:
                walk((*path, target))

    for alias in follows:
        walk((alias,))
    return [
        f"{circle} with IdentityReplicationPolicy would mirror the same records in a circle for ever: "
        "disable one of the flows or use the default policy"
        for circle in found.values()
    ]
