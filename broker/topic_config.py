"""Settings of a topic, each with the broker key it falls back to

A topic stores only what was set on it. What holds is found by walking the synonyms: the topic's own value, the
broker's dynamic value, the cluster's dynamic default, the broker's file, the default. DescribeConfigs shows the same
walk, so what is shown is what holds.

Not here: what a setting does (`tidemill.broker.log`).
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from tidemill.broker.config import BROKER_CONFIG
from tidemill.core.config import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    Importance,
    Value,
    in_range,
    one_of,
)

_LONG_MAX = 2**63 - 1
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


def _key(name: str, kind: ConfigType, default: Value, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=default, doc=doc, dynamic=True, **more)


_INT, _LONG, _FLAG, _LIST, _TEXT = (
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.BOOLEAN,
    ConfigType.LIST,
    ConfigType.STRING,
)

TOPIC_CONFIG = ConfigTable(
    (
        _key("cleanup.policy", _LIST, ("delete",), "What happens to old segments: delete, compact or both.",
             valid=one_of("delete", "compact")),
        _key("compression.type", _TEXT, "producer",
             "Codec of stored batches; producer keeps the one that arrived. Batches of another codec are compressed "
             "anew, which costs more than all the rest of an append.",
             valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        _key("compression.gzip.level", _INT, -1, "Level used when compression.type is gzip; -1 is gzip's own default.",
             valid=in_range(-1, 9), importance=Importance.LOW),
        _key("compression.lz4.level", _INT, 9, "No effect: lz4 is always the fast one.",
             valid=in_range(1, 17), importance=Importance.LOW),
        _key("compression.zstd.level", _INT, 3, "Level used when compression.type is zstd.",
             valid=in_range(-131072, 22), importance=Importance.LOW),
        _key("delete.retention.ms", _LONG, 86_400_000, "How long a compacted topic keeps a tombstone.",
             valid=in_range(0)),
        _key("file.delete.delay.ms", _LONG, 60_000, "Time between marking a segment deleted and removing its file.",
             valid=in_range(0), importance=Importance.LOW),
        _key("flush.messages", _LONG, _LONG_MAX, "Records between forced flushes under flush.policy=os.",
             valid=in_range(1)),
        _key("flush.ms", _LONG, _LONG_MAX, "Time between forced flushes under flush.policy=os.", valid=in_range(0)),
        _key("follower.replication.throttled.replicas", _LIST, (), "Replicas whose catch-up is throttled."),
        _key("index.interval.bytes", _INT, 4096, "Bytes of log per entry of the offset index.", valid=in_range(0)),
        _key("leader.replication.throttled.replicas", _LIST, (), "Replicas whose catch-up is throttled."),
        _key("local.retention.bytes", _LONG, -2, "Only for tiered storage; -2 follows retention.bytes.",
             valid=in_range(-2)),
        _key("local.retention.ms", _LONG, -2, "Only for tiered storage; -2 follows retention.ms.", valid=in_range(-2)),
        _key("max.compaction.lag.ms", _LONG, _LONG_MAX, "Age above which a record must be compacted.",
             valid=in_range(1)),
        _key("max.message.bytes", _INT, 1_048_588, "Largest record batch.", valid=in_range(0)),
        _key("message.timestamp.after.max.ms", _LONG, 3_600_000, "How far in the future a timestamp may lie.",
             valid=in_range(0)),
        _key("message.timestamp.before.max.ms", _LONG, _LONG_MAX, "How far in the past a timestamp may lie.",
             valid=in_range(0)),
        _key("message.timestamp.type", _TEXT, "CreateTime", "Whose clock stamps a record.",
             valid=one_of("CreateTime", "LogAppendTime")),
        _key("min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, "Share of uncompacted log that starts a compaction.",
             valid=in_range(0, 1)),
        _key("min.compaction.lag.ms", _LONG, 0, "Age below which a record is not compacted.", valid=in_range(0)),
        _key("min.insync.replicas", _INT, 1, "Replicas that must hold a record before acks=all is answered.",
             valid=in_range(1)),
        _key("preallocate", _FLAG, False, "No effect: room is set aside in steps while a segment grows."),
        _key("remote.log.copy.disable", _FLAG, False, "Only for tiered storage: no effect.", importance=Importance.LOW),
        _key("remote.log.delete.on.disable", _FLAG, False, "Only for tiered storage: no effect.",
             importance=Importance.LOW),
        _key("remote.storage.enable", _FLAG, False, "Tiered storage; only false is available.",
             valid=lambda value: "tiered storage is not available" if value else None),
        _key("retention.bytes", _LONG, -1, "Size at which a partition loses its oldest segment; -1 is no limit.",
             valid=in_range(-1)),
        _key("retention.ms", _LONG, 604_800_000, "Age at which a segment is deleted; -1 keeps all.",
             valid=in_range(-1)),
        _key("segment.bytes", _INT, 2**30, "Size at which a segment is closed.", valid=in_range(14)),
        _key("segment.index.bytes", _INT, 10 * 2**20, "Most bytes of one offset index.", valid=in_range(4)),
        _key("segment.jitter.ms", _LONG, 0,
             "Most time taken off segment.ms, so that segments are not all closed at once.", valid=in_range(0)),
        _key("segment.ms", _LONG, 604_800_000, "Age at which a segment is closed.", valid=in_range(1)),
        _key("unclean.leader.election.enable", _FLAG, False,
             "Let a replica that misses records lead, losing them."),
    )
)  # fmt: skip

_BROKER_SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = {
    # topic key -> broker keys, strongest first, each with the factor that turns its unit into the topic's
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


class ConfigSource(enum.IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """One step of the walk: a value somebody gave, or the default.

    `given` is the value under its own name and unit, `value` the same in the unit of the key that was asked for.
    """

    name: str
    given: Value
    value: Value
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """What the broker contributes: raw texts, strongest first."""

    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: Mapping[str, str]
    spread: Mapping[str, Value] = field(default_factory=dict)
    """Defaults that follow from how many nodes there are."""

    def walk(self, key: ConfigKey) -> list[Synonym]:
        """Every value of broker key `key`, the one that holds first."""
        found = [
            Synonym(name=key.name, given=(value := key.parse(layer[key.name])), value=value, source=source)
            for layer, source in (
                (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
                (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
                (self.static, ConfigSource.STATIC_BROKER),
            )
            if key.name in layer
        ]
        default = self.spread.get(key.name, key.default)
        if default is not REQUIRED and default is not None:
            found.append(Synonym(name=key.name, given=default, value=default, source=ConfigSource.DEFAULT))
        return found


def walk_topic(key: ConfigKey, overrides: Mapping[str, str], layers: Layers) -> list[Synonym]:
    """Every value of topic key `key`, the one that holds first."""
    found: list[Synonym] = []
    if key.name in overrides:
        value = key.parse(overrides[key.name])
        found.append(Synonym(name=key.name, given=value, value=value, source=ConfigSource.TOPIC))
    defaults: list[Synonym] = []
    for name, factor in _BROKER_SYNONYMS.get(key.name, ()):
        for synonym in layers.walk(BROKER_CONFIG[name]):
            into = defaults if synonym.source is ConfigSource.DEFAULT else found
            into.append(replace(synonym, value=_scaled(synonym.value, factor)))
    found.extend(defaults)
    if not defaults and key.default is not REQUIRED:
        found.append(Synonym(name=key.name, given=key.default, value=key.default, source=ConfigSource.DEFAULT))
    return found


def topic_settings(overrides: Mapping[str, str], layers: Layers) -> dict[str, Value]:
    """The typed value that holds for every topic key."""
    return {name: first.value for name, first in what_holds(overrides, layers)}


def what_holds(overrides: Mapping[str, str], layers: Layers) -> Sequence[tuple[str, Synonym]]:
    """For every topic key the value that holds; found once for the many topics that have the same settings."""
    given = (overrides, layers.dynamic_broker, layers.dynamic_default, layers.static)
    return _what_holds(*(tuple(each.items()) for each in given))


@lru_cache(maxsize=64)
def _what_holds(*given: tuple[tuple[str, str], ...]) -> Sequence[tuple[str, Synonym]]:
    overrides, dynamic_broker, dynamic_default, static = map(dict, given)
    layers = Layers(dynamic_broker=dynamic_broker, dynamic_default=dynamic_default, static=static)
    return tuple((key.name, walk_topic(key, overrides, layers)[0]) for key in TOPIC_CONFIG)


def topic_problems(configs: Mapping[str, str]) -> Sequence[str]:
    """What is wrong with the settings given for a topic, one sentence each."""
    try:
        values = TOPIC_CONFIG.parse(configs)
    except ConfigError as error:
        return error.problems
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        return (f"min.compaction.lag.ms ({least}) is more than max.compaction.lag.ms ({most})",)
    return ()


def text_of(value: Value) -> str | None:
    """A value as DescribeConfigs and property files spell it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


def _scaled(value: Value, factor: int) -> Value:
    if factor != 1 and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value * factor
    return value
