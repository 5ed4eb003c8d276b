"""From types to conversions"""

import orjson
import pytest

from tidemill.connect.api import SchemaType
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import PgType, TypeCatalog

MOOD = PgType(oid=50000, name="mood", kind="e", labels=("sad", "ok"))
MOODS = PgType(oid=50001, name="_mood", element_oid=50000)
PRICE = PgType(oid=50002, name="price", kind="d", base_oid=1700, base_modifier=((8 << 16) | 2) + 4)
BARGAIN = PgType(oid=50003, name="bargain", kind="d", base_oid=50002)
MATRIX = PgType(oid=50004, name="matrix", kind="d", base_oid=1007, dimensions=2)
PAIR = PgType(oid=50005, name="pair", kind="c")
LOOP = PgType(oid=50006, name="loop", kind="d", base_oid=50006)
FAKE = PgType(oid=50007, name="bool", kind="c")
TYPES = TypeCatalog([MOOD, MOODS, PRICE, BARGAIN, MATRIX, PAIR, LOOP, FAKE])


def resolve(oid: int, text: str, modifier: int = -1, dimensions: int = 0) -> object:
    return orjson.loads(TYPES.conversion(oid, modifier, Modes(), dimensions).convert(text.encode()))


def test_enums_and_arrays_of_them() -> None:
    assert TYPES.conversion(50000, -1, Modes()).schema.parameters == {"allowed": "sad,ok"}
    assert resolve(50001, "{sad,ok}") == ["sad", "ok"]


@pytest.mark.parametrize("oid", [50002, 50003])
def test_domains_are_their_base_type(oid: int) -> None:
    assert resolve(oid, "12.30") == "BM4="
    assert TYPES.conversion(oid, -1, Modes()).schema.parameters["scale"] == "2"


def test_a_domain_over_an_array_keeps_its_depth() -> None:
    assert resolve(50004, "{{1,2},{3,4}}") == [[1, 2], [3, 4]]


def test_array_elements_have_the_columns_modifier() -> None:
    assert resolve(1231, "{1.50,2.25}", ((6 << 16) | 2) + 4) == ["AJY=", "AOE="]


def test_a_declared_depth() -> None:
    assert resolve(1007, "{{1,2},{3,4}}", dimensions=2) == [[1, 2], [3, 4]]
    assert resolve(1007, "{{1,2},{3,4}}") == [1, 2, 3, 4]


@pytest.mark.parametrize("oid", [50005, 99999, 3220, 22, 50007])
def test_what_nobody_knows_is_text(oid: int) -> None:
    assert resolve(oid, "(1,x)") == "(1,x)"
    assert TYPES.conversion(oid, -1, Modes()).schema.type is SchemaType.STRING


def test_a_damaged_catalog_does_not_hang() -> None:
    assert TYPES.conversion(50006, -1, Modes()).schema.type is SchemaType.STRING


def test_what_it_holds() -> None:
    assert 50000 in TYPES
    assert 16 in TYPES
    assert 99999 not in TYPES
