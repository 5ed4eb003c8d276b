"""Settings of a broker node, under Kafka's `server.properties` names

One row per key. The rows drive parsing, the answers of DescribeConfigs, `tidemill broker config --reference` and the
frozen `BrokerConfig` that the code reads: an attribute is the key with underscores for dots, so `num.partitions` is
`config.num_partitions` and nothing has to be wired twice.

A stock `server.properties` works as it is. Keys that only size threads and buffers this broker does not have are read
and then have no effect (`NO_EFFECT`, listed in the start-up log); a key that would change what is promised (security,
several log directories) is refused with a sentence instead of being ignored.

Not here: settings of a topic (`tidemill.broker.topic_config`) and settings that change while running (the metadata
log).
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.broker.listeners import (
    DEFAULT_PROTOCOL_MAP,
    ListenAddress,
    Listeners,
    is_prefixed,
    prefixed_names,
    read_listeners,
)
from tidemill.core.config import (
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    Importance,
    Value,
    address_or_empty,
    in_range,
    not_empty,
    one_of,
    parse_address,
)
from tidemill.core.security.tls_settings import SERVER_TLS

if TYPE_CHECKING:
    from tidemill.broker.cluster_settings import ClusterSettings

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def _int(name: str, default: int | None, doc: str, low: int | None = None, **more: Any) -> ConfigKey:
    valid = None if default is None or low is None else in_range(low)
    return ConfigKey(name=name, type=ConfigType.INT, default=default, doc=doc, valid=valid, **more)


def _long(name: str, default: int | None, doc: str, low: int | None = None, **more: Any) -> ConfigKey:
    valid = None if default is None or low is None else in_range(low)
    return ConfigKey(name=name, type=ConfigType.LONG, default=default, doc=doc, valid=valid, **more)


def _flag(name: str, default: bool, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.BOOLEAN, default=default, doc=doc, **more)


def _text(name: str, default: str | None, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.STRING, default=default, doc=doc, **more)


def _list(name: str, default: tuple[str, ...], doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.LIST, default=default, doc=doc, **more)


_IDENTITY = (
    _int("node.id", 1, "Identity of this broker in its cluster.", 0, importance=_HIGH),
    _list(
        "process.roles",
        ("broker", "controller"),
        "Roles of this process: broker, controller, or both. A node without others has both.",
        valid=one_of("broker", "controller"),
    ),
    _list(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to accept clients on, as NAME://host:port; port 0 takes a free one; an empty host means every "
        "interface.",
        importance=_HIGH,
        valid=not_empty,
    ),
    _list(
        "advertised.listeners",
        (),
        "Addresses told to clients. When not set, a client is told the host of the listener, or where that is every "
        "interface the address that it connected to, or with TLS the full name of this machine.",
        importance=_HIGH,
    ),
    _list(
        "listener.security.protocol.map",
        DEFAULT_PROTOCOL_MAP,
        "Security protocol of each listener name: PLAINTEXT or SSL; those with SASL are not available yet.",
    ),
    _list("controller.listener.names", (), "Listener names of the metadata quorum; clients are not served there."),
    _text(
        "inter.broker.listener.name",
        None,
        "Listener that brokers use among themselves; when not set PLAINTEXT, else the first one. A controller without "
        "a broker watches brokers there.",
        importance=_LOW,
    ),
    _text("security.inter.broker.protocol", None, "The same for listeners named as their protocol.", importance=_LOW),
    _text(
        "cluster.id",
        None,
        "Cluster that a new data folder becomes part of; its nodes all need the same. A node by itself makes one up.",
    ),
    _text("broker.rack", None, "Rack of this broker."),
    _list("log.dirs", (), "Folder of all data; exactly one.", importance=_HIGH),
    _text("log.dir", "tidemill-data", "Folder of all data when `log.dirs` is not set.", importance=_HIGH),
)

_TOPICS = (
    _int("num.partitions", 1, "Partitions of a topic that does not say.", 1, importance=_HIGH),
    _int(
        "default.replication.factor",
        1,
        "Replicas of a topic that does not say; in a cluster 3, or as many as controllers are named in "
        "controller.quorum.voters or controller.quorum.bootstrap.servers if those are fewer.",
        1,
        importance=_HIGH,
    ),
    _flag(
        "auto.create.topics.enable",
        True,
        "Create a topic when a client asks for one that is not there.",
        importance=_HIGH,
    ),
    _flag("delete.topic.enable", True, "Allow DeleteTopics."),
    _int("max.topics", 100_000, "Most topics this cluster holds; each one costs memory and file handles.", 1),
    _int("max.partitions", 200_000, "Most partitions this cluster holds.", 1),
)

_LOG = (
    _text("flush.policy", "group",
          "group: a produce request is acknowledged after its bytes are on the disk (one fsync serves all that wait). "
          "os: acknowledged from the page cache, as Apache Kafka does; a power cut can lose the last seconds. "
          "With group a sync may wait for what other programs have yet to write to the file system of the data folder, "
          "and their write errors there count as the broker's, which stops: give the folder a file system of its own.",
          importance=_HIGH, valid=one_of("group", "os")),
    _long("log.retention.ms", None, "Age at which a segment is deleted; overrides minutes and hours; -1 keeps all.",
          dynamic=True, importance=_HIGH),
    _int("log.retention.minutes", None, "Age at which a segment is deleted, in minutes; overrides hours.",
         importance=_HIGH),
    _int("log.retention.hours", 168, "Age at which a segment is deleted, in hours.", importance=_HIGH),
    _long("log.retention.bytes", -1, "Size at which a partition loses its oldest segment; -1 is no limit.",
          dynamic=True, importance=_HIGH),
    _long("log.retention.check.interval.ms", 300_000, "How often retention is checked.", 1),
    _int("log.segment.bytes", 2**30, "Size at which a segment is closed.", 14, dynamic=True, importance=_HIGH),
    _long("log.roll.ms", None, "Age at which a segment is closed; overrides log.roll.hours.", dynamic=True),
    _int("log.roll.hours", 168, "Age at which a segment is closed, in hours.", 1),
    _long("log.roll.jitter.ms", None, "Most time taken off log.roll.ms, so that segments are not all closed at once.",
          dynamic=True, importance=_LOW),
    _int("log.roll.jitter.hours", 0, "The same in hours.", 0, importance=_LOW),
    _int("log.index.interval.bytes", 4096, "Bytes of log per entry of the offset index.", 0, dynamic=True),
    _int("log.index.size.max.bytes", 10 * 2**20, "Most bytes of one offset index.", 4, dynamic=True),
    _long("log.segment.delete.delay.ms", 60_000, "Time between marking a segment deleted and removing its file.", 0,
          dynamic=True),
    _list("log.cleanup.policy", ("delete",), "What happens to old segments: delete, compact or both.", dynamic=True,
          valid=one_of("delete", "compact")),
    _text("log.message.timestamp.type", "CreateTime", "Whose clock stamps a record.", dynamic=True,
          valid=one_of("CreateTime", "LogAppendTime")),
    _long("log.message.timestamp.before.max.ms", _LONG_MAX, "How far in the past a timestamp may lie.", 0,
          dynamic=True),
    _long("log.message.timestamp.after.max.ms", 3_600_000, "How far in the future a timestamp may lie.", 0,
          dynamic=True),
    _long("log.flush.interval.messages", _LONG_MAX, "Records between forced flushes under flush.policy=os.", 1,
          dynamic=True),
    _long("log.flush.interval.ms", None, "Time between forced flushes under flush.policy=os.", dynamic=True),
    _flag("log.preallocate", False, "No effect: room is set aside in steps while a segment grows.", dynamic=True),
    _long("log.cleaner.delete.retention.ms", 86_400_000, "How long a compacted topic keeps a tombstone.", 0,
          dynamic=True),
    _long("log.cleaner.min.compaction.lag.ms", 0, "Age below which a record is not compacted.", 0, dynamic=True),
    _long("log.cleaner.max.compaction.lag.ms", _LONG_MAX, "Age above which a record must be compacted.", 1,
          dynamic=True),
    ConfigKey(name="log.cleaner.min.cleanable.ratio", type=ConfigType.DOUBLE, default=0.5, dynamic=True,
              doc="Share of uncompacted log that starts a compaction.", valid=in_range(0, 1)),
    _flag("log.cleaner.enable", True,
          "Compact topics whose cleanup.policy says so; __consumer_offsets is one. One thread does it, batch by batch: "
          "`log.cleaner.threads` and `log.cleaner.io.buffer.size` are read and have no effect."),
    _long("log.cleaner.backoff.ms", 15_000, "Pause of the cleaner when no log is due; less than 10 counts as 10.", 0,
          dynamic=True),
    _long("log.cleaner.dedupe.buffer.size", 128 * 2**20,
          "Most bytes of the cleaner's map of keys, 24 for each. It takes no more than the log at hand needs; a log "
          "with more keys is compacted in several rounds.", 2**20, dynamic=True),
    ConfigKey(name="log.cleaner.io.buffer.load.factor", type=ConfigType.DOUBLE, default=0.9, dynamic=True,
              importance=_LOW, valid=in_range(0.1, 1),
              doc="How full the cleaner's map may get; a fuller map is a slower one."),
    ConfigKey(name="log.cleaner.io.max.bytes.per.second", type=ConfigType.DOUBLE, default=sys.float_info.max,
              dynamic=True, doc="Most bytes the cleaner reads and writes in a second, together.", valid=in_range(1)),
    _text("compression.type", "producer", "Codec of stored batches; producer keeps the one that arrived.", dynamic=True,
          valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    *(
        ConfigKey(name=f"compression.{codec}.level", type=ConfigType.INT, default=default, valid=valid, dynamic=True,
                  doc=f"Level used when compression.type is {codec}{what}.", importance=_LOW)
        for codec, default, valid, what in (
            ("gzip", -1, in_range(-1, 9), "; -1 is gzip's own default"),
            ("lz4", 9, in_range(1, 17), "; no effect: lz4 is always the fast one"),
            ("zstd", 3, in_range(-131072, 22), ""),
        )
    ),
    _text("log.record.validation", "header",
          "header: a produced batch is judged by its header, CRC and counts. records: its records are walked too, as "
          "Apache Kafka does, and a batch that no consumer could read is refused; costs about 0.2 us a record and the "
          "decompression. Compacted topics always do. Records without a key they need, or with a time that is not "
          "allowed, are named in the answer.",
          dynamic=True, valid=one_of("header", "records")),
    _int("message.max.bytes", 1_048_588, "Largest record batch.", 0, dynamic=True, importance=_HIGH),
    _int("min.insync.replicas", 1,
         "Replicas that must hold a record before acks=all is answered; in a cluster 2 for a new topic with three "
         "replicas or more.", 1, dynamic=True, importance=_HIGH),
    _flag("unclean.leader.election.enable", False, "Let a replica that misses records lead, losing them.",
          dynamic=True),
    _long("producer.id.expiration.ms", 86_400_000,
          "How long an idle producer's sequence numbers are kept; looked at whenever retention is.", 1,
          dynamic=True, importance=_LOW),
)  # fmt: skip

_QUORUM = (
    _long("metadata.log.max.record.bytes.between.snapshots", 20 * 2**20,
          "Bytes of metadata log after which a snapshot is written; what is older than the snapshot before goes.", 1,
          importance=_HIGH),
    _long("metadata.log.max.snapshot.interval.ms", 3_600_000,
          "Time after which a snapshot of the metadata is written if anything has changed; 0 is never.", 0,
          importance=_HIGH),
)  # fmt: skip

_CLUSTER = (
    _text("controller.quorum.voters", "",
          "Controllers that agree on the metadata, as ID@HOST:PORT with commas between, the same on every node. "
          "Without it, or where it names this node only, the node is a cluster of its own.", importance=_HIGH),
    _text("controller.quorum.bootstrap.servers", "",
          "Where controllers are, as HOST:PORT with commas between: somebody there knows who leads. Without "
          "controller.quorum.voters the controllers are those of the metadata log, and may change while they run; one "
          "folder of a new cluster is made by 'tidemill broker format'. Where it has this node only, and the node is "
          "broker and controller, that is a cluster of its own.", importance=_HIGH),
    _int("controller.quorum.election.timeout.ms", 1000, "Least time before an election is tried again.", 1),
    _int("controller.quorum.fetch.timeout.ms", 2000,
         "Time without an answer of the active controller after which another one is elected.", 1),
    _int("controller.quorum.election.backoff.max.ms", 1000, "Longest wait of a controller that was not elected.", 1),
    _int("controller.quorum.request.timeout.ms", 2000, "Time after which a controller that does not answer is asked "
         "again.", 1),
    _int("broker.heartbeat.interval.ms", 2000, "How often a broker tells the active controller that it is there.", 1),
    _int("broker.session.timeout.ms", 9000,
         "Time without a heartbeat after which a broker is fenced: others lead what it led.", 1),
    _int("initial.broker.registration.timeout.ms", 60_000,
         "How long a broker that starts waits for the active controller.", 1),
    _int("leader.imbalance.check.interval.seconds", 300, "How often leaders are moved back to preferred brokers.", 1),
    _int("leader.imbalance.per.broker.percentage", 10,
         "Share of the partitions that prefer a broker that others may lead before they are moved back.", 0),
    _int("replica.fetch.wait.max.ms", 500, "How long a leader holds a follower's fetch when there is nothing new.", 1),
    _int("replica.fetch.min.bytes", 1, "Bytes for which a follower's fetch waits.", 1),
    _int("replica.fetch.max.bytes", 2**20, "Bytes of one partition that a follower asks for at once.", 1),
    _int("replica.fetch.response.max.bytes", 10 * 2**20, "Bytes that a follower asks for at once.", 1),
    _int("replica.fetch.backoff.ms", 1000, "Longest pause of a follower after failures.", 1),
)  # fmt: skip

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ALWAYS = "org.apache.kafka.common.replica.LeaderSelector"


def _selector(value: Value) -> str | None:
    return None if value in ("", RACK_AWARE, LEADER_ALWAYS) else f"only {RACK_AWARE} is known: no Java is loaded"


_REPLICATION = (
    _long("replica.lag.time.max.ms", 30_000,
          "How long a leader counts on a follower that does not catch up, before it is asked out of the ISR and "
          "acks=all waits for it no longer.", 1, importance=_HIGH),
    _text("replica.selector.class", "",
          f"Where consumers with a client.rack read: {RACK_AWARE} sends them to a replica in their rack, and lets them "
          "read at followers; empty or LeaderSelector has all of them read at the leader.", valid=_selector),
    *(
        _long(name, _LONG_MAX, f"Most bytes a second that {what}; one node alone has nothing to move.", 0, dynamic=True,
              importance=_LOW)
        for name, what in (
            ("leader.replication.throttled.rate", "leaders send to throttled replicas"),
            ("follower.replication.throttled.rate", "throttled replicas fetch"),
            ("replica.alter.log.dirs.io.max.bytes.per.second", "move between log folders"),
        )
    ),
)  # fmt: skip

_NETWORK = (
    _int("socket.request.max.bytes", 100 * 2**20, "Largest request; a larger one closes the connection unread.", 1),
    _long("connections.max.idle.ms", 600_000, "Idle time after which a connection is closed."),
    _int("max.connections", 10_000, "Most client connections.", 1, dynamic=True),
    _int("max.connections.per.ip", _INT_MAX, "Most client connections from one address.", 0, dynamic=True),
    _long(
        "queued.max.request.bytes",
        512 * 2**20,
        "Most bytes over all connections of requests larger than 64 KiB, from the first byte until they are served, "
        "and of the receive buffers they leave behind. One request is let in whatever its size, smaller ones always. "
        "Answers that a client does not take are limited beside it: to 2 MiB and the last one, less when there are "
        "many connections.",
        1,
    ),
    _int("fetch.max.bytes", 55 * 2**20, "Most bytes of one fetch response.", 1024),
    _int(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Most incremental fetch sessions; a client without one "
        "sends all its partitions with every fetch; 0 turns sessions off.",
        0,
    ),
)

_WATCHING = (
    _text(
        "metrics.listener",
        "",
        "Where to serve /health/live, /health/ready and /metrics, HOST:PORT; empty for nowhere, host 0.0.0.0 for "
        "all addresses of the machine. Whoever reaches it is answered.",
        valid=address_or_empty,
    ),
    _int(
        "metrics.series.max",
        10_000,
        "Most series of one name: topics, partitions, groups and groups' offsets beyond it have none of their own at "
        "/metrics and are counted by tidemill_broker_series_left_out; 0 is none of them.",
        0,
    ),
)

_GROUPS = (
    _int("offsets.topic.num.partitions", 4,
         "Partitions of __consumer_offsets, fixed when the topic is first created. Apache Kafka takes 50; a few are "
         "enough for one process and open fewer files.", 1),
    _int("offsets.topic.replication.factor", 1,
         "Replicas of __consumer_offsets; in a cluster 3, or as many as controllers are named if those are fewer.", 1),
    _int("offsets.topic.segment.bytes", 100 * 2**20, "Segment size of __consumer_offsets.", 1),
    _int("offset.metadata.max.bytes", 4096, "Longest metadata text of an offset commit.", 0),
    _int("offsets.retention.minutes", 10_080, "How long offsets outlive an empty group.", 1),
    _long("offsets.retention.check.interval.ms", 600_000, "How often expired offsets are looked for.", 1),
    _int("group.min.session.timeout.ms", 6_000, "Shortest session timeout a member may ask for.", 1),
    _int("group.max.session.timeout.ms", 1_800_000, "Longest session timeout a member may ask for.", 1),
    _int("group.max.size", 10_000, "Most members of one group.", 1),
    _int("group.initial.rebalance.delay.ms", 0,
         "Wait for more members before the first rebalance of an empty group. Apache Kafka takes 3000, meant for "
         "many consumers that start together; here a new group starts at once.", 0),
)  # fmt: skip

NO_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(
        ("num.network.threads", "num.io.threads", "num.recovery.threads.per.data.dir", "background.threads",
         "num.replica.fetchers", "queued.max.requests"),
        "one event loop serves the node",
    ),
    **dict.fromkeys(
        ("ssl.protocol", "ssl.secure.random.implementation", "ssl.keymanager.algorithm",
         "ssl.trustmanager.algorithm"),
        "Java's; ssl.enabled.protocols says what is spoken",
    ),
    **dict.fromkeys(
        ("socket.send.buffer.bytes", "socket.receive.buffer.bytes", "socket.listen.backlog.size"),
        "left to the operating system",
    ),
    "controlled.shutdown.enable": "a broker that is told to stop always lets others lead first",
    "log.cleaner.threads": "one thread compacts: a second one would only take turns with it",
    "log.cleaner.io.buffer.size": "the cleaner reads batch by batch, whatever their size",
    "metadata.log.dir": "the metadata log is in the data folder",
    **dict.fromkeys(
        ("transaction.state.log.replication.factor", "transaction.state.log.min.isr",
         "transaction.state.log.num.partitions", "share.coordinator.state.topic.replication.factor",
         "share.coordinator.state.topic.min.isr", "offsets.topic.compression.codec", "offsets.load.buffer.size",
         "offsets.commit.timeout.ms", "group.coordinator.threads",
         "group.coordinator.rebalance.protocols", "log.flush.scheduler.interval.ms",
         "log.flush.offset.checkpoint.interval.ms"),
        "no such part on this node",
    ),
}  # fmt: skip
"""Keys of Kafka's own files that are read and change nothing, with the reason."""

_REFUSED_PREFIXES = {
    "ssl.engine.factory.class": "TLS is OpenSSL's: remove the key",
    "ssl.provider": "TLS is OpenSSL's: remove the key",
    "sasl.": "SASL is not available yet: bind to a private address",
    "authorizer.": "authorization is not available yet: bind to a private address",
    "super.users": "authorization is not available yet: bind to a private address",
    "remote.log.": "tiered storage is not available",
    "zookeeper.": "there is no ZooKeeper: remove the key",
}

BROKER_CONFIG = ConfigTable(
    (*_IDENTITY, *SERVER_TLS, *_TOPICS, *_LOG, *_QUORUM, *_CLUSTER, *_REPLICATION, *_NETWORK, *_WATCHING, *_GROUPS)
)
"""Every key that is kept and shown; those of `NO_EFFECT` are only read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings the code reads; build it with `parse`."""

    node_id: int
    broker_rack: str | None
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    max_topics: int
    max_partitions: int
    flush_policy: str
    log_retention_check_interval_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    log_cleaner_enable: bool
    message_max_bytes: int
    min_insync_replicas: int
    replica_lag_time_max_ms: int
    replica_selector_class: str
    socket_request_max_bytes: int
    connections_max_idle_ms: int
    queued_max_request_bytes: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    metrics_series_max: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_initial_rebalance_delay_ms: int
    data_dir: str
    metrics_address: tuple[str, int] | None
    listening: Listeners
    cluster: "ClusterSettings | None" = None
    static: Mapping[str, str] = field(default_factory=dict)  # as given, for DescribeConfigs
    values: Mapping[str, Value] = field(default_factory=dict)  # every key, parsed

    @property
    def spread(self) -> dict[str, Value]:
        """Defaults that are others than the table's because there are several nodes, also of what is given."""
        return _spread(self.cluster)

    @property
    def reads_nearby(self) -> bool:
        """Whether consumers may read at followers."""
        return self.replica_selector_class == RACK_AWARE

    @property
    def listen(self) -> tuple[ListenAddress, ...]:
        """Where clients are served."""
        return self.listening.listen

    @property
    def advertised(self) -> Mapping[str, ListenAddress]:
        """What clients are told, by listener name, as far as it is set."""
        return self.listening.advertised

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> "BrokerConfig":
        """Read settings as a file or `--set` gives them; raises one ConfigError that lists every mistake."""
        problems = list(_refusals(raw))
        known = {_canonical(name): text for name, text in raw.items() if name not in NO_EFFECT}
        for name in list(known):
            if any(name.startswith(prefix) for prefix in _REFUSED_PREFIXES):
                del known[name]
        try:
            values = BROKER_CONFIG.parse({name: text for name, text in known.items() if not is_prefixed(name)})
        except ConfigError as error:
            raise ConfigError([*problems, *error.problems]) from None
        derived: dict[str, Any] = {"metrics_address": _metrics_address(str(values["metrics.listener"]))}
        readings: tuple[tuple[str, Callable[[], object]], ...] = (
            ("data_dir", partial(_data_dir, values)),
            ("listening", partial(read_listeners, values, known)),
        )
        for name, read in readings:
            try:
                derived[name] = read()
            except ConfigError as error:
                problems.extend(error.problems)
        if not problems:
            try:
                derived["cluster"] = _cluster(values, derived["listening"])
            except ConfigError as error:
                problems.extend(error.problems)
        if problems:
            raise ConfigError(problems)
        values |= {name: value for name, value in _spread(derived["cluster"]).items() if name not in known}
        plain = {
            item.name: values[_KEY_OF[item.name]]
            for item in fields(cls)
            if item.name in _KEY_OF
        }  # fmt: skip
        return cls(**plain, **derived, static=known, values=values)  # type: ignore[arg-type]  # the table types each row


SPREAD = ("default.replication.factor", "offsets.topic.replication.factor")
"""Keys whose default depends on how many nodes there are."""

_KEY_OF = {name.replace(".", "_"): name for name in BROKER_CONFIG.names()}


def known_names(given: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Every key that a broker takes, those for the listeners that are given among them."""
    return (*BROKER_CONFIG.names(), *NO_EFFECT, "broker.id", *prefixed_names((given or {}).get("listeners", "")))


def ignored_keys(raw: Iterable[str]) -> dict[str, str]:
    """The keys among `raw` that change nothing here, with the reason; the start-up log shows them."""
    return {name: NO_EFFECT[name] for name in raw if name in NO_EFFECT}


def _canonical(name: str) -> str:
    return "node.id" if name == "broker.id" else name


def _refusals(raw: Mapping[str, str]) -> Iterable[str]:
    for name in raw:
        for prefix, reason in _REFUSED_PREFIXES.items():
            if name.startswith(prefix):
                yield f"Configuration {name!r} cannot be honoured: {reason}"


def _data_dir(values: Mapping[str, Value]) -> str:
    several = values["log.dirs"]
    folders = several if isinstance(several, tuple) and several else (str(values["log.dir"]),)
    if len(folders) > 1:
        raise ConfigError([f"log.dirs names {len(folders)} folders ({', '.join(folders)}): give exactly one"])
    if not folders[0]:
        raise ConfigError(["log.dir is empty: give the folder that holds the data"])
    return folders[0]


def _cluster(values: Mapping[str, Value], listening: Listeners) -> "ClusterSettings | None":
    """Its place among several nodes; None for one by itself, which needs none of that code."""
    roles = values["process.roles"]
    named = values["controller.quorum.voters"] or values["controller.quorum.bootstrap.servers"]
    if not named and isinstance(roles, tuple) and len(set(roles)) == 2:
        return None
    from tidemill.broker.cluster_settings import is_one_of_several, read_cluster

    if is_one_of_several(values, listening):
        return read_cluster(values, listening)
    if isinstance(roles, tuple) and len(set(roles)) == 1:
        raise ConfigError(
            [
                f"Configuration 'process.roles' is {roles[0]} only, and no other node is named that would be the rest: "
                "leave it out, or write broker,controller, or name the controllers in controller.quorum.voters or "
                "controller.quorum.bootstrap.servers"
            ]
        )
    return None


def _spread(cluster: "ClusterSettings | None") -> dict[str, Value]:
    """Among several, what nobody has said is kept on three nodes, or on as many as there are controllers for sure.

    Where the metadata log knows these, they are taken to be as many as the addresses at which they are looked for.
    """
    if cluster is None:
        return {}
    return dict.fromkeys(SPREAD, min(3, len(cluster.voters) or len(cluster.bootstrap)))


def _metrics_address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, port = parse_address(text)
    return host or "127.0.0.1", port
