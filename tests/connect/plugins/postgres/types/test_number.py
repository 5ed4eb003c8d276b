"""Numbers"""

from base64 import b64decode
from decimal import Context, Decimal
from fractions import Fraction

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, SchemaType
from tidemill.connect.plugins.postgres.types import number
from tidemill.connect.plugins.postgres.types.conversion import Conversion, Modes


def modifier(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


def convert(conversion: Conversion, text: str) -> Json:
    return orjson.loads(conversion.convert(text.encode()))


def unscaled(encoded: str) -> int:
    return int.from_bytes(b64decode(encoded), "big", signed=True)


@pytest.mark.parametrize(
    ("scale", "text", "encoded"),
    [
        (4, "-1234.5678", "/0Oesg=="),
        (0, "12345", "MDk="),
        (2, "12.30", "BM4="),
        (2, "0.00", "AA=="),
        (2, "-1.28", "gA=="),
        (2, "1.28", "AIA="),
        (-2, "12300", "ew=="),
    ],
)
def test_exact_decimals_are_unscaled_numbers_in_base64(scale: int, text: str, encoded: str) -> None:
    assert convert(number.numeric(modifier(12, scale), Modes()), text) == encoded


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**30), max_value=10**30))
def test_an_exact_decimal_can_be_read_back(value: Decimal) -> None:
    encoded = convert(number.numeric(modifier(38, 6), Modes()), f"{value:f}")
    assert Fraction(unscaled(encoded), 10**6) == Fraction(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=8, min_value=-(10**20), max_value=10**20))
def test_a_decimal_without_scale_brings_its_own(value: Decimal) -> None:
    struct = convert(number.numeric(-1, Modes()), f"{value:f}")
    assert Fraction(unscaled(struct["value"]), 10 ** struct["scale"]) == Fraction(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123.4500", {"scale": 2, "value": "MDk="}),
        ("0", {"scale": 0, "value": "AA=="}),
        ("-0.00", {"scale": 0, "value": "AA=="}),
        ("100000000000000000000", {"scale": 0, "value": "BWvHXi1jEAAA"}),
        ("NaN", None),
        ("Infinity", None),
    ],
)
def test_variable_scale(text: str, expected: Json) -> None:
    assert convert(number.numeric(-1, Modes()), text) == expected


@pytest.mark.parametrize("sign", ["", "-"])
def test_as_many_digits_as_postgres_has(sign: str) -> None:
    text = f"{sign}{'9' * 131_072}.{'7' * 16_383}"
    found = convert(number.numeric(-1, Modes()), text)
    assert found["scale"] == 16_383
    expected = int(Decimal(text).scaleb(16_383, Context(prec=200_000)))
    assert int.from_bytes(b64decode(found["value"]), "big", signed=True) == expected


def test_the_scale_is_in_the_schema() -> None:
    schema = number.numeric(modifier(12, 4), Modes()).schema
    assert (schema.type, schema.name) == (SchemaType.BYTES, "org.apache.kafka.connect.data.Decimal")
    assert schema.parameters == {"scale": "4", "connect.decimal.precision": "12"}
    assert number.numeric(modifier(3, -2), Modes()).schema.parameters["scale"] == "-2"


@pytest.mark.parametrize("scale", [0, 4, -2])
def test_what_an_exact_decimal_cannot_say_is_null(scale: int) -> None:
    assert convert(number.numeric(modifier(12, scale), Modes()), "NaN") is None


def test_other_modes_say_everything() -> None:
    assert convert(number.numeric(modifier(12, 4), Modes(decimal="double")), "-1234.5678") == -1234.5678
    assert convert(number.numeric(-1, Modes(decimal="double")), "NaN") == "NaN"
    assert convert(number.numeric(-1, Modes(decimal="string")), "123.4500") == "123.4500"
    assert convert(number.numeric(-1, Modes(decimal="string")), "-Infinity") == "-Infinity"


@pytest.mark.parametrize(
    ("mode", "text", "expected"),
    [
        ("precise", "1.5", b'"Opg="'),
        ("precise", "-1.5", b'"xWg="'),
        ("precise", "0", b'"AA=="'),
        ("string", "1.5", b'"1.5000"'),
        ("string", "-12345678901234567890123456789012345", b'"-12345678901234567890123456789012345.0000"'),
    ],
)
def test_a_default_gets_the_columns_scale(mode: str, text: str, expected: bytes) -> None:
    conversion = number.numeric(modifier(12, 4), Modes(decimal=mode))
    assert conversion.constant is not None
    assert conversion.constant(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.1", 1.1), ("-0", 0), ("1e+300", 1e300), ("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity")],
)
def test_floats(text: str, expected: Json) -> None:
    assert convert(number.floating(SchemaType.FLOAT64), text) == expected


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers(value: int) -> None:
    assert convert(number.whole(SchemaType.INT64), str(value)) == value


def test_booleans() -> None:
    assert convert(number.boolean(), "t") is True
    assert convert(number.boolean(), "f") is False


@pytest.mark.parametrize(("mode", "expected"), [("precise", "/h3A"), ("string", "-1234.56"), ("double", -1234.56)])
def test_money(mode: str, expected: Json) -> None:
    assert convert(number.money(Modes(decimal=mode)), "-$1,234.56") == expected


@pytest.mark.parametrize(
    ("scale", "text", "amount"),
    [
        (0, "$12.34", "1234"),
        (0, "-$0.05", "-5"),
        (0, "$0.00", "0"),
        (3, "$12,340.00", "1234.000"),
        (3, "-$0.05", "-0.005"),
        (3, "-$92,233,720,368,547,758.08", "-9223372036854775.808"),
    ],
)
def test_money_has_the_digits_of_the_server(scale: int, text: str, amount: str) -> None:
    assert convert(number.money(Modes(decimal="string", money_scale=scale)), text) == amount
    exact = convert(number.money(Modes(money_scale=scale, money_fraction_digits=3)), text)
    assert exact == convert(number.fixed_scale(3, {}), f"{Decimal(amount):.3f}")


@pytest.mark.parametrize(("text", "value"), [(b"t", b"true"), (b"f", b"false"), (b"0", b"false"), (b"1", b"true")])
def test_a_number_is_a_default_of_a_boolean_too(text: bytes, value: bytes) -> None:
    constant = number.boolean().constant
    assert constant is not None and constant(text) == value


def test_money_follows_its_digits() -> None:
    conversion = number.money(Modes(money_fraction_digits=3))
    assert unscaled(convert(conversion, "$1.50")) == 1500
    assert conversion.schema.parameters == {"scale": "3"}


def test_bit_strings() -> None:
    assert convert(number.bits(1, varying=False), "1") is True
    assert convert(number.bits(8, varying=False), "10110011") == "sw=="
    assert convert(number.bits(12, varying=True), "101") == "BQ=="
    assert b64decode(convert(number.bits(16, varying=False), "0000000100000010")) == b"\x02\x01"
    assert number.bits(-1, varying=True).schema.parameters == {"length": "2147483647"}


@pytest.mark.parametrize("text", ["", "x", "1x", "x" + "1" * 5000, "-" * 5000])
def test_garbage_is_refused(text: str) -> None:
    for conversion in (number.numeric(-1, Modes()), number.numeric(modifier(5, 2), Modes())):
        with pytest.raises((ValueError, LookupError)):
            conversion.convert(text.encode())
