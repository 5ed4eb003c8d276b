"""The source's options, spelled as Spark's own Kafka source spells them

Spark hands options over in a dictionary that ignores case; a plain copy of it has lower-case keys, so every look-up
here goes through `_Given`, which does not care. An option that does not exist is an error with the nearest name that
does: a misspelt limit that is silently ignored costs more than a failed start.

`kafka.*` options go to the Kafka client with the prefix removed; a few names that only the Java client knows are
translated or dropped. `decode` is ours: with `debezium` the source parses change events itself (see `envelope`).

Pure: what an offset of -1 or -2 means today is for `cluster` to find out.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tidemill.spark_sink.core_api import for_librdkafka

LATEST: Final = -1
EARLIEST: Final = -2

OffsetMap = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset (or timestamp)."""


class OptionError(ValueError):
    """An option that cannot be used; the message names it and says what is accepted."""

    permanent: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions: exactly one of the three is set."""

    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to start or end: by timestamp, by timestamp per partition, by offset per partition, or `default`."""

    default: int  # LATEST or EARLIEST
    offsets: OffsetMap = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: OffsetMap = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options, parsed."""

    bootstrap: str
    client: Mapping[str, str]  # librdkafka settings
    selection: Selection
    starting: Position
    ending: Position
    strategy: str = "error"  # what to do when no record has the starting timestamp: error or latest
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    group_id: str | None = None
    poll_timeout_ms: int = 120_000
    retries: int = 3
    retry_interval_ms: int = 1_000
    decode: str | None = None
    keep: str = "latest"  # with decode: the latest change of each key, or all changes
    tolerate_errors: bool = False
    columns: str | None = None
    key_columns: tuple[str, ...] = ()
    unavailable: str | None = None
    decoded_bytes_max: int | None = None  # of all tasks of a batch together
    fetch_bytes: int = 8 * 1024 * 1024

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions stay out."""
        return self.client.get("isolation.level", "read_uncommitted") == "read_committed"

    @property
    def is_plaintext(self) -> bool:
        """Whether the cluster is reached without TLS and without authentication."""
        return self.client.get("security.protocol", "plaintext").lower() == "plaintext"


NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "decode",
    "decode.keep",
    "decode.columns",
    "decode.keyColumns",
    "decode.unavailableValue",
    "decode.errors.tolerance",
    "decode.maxBytesPerTrigger",
    "topic",
    "path",
)
"""Every option beside `kafka.*`; `topic` is the writer's, `path` is added by Spark's `load(path)`."""

_OWN_CLIENT_SETTINGS = ("auto.offset.reset", "enable.auto.commit", "key.deserializer", "value.deserializer")
_JAVA_ONLY = ("max.poll.records", "interceptor.classes", "metric.reporters", "client.dns.lookup")
_JAVA_NAMES = {
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.mechanism": "sasl.mechanism",
}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS = (
    (0.001, "us microsecond microseconds"),
    (1, "ms millisecond milliseconds"),
    (1_000, "s sec second seconds"),
    (60_000, "m min minute minutes"),
    (3_600_000, "h hour hours"),
    (86_400_000, "d day days"),
)
_UNIT_MS = {"": 1} | {name: ms for ms, names in _UNITS for name in names.split()}
"""As Spark spells a source's durations (15m) and as it spells those of triggers (15 minutes)."""


class _Given:
    """The options as given, looked up without regard to case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {str(name).lower(): str(value) for name, value in options.items()}

    def names(self) -> tuple[str, ...]:
        return tuple(self._values)

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def integer(self, name: str, default: int | None, minimum: int = 1) -> int | None:
        raw = self.text(name)
        if raw is None:
            return default
        try:
            value = int(raw)
        except ValueError:
            raise OptionError(f"option {name} must be a whole number, not {raw!r}") from None
        if value < minimum:
            raise OptionError(f"option {name} must be at least {minimum}, not {value}")
        return value

    def number(self, name: str, default: int, minimum: int = 0) -> int:
        value = self.integer(name, default, minimum)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        raw = self.text(name)
        if raw is None:
            return default
        if raw.lower() not in ("true", "false"):
            raise OptionError(f"option {name} must be true or false, not {raw!r}")
        return raw.lower() == "true"

    def choice(self, name: str, default: str | None, choices: tuple[str, ...]) -> str | None:
        raw = self.text(name)
        if raw is None:
            return default
        if raw.lower() not in choices:
            raise OptionError(f"option {name} must be one of {', '.join(choices)}, not {raw!r}")
        return raw.lower()


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.*` options as librdkafka settings; raises OptionError without `kafka.bootstrap.servers`."""
    given = {str(name).lower(): str(value) for name, value in options.items()}
    settings = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    if not settings.get("bootstrap.servers"):
        raise OptionError("option kafka.bootstrap.servers is required: host:port of one or more brokers")
    for name in _OWN_CLIENT_SETTINGS:
        if name in settings:
            raise OptionError(
                f"option kafka.{name} is not supported: the source decides where to read and what to commit"
            )
    if "sasl.jaas.config" in settings:
        raise OptionError("option kafka.sasl.jaas.config is Java's: give kafka.sasl.username and kafka.sasl.password")
    tls = for_librdkafka(
        {_JAVA_NAMES.get(name, name): each for name, each in settings.items() if name not in _JAVA_ONLY}
    )
    for name, reason in tls.refused.items():
        raise OptionError(f"option kafka.{name} cannot be honoured: {reason}")
    return dict(tls.settings)


def check_names(options: Mapping[str, str], known: tuple[str, ...] = NAMES) -> None:
    """Refuse an option that does not exist."""
    lower = {name.lower(): name for name in known}
    for name in options:
        if name.lower() in lower or name.lower().startswith("kafka."):
            continue
        near = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f": did you mean {lower[near[0]]!r}?" if near else f"; known are {', '.join(known)} and kafka.*"
        raise OptionError(f"unknown option {name!r}{hint}")


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of a read; raises OptionError."""
    check_names(options)
    given = _Given(options)
    client = client_settings(options)
    selection = _selection(given)
    starting = _position(given, "starting", default=LATEST if streaming else EARLIEST)
    ending = _position(given, "ending", default=LATEST)
    if (
        not streaming
        and starting.default == LATEST
        and not (starting.timestamps_ms or starting.timestamp_ms is not None)
    ):
        raise OptionError("option startingOffsets cannot be 'latest' for a batch read: there would be nothing to read")
    if ending.default == EARLIEST:
        raise OptionError("option endingOffsets cannot be 'earliest'")
    if streaming and any(given.text(name) for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")):
        raise OptionError("endingOffsets, endingTimestamp and endingOffsetsByTimestamp are for batch reads only")
    least, most = given.integer("minOffsetsPerTrigger", None), given.integer("maxOffsetsPerTrigger", None)
    if least is not None and most is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    return SourceOptions(
        bootstrap=client["bootstrap.servers"],
        client=client,
        selection=selection,
        starting=starting,
        ending=ending,
        strategy=given.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest")) or "error",
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms("maxTriggerDelay", given.text("maxTriggerDelay") or "15m"),
        min_partitions=given.integer("minPartitions", None),
        max_records_per_partition=given.integer("maxRecordsPerPartition", None),
        include_headers=given.flag("includeHeaders", False),
        group_id=client.get("group.id"),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", 120_000, 1),
        retries=given.number("fetchOffset.numRetries", 3),
        retry_interval_ms=given.number("fetchOffset.retryIntervalMs", 1_000),
        decode=given.choice("decode", None, ("debezium",)),
        keep=given.choice("decode.keep", "latest", ("latest", "all")) or "latest",
        tolerate_errors=given.choice("decode.errors.tolerance", "none", ("none", "all")) == "all",
        columns=given.text("decode.columns"),
        key_columns=tuple(name.strip() for name in (given.text("decode.keyColumns") or "").split(",") if name.strip()),
        unavailable=given.text("decode.unavailableValue"),
        decoded_bytes_max=given.integer("decode.maxBytesPerTrigger", None),
        fetch_bytes=_Given(client).number("max.partition.fetch.bytes", 8 * 1024 * 1024, 1_024),
    )


def _duration_ms(name: str, text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNIT_MS:
        raise OptionError(f"option {name} must be a duration such as 30s, 15m or 15 minutes, not {text!r}")
    return int(int(match[1]) * _UNIT_MS[match[2]])


def _selection(given: _Given) -> Selection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name) is not None]
    if len(ways) != 1:
        found = f"found {' and '.join(ways)}" if ways else "found none"
        raise OptionError(f"exactly one of the options subscribe, subscribePattern and assign is needed; {found}")
    text = given.text(ways[0]) or ""
    if ways[0] == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError("option subscribe names no topic")
        return Selection(subscribe=topics)
    if ways[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option subscribePattern is not a regular expression: {error}") from None
        return Selection(pattern=text)
    tree = _json_object("assign", text)
    if not tree or not all(isinstance(numbers, list) and numbers for numbers in tree.values()):
        raise OptionError("option assign must look like " + '{"topic": [0, 1]}')
    try:
        return Selection(assign={topic: tuple(int(number) for number in numbers) for topic, numbers in tree.items()})
    except (TypeError, ValueError):
        raise OptionError("option assign must look like " + '{"topic": [0, 1]}') from None


def _position(given: _Given, side: str, default: int) -> Position:
    """Timestamps win over offsets per timestamp, which win over offsets, as in Spark's source."""
    timestamp = given.integer(f"{side}Timestamp", None, minimum=0)
    if timestamp is not None:
        return Position(default=default, timestamp_ms=timestamp)
    by_timestamp = given.text(f"{side}OffsetsByTimestamp")
    if by_timestamp is not None:
        return Position(default=default, timestamps_ms=parse_offsets(by_timestamp, f"{side}OffsetsByTimestamp"))
    offsets = given.text(f"{side}Offsets")
    if offsets is None:
        return Position(default=default)
    match offsets.strip().lower():
        case "earliest":
            return Position(default=EARLIEST)
        case "latest":
            return Position(default=LATEST)
        case _:
            return Position(default=default, offsets=parse_offsets(offsets, f"{side}Offsets", minimum=EARLIEST))


def parse_offsets(text: str, name: str, minimum: int = 0) -> dict[str, dict[int, int]]:
    """Read `{"topic": {"0": 23}}`; raises OptionError.

    >>> parse_offsets('{"t": {"0": 23, "1": 5}}', "startingOffsets")
    {'t': {0: 23, 1: 5}}
    """
    tree = _json_object(name, text)
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in tree.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"option {name} must look like " + '{"topic": {"0": 23}}')
        try:
            result[topic] = {int(partition): int(offset) for partition, offset in partitions.items()}
        except (TypeError, ValueError):
            raise OptionError(f"option {name}: partitions and offsets must be whole numbers") from None
        if any(offset < minimum for offset in result[topic].values()):
            raise OptionError(f"option {name}: an offset must be at least {minimum}")
    return result


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} is neither 'earliest', 'latest' nor valid JSON: {error}") from None
    if not isinstance(tree, dict):
        raise OptionError(f"option {name} must be a JSON object, not {text!r}")
    return tree
