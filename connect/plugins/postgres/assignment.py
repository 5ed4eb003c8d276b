"""What one life of the task is to capture, and for whom

The settings, what the runtime told the task, and the few things that follow from both and that every phase needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from tidemill.connect.api import EncodedBatch, Fatal, Headers, Json, SourceOffset, SourcePartition, TaskContext
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.envelope import Format
from tidemill.core.runtime.clock import Clock


def _version() -> str:
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "0"


VERSION: Final = _version()
"""Named in every record's source."""

WAITING: Final = "waiting for the database"
"""The problem of a task whose server answers, but not yet as it must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Settings, context and what follows from them."""

    config: PostgresConfig
    context: TaskContext
    clock: Clock
    form: Format
    partition: SourcePartition

    def report(self, facts: Mapping[str, Json]) -> None:
        """Tell status and metrics; a fact that is None is over."""
        self.context.report(facts)

    def waiting(self, reason: str | None) -> None:
        """Tell in the status what the capture waits for, None when it goes on."""
        self.context.problem(WAITING, reason)

    def offset_only(self, offset: SourceOffset, *, now: bool = False) -> EncodedBatch:
        """Return a batch that only moves the offset; with `now` it is not left for the next flush."""
        return EncodedBatch(
            topic=self.config.heartbeat_topic,
            keys=(),
            values=(),
            partition=self.partition,
            offset=offset,
            offset_now=now,
        )

    @property
    def headers(self) -> Headers:
        """Headers of every record, where they were asked for."""
        if not self.config.context_headers:
            return ()
        return (
            ("__debezium.context.connectorLogicalName", self.config.topic_prefix.encode()),
            ("__debezium.context.taskId", str(self.context.task).encode()),
            ("__debezium.context.connectorName", b"postgresql"),
        )


def assign(config: PostgresConfig, context: TaskContext, clock: Clock) -> Assignment:
    """Put an assignment together; raises Fatal for converters that are not JSON."""
    return Assignment(
        config=config,
        context=context,
        clock=clock,
        form=_format(config, context),
        partition={"server": config.topic_prefix},
    )


def _format(config: PostgresConfig, context: TaskContext) -> Format:
    for name, spec in (("key.converter", context.key_converter), ("value.converter", context.value_converter)):
        if spec.kind != "json":
            raise Fatal(
                f"{name}: the PostgreSQL source writes JSON only; set {name}="
                "org.apache.kafka.connect.json.JsonConverter"
            )
        if spec.options.get("decimal.format", "BASE64").upper() != "BASE64":
            raise Fatal(f"{name}.decimal.format: only BASE64; for plain numbers set decimal.handling.mode=string")
    return Format(
        key_schemas=context.key_converter.flag("schemas.enable", True),
        value_schemas=context.value_converter.flag("schemas.enable", True),
        version=VERSION,
        name=config.topic_prefix,
        database=config.dbname,
    )
