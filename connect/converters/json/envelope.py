"""JsonConverter: a JSON text, alone or in an envelope with its schema

With `schemas.enable=true` a record is `{"schema":S,"payload":P}`; without, it is P. The schema's bytes are the same
for record after record, so they are made once and glued in front; when reading, an envelope that begins with bytes
seen before skips the parsing of its schema.

A value without a schema gets one inferred from its Python types, so that a reader who needs types has them; a value
for which there is none is sent with `"schema":null`, as JsonConverter sends all of them.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias

import orjson

from tidemill.connect.api import Json, Schema
from tidemill.connect.converters.json.inference import NoSchema, infer, shape
from tidemill.connect.converters.json.plain import dump, dump_all_plain, dump_plain
from tidemill.connect.converters.json.schemas import schema_from_json, schema_to_json
from tidemill.connect.converters.json.values import (
    Codec,
    ImpreciseNumber,
    compile_decoder,
    compile_encoder,
)

SCHEMAS_CACHE_SIZE = 1000
"""Kafka's default of `schemas.cache.size`."""

_NULL_PREFIX = b'{"schema":null,"payload":'
_PAYLOAD = b',"payload":'

TOO_DEEP = "nested too deeply"
"""The error of a record, not of whoever reads or writes it."""

Writer: TypeAlias = tuple[bytes, Codec]
Reader: TypeAlias = tuple[Schema | None, Codec | None]


class JsonConverter:
    """One converter per use: keys and values have their own."""

    def __init__(
        self,
        *,
        schemas_enable: bool = True,
        decimal_numeric: bool = False,
        replace_null_with_default: bool = True,
        cache_size: int = SCHEMAS_CACHE_SIZE,
    ) -> None:
        self._schemas_enable = schemas_enable
        self._decimal_numeric = decimal_numeric
        self._replace_null = replace_null_with_default
        self._cache_size = cache_size
        self._writers: dict[int, tuple[Schema, Writer]] = {}  # by identity: the value keeps the schema alive
        self._inferred: dict[Hashable, Writer] = {}
        self._readers: dict[bytes, Reader] = {}  # by the bytes in front of the payload

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "JsonConverter":
        """Read the converter's options; a ValueError names the bad one."""
        decimal_format = options.get("decimal.format", "BASE64").upper()
        if decimal_format not in ("BASE64", "NUMERIC"):
            raise ValueError(f"decimal.format: {decimal_format!r} is neither BASE64 nor NUMERIC")
        size = options.get("schemas.cache.size", str(SCHEMAS_CACHE_SIZE))
        if not size.isdecimal():
            raise ValueError(f"schemas.cache.size: {size!r} is not a number")
        return cls(
            schemas_enable=_flag(options, "schemas.enable", True),
            decimal_numeric=decimal_format == "NUMERIC",
            replace_null_with_default=_flag(options, "replace.null.with.default", True),
            cache_size=int(size),
        )

    # ---------------------------------------------------------------- writing

    def encode(self, value: Json, schema: Schema | None) -> bytes | None:
        """Write a value; None without a schema is a tombstone."""
        if value is None and schema is None:
            return None
        if schema is None and not self._schemas_enable:
            return dump_plain(value)
        try:
            return self._encode(value, schema)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    def encode_all(self, values: Sequence[Json], schemas: Sequence[Schema | None]) -> Sequence[bytes | None]:
        """Write values, none of which is None, with as many schemas or none at all."""
        if not schemas and not self._schemas_enable:
            return dump_all_plain(values)
        return [*map(self.encode, values, schemas or repeat(None))]

    def _encode(self, value: Json, schema: Schema | None) -> bytes:
        prefix, codec = self._writer(value, schema)
        if codec is None:
            return prefix + dump_plain(value) + b"}"
        payload = dump(codec(value))
        return prefix + payload + b"}" if self._schemas_enable else payload

    def _writer(self, value: Json, schema: Schema | None) -> tuple[bytes, Codec | None]:
        if schema is None:
            return self._inferred_writer(value)
        known = self._writers.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        writer = self._compile_writer(schema)
        if len(self._writers) >= self._cache_size:
            self._writers.clear()  # a source that makes a schema per record gains nothing from a cache anyway
        self._writers[id(schema)] = (schema, writer)
        return writer

    def _inferred_writer(self, value: Json) -> tuple[bytes, Codec | None]:
        try:
            key = shape(value)
            known = self._inferred.get(key)
            if known is not None:
                return known
            writer = self._compile_writer(infer(value))
        except NoSchema:
            return _NULL_PREFIX, None
        if len(self._inferred) >= self._cache_size:
            self._inferred.clear()
        self._inferred[key] = writer
        return writer

    def _compile_writer(self, schema: Schema) -> Writer:
        codec = self._encoder(schema)
        return b'{"schema":' + dump(schema_to_json(schema, self._encode_default)) + _PAYLOAD, codec

    def _encoder(self, schema: Schema) -> Codec:
        return compile_encoder(schema, decimal_numeric=self._decimal_numeric, replace_null=self._replace_null)

    def _encode_default(self, schema: Schema, default: Json) -> Json:
        return self._encoder(schema)(default)

    # ---------------------------------------------------------------- reading

    def decode(self, data: bytes | None) -> tuple[Json, Schema | None]:
        """Read a value and, in an envelope, its schema."""
        if data is None:
            return None, None
        if not self._schemas_enable:
            return _load(data), None
        try:
            return self._decode(data)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    def _decode(self, data: bytes) -> tuple[Json, Schema | None]:
        split = data.find(_PAYLOAD)
        # The first match may lie inside the schema (a field's doc); then the prefix is simply not known.
        reader = self._readers.get(data[: split + len(_PAYLOAD)]) if split > 0 else None
        try:
            if reader is not None and data.endswith(b"}"):
                return _read(reader, orjson.loads(memoryview(data)[split + len(_PAYLOAD) : -1]))
        except (orjson.JSONDecodeError, ImpreciseNumber):
            pass  # the slow way says what is wrong, or gets it right
        try:
            return self._decode_whole(data, _load(data))
        except ImpreciseNumber:
            return self._decode_whole(data, json.loads(data, parse_float=Decimal))

    def decode_exactly(self, data: bytes | None) -> tuple[Json, Schema | None]:
        """Read what is to be written again: as `decode`, but no number without a schema is rounded."""
        if data is None or self._schemas_enable or not self._decimal_numeric:
            return self.decode(data)
        try:
            return json.loads(data, parse_float=Decimal, parse_int=_whole, parse_constant=_no_number), None
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from None
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    def decode_all(self, data: Sequence[bytes]) -> tuple[Sequence[Json], Sequence[Schema | None]]:
        """Read what is to be written again, values and schemas; none of these where there cannot be any."""
        if not self._schemas_enable and not self._decimal_numeric:
            return [*map(orjson.loads, data)], ()
        read = [self.decode_exactly(each) for each in data]
        return [value for value, _ in read], [schema for _, schema in read]

    def _decode_whole(self, data: bytes, envelope: Any) -> tuple[Json, Schema | None]:
        if not isinstance(envelope, dict) or envelope.keys() != {"schema", "payload"}:
            raise ValueError(
                'schemas.enable=true needs a JSON object with exactly the members "schema" and "payload"; '
                "set schemas.enable=false on the converter to read plain JSON"
            )
        schema = schema_from_json(envelope["schema"], self._decode_default)
        codec = None if schema is None else compile_decoder(schema, replace_null=self._replace_null)
        reader = (schema, codec)
        self._remember(data, envelope["schema"], reader)
        return _read(reader, envelope["payload"])

    def _remember(self, data: bytes, schema: Json, reader: Reader) -> None:
        try:
            prefix = b'{"schema":' + orjson.dumps(schema) + _PAYLOAD
        except TypeError:
            return  # it is nested more deeply than orjson writes
        if not data.startswith(prefix) or data.find(_PAYLOAD) + len(_PAYLOAD) != len(prefix):
            return  # written with other spacing or order: read whole every time
        if len(self._readers) >= self._cache_size:
            self._readers.clear()
        self._readers[prefix] = reader

    def _decode_default(self, schema: Schema, default: Json) -> Json:
        return compile_decoder(schema, replace_null=self._replace_null)(default)


def _whole(digits: str) -> int | Decimal:
    """An integer, as a decimal where it is longer than those that can be written."""
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else Decimal(number)


def _no_number(name: str) -> Json:
    raise ValueError(f"{name} is no number in JSON")


def _read(reader: Reader, payload: Json) -> tuple[Json, Schema | None]:
    schema, codec = reader
    return (payload if codec is None else codec(payload)), schema


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name}: {options[name]!r} is neither true nor false")
    return text == "true"


def _load(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
