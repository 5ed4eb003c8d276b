"""The warehouse job's settings, one field each

A field of `JobConfig` is the setting: its name in a job file, its type, default and meaning stand beside the field and
nowhere else. The table of all keys (`JOB_TABLE`), from which files are parsed and the reference page is made, is read
off the fields.

A job file is `.properties` or TOML. Beside these keys it may hold `spark.*` (handed to Spark as they are) and `kafka.*`
(handed to the Kafka clients, as in `format("tidemill")`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tidemill.spark_sink.core_api import (
    REQUIRED,
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
)

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
STRING, LIST, BOOLEAN, INT, LONG = (
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LONG,
)
TOPIC_PLACEHOLDER = "{topic}"
_KEY = "key"  # of a field's metadata


def _key(
    name: str,
    kind: ConfigType,
    default: Any,
    doc: str,
    importance: Importance = MEDIUM,
    valid: Callable[[Value], str | None] | None = None,
) -> Any:
    """A field whose value is the setting `name`."""
    key = ConfigKey(name=name, type=kind, default=default, doc=doc, importance=importance, valid=valid)
    return field(metadata={_KEY: key})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """A job, ready to run."""

    name: str = _key("name", STRING, "warehouse", "Name under which the table remembers its offsets.", HIGH, not_empty)
    bootstrap: str = _key("bootstrap.servers", STRING, REQUIRED, "Brokers to read from, host:port.", HIGH, not_empty)
    topics: tuple[str, ...] = _key("topics", LIST, REQUIRED, "Topics of Debezium change events.", HIGH, not_empty)
    table_path: str = _key(
        "table.path",
        STRING,
        REQUIRED,
        "Folder or URI of the Delta table; with {topic} in it, one table per topic, as several topics need it in mode "
        "upsert.",
        HIGH,
        not_empty,
    )
    mode: str = _key(
        "mode",
        STRING,
        "upsert",
        "upsert keeps the table equal to the source; append keeps every change as a row.",
        HIGH,
        one_of("upsert", "append"),
    )
    master: str = _key("spark.master", STRING, "local[2]", "Where Spark runs.", HIGH, not_empty)
    trigger_interval_ms: int = _key(
        "trigger.interval.ms",
        LONG,
        10_000,
        "Pause between the starts of two batches; each one is a commit that rewrites the files it touches.",
        HIGH,
        in_range(0),
    )
    max_offsets_per_trigger: int = _key(
        "max.offsets.per.trigger", LONG, 500_000, "Records a batch may have.", MEDIUM, in_range(1)
    )
    max_bytes_per_trigger: int = _key(
        "max.bytes.per.trigger",
        LONG,
        128 * 1024 * 1024,
        "Bytes of changes a batch may have; a larger one is cut short and the next ones take fewer records.",
        MEDIUM,
        in_range(1),
    )
    available_now: bool = _key(
        "trigger.available.now",
        BOOLEAN,
        False,
        "Read what is there now, then end; a topic that does not exist is an error then.",
        MEDIUM,
    )
    starting_offsets: str = _key(
        "starting.offsets",
        STRING,
        "earliest",
        "Where a job's first start begins, earliest or latest; the table remembers it. A partition added later is read "
        "from its first record.",
        MEDIUM,
        one_of("earliest", "latest"),
    )
    key_columns: tuple[str, ...] = _key(
        "key.columns", LIST, (), "Key columns, where the message key does not have them.", MEDIUM
    )
    columns: str = _key("columns", STRING, "", "Column types, name:type, …, for topics without schema part.", MEDIUM)
    errors_tolerance: str = _key(
        "errors.tolerance",
        STRING,
        "none",
        "none stops at a record that is no change event or has no key, all counts it and goes on. Damaged batches stop "
        "either way.",
        MEDIUM,
        one_of("none", "all"),
    )
    topic_recreated: str = _key(
        "topic.recreated",
        STRING,
        "stop",
        "What to do when a topic was deleted and made anew: stop, or continue with its first record.",
        LOW,
        one_of("stop", "continue"),
    )
    truncate_policy: str = _key(
        "truncate.policy",
        STRING,
        "exact",
        "What a TRUNCATE of the source does in mode upsert. exact empties the table where the topic has one partition, "
        "and stops where it has more: only one of them says when it happened. always empties the table then too; rows "
        "that other partitions bring in the same batch stay.",
        LOW,
        one_of("exact", "always"),
    )
    isolation_level: str = _key(
        "isolation.level",
        STRING,
        "read_committed",
        "Whether records of aborted transactions are left out.",
        LOW,
        one_of("read_committed", "read_uncommitted"),
    )
    fail_on_data_loss: bool = _key(
        "fail.on.data.loss",
        BOOLEAN,
        True,
        "Whether to stop when records were removed before they were read; else what is gone is skipped.",
        LOW,
    )
    group_id: str = _key("group.id", STRING, "", "Group to publish positions for, so that lag tools see the job.", LOW)
    min_partitions: int = _key("min.partitions", INT, 1, "Tasks a batch is cut into at least.", LOW, in_range(1))
    checkpoint_location: str = _key(
        "checkpoint.location", STRING, "", "Where Spark keeps what it insists on keeping; may be lost.", LOW
    )
    unavailable: str = _key(
        "unavailable.value.placeholder",
        STRING,
        "__debezium_unavailable_value",
        "What the source writes for a large value that did not change.",
        LOW,
        not_empty,
    )
    unavailable_missing: str = _key(
        "unavailable.value.missing",
        STRING,
        "stop",
        "What to do with an update that leaves out an unchanged value when the table does not have the row: "
        "stop, or store null and count it.",
        LOW,
        one_of("stop", "null"),
    )
    compact_interval_commits: int = _key(
        "table.compact.interval.commits",
        INT,
        100,
        "After how many commits small files are joined; 0 never.",
        LOW,
        in_range(0),
    )
    vacuum_interval_commits: int = _key(
        "table.vacuum.interval.commits",
        INT,
        200,
        "After how many commits files of old versions are removed; 0 never.",
        LOW,
        in_range(0),
    )
    retention_hours: int = _key(
        "table.retention.hours",
        INT,
        6,
        "How long files of old versions are kept; a reader that works longer with one version fails. Each commit "
        "leaves the files it rewrote, so less saves space. A longer delta.deletedFileRetentionDuration of the table "
        "wins.",
        LOW,
        in_range(0),
    )
    stall_timeout_ms: int = _key(
        "stall.timeout.ms",
        LONG,
        600_000,
        "How long the query may stand still while records wait, commits aside, or the JVM not answer, before the "
        "job ends with status 1 to be started anew; 0 for ever.",
        LOW,
        in_range(0),
    )
    restart_backoff_ms: int = _key(
        "restart.backoff.ms", LONG, 1_000, "First pause before a failed query starts again.", LOW, in_range(1)
    )
    restart_backoff_max_ms: int = _key("restart.backoff.max.ms", LONG, 60_000, "Longest such pause.", LOW, in_range(1))
    metrics_listener: str = _key(
        "metrics.listener",
        STRING,
        "",
        "Where to serve /health/live, /health/ready and /metrics, HOST:PORT; empty for nowhere, host 0.0.0.0 for all "
        "addresses of the machine. Whoever reaches it is answered.",
        MEDIUM,
        address_or_empty,
    )
    spark: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, topic: str) -> str:
        """The table a topic goes to."""
        return self.table_path.replace(TOPIC_PLACEHOLDER, topic)

    def source_options(self, starting_offsets: str) -> dict[str, str]:
        """Options of `format("tidemill")` for this job."""
        options = {
            **self.kafka,
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.isolation.level": self.isolation_level,
            "subscribe": ",".join(self.topics),
            "startingOffsets": starting_offsets,
            "maxOffsetsPerTrigger": str(self.max_offsets_per_trigger),
            "decode.maxBytesPerTrigger": str(self.max_bytes_per_trigger),
            "minPartitions": str(self.min_partitions),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "decode": "debezium",
            "decode.keep": "all" if self.mode == "append" else "latest",
            "decode.errors.tolerance": self.errors_tolerance,
            "decode.unavailableValue": self.unavailable,
        }
        if self.key_columns:
            options["decode.keyColumns"] = ",".join(self.key_columns)
        if self.columns:
            options["decode.columns"] = self.columns
        if self.group_id:
            options["kafka.group.id"] = self.group_id
        return options


_FIELDS: dict[str, ConfigKey] = {each.name: each.metadata[_KEY] for each in fields(JobConfig) if _KEY in each.metadata}

JOB_TABLE = ConfigTable(_FIELDS.values())


def known_names(_given: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Every key with a fixed name, whatever else was given; `spark.*` and `kafka.*` come beside them."""
    return JOB_TABLE.names()


def parse_job(raw: Mapping[str, str]) -> JobConfig:
    """Parse a job's settings; raises ConfigError with every problem."""
    spark = {name: value for name, value in raw.items() if name.startswith("spark.") and name not in JOB_TABLE}
    kafka = {name: value for name, value in raw.items() if name.startswith("kafka.")}
    own = {name: value for name, value in raw.items() if name not in spark and name not in kafka}
    if "kafka.bootstrap.servers" in kafka:  # both spellings are common; one place to look from here on
        own.setdefault("bootstrap.servers", kafka.pop("kafka.bootstrap.servers"))
    values = JOB_TABLE.parse(own)
    settings: dict[str, Any] = {name: values[key.name] for name, key in _FIELDS.items()}
    return JobConfig(**settings, spark=spark, kafka=kafka)


__all__ = ["JOB_TABLE", "ConfigError", "JobConfig", "known_names", "parse_job"]
