"""Values made of values: arrays, points, vectors

An array becomes a list of converted elements, as deep as the column was declared (`int[][]` is a list of lists);
PostgreSQL itself does not hold columns to their declared depth, so a value of another depth is flattened or wrapped to
fit the schema that consumers rely on.
"""

import re
import struct
from binascii import b2a_base64
from dataclasses import replace
from hashlib import md5
from math import isfinite, isnan
from typing import Final, TypeAlias
from uuid import UUID

from tidemill.connect.api import Schema, SchemaField, SchemaType
from tidemill.connect.plugins.postgres.types.conversion import (
    NULL,
    Conversion,
    Convert,
    Modes,
    called,
    json_text,
    plain,
)

Nested: TypeAlias = "list[bytes | Nested | None]"

_TOKENS: Final = {
    delimiter: re.compile(rb'([{}%b])|"((?:[^"\\]|\\.)*)"|([^{}%b"]+)' % (delimiter, delimiter), re.DOTALL)
    for delimiter in (b",", b";")
}
"""By what stands between elements: a comma for every type but box, whose values hold commas themselves."""
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_WKB_POINT: Final = struct.Struct("<BIdd")


def array(element: Conversion, depth: int = 1, delimiter: bytes = b",", unavailable: bytes = NULL) -> Conversion:
    """An array of `element`; `delimiter` is the element type's own (pg_type.typdelim)."""
    schema = Schema(type=SchemaType.ARRAY, items=replace(element.schema, optional=True))
    for _ in range(depth - 1):
        schema = Schema(type=SchemaType.ARRAY, items=replace(schema, optional=True))
        unavailable = NULL if unavailable == NULL else b"[%b]" % unavailable
    convert = _array(element.convert, max(depth, 1), delimiter)
    return replace(called(schema, convert, zero=b"[]", unavailable=unavailable), defaulted=False)


def stand_in(element: str, modes: Modes) -> bytes:
    """Return what Debezium writes for an array that an update did not touch, by the element type's name.

    Some have the placeholder as their element, in the form of the type; for whole numbers that is the codes of its
    characters. The others have none.
    """
    placeholder = modes.unavailable.encode()
    if element in ("text", "varchar", "bpchar", "json", "jsonb"):
        return json_text([modes.unavailable])
    if element in ("int4", "int8") or (element == "date" and modes.time not in ("connect", "isostring")):
        return json_text(list(placeholder))
    if element == "uuid":
        return json_text([str(UUID(bytes=md5(placeholder, usedforsecurity=False).digest(), version=3))])
    if element == "bytea" and modes.binary == "bytes":
        return json_text([b2a_base64(placeholder, newline=False).decode()])
    return NULL


def _array(convert: Convert, depth: int, delimiter: bytes) -> Convert:
    def elements(text: bytes) -> bytes:
        flat = text.count(b"{") == 1 == text.count(b"}") and text[:1] == b"{" and text[-1:] == b"}"
        if depth == 1 and flat and b'"' not in text:
            inside = text[1:-1].split(delimiter) if len(text) > 2 else []
            return b"[%b]" % b",".join([NULL if item == b"NULL" else convert(item) for item in inside])
        parsed = parse_array(text, delimiter)
        for _ in range(depth - _depth(parsed) if parsed else 0):
            parsed = [parsed]
        return b"[%b]" % b",".join(_converted(parsed, convert, depth))

    return elements


def _depth(parsed: Nested) -> int:
    depth = 1
    while parsed and isinstance(parsed[0], list):
        parsed, depth = parsed[0], depth + 1
    return depth


def _converted(parsed: Nested, convert: Convert, depth: int) -> list[bytes]:
    """Convert every element; lists deeper than `depth` are poured into the last one."""
    out: list[bytes] = []
    for item in parsed:
        if not isinstance(item, list):
            out.append(NULL if item is None else convert(item))
        elif depth <= 1:
            out += _converted(item, convert, depth)
        else:
            out.append(b"[%b]" % b",".join(_converted(item, convert, depth - 1)))
    return out


def parse_array(text: bytes, delimiter: bytes = b",") -> Nested:
    """Return the elements of `{a,"b c",NULL}` as text, nested as written; bounds before `=` do not matter."""
    token = _TOKENS[delimiter]
    body = text[text.index(b"=") + 1 :] if text[:1] == b"[" else text
    top: Nested = []
    stack: list[Nested] = [top]
    at = 0
    while at < len(body):
        match = token.match(body, at)
        if match is None or not stack:
            raise ValueError("not an array")
        at = match.end()
        mark, quoted, bare = match.groups()
        if mark == b"{":
            inner: Nested = []
            stack[-1].append(inner)
            stack.append(inner)
        elif mark == b"}":
            stack.pop()
        elif quoted is not None:
            stack[-1].append(_ESCAPED.sub(rb"\1", quoted))
        elif bare is not None:
            stack[-1].append(None if bare == b"NULL" else _ESCAPED.sub(rb"\1", bare))
    if len(stack) != 1 or len(top) != 1 or not isinstance(top[0], list):
        raise ValueError("not an array")
    return top[0]


def point() -> Conversion:
    """point: coordinates, and the same as well-known binary."""
    schema = Schema(
        type=SchemaType.STRUCT,
        name="io.debezium.data.geometry.Point",
        version=1,
        doc="Geometry (POINT)",
        fields=(
            SchemaField(name="x", schema=plain(SchemaType.FLOAT64)),
            SchemaField(name="y", schema=plain(SchemaType.FLOAT64)),
            SchemaField(name="wkb", schema=Schema(type=SchemaType.BYTES, optional=True)),
            SchemaField(name="srid", schema=Schema(type=SchemaType.INT32, optional=True)),
        ),
    )
    return replace(called(schema, point_struct, zero=point_struct(b"(0,0)")), defaulted=False)


def point_struct(text: bytes) -> bytes:
    """Return the struct of `(1.5,2)`."""
    x, y = (float(part) for part in text.strip(b"()").split(b","))
    wkb = b2a_base64(_WKB_POINT.pack(1, 1, x, y), newline=False)
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (_coordinate(x), _coordinate(y), wkb)


def _coordinate(number: float) -> bytes:
    if isfinite(number):
        return json_text(number)
    return b'"NaN"' if isnan(number) else b'"Infinity"' if number > 0 else b'"-Infinity"'


def vector(kind: SchemaType, name: str) -> Conversion:
    """pgvector's vector and halfvec: `[1,2,3]`, which is JSON already."""
    schema = Schema(type=SchemaType.ARRAY, name=name, version=1, items=plain(kind))
    return Conversion(schema=schema, expression="x", zero=b"[]")


def sparse_vector() -> Conversion:
    """pgvector's sparsevec: its dimensions and the elements that are not zero, by number."""
    elements = Schema(type=SchemaType.MAP, keys=plain(SchemaType.INT16), items=plain(SchemaType.FLOAT64))
    schema = Schema(
        type=SchemaType.STRUCT,
        name="io.debezium.data.SparseDoubleVector",
        version=1,
        doc="Sparse double vector",
        fields=(
            SchemaField(name="dimensions", schema=plain(SchemaType.INT16)),
            SchemaField(name="vector", schema=elements),
        ),
    )
    return called(schema, sparse_struct, zero=b'{"dimensions":0,"vector":[]}')


def sparse_struct(text: bytes) -> bytes:
    """Return the struct of `{1:1,3:2.5}/5`; a map whose keys are no text is a list of pairs in JSON."""
    listed, _, dimensions = text.partition(b"/")
    pairs = [pair.split(b":") for pair in listed.strip(b"{}").split(b",") if pair]
    elements = b",".join(b"[%d,%b]" % (int(number), value) for number, value in pairs)
    return b'{"dimensions":%d,"vector":[%b]}' % (int(dimensions), elements)
