"""Shapes: the stream's columns with the catalog's knowledge"""

from typing import Any

import orjson
import pytest

from tidemill.connect.api import SchemaType
from tidemill.connect.plugins.postgres.pgoutput import Relation, RelationColumn
from tidemill.connect.plugins.postgres.selection import Filter, Selection, key_columns
from tidemill.connect.plugins.postgres.table import (
    CatalogColumn,
    CatalogTable,
    Shaper,
    TableShape,
    literal,
    relation_of,
)
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog

COLUMNS = (
    CatalogColumn(name="id", type_oid=20, not_null=True, default="nextval('orders_id_seq'::regclass)"),
    CatalogColumn(name="note", type_oid=25, default="'it''s'::text"),
    CatalogColumn(name="amount", type_oid=1700, modifier=((12 << 16) | 4) + 4, not_null=True, default="1.5"),
    CatalogColumn(name="total", type_oid=1700, generated=True, default="(amount * 2)"),
)


def table(**changes: Any) -> CatalogTable:
    values: dict[str, Any] = {
        "oid": 7,
        "schema": "public",
        "table": "orders",
        "replica_identity": "d",
        "columns": COLUMNS,
        "primary_key": ("id",),
    }
    return CatalogTable(**values | changes)


def shaper(selection: Selection = Selection(), delimiter: str = ".") -> Shaper:  # noqa: B008  # frozen
    return Shaper(prefix="t", selection=selection, modes=Modes(), types=TypeCatalog(), delimiter=delimiter)


def shape(known: CatalogTable | None = None, selection: Selection = Selection(), **changes: Any) -> TableShape:  # noqa: B008
    relation = relation_of(table(**changes))
    return shaper(selection).shape(relation, known)


def test_the_catalog_adds_what_the_stream_does_not_say() -> None:
    fields = {each.name: each for each in shape(table()).fields}
    assert list(fields) == ["id", "note", "amount"], "generated columns are not sent"
    assert not fields["id"].optional
    assert fields["id"].default == b"0", "a computed default is the type's zero"
    assert fields["note"].optional
    assert fields["note"].default == b'"it\'s"'
    assert fields["amount"].default == b'"Opg="'
    assert fields["amount"].stand_in == b'"Opg="'


def test_without_the_catalog_everything_is_optional() -> None:
    found = shape(None)
    assert all(each.optional and each.default is None for each in found.fields)
    assert found.key == ("id",), "the stream knows the replica identity"


def test_a_column_whose_type_has_changed_is_the_streams() -> None:
    changed = tuple(CatalogColumn(name=each.name, type_oid=25, not_null=True) for each in COLUMNS)
    fields = {each.name: each for each in shape(table(columns=changed)).fields}
    assert fields["id"].optional
    assert fields["id"].conversion.schema.type is SchemaType.INT64
    assert not fields["note"].optional


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, ("id",)),
        ({"replica_identity": "i", "identity_index": ("note",)}, ("note",)),
        ({"primary_key": (), "unique_index": ("note", "id")}, ("note", "id")),
        ({"primary_key": (), "replica_identity": "f"}, ()),
        ({"primary_key": ("id", "note"), "replica_identity": "f"}, ("id", "note")),
    ],
)
def test_the_key(changes: dict[str, Any], key: tuple[str, ...]) -> None:
    assert shape(table(**changes), **changes).key == key


def test_a_key_the_stream_does_not_have_is_not_used() -> None:
    assert shape(table(primary_key=("gone",)), primary_key=("id",)).key == ("id",)


@pytest.mark.parametrize(
    ("then", "now", "key"),
    [
        (("id",), ("note",), ("id",)),
        (("id",), ("id", "note"), ("id",)),
        (("id", "note"), ("note", "id"), ("note", "id")),
        ((), ("note",), ("note",)),
    ],
    ids=["replaced", "widened", "turned", "added"],
)
def test_columns_of_the_key_are_the_streams_and_their_order_the_catalogs(
    then: tuple[str, ...], now: tuple[str, ...], key: tuple[str, ...]
) -> None:
    """An old image holds the columns that were the key when the row was written, and no others."""
    assert shape(table(primary_key=now), primary_key=then).key == key


def test_the_users_key_wins() -> None:
    chosen = Selection(keys=key_columns("public.orders:note,id"))
    assert shape(table(), chosen).key == ("note", "id")
    with pytest.raises(ValueError, match="nothing"):
        shape(table(), Selection(keys=key_columns("public.orders:nothing")))


def test_excluded_columns_stay_in_the_key() -> None:
    found = shape(table(), Selection(columns=Filter.of("", r".*\.id")))
    assert found.key == ("id",)
    assert [each.name for each in found.row_schema.fields] == ["note", "amount"]


@pytest.mark.parametrize(
    ("schema", "name", "topic"),
    [("public", "orders", "t.public.orders"), ("public", "Odd Name-1", "t.public.Odd_Name-1"), ("é", "a/b", "t._.a_b")],
)
def test_topics(schema: str, name: str, topic: str) -> None:
    assert shaper().topic(schema, name) == topic


def test_schemas_are_named_after_the_topic() -> None:
    found = shape(table())
    assert found.key_schema is not None
    assert found.key_schema.name == "t.public.orders.Key"
    assert found.row_schema.name == "t.public.orders.Value"
    assert found.row_schema.optional
    assert shape(table(primary_key=()), primary_key=(), replica_identity="f").key_schema is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("42", b"42"),
        ("'-5'::integer", b"-5"),
        ("(-5)", b"-5"),
        ("1.50", b"1.50"),
        ("'abc'::character varying", b"abc"),
        ("'it''s'::text", b"it's"),
        ("true", b"t"),
        ("false", b"f"),
        ("now()", None),
        ("nextval('s'::regclass)", None),
        ("('a'::text || 'b'::text)", None),
        ("('1 day'::interval * (2)::double precision)", None),
        ("('2026-01-01'::date + 7)", None),
        ('\'a,b\'::public."Odd - "" Enum"', b"a,b"),
        ("'1'::numeric(6,2)", b"1"),
        ("'2026-01-01 00:00:00'::timestamp(3) without time zone", b"2026-01-01 00:00:00"),
        ("'{1,2}'::integer[]", b"{1,2}"),
        ("('now'::text)::date", b"now"),
    ],
)
def test_literals(expression: str, text: bytes | None) -> None:
    assert literal(expression) == text


def test_a_default_that_does_not_convert_is_the_types_zero() -> None:
    columns = (CatalogColumn(name="id", type_oid=20, default="'x'::text"),)
    [field] = shape(table(columns=columns, primary_key=()), columns=columns, primary_key=()).fields
    assert field.default == b"0"
    assert orjson.loads(orjson.dumps(field.schema.default)) == 0


def test_null_is_no_default() -> None:
    columns = (CatalogColumn(name="id", type_oid=25, default="NULL::character varying"),)
    [field] = shape(table(columns=columns, primary_key=()), columns=columns, primary_key=()).fields
    assert field.default is None


def test_the_relation_of_a_snapshot_has_the_published_columns() -> None:
    relation = relation_of(table(), ("total", "id"))
    assert [each.name for each in relation.columns] == ["id", "total"]
    assert relation == Relation(
        oid=7,
        schema="public",
        table="orders",
        replica_identity="d",
        columns=(
            RelationColumn(name="id", type_oid=20, type_modifier=-1, part_of_key=True),
            RelationColumn(name="total", type_oid=1700, type_modifier=-1, part_of_key=False),
        ),
    )
