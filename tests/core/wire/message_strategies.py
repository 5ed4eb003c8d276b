"""Messages made from the schema: random ones for Hypothesis, and one full sample per message and version"""

import itertools
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidemill.core.wire.api import ALL_APIS
from tidemill.core.wire.message import Message
from tidemill.core.wire.schema import ApiSchema, FieldLayout, StructLayout, StructSchema, load_schemas

INTEGER_BITS = {"int8": (8, True), "int16": (16, True), "int32": (32, True), "int64": (64, True), "uint16": (16, False)}
KINDS = [(schema, kind) for schema in load_schemas() for kind in ("request", "response")]
KIND_IDS = [f"{schema.name}-{kind}" for schema, kind in KINDS]
CASES = [(s, kind, v) for s, kind in KINDS for v in range(s.versions.first, s.versions.last + 1)]
CASE_IDS = [f"{s.name}-{kind}-v{v}" for s, kind, v in CASES]


@cache
def module_of(name: str) -> Any:
    import importlib

    api = next(api for api in ALL_APIS if api.name == name)
    return importlib.import_module(f"tidemill.core.wire.messages.{api.module}")


def root(schema: ApiSchema, kind: str) -> StructSchema:
    return schema.request if kind == "request" else schema.response


def message_class(schema: ApiSchema, kind: str) -> type[Message]:
    return getattr(module_of(schema.name), root(schema, kind).name)


def integers(type_name: str) -> st.SearchStrategy[int]:
    bits, signed = INTEGER_BITS[type_name]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.one_of(st.integers(-1 if signed else 0, 3), st.integers(low, high))


def scalar(type_name: str) -> st.SearchStrategy[Any]:
    if type_name == "bool":
        return st.booleans()
    if type_name == "uuid":
        return st.one_of(st.just(uuid.UUID(int=0)), st.integers(0, 2**128 - 1).map(lambda i: uuid.UUID(int=i)))
    if type_name == "string":
        return st.one_of(
            st.text(max_size=5), st.sampled_from(["", "orders", "x" * 126, "x" * 127, "é" * 70, "x" * 300])
        )
    if type_name == "float64":
        return st.floats(allow_nan=False)
    if type_name in ("bytes", "records"):
        return st.one_of(st.binary(max_size=5), st.sampled_from([b"", b"\0" * 126, b"\0" * 127, b"\1" * 20000]))
    return integers(type_name)


def values(schema: ApiSchema, field: FieldLayout) -> st.SearchStrategy[Any]:
    one = scalar(field.type) if field.struct is None else structs(schema, field.struct)
    if field.array:
        one = st.lists(one, max_size=3).map(tuple)
    return st.none() | one if field.nullable else one


_CACHE: dict[tuple[str, StructLayout], st.SearchStrategy[Any]] = {}


def structs(schema: ApiSchema, layout: StructLayout) -> st.SearchStrategy[Any]:
    key = (schema.name, layout)
    if key not in _CACHE:
        cls = getattr(module_of(schema.name), layout.name)
        fields = {field.name: values(schema, field) for field in (*layout.fields, *layout.tagged)}
        _CACHE[key] = st.fixed_dictionaries(fields).map(lambda values: cls(**values))
    return _CACHE[key]


def messages(schema: ApiSchema, kind: str, version: int) -> st.SearchStrategy[Message]:
    """Random messages that only set what `version` has."""
    return structs(schema, schema.layout(root(schema, kind), version))


def sample(schema: ApiSchema, kind: str, version: int) -> Message:
    """A message with every field of `version` set to something that is not its default."""
    return _sample_struct(schema, schema.layout(root(schema, kind), version), itertools.count(1))


def _sample_struct(schema: ApiSchema, layout: StructLayout, numbers: Iterator[int]) -> Any:
    cls = getattr(module_of(schema.name), layout.name)
    return cls(**{f.name: _sample_field(schema, f, numbers) for f in (*layout.fields, *layout.tagged)})


def _sample_field(schema: ApiSchema, field: FieldLayout, numbers: Iterator[int]) -> Any:
    def one() -> Any:
        if field.struct is not None:
            return _sample_struct(schema, field.struct, numbers)
        number = next(numbers)
        if field.type == "bool":
            return field.default is not True
        if field.type == "uuid":
            return uuid.UUID(int=number)
        if field.type == "string":
            return f"text-{number}"
        if field.type in ("bytes", "records"):
            return f"bytes-{number}".encode()
        return number % 100

    return (one(), one()) if field.array else one()
