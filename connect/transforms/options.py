"""The options of the transformations that come with Connect

One model per class, under Kafka's names, with Kafka's defaults: they are what the REST API shows of a transformation,
and what its configuration is read into.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field


def _option(name: str, doc: str, default: Any = ..., *, importance: str = "HIGH", **limits: Any) -> Any:
    return Field(default, alias=name, description=doc, json_schema_extra={"importance": importance}, **limits)


_REPLACE_NULL = "Whether a null is taken for the default value of its field."


class NoOptions(BaseModel):
    """Nothing to set."""


class ReplacesNull(BaseModel):
    """What most transformations of fields have."""

    replace_null: bool = _option("replace.null.with.default", _REPLACE_NULL, True, importance="MEDIUM")


class CastOptions(ReplacesNull):
    """Types to cast to."""

    spec: list[str] = _option("spec", "FIELD:TYPE pairs, or one type for the value as a whole.", min_length=1)


class DropHeadersOptions(BaseModel):
    """Headers to drop."""

    headers: list[str] = _option("headers", "Names of the headers to remove.", min_length=1)


class ExtractFieldOptions(ReplacesNull):
    """The field that becomes the whole."""

    field: str = _option("field", "Name of the field to take, or the path to it.", importance="MEDIUM")
    syntax: Literal["V1", "V2"] = _option(
        "field.syntax.version", "V1: names; V2: paths, with a point between names.", "V1"
    )


class FlattenOptions(BaseModel):
    """How the names of members are put together."""

    delimiter: str = _option(
        "delimiter", "What stands between the names of outer and inner fields.", ".", importance="MEDIUM"
    )


class HeaderFromOptions(ReplacesNull):
    """Fields that become headers."""

    fields: list[str] = _option("fields", "Names of the fields.", min_length=1)
    headers: list[str] = _option("headers", "Names of the headers, in the same order.", min_length=1)
    operation: Literal["move", "copy"] = _option("operation", "move: the fields go; copy: they stay.")


class HoistFieldOptions(BaseModel):
    """The field the whole is put into."""

    field: str = _option("field", "Name of the only field of the result.", importance="MEDIUM")


class InsertFieldOptions(ReplacesNull):
    """Fields made of what is known of a record."""

    topic: str | None = _option("topic.field", "Field for the topic.", None, importance="MEDIUM")
    partition: str | None = _option("partition.field", "Field for the partition.", None, importance="MEDIUM")
    offset: str | None = _option("offset.field", "Field for the offset; sinks only.", None, importance="MEDIUM")
    timestamp: str | None = _option("timestamp.field", "Field for the timestamp.", None, importance="MEDIUM")
    static: str | None = _option("static.field", "Field for static.value.", None, importance="MEDIUM")
    static_value: str | None = _option("static.value", "What is put there.", None, importance="MEDIUM")


class InsertHeaderOptions(BaseModel):
    """A header with a fixed value."""

    header: str = _option("header", "Name of the header.", min_length=1)
    literal: str = _option("value.literal", "Its value.")


class MaskFieldOptions(ReplacesNull):
    """Fields that are masked."""

    fields: list[str] = _option("fields", "Names of the fields.", min_length=1)
    replacement: str | None = _option(
        "replacement",
        "What is put in place of numbers and strings; if absent, what is empty or zero.",
        None,
        importance="LOW",
        min_length=1,
    )


class RegexRouterOptions(BaseModel):
    """How topics are renamed."""

    regex: str = _option("regex", "Regular expression of Java's that the whole topic has to match.")
    replacement: str = _option("replacement", "The new topic; $1 and ${name} are groups.")


class ReplaceFieldOptions(ReplacesNull):
    """Fields that go, stay or are renamed."""

    exclude: list[str] = _option("exclude", "Fields to remove.", [], importance="MEDIUM")
    include: list[str] = _option("include", "Fields to keep; all if empty.", [], importance="MEDIUM")
    renames: list[str] = _option("renames", "OLD:NEW pairs.", [], importance="MEDIUM")


class SetSchemaMetadataOptions(ReplacesNull):
    """What a schema is called."""

    name: str | None = _option("schema.name", "Name of the schema.", None)
    version: int | None = _option("schema.version", "Version of the schema.", None)


class TimestampConverterOptions(ReplacesNull):
    """From which form a point in time goes into which."""

    field: str = _option("field", "The field, or nothing for the value as a whole.", "")
    target: Literal["string", "unix", "Date", "Time", "Timestamp"] = _option("target.type", "The form wanted.")
    format: str = _option("format", "Date pattern of Java's, for strings.", "", importance="MEDIUM")
    precision: Literal["nanoseconds", "microseconds", "milliseconds", "seconds"] = _option(
        "unix.precision", "What unix counts.", "milliseconds", importance="LOW"
    )


class TimestampRouterOptions(BaseModel):
    """How topics are named after times."""

    topic_format: str = _option("topic.format", "The new topic.", "${topic}-${timestamp}")
    timestamp_format: str = _option("timestamp.format", "Date pattern of Java's.", "yyyyMMdd")


class ValueToKeyOptions(ReplacesNull):
    """Fields of the value that become the key."""

    fields: list[str] = _option("fields", "Names of the fields.", min_length=1)


class HasHeaderKeyOptions(BaseModel):
    """The header a record has to have."""

    name: str = _option("name", "Name of the header.", importance="MEDIUM", min_length=1)


class TopicNameMatchesOptions(BaseModel):
    """The topic a record has to be of."""

    pattern: str = _option(
        "pattern", "Regular expression of Java's that the whole topic has to match.", importance="MEDIUM", min_length=1
    )
