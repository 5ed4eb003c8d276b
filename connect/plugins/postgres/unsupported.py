"""Debezium's settings that are not here: refused, or without effect

Between them, `PostgresConfig` and these two tables name every setting of Debezium's PostgreSQL connector, so that
none is dropped in silence. What would change records, what is captured, how connections are secured or when the server
may forget WAL is refused by name, unless the value asks for what happens anyway. What only tunes the Java program is
without effect: its buffers, threads, metrics, and locks or delays that nothing here needs.
"""

from typing import Final

from tidemill.connect.api import Unsupported

_JAVA: Final = "it names a Java class, and there is no Java here; remove the setting"
_NO_SIGNALS: Final = (
    "signals are not read, so neither incremental nor ad-hoc snapshots can be asked for; remove the setting, and reset "
    "the connector's offsets to read tables again"
)
_FAILS: Final = "a change that cannot be converted stops the task, nothing is left out; remove the setting or set fail"

UNSUPPORTED: Final = tuple(
    Unsupported(name=name, why=why, accepted=accepted)
    for name, why, accepted in (
        ("column.mask.", "columns would be published unmasked; leave them out with column.exclude.list", ()),
        ("column.truncate.", "columns would be published in full; leave them out with column.exclude.list", ()),
        ("column.propagate.source.type", "schemas do not carry the source's types; remove the setting", ()),
        ("datatype.propagate.source.type", "schemas do not carry the source's types; remove the setting", ()),
        ("include.schema.comments", "schemas do not carry comments; remove the setting", ("false",)),
        ("field.name.adjustment.mode", "names are written as they are; remove the setting", ("none",)),
        ("schema.name.adjustment.mode", "names are written as they are; remove the setting", ("none",)),
        (
            "include.unknown.datatypes",
            "columns of types Debezium does not know are captured as text; remove the setting",
            ("false",),
        ),
        ("binary.column.max.size", "columns are captured in full; leave them out with column.exclude.list", ()),
        ("table.ignore.builtin", "tables of the system are never captured; remove the setting", ("true",)),
        ("post.processors", _JAVA, ()),
        ("post.processors.", _JAVA, ()),
        ("converters", _JAVA, ()),
        ("sourceinfo.struct.maker", _JAVA, ("io.debezium.connector.postgresql.PostgresSourceInfoStructMaker",)),
        (
            "topic.naming.strategy",
            "topics are named topic.prefix, schema and table with topic.delimiter between them; remove the setting",
            ("io.debezium.schema.SchemaTopicNamingStrategy",),
        ),
        ("heartbeat.topics.prefix", "this is its old name; use topic.heartbeat.prefix", ()),
        ("custom.sanitize.pattern", "what a topic's name may not hold becomes an underscore; remove the setting", ()),
        ("snapshot.select.statement.overrides", "all rows would be read; set snapshot.mode=no_data", ()),
        ("snapshot.select.statement.overrides.", "all rows would be read; set snapshot.mode=no_data", ()),
        ("snapshot.query.mode", "all rows of a table are read; remove the setting", ("select_all",)),
        ("snapshot.query.mode.custom.name", _JAVA, ()),
        ("snapshot.locking.mode", _JAVA, ("none", "shared")),
        ("snapshot.locking.mode.custom.name", _JAVA, ()),
        ("snapshot.mode.custom.name", _JAVA, ()),
        ("snapshot.mode.configuration.based.", "set snapshot.mode to the mode that is meant", ()),
        ("signal.data.collection", _NO_SIGNALS, ()),
        ("signal.enabled.channels", _NO_SIGNALS, ("source",)),
        ("signal.file", _NO_SIGNALS, ()),
        ("signal.kafka.", _NO_SIGNALS, ()),
        ("notification.enabled.channels", "notifications are not sent; the connector's status shows progress", ()),
        ("message.prefix.include.list", "messages of pg_logical_emit_message are not captured; remove it", ()),
        ("message.prefix.exclude.list", "messages of pg_logical_emit_message are not captured; remove it", ()),
        (
            "replica.identity.autoset.values",
            "tables are not altered; run ALTER TABLE … REPLICA IDENTITY … yourself and remove the setting",
            (),
        ),
        ("slot.stream.params", "pgoutput gets the parameters the connector needs; remove the setting", ()),
        (
            "flush.lsn.source",
            "the slot always follows the stored offsets, or WAL would be kept for ever; remove the setting",
            ("true",),
        ),
        (
            "lsn.flush.mode",
            "the slot always follows the stored offsets, or WAL would be kept for ever; remove the setting",
            ("connector", "connector_and_driver"),
        ),
        ("xmin.fetch.interval.ms", "source.xmin is always null; remove the setting", ("0",)),
        ("event.processing.failure.handling.mode", _FAILS, ("fail",)),
        ("event.converting.failure.handling.mode", _FAILS, ("fail",)),
        (
            "guardrail.collections.max",
            "the number of tables is not limited; name them with table.include.list",
            ("0",),
        ),
        ("database.sslfactory", "TLS is libpq's; use database.sslmode, .sslrootcert, .sslcert and .sslkey", ()),
        ("database.connection.factory.class", _JAVA, ()),
        (
            "database.initial.statements",
            "nothing is run on new connections; use ALTER ROLE … SET for settings of the session",
            (),
        ),
        ("driver.", "connections are libpq's, which does not know JDBC's properties; remove the setting", ()),
        ("openlineage.integration.enabled", "no lineage is reported; remove the setting", ("false",)),
    )
)
"""What is refused, with the values that are not."""

IGNORED: Final = (
    "advanced.metrics.enable", "connection.validation.timeout.ms", "create.slot.command.timeout",
    "custom.metric.tags", "custom.retriable.exception", "database.connection.timeout.ms", "database.server.name",
    "database.tcpKeepAlive", "errors.max.retries", "executor.shutdown.timeout.ms", "guardrail.collections.limit.action",
    "include.schema.changes", "incremental.snapshot.allow.schema.changes",
    "incremental.snapshot.chunk.size", "incremental.snapshot.watermarking.strategy", "internal.",
    "legacy.snapshot.max.threads", "lsn.flush.timeout.action", "lsn.flush.timeout.ms", "max.queue.size",
    "memory.management.",
    "notification.sink.topic.name", "openlineage.integration.config.", "openlineage.integration.dataset.",
    "openlineage.integration.job.", "poll.dispatch.interval.ms", "query.fetch.size",
    "queue.provider.type", "read.only", "retriable.restart.connector.wait.ms", "schema.refresh.mode",
    "signal.consumer.", "signal.poll.interval.ms", "snapshot.delay.ms", "snapshot.isolation.mode",
    "snapshot.lock.timeout.ms", "snapshot.max.threads", "snapshot.max.threads.multiplier",
    "snapshot.scan.all.columns.force", "snapshot.tables.order.by.row.count", "statistics.metrics.enabled",
    "streaming.delay.ms", "topic.cache.size", "topic.transaction", "transaction.metadata.factory",
)  # fmt: skip
"""Settings without effect; one that ends in a point stands for a family."""
