"""The connector's settings, under Debezium's names

A configuration written for Debezium's PostgreSQL connector is accepted as it is. Settings that change what is
captured or how it looks are here and mean the same.

Not here: settings of Debezium that are refused or have no effect (`unsupported`), and what needs the database to be
judged (`preflight`).
"""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from tidemill.connect.plugins.postgres.selection import Filter, Selection, key_columns, split_patterns
from tidemill.connect.plugins.postgres.types.conversion import Modes

IDENTIFIER_BYTES_MAX: Final = 63
"""What PostgreSQL keeps of a name."""

SNAPSHOT_MODE_ALIASES: Final = {"never": "no_data", "schema_only": "no_data"}


def _patterns(value: Any) -> Any:
    """Accept a list as well as text: whoever splits at commas must not break a pattern's own `\\,`."""
    text = ",".join(value) if isinstance(value, list | tuple) else value
    if text is None:
        return ""
    try:
        for pattern in split_patterns(text):
            re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


Patterns = Annotated[str, BeforeValidator(_patterns)]


def _setting(
    name: str,
    doc: str,
    group: str,
    *,
    default: Any = ...,
    importance: str = "MEDIUM",
    kind: str | None = None,
    **limits: Any,
) -> Any:
    extra: dict[str, Any] = {"group": group, "importance": importance, "width": "MEDIUM"}
    if kind is not None:
        extra["type"] = kind
    return Field(default, alias=name, description=doc, json_schema_extra=extra, **limits)


_POSTGRES, _SELECTION, _SNAPSHOT, _EVENTS, _TUNING = "Postgres", "Selection", "Snapshot", "Events", "Advanced"


class PostgresConfig(BaseModel):
    """Settings of one PostgreSQL source connector."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    hostname: str = _setting(
        "database.hostname",
        "Address of the database server.",
        _POSTGRES,
        importance="HIGH",
        min_length=1,
    )
    port: int = _setting(
        "database.port",
        "Port of the database server.",
        _POSTGRES,
        default=5432,
        importance="HIGH",
        kind="INT",
        ge=1,
        le=65535,
    )
    user: str = _setting(
        "database.user",
        "Database role; needs LOGIN, REPLICATION and SELECT on the captured tables.",
        _POSTGRES,
        importance="HIGH",
        min_length=1,
    )
    password: SecretStr = _setting(
        "database.password",
        "Password of the role.",
        _POSTGRES,
        default=SecretStr(""),
        importance="HIGH",
    )
    dbname: str = _setting(
        "database.dbname",
        "Database to capture from.",
        _POSTGRES,
        importance="HIGH",
        min_length=1,
    )
    topic_prefix: str = _setting(
        "topic.prefix",
        "Logical name of the server: first part of every topic and key of the stored offset.",
        _POSTGRES,
        importance="HIGH",
        min_length=1,
    )
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = _setting(
        "database.sslmode",
        "Whether the connection is encrypted and the server's certificate checked.",
        _POSTGRES,
        default="prefer",
    )
    sslcert: str = _setting(
        "database.sslcert",
        "File with the client's certificate.",
        _POSTGRES,
        default="",
    )
    sslkey: str = _setting(
        "database.sslkey",
        "File with the client's private key.",
        _POSTGRES,
        default="",
    )
    sslpassword: SecretStr = _setting(
        "database.sslpassword",
        "Password of the private key.",
        _POSTGRES,
        default=SecretStr(""),
    )
    sslrootcert: str = _setting(
        "database.sslrootcert",
        "File with the authorities to trust.",
        _POSTGRES,
        default="",
    )

    plugin_name: Literal["pgoutput"] = _setting(
        "plugin.name",
        "Logical decoding plugin; PostgreSQL's own pgoutput is the only one.",
        _POSTGRES,
        default="pgoutput",
    )
    slot_name: str = _setting(
        "slot.name",
        "Replication slot; made if it is not there.",
        _POSTGRES,
        default="debezium",
        pattern=r"^[a-z0-9_]{1,63}$",
    )
    slot_drop_on_stop: bool = _setting(
        "slot.drop.on.stop",
        "Drop the slot when the task stops; changes made meanwhile are then lost. For tests.",
        _POSTGRES,
        default=False,
    )
    slot_failover: bool = _setting(
        "slot.failover",
        "Make the slot one that standbys keep (PostgreSQL 17 and later).",
        _POSTGRES,
        default=False,
    )
    slot_max_retries: int = _setting(
        "slot.max.retries",
        "Attempts to take over a slot that another process holds, each slot.retry.delay.ms long.",
        _POSTGRES,
        default=12,  # two minutes: a server notices after one that a client is gone (wal_sender_timeout)
        importance="LOW",
        ge=0,
    )
    slot_retry_delay_ms: int = _setting(
        "slot.retry.delay.ms",
        "Pause between those attempts.",
        _POSTGRES,
        default=10000,
        importance="LOW",
        ge=1,
    )
    publication_name: str = _setting(
        "publication.name",
        "Publication that says which tables are sent.",
        _POSTGRES,
        default="dbz_publication",
        min_length=1,
        max_length=IDENTIFIER_BYTES_MAX,
    )
    publication_autocreate: Literal["all_tables", "filtered", "disabled", "no_tables"] = _setting(
        "publication.autocreate.mode",
        "Make a missing publication: for all tables, for the captured ones, not at all, or empty.",
        _POSTGRES,
        default="all_tables",
    )
    publish_via_partition_root: bool = _setting(
        "publish.via.partition.root",
        "Send changes of partitions under the name of the partitioned table.",
        _POSTGRES,
        default=False,
    )

    schema_include: Patterns = _setting(
        "schema.include.list",
        "Patterns of schemas to capture.",
        _SELECTION,
        default="",
        importance="HIGH",
    )
    schema_exclude: Patterns = _setting(
        "schema.exclude.list",
        "Patterns of schemas to leave out.",
        _SELECTION,
        default="",
    )
    table_include: Patterns = _setting(
        "table.include.list",
        "Patterns of schema.table to capture.",
        _SELECTION,
        default="",
        importance="HIGH",
    )
    table_exclude: Patterns = _setting(
        "table.exclude.list",
        "Patterns of schema.table to leave out.",
        _SELECTION,
        default="",
    )
    column_include: Patterns = _setting(
        "column.include.list",
        "Patterns of schema.table.column to keep in values.",
        _SELECTION,
        default="",
    )
    column_exclude: Patterns = _setting(
        "column.exclude.list",
        "Patterns of schema.table.column to leave out of values.",
        _SELECTION,
        default="",
    )
    message_key_columns: str = _setting(
        "message.key.columns",
        "Columns of record keys instead of the primary key: `schema.table:column,column;…`.",
        _SELECTION,
        default="",
    )

    snapshot_mode: Literal["initial", "always", "initial_only", "no_data", "when_needed"] = _setting(
        "snapshot.mode",
        "When to read the tables' present rows before streaming changes.",
        _SNAPSHOT,
        default="initial",
    )
    snapshot_fetch_size: int = _setting(
        "snapshot.fetch.size",
        "Most rows per fetch; fewer are taken when rows are wide.",
        _SNAPSHOT,
        default=10240,
        ge=1,
    )
    snapshot_include: Patterns = _setting(
        "snapshot.include.collection.list",
        "Patterns of schema.table to read in the snapshot; all captured ones if empty.",
        _SNAPSHOT,
        default="",
    )

    decimal_handling: Literal["precise", "double", "string"] = _setting(
        "decimal.handling.mode",
        "How numeric and money look.",
        _EVENTS,
        default="precise",
    )
    time_precision: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
    ] = _setting(
        "time.precision.mode",
        "How dates and times look.",
        _EVENTS,
        default="adaptive",
    )
    binary_handling: Literal["bytes", "base64", "base64-url-safe", "hex"] = _setting(
        "binary.handling.mode",
        "How bytea looks.",
        _EVENTS,
        default="bytes",
        importance="LOW",
    )
    interval_handling: Literal["numeric", "string"] = _setting(
        "interval.handling.mode",
        "How interval looks.",
        _EVENTS,
        default="numeric",
        importance="LOW",
    )
    hstore_handling: Literal["json", "map"] = _setting(
        "hstore.handling.mode",
        "How hstore looks.",
        _EVENTS,
        default="json",
        importance="LOW",
    )
    money_fraction_digits: int = _setting(
        "money.fraction.digits",
        "Digits after the point of money.",
        _EVENTS,
        default=2,
        importance="LOW",
        ge=0,
        le=18,
    )
    unavailable_placeholder: str = _setting(
        "unavailable.value.placeholder",
        "Stands for a large value that an update did not touch.",
        _EVENTS,
        default="__debezium_unavailable_value",
    )
    tombstones_on_delete: bool = _setting(
        "tombstones.on.delete",
        "Follow a delete with a record without value, for compacted topics.",
        _EVENTS,
        default=True,
    )
    skipped_operations: str = _setting(
        "skipped.operations",
        "Operations to leave out: c, u, d, t or none.",
        _EVENTS,
        default="t",
        importance="LOW",
        pattern=r"^\s*(none|[cudt](\s*,\s*[cudt])*)?\s*$",
    )
    skip_unchanged: bool = _setting(
        "skip.messages.without.change",
        "Leave out updates that changed none of the captured columns; needs REPLICA IDENTITY FULL.",
        _EVENTS,
        default=False,
    )
    context_headers: bool = _setting(
        "extended.headers.enabled",
        "Add Debezium's __debezium.context.* headers to every record; costs throughput.",
        _EVENTS,
        default=False,
        importance="LOW",
    )
    provide_transaction_metadata: bool = _setting(
        "provide.transaction.metadata",
        "Records about transaction boundaries; not available.",
        _EVENTS,
        default=False,
        importance="LOW",
    )

    heartbeat_interval_ms: int = _setting(
        "heartbeat.interval.ms",
        "Send a record to the heartbeat topic this often; 0 is never. Slots advance without it.",
        _TUNING,
        default=0,
        ge=0,
    )
    heartbeat_topic_prefix: str = _setting(
        "topic.heartbeat.prefix",
        "First part of the heartbeat topic's name.",
        _TUNING,
        default="__debezium-heartbeat",
        importance="LOW",
        min_length=1,
    )
    heartbeat_topic_name: str = _setting(
        "topic.heartbeat.name",
        "The heartbeat topic's name as a whole, instead of prefix and topic.prefix.",
        _TUNING,
        default="",
        importance="LOW",
        pattern=r"^[a-zA-Z0-9._-]*$",
    )
    heartbeat_action_query: str = _setting(
        "heartbeat.action.query",
        "Statement to run in the database with every heartbeat.",
        _TUNING,
        default="",
        importance="LOW",
    )
    topic_delimiter: str = _setting(
        "topic.delimiter",
        "Between the parts of a topic's name.",
        _TUNING,
        default=".",
        importance="LOW",
        min_length=1,
    )
    max_batch_size: int = _setting(
        "max.batch.size",
        "Changes handed on at once, at least.",
        _TUNING,
        default=2048,
        ge=1,
    )
    max_queue_bytes: int = _setting(
        "max.queue.size.in.bytes",
        "Bytes of changes read ahead of the producer; 0 is 32 MiB.",
        _TUNING,
        default=0,
        ge=0,
    )
    poll_interval_ms: int = _setting(
        "poll.interval.ms",
        "Longest wait for changes.",
        _TUNING,
        default=500,
        ge=1,
    )
    status_interval_ms: int = _setting(
        "status.update.interval.ms",
        "How often the server hears how far the connector got.",
        _TUNING,
        default=10000,
        ge=1,
    )
    query_timeout_ms: int = _setting(
        "database.query.timeout.ms",
        "Longest time a statement may take; 0 is no limit.",
        _TUNING,
        default=600000,
        importance="LOW",
        ge=0,
    )
    offset_mismatch: Literal["strict", "no_validation", "trust_offset", "trust_slot", "trust_greater_lsn"] = _setting(
        "offset.mismatch.strategy",
        "What to do when the slot is ahead of the stored offset: refuse (strict), or go on from the slot.",
        _TUNING,
        default="strict",
        importance="LOW",
    )

    @field_validator("plugin_name", mode="before")
    @classmethod
    def _only_pgoutput(cls, value: Any) -> Any:
        if value != "pgoutput":
            raise ValueError(
                f"the plugin {value!r} is not supported; set plugin.name=pgoutput, which every PostgreSQL since 10 has"
            )
        return value

    @field_validator("snapshot_mode", mode="before")
    @classmethod
    def _snapshot_alias(cls, value: Any) -> Any:
        return SNAPSHOT_MODE_ALIASES.get(value, value)

    @field_validator("provide_transaction_metadata")
    @classmethod
    def _no_transaction_metadata(cls, value: bool) -> bool:
        if value:
            raise ValueError("transaction metadata is not available; set provide.transaction.metadata=false")
        return value

    @field_validator("message_key_columns")
    @classmethod
    def _readable_keys(cls, value: str) -> str:
        try:
            key_columns(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return value

    @field_validator("topic_prefix", "topic_delimiter", "heartbeat_topic_prefix")
    @classmethod
    def _legal_in_topics(cls, value: str) -> str:
        if not re.fullmatch(r"[a-zA-Z0-9._-]+", value):
            raise ValueError(f"{value!r} cannot be part of a topic's name: use letters, digits, '.', '_' and '-'")
        return value

    @property
    def modes(self) -> Modes:
        """The settings that conversions of values need."""
        return Modes(
            decimal=self.decimal_handling,
            time=self.time_precision,
            binary=self.binary_handling,
            interval=self.interval_handling,
            hstore=self.hstore_handling,
            money_fraction_digits=self.money_fraction_digits,
            unavailable=self.unavailable_placeholder,
        )

    @property
    def selection(self) -> Selection:
        """The settings that say what is captured."""
        return Selection(
            schemas=Filter.of(self.schema_include, self.schema_exclude),
            tables=Filter.of(self.table_include, self.table_exclude),
            columns=Filter.of(self.column_include, self.column_exclude),
            keys=key_columns(self.message_key_columns),
        )

    @property
    def snapshot_selection(self) -> Filter:
        """The settings that say which of the captured tables are read in a snapshot."""
        return Filter.of(self.snapshot_include)

    @property
    def heartbeat_topic(self) -> str:
        """Where heartbeats go."""
        return self.heartbeat_topic_name or self.topic_delimiter.join((self.heartbeat_topic_prefix, self.topic_prefix))

    @property
    def skipped(self) -> frozenset[str]:
        """Operations to leave out."""
        return frozenset(part.strip() for part in self.skipped_operations.split(",")) - {"none", ""}
