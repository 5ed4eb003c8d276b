"""TimestampConverter: points in time in another form

The forms are texts, counts since 1970, and Connect's Date, Time and Timestamp. Which form a value has is told by its
schema; without one, a text is a text, an integer is a count, and Python's date, time and datetime are what they are.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.values import DATE, TIME, TIMESTAMP
from tidemill.connect.transforms.java_dates import DAY_MS, compile_format, compile_parse
from tidemill.connect.transforms.options import TimestampConverterOptions
from tidemill.connect.transforms.role import PartTransform, Role, SchemaMemory, as_map, as_struct, member
from tidemill.connect.transforms.text import logical_ms

_PURPOSE: Final = "converting timestamp formats"
_SCHEMAS: Final = {
    "string": Schema(type=SchemaType.STRING),
    "unix": Schema(type=SchemaType.INT64),
    "Date": Schema(type=SchemaType.INT32, name=DATE, version=1),
    "Time": Schema(type=SchemaType.INT32, name=TIME, version=1),
    "Timestamp": Schema(type=SchemaType.INT64, name=TIMESTAMP, version=1),
}
_PER_MS: Final = {"nanoseconds": 1_000_000, "microseconds": 1_000, "milliseconds": 1}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class TimestampConverter(PartTransform):
    """Converts one field, or the whole value."""

    def __init__(self, role: Role, options: TimestampConverterOptions) -> None:
        super().__init__(role)
        if options.target == "string" and not options.format:
            raise InvalidConfig(
                "format", "TimestampConverter requires format option to be specified when using string timestamps"
            )
        self._field, self._target, self._precision = options.field, options.target, options.precision
        self._replace_null = options.replace_null
        self._write = self._made(compile_format, options.format)
        self._read: Callable[[str], int] | None = None
        if options.format:
            try:
                self._read = compile_parse(options.format)
            except ValueError as error:
                self._unreadable = str(error)
        else:
            self._unreadable = "a text needs the option 'format' to be read"
        self._schemas = SchemaMemory(self._converted_schema)

    def _made(self, compile_pattern: Callable[[str], Callable[[int], str]], pattern: str) -> Callable[[int], str]:
        try:
            return compile_pattern(pattern)
        except ValueError as error:
            raise InvalidConfig("format", str(error)) from error

    def one(self, record: Record) -> Record:
        """Convert what is there; null stays null."""
        value, schema = self.role.of(record)
        if not self._field:
            made = None if schema is None else self._schemas(schema)
            return self.role.put(record, self._converted(value, schema), made)
        if schema is None:
            if value is None:
                return record
            given = as_map(value, _PURPOSE)
            converted = {self._field: self._converted(given.get(self._field), None)}
            return self.role.put(record, {**given, **converted}, None)
        if value is None:
            return self.role.put(record, None, self._schemas(schema))
        given = as_struct(value, schema, _PURPOSE)
        made = self._schemas(schema)
        return self.role.put(record, self._struct(given, schema), made)

    def _struct(self, value: Mapping[str, Json], schema: Schema) -> dict[str, Json]:
        out = {}
        for field in schema.fields:
            found = member(value, field, replace_null=self._replace_null)
            out[field.name] = self._converted(found, field.schema) if field.name == self._field else found
        return out

    def _converted_schema(self, schema: Schema) -> Schema:
        if not self._field:
            return self._target_schema(schema)
        fields = [
            SchemaField(name=each.name, schema=self._target_schema(each.schema)) if each.name == self._field else each
            for each in schema.fields
        ]
        return replace(schema, fields=tuple(fields))

    def _target_schema(self, schema: Schema) -> Schema:
        return replace(_SCHEMAS[self._target], optional=schema.optional)

    # ----------------------------------------------------------------- values

    def _converted(self, value: Json, schema: Schema | None) -> Json:
        if value is None:
            if schema is not None:
                self._check(schema)
            return None
        ms = self._milliseconds(value, schema)
        match self._target:
            case "string":
                return self._write(ms)
            case "unix":
                return _divided(ms, 1000) if self._precision == "seconds" else ms * _PER_MS[self._precision]
            case "Timestamp":
                return ms if schema is not None else _EPOCH + dt.timedelta(milliseconds=ms)
            case "Date":
                return ms // DAY_MS if schema is not None else (_EPOCH + dt.timedelta(milliseconds=ms)).date()
        return ms % DAY_MS if schema is not None else (_EPOCH + dt.timedelta(milliseconds=ms)).time()

    def _check(self, schema: Schema) -> None:
        known = schema.name in (DATE, TIME, TIMESTAMP) or schema.type in (SchemaType.STRING, SchemaType.INT64)
        if not known:
            raise ValueError(f"A schema of type {schema.type} does not correspond to a known timestamp type format")

    def _milliseconds(self, value: Json, schema: Schema | None) -> int:
        ms = logical_ms(value, schema)
        if ms is not None:
            return ms
        if schema is not None:
            self._check(schema)
        if isinstance(value, str):
            if self._read is None:
                raise ValueError(self._unreadable)
            return self._read(value)
        if type(value) is not int:
            raise ValueError(f"a {type(value).__name__} is no point in time")
        return value * 1000 if self._precision == "seconds" else _divided(value, _PER_MS[self._precision])


def _divided(number: int, by: int) -> int:
    """Division that cuts off, as Java's does, also below zero."""
    return number // by if number >= 0 else -(-number // by)
