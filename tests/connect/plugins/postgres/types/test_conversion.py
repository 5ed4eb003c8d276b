"""Expressions as conversions"""

import pytest

from tidemill.connect.api import SchemaType
from tidemill.connect.plugins.postgres.types.conversion import Conversion, called, json_text, plain
from tidemill.connect.plugins.postgres.types.resolve import BUILT_IN_TYPES, Modes, TypeCatalog


def test_names_become_unique_per_column() -> None:
    twice = Conversion(schema=plain(SchemaType.STRING), expression="f(x) + g(x)", names={"f": 1, "g": 2}, zero=b"")
    expression, names = twice.for_column(3)
    assert expression == "f_3(x) + g_3(x)"
    assert names == {"f_3": 1, "g_3": 2}


def test_a_name_is_replaced_only_as_a_word() -> None:
    tricky = Conversion(schema=plain(SchemaType.STRING), expression="n(x, nn=1)", names={"n": 1}, zero=b"")
    assert tricky.for_column(0)[0] == "n_0(x, nn=1)"


def test_an_expression_is_a_function() -> None:
    assert Conversion(schema=plain(SchemaType.INT32), expression="x", zero=b"0").convert(b"5") == b"5"
    assert called(plain(SchemaType.STRING), lambda text: text * 2, zero=b"").convert(b"ab") == b"abab"


def test_a_semantic_name_has_a_version() -> None:
    assert plain(SchemaType.STRING).version is None
    assert plain(SchemaType.STRING, "x.y").version == 1
    assert json_text({"a": 1}) == b'{"a":1}'


@pytest.mark.parametrize("oid", sorted(BUILT_IN_TYPES))
@pytest.mark.parametrize(
    "modes",
    [
        Modes(),
        Modes(decimal="double", time="connect", binary="base64", interval="string", hstore="map"),
        Modes(decimal="string", time="isostring", binary="hex"),
        Modes(time="microseconds", binary="base64-url-safe"),
        Modes(time="nanoseconds"),
        Modes(time="adaptive_time_microseconds"),
    ],
    ids=lambda modes: f"{modes.decimal}-{modes.time}",
)
def test_stand_ins_of_every_type_are_json(oid: int, modes: Modes) -> None:
    import orjson

    conversion = TypeCatalog().conversion(oid, -1, modes)
    orjson.loads(conversion.zero)
    orjson.loads(conversion.unavailable)
    expression, names = conversion.for_column(7)
    assert all(name.endswith("_7") for name in names)
    compile(expression, "<test>", "eval")
