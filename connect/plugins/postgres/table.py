"""The shape of a captured table: the stream joined with the catalog

The stream names columns and types as they were when a row was written; it knows nothing of NOT NULL, defaults,
declared dimensions, nor the order of key columns. The catalog knows all that, but as it is now. Where both name the
same column with the same type, the catalog's knowledge is used; a column the catalog does not know that way is optional
and has no default. Order and presence of columns, and which of them are the key, are always the stream's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from tidemill.connect.api import Schema, SchemaField, SchemaType
from tidemill.connect.plugins.postgres.pgoutput import Relation, RelationColumn
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.types.conversion import UNCONVERTIBLE, Conversion, Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog

_TYPE_NAME: Final = r"""(?:"(?:[^"]|"")*"|[^()':"*+/|<>=!@#%^&~?-])"""
_CASTS: Final = rf"(?:::{_TYPE_NAME}+(?:\(\d+(?:,\d+)?\){_TYPE_NAME}*)?)*"
"""Casts, but no operator: what stands before one is not what the column gets."""
_QUOTED: Final = re.compile(rf"^\(?'((?:[^']|'')*)'{_CASTS}\)?{_CASTS}$")
_BARE: Final = re.compile(r"^\(?(-?\d+(?:\.\d+)?|true|false)\)?(?:::.+)?$")
_NULL: Final = re.compile(r"^NULL(?:::.+)?$", re.IGNORECASE)
_MADE: Final = {
    "io.debezium.data.Uuid": b'"00000000-0000-0000-0000-000000000000"',
    "io.debezium.data.Json": b'"{}"',
}
"""Zeros of defaults where they differ from those that stand in for what is not known."""
_ILLEGAL_IN_TOPIC: Final = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogColumn:
    """A column as pg_attribute has it."""

    name: str
    type_oid: int
    modifier: int = -1
    not_null: bool = False
    default: str | None = None  # the expression, as pg_get_expr writes it
    dimensions: int = 0
    generated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table as the catalog has it."""

    oid: int
    schema: str
    table: str
    replica_identity: str  # d: primary key, f: full, i: index, n: nothing
    columns: tuple[CatalogColumn, ...]
    primary_key: tuple[str, ...] = ()
    identity_index: tuple[str, ...] = ()  # columns of REPLICA IDENTITY USING INDEX
    unique_index: tuple[str, ...] = ()  # columns of a unique index that stands in for a primary key
    partitioned: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that name a row in every event: those of the identity index, if that is what deletes carry."""
        return self.identity_index or self.primary_key or self.unique_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of the stream with everything that is known about it."""

    name: str
    conversion: Conversion
    optional: bool
    default: bytes | None  # as JSON
    in_value: bool

    @property
    def schema(self) -> Schema:
        """The Connect schema of the column."""
        default = None if self.default is None else orjson.Fragment(self.default)
        return replace(self.conversion.schema, optional=self.optional, default=default)

    @property
    def stand_in(self) -> bytes:
        """What stands for a column that may not be null in an image that does not hold it."""
        return self.conversion.zero if self.default is None else self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """What records of a table look like until its next Relation message."""

    schema: str
    table: str
    topic: str
    fields: tuple[Field, ...]  # in the order of the stream
    key: tuple[str, ...]  # in the order of the record key; empty for none

    def field(self, name: str) -> Field:
        """The field of that name."""
        return next(each for each in self.fields if each.name == name)

    def same_records(self, other: "TableShape") -> bool:
        """Whether records of both look the same and are made the same way."""
        return self._look() == other._look()

    def misfit(self, row: Sequence[object]) -> str | None:
        """Name the column whose value does not convert; the value itself is not quoted.

        What this says is stored, logged and shown, where rows have no business to be.
        """
        for each, value in zip(self.fields, row, strict=False):
            if not isinstance(value, bytes):
                continue
            try:
                each.conversion.convert(value)
            except UNCONVERTIBLE as wrong:
                where = f"{self.schema}.{self.table}.{each.name}"
                return f"{where} holds a value of {len(value)} bytes that does not convert ({type(wrong).__name__})"
        return None

    def with_optional(self, index: int) -> "TableShape":
        """The shape with a column that may be null: one holds a null, whatever the catalog says by now."""
        fields = list(self.fields)
        fields[index] = replace(fields[index], optional=True)
        return replace(self, fields=tuple(fields))

    def _look(self) -> tuple[object, ...]:
        """What records depend on, without the functions, which are made anew for every shape."""
        fields = (
            (each.name, each.conversion.schema, each.conversion.expression, each.optional, each.default, each.in_value)
            for each in self.fields
        )
        return self.topic, self.key, *fields

    @property
    def key_schema(self) -> Schema | None:
        """Schema of record keys."""
        if not self.key:
            return None
        members = tuple(SchemaField(name=name, schema=self.field(name).schema) for name in self.key)
        return Schema(type=SchemaType.STRUCT, name=f"{self.topic}.Key", fields=members)

    @property
    def row_schema(self) -> Schema:
        """Schema of `before` and `after`."""
        members = tuple(SchemaField(name=each.name, schema=each.schema) for each in self.fields if each.in_value)
        return Schema(type=SchemaType.STRUCT, optional=True, name=f"{self.topic}.Value", fields=members)


class Shaper:
    """Makes shapes under one connector's settings."""

    def __init__(
        self, *, prefix: str, selection: Selection, modes: Modes, types: TypeCatalog, delimiter: str = "."
    ) -> None:
        self.types = types
        self._prefix = prefix
        self._selection = selection
        self._modes = modes
        self._delimiter = delimiter

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table; what a topic's name may not hold becomes an underscore."""
        return _ILLEGAL_IN_TOPIC.sub("_", self._delimiter.join((self._prefix, schema, table)))

    def shape(self, relation: Relation, known: CatalogTable | None) -> TableShape:
        """Join a relation with what the catalog knows about its table."""
        columns: Mapping[str, CatalogColumn] = {} if known is None else {each.name: each for each in known.columns}
        fields = tuple(self._field(relation, column, columns.get(column.name)) for column in relation.columns)
        names = {each.name for each in fields}
        chosen = self._selection.key(relation.schema, relation.table)
        key = _key(relation, known) if chosen is None else chosen
        missing = [name for name in key if name not in names]
        if missing:
            where = f"{relation.schema}.{relation.table}"
            raise ValueError(f"message.key.columns names {', '.join(missing)}, which {where} does not have")
        return TableShape(
            schema=relation.schema,
            table=relation.table,
            topic=self.topic(relation.schema, relation.table),
            fields=fields,
            key=key,
        )

    def _field(self, relation: Relation, column: RelationColumn, known: CatalogColumn | None) -> Field:
        if known is not None and known.type_oid != column.type_oid:
            known = None
        modifier = column.type_modifier
        dimensions = known.dimensions if known is not None else 0
        conversion = self.types.conversion(column.type_oid, modifier, self._modes, dimensions)
        return Field(
            name=column.name,
            conversion=conversion,
            optional=known is None or not known.not_null,
            default=_default(known, conversion),
            in_value=self._selection.column(relation.schema, relation.table, column.name),
        )


def _key(relation: Relation, known: CatalogTable | None) -> tuple[str, ...]:
    """Return the columns of the record key: which ones, the stream says; in which order, the catalog.

    The flags of the stream are those of the moment a row was written, and what an old image carries. The catalog may
    be newer, with another primary key, whose columns such an image does not hold. A table whose images are whole or
    none has no such flags; there the catalog's key is all there is.
    """
    flagged = tuple(column.name for column in relation.columns if column.part_of_key)
    if relation.replica_identity in "di" and flagged:
        return known.key if known is not None and set(known.key) == set(flagged) else flagged
    if known is not None and {column.name for column in relation.columns}.issuperset(known.key):
        return known.key
    return ()


def _default(known: CatalogColumn | None, conversion: Conversion) -> bytes | None:
    """Return the column's default as JSON.

    As in Debezium, what a function makes counts as the type's zero, and what an operator makes is no default.
    """
    if known is None or known.default is None or known.generated or _NULL.match(known.default):
        return None
    if not conversion.defaulted:
        return None
    text = literal(known.default)
    if text is None:
        if known.default.startswith("(") and conversion.schema.type is not SchemaType.BOOLEAN:
            return None
        return _MADE.get(conversion.schema.name or "", conversion.zero)
    try:
        return (conversion.constant or conversion.convert)(text)
    except (ValueError, LookupError, ArithmeticError):
        return conversion.zero


def literal(expression: str) -> bytes | None:
    """Return the text of a constant default such as `'abc'::text` or `42`, None for one that is computed."""
    if quoted := _QUOTED.match(expression):
        return quoted[1].replace("''", "'").encode()
    if bare := _BARE.match(expression):
        return {"true": b"t", "false": b"f"}.get(bare[1], bare[1].encode())
    return None


def relation_of(table: CatalogTable, published: tuple[str, ...] | None = None) -> Relation:
    """Return the relation a row of the table would be announced with: the snapshot's stand-in for the stream."""
    columns = tuple(
        RelationColumn(
            name=column.name,
            type_oid=column.type_oid,
            type_modifier=column.modifier,
            part_of_key=column.name in table.key or table.replica_identity == "f",
        )
        for column in table.columns
        if (not column.generated if published is None else column.name in published)
    )
    return Relation(
        oid=table.oid,
        schema=table.schema,
        table=table.table,
        replica_identity=table.replica_identity,
        columns=columns,
    )
