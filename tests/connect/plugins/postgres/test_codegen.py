"""Generated code: hostile names, many columns, and pages of a query result"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.plugins.postgres.codegen import RowCode, generate
from tidemill.connect.plugins.postgres.envelope import Envelope, Format
from tidemill.connect.plugins.postgres.pgoutput import DecodeError
from tidemill.connect.plugins.postgres.selection import Filter, Selection
from tidemill.connect.plugins.postgres.table import CatalogColumn, CatalogTable, Shaper, relation_of
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import BUILT_IN_TYPES, TypeCatalog

FORM = Format(key_schemas=False, value_schemas=False, version="1", name="t", database="db")
names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=15)


def code(columns: list[CatalogColumn], key: tuple[str, ...] = (), exclude: str = "") -> RowCode:
    table = CatalogTable(
        oid=7, schema="public", table="x", replica_identity="d", columns=tuple(columns), primary_key=key
    )
    shaper = Shaper(prefix="t", selection=Selection(columns=Filter.of("", exclude)), modes=Modes(), types=TypeCatalog())
    return generate(Envelope(shaper.shape(relation_of(table), table), FORM))


def cells(*values: bytes | None) -> bytes:
    out = len(values).to_bytes(2, "big")
    for value in values:
        out += b"n" if value is None else b"t" + len(value).to_bytes(4, "big") + value
    return out


@given(st.lists(names, min_size=1, max_size=5, unique=True))
def test_names_never_become_code(columns: list[str]) -> None:
    made = code([CatalogColumn(name=name, type_oid=25) for name in columns], key=(columns[-1],))
    key, row, _ = made.old(cells(*(name.encode() for name in columns)), 0)
    assert json.loads(key or b"") == {columns[-1]: columns[-1]}
    assert json.loads(made.row(row)) == {name: name for name in columns}


@pytest.mark.parametrize("name", ['"); import os; ("', "'''", "\\", "{b}", "%b", "\n", "x", "v0", "m"])
def test_hostile_names(name: str) -> None:
    made = code([CatalogColumn(name=name, type_oid=23)], key=(name,))
    key, row, _ = made.old(cells(b"5"), 0)
    assert json.loads(key or b"") == json.loads(made.row(row)) == {name: 5}


def test_a_table_of_every_built_in_type() -> None:
    columns = [CatalogColumn(name=f"c{oid}", type_oid=oid) for oid in BUILT_IN_TYPES]
    made = code(columns)
    key, row, _ = made.old(cells(*[None] * len(columns)), 0)
    assert key is None
    assert json.loads(made.row(row)) == {column.name: None for column in columns}


def test_as_many_columns_as_postgres_allows() -> None:
    columns = [CatalogColumn(name=f"c{number}", type_oid=25) for number in range(1600)]
    made = code(columns, key=("c1599",))
    key, row, _ = made.old(cells(*[b"x"] * 1600), 0)
    assert json.loads(key or b"") == {"c1599": "x"}
    assert len(json.loads(made.row(row))) == 1600


def test_a_table_without_shown_columns() -> None:
    made = code([CatalogColumn(name="id", type_oid=23)], key=("id",), exclude=r".*\.id")
    key, row, _ = made.old(cells(b"5"), 0)
    assert (key, made.row(row)) == (b'{"id":5}', b"{}")
    assert code([]).row(()) == b"{}"


def test_excluded_columns_are_skipped_whatever_they_hold() -> None:
    made = code([CatalogColumn(name=name, type_oid=23) for name in ("a", "b", "c")], key=("a",), exclude=r".*\.b")
    _, row, at = made.old(cells(b"1", b"not a number", b"3"), 0)
    assert json.loads(made.row(row)) == {"a": 1, "c": 3}
    assert at == len(cells(b"1", b"not a number", b"3"))


def test_a_row_of_the_wrong_width_is_refused() -> None:
    made = code([CatalogColumn(name="a", type_oid=23)])
    with pytest.raises(DecodeError, match="has 2 columns instead of 1"):
        made.old(cells(b"1", b"2"), 0)


def test_pages_are_the_same_records() -> None:
    columns = [CatalogColumn(name="id", type_oid=23), CatalogColumn(name="note", type_oid=25)]
    made = code(columns, key=("id",))
    rows = [(b"1", b"x"), (b"2", None), (b"3", b"z")]
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    made.page(lambda row, column: rows[row][column], 1, 3, keys, values, b',"op":"r"}')
    assert keys == [b'{"id":2}', b'{"id":3}']
    assert [json.loads(value or b"") for value in values] == [
        {"before": None, "after": {"id": 2, "note": None}, "op": "r"},
        {"before": None, "after": {"id": 3, "note": "z"}, "op": "r"},
    ]


def test_what_may_not_be_null_is_completed() -> None:
    made = code(
        [
            CatalogColumn(name="id", type_oid=23, not_null=True),
            CatalogColumn(name="a", type_oid=25, not_null=True, default="'d'::text"),
            CatalogColumn(name="b", type_oid=16, not_null=True),
            CatalogColumn(name="c", type_oid=25),
        ],
        key=("id",),
    )
    _, old, _ = made.old(cells(b"1", None, None, None), 0)
    assert json.loads(made.row(made.complete(old))) == {"id": 1, "a": "d", "b": False, "c": None}
