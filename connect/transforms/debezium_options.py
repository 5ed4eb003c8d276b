"""The options of Debezium's transformations

One model per class, under Debezium's names, with its defaults (those of 3.6), and the options it once had or has for
what is not here: they are refused by name. What a value may be is told in Debezium's words.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from tidemill.connect.api import InvalidConfig, Unsupported
from tidemill.connect.transforms.java_regex import compile_java


def _option(name: str, doc: str, default: Any = ..., *, importance: str = "LOW", **limits: Any) -> Any:
    return Field(default, alias=name, description=doc, json_schema_extra={"importance": importance}, **limits)


def _flag(given: Any) -> Any:
    if isinstance(given, str):
        text = given.strip().lower()
        if text not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return text == "true"
    return given


Flag = Annotated[bool, BeforeValidator(_flag)]


def _one_of(*values: str) -> Callable[[Any], Any]:
    def check(given: Any) -> Any:
        text = str(given).strip().lower()
        if text not in values:
            raise ValueError(f"Value must be one of {', '.join(values)}")
        return text

    return check


HANDLING: Final = ("drop", "tombstone", "rewrite-with-tombstone", "rewrite", "delete-to-tombstone")


class ExtractNewRecordStateOptions(BaseModel):
    """What becomes of a change."""

    handling: Annotated[str, BeforeValidator(_one_of(*HANDLING))] = _option(
        "delete.tombstone.handling.mode",
        "What becomes of deletes and of the tombstones behind them. drop: neither stays; tombstone: one without a "
        "value; rewrite: the old row with __deleted; rewrite-with-tombstone: both; delete-to-tombstone: the delete "
        "becomes the tombstone, without a schema.",
        "tombstone",
        importance="MEDIUM",
    )
    route_field: str = _option("route.by.field", "Column whose text becomes the topic.", "")
    fields_prefix: str = _option("add.fields.prefix", "What stands before the names of added fields.", "__")
    fields: str = _option("add.fields", "Fields of the envelope that rows get: FIELD, STRUCT.FIELD or FIELD:NAME.", "")
    headers_prefix: str = _option("add.headers.prefix", "What stands before the names of added headers.", "__")
    headers: str = _option("add.headers", "Fields of the envelope that become headers.", "")
    drop_header: str = _option("drop.fields.header.name", "Header that lists fields to remove from a row.", "")
    drop_from_key: Flag = _option("drop.fields.from.key", "Whether they are removed from the key, too.", False)
    drop_compatibly: Flag = _option(
        "drop.fields.keep.schema.compatible",
        "Whether only fields that may be null are removed, as far as a schema tells.",
        True,
    )
    replace_null: Flag = _option(
        "replace.null.with.default", "Whether the rewrite modes take a null for the default of its column.", True
    )


_MODES: Final = "set delete.tombstone.handling.mode to drop, tombstone, rewrite or rewrite-with-tombstone instead"

OLD_UNWRAP_OPTIONS: Final = (
    Unsupported(name="drop.tombstones", why=f"Debezium 3 has dropped it; {_MODES}"),
    Unsupported(name="delete.handling.mode", why=f"Debezium 3 has dropped it; {_MODES}"),
    Unsupported(name="operation.header", why="Debezium has dropped it; set add.headers=op instead"),
    Unsupported(name="add.source.fields", why="Debezium has dropped it; set add.fields=source.NAME instead"),
)


def _regex(given: Any) -> Any:
    try:
        compile_java(str(given))
    except ValueError as error:
        raise ValueError(f"A valid regular expressions is expected, but {error}") from None
    return given


def _required(given: Any) -> Any:
    if not str(given).strip():
        raise ValueError("A value is required")
    return given


def _count(given: Any) -> int:
    try:
        number = int(str(given).strip())
    except ValueError:
        raise ValueError("Not a number of type INT") from None
    if number < 1:
        raise ValueError("Value must be at least 1")
    return number


Regex = Annotated[str, BeforeValidator(_regex)]
Required = Annotated[str, BeforeValidator(_required)]
RequiredRegex = Annotated[str, BeforeValidator(_regex), BeforeValidator(_required)]


class EventRouterOptions(BaseModel):
    """How rows of an outbox become events."""

    event_id: str = _option("table.field.event.id", "Column that becomes the header id.", "id")
    event_key: str = _option("table.field.event.key", "Column that becomes the key.", "aggregateid")
    event_type: str = _option(
        "table.field.event.type", "Column of the event's type; only named, as in Debezium: place it yourself.", "type"
    )
    payload: str = _option("table.field.event.payload", "Column that becomes the value.", "payload")
    timestamp: str | None = _option(
        "table.field.event.timestamp",
        "Column whose time becomes that of the record; without one, the time the change was captured.",
        None,
        importance="MEDIUM",
    )
    placement: str | None = _option(
        "table.fields.additional.placement",
        "Columns that go elsewhere, too: COLUMN:header, COLUMN:envelope or COLUMN:partition, perhaps with :ALIAS.",
        None,
        importance="HIGH",
    )
    missing: Annotated[str, BeforeValidator(_one_of("ignore", "error"))] = _option(
        "table.field.additional.missing", "What happens without such a column.", "error", importance="MEDIUM"
    )
    version: str | None = _option(
        "table.field.event.schema.version", "Column whose number is the version of the value's schema.", None
    )
    invalid: Annotated[str, BeforeValidator(_one_of("warn", "error", "fatal"))] = _option(
        "table.op.invalid.behavior",
        "What happens to updated rows. warn, error: left out, and logged; fatal: an error.",
        "warn",
        importance="MEDIUM",
    )
    expand: Flag = _option(
        "table.expand.json.payload", "Whether JSON in the payload becomes a structure.", False, importance="MEDIUM"
    )
    nulls: Annotated[str, BeforeValidator(_one_of("ignore", "optional_bytes"))] = _option(
        "table.json.payload.null.behavior",
        "What becomes of nulls in it. ignore: left out; optional_bytes: kept.",
        "ignore",
        importance="MEDIUM",
    )
    route_field: str = _option("route.by.field", "Column whose text is routed by.", "aggregatetype", importance="HIGH")
    route_regex: Regex = _option(
        "route.topic.regex", "Regular expression of Java's that the whole text has to match.", "(?<routedByValue>.*)"
    )
    route_replacement: str = _option(
        "route.topic.replacement", "The topic then.", "outbox.event.${routedByValue}", importance="HIGH"
    )
    tombstones: Flag = _option(
        "route.tombstone.on.empty.payload", "Whether an empty payload becomes a tombstone.", False, importance="HIGH"
    )


_TRACING: Final = "there is no OpenTelemetry here, without which Debezium does nothing about it either; remove it"

NO_TRACING: Final = tuple(
    Unsupported(name=name, why=_TRACING)
    for name in ("tracing.span.context.field", "tracing.operation.name", "tracing.with.context.field.only")
)
NO_FIELD_NAMES: Final = Unsupported(
    name="field.name.adjustment.mode", why="names in a payload stay as they are; remove it", accepted=("none",)
)


class ByLogicalTableRouterOptions(BaseModel):
    """Which tables are one."""

    topic_regex: RequiredRegex = _option(
        "topic.regex", "Regular expression of Java's that the whole topic has to match."
    )
    topic_replacement: Required = _option("topic.replacement", "The topic then; $1 and ${name} are groups.")
    unique: Flag = _option("key.enforce.uniqueness", "Whether keys get a field that tells the table.", True)
    field_regex: Regex = _option("key.field.regex", "Regular expression of Java's, for what that field says.", "")
    field_name: str = _option("key.field.name", "What it is called.", "__dbz__physicalTableIdentifier")
    field_replacement: str = _option(
        "key.field.replacement", "What it says where key.field.regex matches; else the topic.", ""
    )
    adjustment: Annotated[str, BeforeValidator(_one_of("none", "avro", "avro_unicode"))] = _option(
        "schema.name.adjustment.mode",
        "What becomes of names of schemas. none: nothing; avro: Avro accepts them.",
        "none",
    )
    cache_size: Annotated[int, BeforeValidator(_count)] = _option(
        "logical.table.cache.size", "Schemas that are remembered.", 16
    )

    @model_validator(mode="after")
    def _replacement_of_regex(self) -> "ByLogicalTableRouterOptions":
        if self.field_regex.strip() and not self.field_replacement.strip():
            raise InvalidConfig(
                "key.field.replacement", "key.field.replacement must be non-empty if key.field.regex is set."
            )
        return self
