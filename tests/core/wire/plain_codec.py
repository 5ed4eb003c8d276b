"""The codec of an API as if none of its structs were rows, to hold the codec with rows against"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from tests.core.wire.message_strategies import root
from tidemill.core.wire.compiled import names_for
from tidemill.core.wire.generate import messages_source
from tidemill.core.wire.message import Message
from tidemill.core.wire.reader_source import reader_source
from tidemill.core.wire.schema import ApiSchema, StructLayout, load_schemas
from tidemill.core.wire.writer_source import writer_source

ROW_KINDS = [
    (schema, kind)
    for schema in load_schemas()
    for kind in ("request", "response")
    if any(struct.is_row for struct in schema.structs_of(root(schema, kind)))
]
ROW_IDS = [f"{schema.name}-{kind}" for schema, kind in ROW_KINDS]


@cache
def _without_rows(name: str) -> tuple[ApiSchema, dict[str, Any]]:
    """Schema and classes of an API."""
    schema = next(schema for schema in load_schemas() if schema.name == name)
    structs = {name: replace(struct, is_row=False) for name, struct in schema.structs.items()}
    plain = replace(schema, structs=structs)
    module: dict[str, Any] = {"__name__": f"plain_{name}", "__package__": "tidemill.core.wire.messages"}
    exec(compile(messages_source(plain), f"<messages of {name} without rows>", "exec"), module)
    return plain, module


@cache
def plain_functions(name: str, kind: str, version: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Reader and writer."""
    schema, module = _without_rows(name)
    layout: StructLayout = schema.layout(root(schema, kind), version)
    codes: set[str] = set()
    source = [*reader_source("read", layout, codes), *writer_source("write", layout, codes)]
    names = names_for(layout, codes, module)
    exec("\n".join(source), names)
    return names["read"], names["write"]


def as_plain(name: str, value: Any) -> Any:
    """A message, or anything in it, with an object of the other classes wherever it has one of ours."""
    if isinstance(value, Message) or hasattr(value, "_fields"):
        fields = value._fields if hasattr(value, "_fields") else value.__slots__
        cls = _without_rows(name)[1][type(value).__name__]
        return cls(**{field: as_plain(name, getattr(value, field)) for field in fields})
    return tuple(as_plain(name, item) for item in value) if isinstance(value, tuple) else value


def plain_bytes(name: str, kind: str, version: int, message: Message) -> bytes:
    """What the plain writer makes of a message."""
    chunks: list[Any] = []
    tail = plain_functions(name, kind, version)[1](as_plain(name, message), bytearray(), chunks)
    return b"".join([*chunks, tail])
