"""Code made for one table: from the bytes of a row to records

A loop over columns that looks up what to do with each costs more than the work itself. So each shape gets functions
of its own, written as source text, with every column unrolled and its conversion in place:

- `new(m, p, first, lsn, second, tail)` decodes a new row at `p` and returns the record's key and value;
- `old(m, p)` decodes an old image: key, values, and the position after it;
- `over(m, p, old)` decodes a new row whose unchanged large values are taken from the old image: key and values;
- `row(values)` is the JSON of an image; `complete(values)` first replaces nulls where the schema allows none, because
  an image that holds only the key has nulls for all the rest; `whole(values)` refuses them, as `new` and `over` do;
- `page(get, first, last, keys, values, tail)` turns rows of a query result into records.

A null where the schema allows none is a row older than the catalog's NOT NULL: `NullInRequired` names the column, and
whoever called makes code for a shape in which it is optional.

A value is the bytes of its JSON, from decoding to the final join. The decoders check every tag, and that the row
ends where the message ends: short, long or garbled messages raise. Names of columns enter the source only through
`repr`, never as text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, TypeAlias

import orjson

from tidemill.connect.api import SchemaType
from tidemill.connect.plugins.postgres.envelope import Envelope
from tidemill.connect.plugins.postgres.pgoutput import DecodeError
from tidemill.connect.plugins.postgres.table import Field
from tidemill.connect.plugins.postgres.types.conversion import NULL as JSON_NULL

TEXT: Final = 116  # t
NULL: Final = 110  # n
UNCHANGED: Final = 117  # u

Values: TypeAlias = tuple[bytes, ...]
"""The columns of a row that are part of values, as JSON."""

_LARGE: Final = frozenset({SchemaType.BYTES, SchemaType.STRING, SchemaType.STRUCT, SchemaType.ARRAY, SchemaType.MAP})
"""What a type that may be stored apart from its row, and is then not sent if it did not change, can look like."""

Collected: TypeAlias = list[bytes | None]
Get: TypeAlias = Callable[[int, int], bytes | None]


class NullInRequired(Exception):
    """A row has null in a column that may not be null as far as the catalog knows; `column` counts from 0."""

    def __init__(self, column: int) -> None:
        super().__init__(f"column {column} is null")
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCode:
    """The functions of one shape."""

    new: Callable[[bytes, int, bytes, bytes, bytes, bytes], tuple[bytes | None, bytes]]
    old: Callable[[bytes, int], tuple[bytes | None, Values, int]]
    over: Callable[[bytes, int, Values], tuple[bytes | None, Values]]
    row: Callable[[Values], bytes]
    complete: Callable[[Values], Values]
    whole: Callable[[Values], Values]
    page: Callable[[Get, int, int, Collected, Collected, bytes], None]
    source: str


def generate(envelope: Envelope) -> RowCode:
    """Write and compile the functions of a table."""
    writer = _Writer(envelope)
    parts = (
        writer.new(), writer.old(), writer.over(), writer.row(), writer.complete(), writer.whole(), writer.page(),
    )  # fmt: skip
    source = "\n".join(line for part in parts for line in part)
    shape = envelope.shape
    exec(compile(source, f"<rows of {shape.schema}.{shape.table}>", "exec"), writer.names)
    functions = {name: writer.names[name] for name in ("new", "old", "over", "row", "complete", "whole", "page")}
    return RowCode(source=source, **functions)


def _stands_for_nothing(field: Field) -> bool:
    """Tell whether a value that was not sent is null where the schema allows none."""
    return not field.optional and field.conversion.unavailable == JSON_NULL and field.conversion.schema.type in _LARGE


def _never_null(convert: Callable[[bytes], bytes], column: int) -> Callable[[bytes], bytes]:
    def checked(text: bytes) -> bytes:
        value = convert(text)
        if value == JSON_NULL:
            raise NullInRequired(column)
        return value

    return checked


class _Writer:
    """Writes the source; `names` becomes its global namespace."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.shape = shape = envelope.shape
        self.fields = list(enumerate(shape.fields))
        self.shown = [(index, each) for index, each in self.fields if each.in_value]
        self.needed = {index for index, each in self.fields if each.in_value or each.name in shape.key}
        self.names: dict[str, Any] = {
            "SHORT": Struct("!H").unpack_from,
            "LONG": Struct("!I").unpack_from,
            "mismatch": self._mismatch,
            "garbled": self._garbled,
            "NullInRequired": NullInRequired,
        }
        self.expressions: dict[int, str] = {}
        for index, each in self.fields:
            self.expressions[index], names = each.conversion.for_column(index)
            self.names |= names
            if each.conversion.sometimes_null and not each.optional:
                name = f"{each.conversion.sometimes_null}_{index}"
                self.names[name] = _never_null(self.names[name], index)

    def _mismatch(self, count: int) -> DecodeError:
        where = f"{self.shape.schema}.{self.shape.table}"
        return DecodeError(f"a row of {where} has {count} columns instead of {len(self.shape.fields)}")

    def _garbled(self, at: int) -> DecodeError:
        return DecodeError(f"a row of {self.shape.schema}.{self.shape.table} is garbled at byte {at}")

    def new(self) -> list[str]:
        lines = ["def new(m, p, first, lsn, second, tail):", *self._count()]
        for index, each in self.fields:
            unchanged = None if _stands_for_nothing(each) else repr(each.conversion.unavailable)
            lines += self._column(index, unchanged, required=not each.optional)
        record = self._joined(self.envelope.create_head, ["first", "lsn", "second", "lsn", "tail"])
        return [*lines, "    if p != len(m): raise garbled(p)", f"    return {self._key()}, {record}"]

    def old(self) -> list[str]:
        lines = ["def old(m, p):", *self._count()]
        for index, _ in self.fields:
            lines += self._column(index, repr(JSON_NULL))
        return [*lines, f"    return {self._key()}, {self._values()}, p"]

    def over(self) -> list[str]:
        lines = ["def over(m, p, old):", *self._count()]
        places = {index: place for place, (index, _) in enumerate(self.shown)}
        for index, each in self.fields:
            kept = f"old[{places[index]}]" if index in places else repr(JSON_NULL)
            lines += self._column(index, kept, required=not each.optional)
            if index in self.needed:
                remedy = f"v{index} = {each.conversion.unavailable!r}"
                if _stands_for_nothing(each):
                    remedy = f"raise NullInRequired({index})"
                lines.append(f"    if k == {UNCHANGED} and v{index} == {JSON_NULL!r}: {remedy}")
        return [*lines, "    if p != len(m): raise garbled(p)", f"    return {self._key()}, {self._values()}"]

    def row(self) -> list[str]:
        return ["def row(values):", f"    {self._values()} = values", f"    return {self._joined(b'', [])}"]

    def complete(self) -> list[str]:
        return self._with_nulls("complete", lambda index, each: f"v{index} = {each.stand_in!r}")

    def whole(self) -> list[str]:
        return self._with_nulls("whole", lambda index, each: f"raise NullInRequired({index})")

    def _with_nulls(self, name: str, remedy: Callable[[int, Field], str]) -> list[str]:
        """Write a function that does something about nulls in columns that may not be null."""
        required = [(index, each) for index, each in self.shown if not each.optional]
        if not required:
            return [f"def {name}(values):", "    return values"]
        lines = [f"def {name}(values):", f"    {self._values()} = values"]
        lines += [f"    if v{index} == {JSON_NULL!r}: {remedy(index, each)}" for index, each in required]
        return [*lines, f"    return {self._values()}"]

    def page(self) -> list[str]:
        lines = ["def page(get, first, last, keys, values, tail):", "    for r in range(first, last):"]
        for index, _ in self.fields:
            if index in self.needed:
                lines.append(f"        x = get(r, {index})")
                lines.append(f"        v{index} = {JSON_NULL!r} if x is None else {self.expressions[index]}")
        record = self._joined(self.envelope.create_head, ["tail"])
        return [*lines, f"        keys.append({self._key()})", f"        values.append({record})"]

    def _count(self) -> list[str]:
        count = len(self.shape.fields)
        return [f"    if SHORT(m, p)[0] != {count}: raise mismatch(SHORT(m, p)[0])", "    p += 2"]

    def _column(self, index: int, unchanged: str | None, *, required: bool = False) -> list[str]:
        if index not in self.needed:
            return [
                "    k = m[p]",
                f"    if k == {TEXT}: p += 5 + LONG(m, p + 1)[0]",
                f"    elif k == {NULL} or k == {UNCHANGED}: p += 1",
                "    else: raise garbled(p)",
            ]
        expression = self.expressions[index]
        take = [f"        v{index} = m[a:p]"]
        if expression != "x":
            take = ["        x = m[a:p]", f"        v{index} = {expression}"]
        return [
            "    k = m[p]",
            f"    if k == {TEXT}:",
            "        a = p + 5",
            "        p = a + LONG(m, p + 1)[0]",
            *take,
            f"    elif k == {NULL}:",
            f"        raise NullInRequired({index})" if required else f"        v{index} = {JSON_NULL!r}; p += 1",
            f"    elif k == {UNCHANGED}:",
            f"        raise NullInRequired({index})"
            if unchanged is None
            else f"        v{index} = {unchanged}; p += 1",
            "    else: raise garbled(p)",
        ]

    def _values(self) -> str:
        return "(" + "".join(f"v{index}, " for index, _ in self.shown) + ")"

    def _joined(self, head: bytes, after: list[str]) -> str:
        """Return an expression that joins the row's JSON, something before it and something after it."""
        pieces: list[str] = []
        text = head + b"{"
        for index, each in self.shown:
            pieces += [repr(text + orjson.dumps(each.name) + b":"), f"v{index}"]
            text = b","
        closing = b"}" if self.shown else text + b"}"
        return f"b''.join(({', '.join([*pieces, repr(closing), *after])},))"

    def _key(self) -> str:
        """Return an expression that is the record key."""
        if not self.shape.key:
            return "None"
        indexes = {each.name: index for index, each in self.fields}
        pieces: list[str] = []
        text = self.envelope.key_head + b"{"
        for name in self.shape.key:
            pieces += [repr(text + orjson.dumps(name) + b":"), f"v{indexes[name]}"]
            text = b","
        pieces.append(repr(b"}" + self.envelope.key_tail))
        return " + ".join(pieces) if len(pieces) <= 3 else f"b''.join(({', '.join(pieces)}))"
