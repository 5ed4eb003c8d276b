"""The warehouse job's settings, one row each

A job file is `.properties` or TOML. Beside the keys of this table it may hold `spark.*` (handed to Spark as they are)
and `kafka.*` (handed to the Kafka clients, as in `format("tidemill")`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.spark_sink.core_api import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    Importance,
    Value,
    in_range,
    not_empty,
    one_of,
)

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
TOPIC_PLACEHOLDER = "{topic}"


def _key(
    name: str,
    kind: ConfigType,
    default: object,
    doc: str,
    importance: Importance = MEDIUM,
    valid: object = None,
) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=default, doc=doc, importance=importance, valid=valid)  # type: ignore[arg-type]  # a shorthand for the table below


JOB_TABLE = ConfigTable(
    [
        _key(
            "name", ConfigType.STRING, "warehouse", "Name under which the table remembers its offsets.", HIGH, not_empty
        ),
        _key("bootstrap.servers", ConfigType.STRING, REQUIRED, "Brokers to read from, host:port.", HIGH, not_empty),
        _key("topics", ConfigType.LIST, REQUIRED, "Topics of Debezium change events.", HIGH, not_empty),
        _key(
            "table.path",
            ConfigType.STRING,
            REQUIRED,
            "Folder or URI of the Delta table; with {topic} in it, one table per topic.",
            HIGH,
            not_empty,
        ),
        _key(
            "mode",
            ConfigType.STRING,
            "upsert",
            "upsert keeps the table equal to the source; append keeps every change as a row.",
            HIGH,
            one_of("upsert", "append"),
        ),
        _key("spark.master", ConfigType.STRING, "local[2]", "Where Spark runs.", HIGH, not_empty),
        _key(
            "trigger.interval.ms",
            ConfigType.LONG,
            10_000,
            "Pause between the starts of two batches; each one is a commit that rewrites the files it touches.",
            HIGH,
            in_range(0),
        ),
        _key("max.offsets.per.trigger", ConfigType.LONG, 200_000, "Records a batch may have.", MEDIUM, in_range(1)),
        _key(
            "max.bytes.per.trigger",
            ConfigType.LONG,
            128 * 1024 * 1024,
            "Bytes of changes a batch may have; a larger one is cut short and the next ones take fewer records.",
            MEDIUM,
            in_range(1),
        ),
        _key("trigger.available.now", ConfigType.BOOLEAN, False, "Read what is there now, then end.", MEDIUM),
        _key(
            "starting.offsets",
            ConfigType.STRING,
            "earliest",
            "Where a table that has no offsets yet starts: earliest or latest.",
            MEDIUM,
            one_of("earliest", "latest"),
        ),
        _key("key.columns", ConfigType.LIST, (), "Key columns, where the message key does not have them.", MEDIUM),
        _key("columns", ConfigType.STRING, "", "Column types, name:type, …, for topics without schema part.", MEDIUM),
        _key(
            "errors.tolerance",
            ConfigType.STRING,
            "none",
            "none stops at a record that is no change event or has no key, all counts it and goes on.",
            MEDIUM,
            one_of("none", "all"),
        ),
        _key(
            "topic.recreated",
            ConfigType.STRING,
            "stop",
            "What to do when a topic was deleted and made anew: stop, or continue with its first record.",
            LOW,
            one_of("stop", "continue"),
        ),
        _key(
            "isolation.level",
            ConfigType.STRING,
            "read_committed",
            "Whether records of aborted transactions are left out.",
            LOW,
            one_of("read_committed", "read_uncommitted"),
        ),
        _key(
            "fail.on.data.loss",
            ConfigType.BOOLEAN,
            True,
            "Whether to stop when records were removed before they were read; else what is gone is skipped.",
            LOW,
        ),
        _key("group.id", ConfigType.STRING, "", "Group to publish positions for, so that lag tools see the job.", LOW),
        _key("min.partitions", ConfigType.INT, 1, "Tasks a batch is cut into at least.", LOW, in_range(1)),
        _key(
            "checkpoint.location",
            ConfigType.STRING,
            "",
            "Where Spark keeps what it insists on keeping; may be lost.",
            LOW,
        ),
        _key(
            "unavailable.value.placeholder",
            ConfigType.STRING,
            "__debezium_unavailable_value",
            "What the source writes for a large value that did not change.",
            LOW,
            not_empty,
        ),
        _key(
            "unavailable.value.missing",
            ConfigType.STRING,
            "stop",
            "What to do with an update that leaves out an unchanged value when the table does not have the row: "
            "stop, or store null and count it.",
            LOW,
            one_of("stop", "null"),
        ),
        _key(
            "table.compact.interval.commits",
            ConfigType.INT,
            100,
            "After how many commits small files are joined; 0 never.",
            LOW,
            in_range(0),
        ),
        _key(
            "table.vacuum.interval.commits",
            ConfigType.INT,
            200,
            "After how many commits files of old versions are removed; 0 never.",
            LOW,
            in_range(0),
        ),
        _key(
            "table.retention.hours",
            ConfigType.INT,
            1,
            "How long files of old versions are kept for readers that still use them; each commit leaves some.",
            LOW,
            in_range(0),
        ),
        _key(
            "stall.timeout.ms",
            ConfigType.LONG,
            600_000,
            "How long the query may stand still while records wait, commits aside, or the JVM not answer, before the "
            "job ends with status 1 to be started anew; 0 for ever.",
            LOW,
            in_range(0),
        ),
        _key(
            "restart.backoff.ms",
            ConfigType.LONG,
            1_000,
            "First pause before a failed query starts again.",
            LOW,
            in_range(1),
        ),
        _key("restart.backoff.max.ms", ConfigType.LONG, 60_000, "Longest such pause.", LOW, in_range(1)),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """A job, ready to run."""

    name: str
    bootstrap: str
    topics: tuple[str, ...]
    table_path: str
    mode: str
    master: str
    trigger_interval_ms: int
    max_offsets_per_trigger: int
    max_bytes_per_trigger: int
    available_now: bool
    starting_offsets: str
    key_columns: tuple[str, ...]
    columns: str
    tolerate_errors: bool
    continue_with_recreated_topic: bool
    isolation_level: str
    fail_on_data_loss: bool
    group_id: str
    min_partitions: int
    checkpoint_location: str
    unavailable: str
    store_missing_as_null: bool
    compact_interval_commits: int
    vacuum_interval_commits: int
    retention_hours: int
    stall_timeout_ms: int
    restart_backoff_ms: int
    restart_backoff_max_ms: int
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
            "decode.errors.tolerance": "all" if self.tolerate_errors else "none",
            "decode.unavailableValue": self.unavailable,
        }
        if self.key_columns:
            options["decode.keyColumns"] = ",".join(self.key_columns)
        if self.columns:
            options["decode.columns"] = self.columns
        if self.group_id:
            options["kafka.group.id"] = self.group_id
        return options


def parse_job(raw: Mapping[str, str]) -> JobConfig:
    """Parse a job's settings; raises ConfigError with every problem."""
    spark = {name: value for name, value in raw.items() if name.startswith("spark.") and name not in JOB_TABLE}
    kafka = {name: value for name, value in raw.items() if name.startswith("kafka.")}
    own = {name: value for name, value in raw.items() if name not in spark and name not in kafka}
    if "kafka.bootstrap.servers" in kafka:  # both spellings are common; one place to look from here on
        own.setdefault("bootstrap.servers", kafka.pop("kafka.bootstrap.servers"))
    values = JOB_TABLE.parse(own)
    return JobConfig(
        name=_text(values, "name"),
        bootstrap=_text(values, "bootstrap.servers"),
        topics=_names(values, "topics"),
        table_path=_text(values, "table.path"),
        mode=_text(values, "mode"),
        master=_text(values, "spark.master"),
        trigger_interval_ms=_number(values, "trigger.interval.ms"),
        max_offsets_per_trigger=_number(values, "max.offsets.per.trigger"),
        max_bytes_per_trigger=_number(values, "max.bytes.per.trigger"),
        available_now=bool(values["trigger.available.now"]),
        starting_offsets=_text(values, "starting.offsets"),
        key_columns=_names(values, "key.columns"),
        columns=_text(values, "columns"),
        tolerate_errors=values["errors.tolerance"] == "all",
        continue_with_recreated_topic=values["topic.recreated"] == "continue",
        isolation_level=_text(values, "isolation.level"),
        fail_on_data_loss=bool(values["fail.on.data.loss"]),
        group_id=_text(values, "group.id"),
        min_partitions=_number(values, "min.partitions"),
        checkpoint_location=_text(values, "checkpoint.location"),
        unavailable=_text(values, "unavailable.value.placeholder"),
        store_missing_as_null=values["unavailable.value.missing"] == "null",
        compact_interval_commits=_number(values, "table.compact.interval.commits"),
        vacuum_interval_commits=_number(values, "table.vacuum.interval.commits"),
        retention_hours=_number(values, "table.retention.hours"),
        stall_timeout_ms=_number(values, "stall.timeout.ms"),
        restart_backoff_ms=_number(values, "restart.backoff.ms"),
        restart_backoff_max_ms=_number(values, "restart.backoff.max.ms"),
        spark=spark,
        kafka=kafka,
    )


def _text(values: Mapping[str, Value], name: str) -> str:
    return str(values[name])


def _number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _names(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    value = values[name]
    assert isinstance(value, tuple)
    return value


__all__ = ["JOB_TABLE", "ConfigError", "JobConfig", "parse_job"]
