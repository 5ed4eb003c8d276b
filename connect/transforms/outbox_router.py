"""EventRouter: rows of an outbox as events

As Debezium's (`io.debezium.transforms.outbox.EventRouter`, 3.6). An application inserts its events into a table, in the
transaction they belong to; each row becomes a record whose topic, key, value, headers, partition and time are columns
of it. Deletes are the application tidying up, so they are left out, and tombstones with them; updates are not meant to
be. What is no change passes.

A schema is called after the topic its events are routed by; one is made per topic, where Debezium gives the name of
whichever came first to all that have the same payload. Times need the schema of their column, which tells their unit.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import orjson

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.schemas import schema_to_json
from tidemill.connect.transforms.chain import Severity, Telling
from tidemill.connect.transforms.change_event import DELETE, OPERATION, field_of, is_change, text_member
from tidemill.connect.transforms.debezium_options import EventRouterOptions
from tidemill.connect.transforms.java_regex import compile_java, compile_replacement
from tidemill.connect.transforms.json_payload import expanded
from tidemill.connect.transforms.role import SCHEMAS_MAX, RecordTransform, as_map, as_struct, member
from tidemill.connect.transforms.text import value_text

UPDATE: Final = "u"
OPTION: Final = "table.fields.additional.placement"
PLACES: Final = ("header", "envelope", "partition")
_PER_MS: Final = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}
_STRING: Final = Schema(type=SchemaType.STRING)


class Placed(NamedTuple):
    """A column that goes elsewhere, too."""

    column: str
    place: str
    name: str


def placements(text: str | None) -> tuple[Placed, ...]:
    """Read `table.fields.additional.placement`."""
    if text is None:
        return ()
    found = []
    for each in text.split(","):
        parts = [part.strip() for part in each.split(":")]
        if len(parts) not in (2, 3) or not all(parts):
            given = ", ".join(part.strip() for part in text.split(",") if part.strip())
            message = (
                "The 'table.fields.additional.placement' value is invalid: A comma-separated list of valid String "
                f"pairs or trios is expected but got: [{given}]"
            )
            raise InvalidConfig(OPTION, message)
        place = parts[1].lower()
        if place not in PLACES:
            raise InvalidConfig(OPTION, f"{parts[1]!r} is no place:", "Write header, envelope or partition.")
        found.append(Placed(parts[0], place, parts[-1] if len(parts) == 3 else parts[0]))
    names = ["payload", *(each.name for each in found if each.place == "envelope")]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidConfig(OPTION, f"two fields would be called {twice};", "Give one of them an alias.")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An inserted row of the outbox."""

    values: Mapping[str, Json]
    schema: Schema | None

    def has(self, column: str) -> bool:
        """Whether there is such a column."""
        if self.schema is None:
            return column in self.values
        return any(each.name == column for each in self.schema.fields)

    def get(self, column: str) -> tuple[Json, Schema | None]:
        """A column's value, or its default, and its schema."""
        if self.schema is None:
            if column not in self.values:
                raise ValueError(f"{column} is not a valid field name")
            return self.values[column], None
        field = field_of(self.schema, column)
        return member(self.values, field, replace_null=True), field.schema

    def number(self, column: str) -> int | None:
        """A column of 32 bits."""
        value, schema = self.get(column)
        if (schema is not None and schema.type is not SchemaType.INT32) or type(value) not in (int, type(None)):
            raise ValueError(f"Field '{column}' is not of type INT32")
        return value if value is None else int(value)


class EventRouter(RecordTransform, Telling):
    """Makes events of rows."""

    uses_key = False

    def __init__(self, options: EventRouterOptions) -> None:
        self.notices = Counter()
        self._options = options
        self._placed = placements(options.placement)
        self._structured = any(each.place == "envelope" for each in self._placed)
        self._pattern = compile_java(options.route_regex)
        try:
            self._replacement = compile_replacement(options.route_replacement, self._pattern)
        except ValueError as error:
            raise InvalidConfig("route.topic.replacement", str(error)) from error
        self._payloads: dict[bytes, Schema] = {}  # those of expanded payloads: equal ones are one
        self._values: dict[tuple[int, int, int | None, str], tuple[Schema, Schema, Schema]] = {}

    def one(self, record: Record) -> Record | None:
        """Look what kind of record it is."""
        if record.value is None:
            return None
        if not is_change(record):
            return record
        schema = record.value_schema
        envelope = record.value if schema is None else as_struct(record.value, schema, "Detect Debezium Operation")
        operation = envelope.get(OPERATION)
        if operation == DELETE:
            return None
        if operation == UPDATE:
            self._unexpected(record)
            return None
        row_schema = None if schema is None else field_of(schema, "after").schema
        return self._event(record, envelope, Row(values=as_map(envelope.get("after"), "Outbox"), schema=row_schema))

    def _unexpected(self, record: Record) -> None:
        if self._options.invalid == "fatal":
            raise ValueError("Unexpected update message received, fail.")
        severity = Severity.WARNING if self._options.invalid == "warn" else Severity.ERROR
        self.notices[severity, f"an updated row of the outbox {record.topic} was left out"] += 1

    def _event(self, record: Record, envelope: Mapping[str, Json], row: Row) -> Record:
        options = self._options
        if not row.has(options.payload):
            raise ValueError(f"Unable to find payload field {options.payload} in event")
        timestamp = self._timestamp(envelope, row)
        payload, payload_schema = row.get(options.payload)
        if not row.has(options.event_id):
            raise ValueError(f"Unable to find event-id field {options.event_id} in event")
        headers = [_header("id", *row.get(options.event_id))]
        if options.expand and isinstance(payload, str):
            payload, payload_schema = self._expanded(payload, payload_schema, schemas=row.schema is not None)
        route = text_member(row.values, row.schema, options.route_field)
        if route is None:
            raise ValueError(f"the column {options.route_field} is null, so the event has no topic")
        value, value_schema = payload, payload_schema
        if self._structured:
            value_schema = self._value_schema(row, payload_schema, route)
            value = {"payload": payload}
        partition = None
        for each in self._placed:
            if options.missing == "ignore" and not row.has(each.column):
                continue
            if each.place == "partition":
                partition = row.number(each.column)
            elif each.place == "header":
                headers.append(_header(each.name, *row.get(each.column)))
            else:
                value[each.name] = row.get(each.column)[0]
        if options.tombstones and (payload is None or not _text(payload).strip()):
            value, value_schema = None, None
        key, key_schema = self._key(row)
        return replace(
            record,
            topic=self._topic(route),
            kafka_partition=partition,
            key=key,
            key_schema=key_schema,
            value=value,
            value_schema=value_schema,
            timestamp_ms=timestamp,
            headers=(*record.headers, *headers),
        )

    def _topic(self, route: str) -> str:
        if not self._pattern.fullmatch(route):
            return route
        return self._pattern.sub(self._replacement, route, count=1)

    def _key(self, row: Row) -> tuple[Json, Schema | None]:
        return row.get(self._options.event_key)

    def _timestamp(self, envelope: Mapping[str, Json], row: Row) -> int | None:
        column = self._options.timestamp
        captured: int | None = envelope.get("ts_ms")
        if not column:
            return captured
        if not row.has(column):
            raise ValueError(f"Unable to find timestamp field {column} in event")
        value, schema = row.get(column)
        if schema is None and value is None:
            return captured
        if schema is None:
            raise ValueError(
                f"table.field.event.timestamp: without its schema the unit of {column} is not known; set "
                "value.converter.schemas.enable=true, or remove the option"
            )
        if schema.type is not SchemaType.INT64:
            raise ValueError(f"Field '{column}' is not of type INT64")
        if value is None:
            return captured
        if schema.name is None:
            raise ValueError("Unsupported field type INT64 (without logical schema name) for event timestamp")
        if schema.name not in _PER_MS:
            raise ValueError(f"Unsupported field type {schema.name} for event timestamp")
        units, number = _PER_MS[schema.name], int(value)
        return -(-number // units) if number < 0 else number // units  # towards zero, as Java divides

    # ---------------------------------------------------------------- schemas

    def _expanded(self, text: str, schema: Schema | None, *, schemas: bool) -> tuple[Json, Schema | None]:
        options = self._options
        try:
            value, made = expanded(options.payload, text, keep_nulls=options.nulls == "optional_bytes")
        except (ValueError, RecursionError) as error:
            self.notices[Severity.WARNING, f"the JSON of {options.payload} was not expanded: {error}"] += 1
            return text, schema
        if not schemas:
            return value, None
        spelled = orjson.dumps(schema_to_json(made, lambda _, default: default))
        if len(self._payloads) >= SCHEMAS_MAX:
            self._payloads.clear()
        return value, self._payloads.setdefault(spelled, made)

    def _value_schema(self, row: Row, payload: Schema | None, route: str) -> Schema | None:
        if row.schema is None or payload is None:
            return None
        version = row.number(self._options.version) if self._options.version else None
        key = (id(row.schema), id(payload), version, route)
        known = self._values.get(key)
        if known is not None and known[0] is row.schema and known[1] is payload:
            return known[2]
        made = self._named(row.schema, payload, version, route)
        if len(self._values) >= SCHEMAS_MAX:
            self._values.clear()
        self._values[key] = (row.schema, payload, made)
        return made

    def _named(self, schema: Schema, payload: Schema, version: int | None, route: str) -> Schema:
        fields = [SchemaField(name="payload", schema=payload)]
        for each in self._placed:
            if each.place == "envelope":
                column = next((field.schema for field in schema.fields if field.name == each.column), None)
                if column is not None:
                    fields.append(SchemaField(name=each.name, schema=column))
                elif self._options.missing == "error":
                    raise ValueError(f"Unable to find field {each.column} in event")
        package, point, last = (schema.name or "").rpartition(".")
        name = f"{package}{point}{route}.{last}" if schema.name else route
        return Schema(type=SchemaType.STRUCT, name=name, version=version, fields=tuple(fields))


def _header(name: str, value: Json, schema: Schema | None) -> tuple[str, bytes | None]:
    return name, None if value is None else value_text(value, schema).encode()


def _text(payload: Json) -> str:
    return payload if isinstance(payload, str) else "x"
