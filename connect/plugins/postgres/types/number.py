"""Numbers, booleans, money and bit strings

Whole numbers and floats go through as they are. Exact decimals follow `decimal.handling.mode`: `precise` is the
unscaled two's complement number in base64 with the scale in the schema (in the value, if the column has no scale of
its own), `double` and `string` are what they say.

JSON has no NaN and no infinity. Floats carry them as the strings "NaN", "Infinity" and "-Infinity", as Kafka's JSON
converter does; an exact decimal in mode `precise` has no way to say them, so they become null there.
"""

from binascii import b2a_base64
from dataclasses import replace
from decimal import Context, Decimal
from math import isfinite, isnan
from typing import Final

from tidemill.connect.api import Schema, SchemaField, SchemaType
from tidemill.connect.plugins.postgres.types.conversion import NULL, Conversion, Modes, called, plain

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
BITS: Final = "io.debezium.data.Bits"

BITS_MAX: Final = 2**31 - 1
"""The length of a bit string without a limit, as Debezium writes it."""

MONEY_SCALE_C: Final = 2
"""Digits after the point of money in the C locale."""

INT_DIGITS_MAX: Final = 4_000
"""What `int` reads at once; Python refuses more than 4,300 digits."""

_NOT_FINITE: Final = {b"NaN": b'"NaN"', b"Infinity": b'"Infinity"', b"-Infinity": b'"-Infinity"'}
_UNUSUAL_FLOATS: Final = _NOT_FINITE | {b"-0": b"-0.0"}  # as a whole number, zero would lose its sign
DOUBLE_DIGITS: Final = 300
"""A number with fewer digits is not beyond what a double holds."""
_AFTER_NINE: Final = 58  # the character after 9: what ends in one from here on is no plain number


def boolean() -> Conversion:
    """bool."""
    return Conversion(
        schema=plain(SchemaType.BOOLEAN),
        expression="(b'true' if x == b't' else b'false')",
        zero=b"false",
        constant=lambda text: b"false" if text in (b"f", b"0") else b"true",
    )


def whole(kind: SchemaType) -> Conversion:
    """int2, int4, int8 and oid: the server's digits are JSON."""
    return Conversion(schema=plain(kind), expression="x", zero=b"0", constant=lambda text: b"%d" % int(text))


def floating(kind: SchemaType) -> Conversion:
    """float4 and float8."""
    return Conversion(
        schema=plain(kind),
        expression=f"(x if x[-1] < {_AFTER_NINE} and x != b'-0' else unusual[x])",
        names={"unusual": _UNUSUAL_FLOATS},
        zero=b"0.0",
        constant=lambda text: _UNUSUAL_FLOATS.get(text) or repr(float(text)).encode(),
    )


def double() -> Conversion:
    """numeric as a double: its digits as they are, unless they are more than a double reaches."""
    return Conversion(
        schema=plain(SchemaType.FLOAT64),
        expression=f"(x if x[-1] < {_AFTER_NINE} and len(x) < {DOUBLE_DIGITS} else far(x))",
        names={"far": _far},
        zero=b"0.0",
        constant=_far,
    )


def _far(text: bytes) -> bytes:
    number = float(text)
    if isfinite(number):
        return repr(number).encode()
    return _NOT_FINITE[b"NaN" if isnan(number) else b"Infinity" if number > 0 else b"-Infinity"]


def unscaled_base64(number: int) -> bytes:
    """Return the shortest two's complement form of `number`, big-endian, in base64 and quotes."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return b'"' + b2a_base64(number.to_bytes(size, "big", signed=True), newline=False) + b'"'


def numeric(modifier: int, modes: Modes) -> Conversion:
    """numeric, with or without precision and scale."""
    if modes.decimal == "double":
        return double()
    if modes.decimal == "string":
        return Conversion(
            schema=plain(SchemaType.STRING),
            expression="b'\"' + x + b'\"'",
            zero=_scaled(b"0", modifier),
            constant=lambda text: _scaled(text, modifier),
        )
    if modifier < 0:
        conversion = called(_variable_scale_schema(), variable_scale, zero=b'{"scale":0,"value":"AA=="}')
        return replace(conversion, defaulted=False, sometimes_null="convert")
    precision, scale = precision_and_scale(modifier)
    return fixed_scale(scale, {"scale": str(scale), "connect.decimal.precision": str(precision)})


def precision_and_scale(modifier: int) -> tuple[int, int]:
    """Take a numeric type modifier apart; the scale is an 11-bit signed number since PostgreSQL 15."""
    packed = modifier - 4
    scale = packed & 0x7FF
    return packed >> 16, scale - 0x800 if scale & 0x400 else scale


def fixed_scale(scale: int, parameters: dict[str, str]) -> Conversion:
    """A decimal whose scale is the column's: PostgreSQL writes exactly that many digits after the point."""
    if scale < 0:
        number = f"int(x) // {10**-scale}"
    else:
        number = "int(x.replace(b'.', b''))" if scale else "int(x)"
    return Conversion(
        schema=plain(SchemaType.BYTES, DECIMAL, parameters),
        expression=(
            f"(b'\"' + base64((n := {number}).to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, 'big',"
            f" signed=True), newline=False) + b'\"' if x[-1] < {_AFTER_NINE} else special(x))"
        ),
        names={"base64": b2a_base64, "special": _special},
        sometimes_null="special",
        zero=b'"AA=="',
        constant=lambda text: unscaled_base64(_unscaled(text, scale)),
    )


def _special(text: bytes) -> bytes:
    if text not in _NOT_FINITE:
        raise ValueError("not a number")
    return NULL


def _variable_scale_schema() -> Schema:
    return Schema(
        type=SchemaType.STRUCT,
        name=VARIABLE_SCALE_DECIMAL,
        version=1,
        doc="Variable scaled decimal",
        fields=(
            SchemaField(name="scale", schema=plain(SchemaType.INT32)),
            SchemaField(name="value", schema=plain(SchemaType.BYTES)),
        ),
    )


def variable_scale(text: bytes) -> bytes:
    """Return scale and unscaled number; zeros at the end of a fraction do not count."""
    whole_part, _, fraction = text.partition(b".")
    fraction = fraction.rstrip(b"0")
    try:
        number = int(whole_part + fraction)
    except ValueError:
        if text in _NOT_FINITE:
            return NULL
        number = _long_number(whole_part + fraction)
    return b'{"scale":%d,"value":%b}' % (len(fraction), unscaled_base64(number))


def _long_number(text: bytes) -> int:
    """Return a whole number of any length: PostgreSQL writes up to 147,455 digits, `int` takes 4,300."""
    digits = text.removeprefix(b"-")
    if not digits.isdigit():
        raise ValueError("not a number")
    number = _joined(digits)
    return -number if digits != text else number


def _joined(digits: bytes) -> int:
    """Half by half, so that the work stays near that of a multiplication."""
    if len(digits) <= INT_DIGITS_MAX:
        return int(digits)
    half = len(digits) // 2
    power: int = 10**half
    return _joined(digits[:-half]) * power + _joined(digits[-half:])


def money(modes: Modes) -> Conversion:
    """money, written in the C locale: `-$1,234.56`; the point is the locale's, the digits are the server's."""
    digits, scale = modes.money_fraction_digits, modes.money_scale
    if modes.decimal == "double":
        return replace(
            called(plain(SchemaType.FLOAT64), lambda text: _plain_money(text, scale), zero=b"0.0"), defaulted=False
        )
    if modes.decimal == "string":
        zero = b'"%b"' % _plain_money(b"0.00", scale)
        quoted = called(plain(SchemaType.STRING), lambda text: b'"' + _plain_money(text, scale) + b'"', zero=zero)
        return replace(quoted, defaulted=False)

    def convert(text: bytes) -> bytes:
        whole_part, _, fraction = _plain_money(text, scale).partition(b".")
        return unscaled_base64(int(whole_part + fraction[:digits].ljust(digits, b"0")))

    exact = called(plain(SchemaType.BYTES, DECIMAL, {"scale": str(digits)}), convert, zero=b'"AA=="')
    return replace(exact, defaulted=False)


def _plain_money(text: bytes, scale: int) -> bytes:
    """Return an amount as a number with `scale` digits after the point, wherever the C locale has put it."""
    number = text.replace(b"$", b"").replace(b",", b"")
    if scale == MONEY_SCALE_C:
        return number
    digits = number.replace(b".", b"").removeprefix(b"-").lstrip(b"0").rjust(scale + 1, b"0")
    sign = b"-" if number[:1] == b"-" else b""
    return b"%b%b.%b" % (sign, digits[:-scale], digits[-scale:]) if scale else sign + digits


def bits(length: int, *, varying: bool) -> Conversion:
    """bit(n) and varbit(n): one bit is a boolean, more are little-endian bytes, as few as hold the ones."""
    if length == 1:
        return Conversion(
            schema=plain(SchemaType.BOOLEAN),
            expression="(b'true' if x == b'1' else b'false' if x else nothing(x))",
            names={"nothing": lambda text: NULL},
            sometimes_null="nothing",
            zero=b"false",
        )
    known = str(length if length > 0 else BITS_MAX)
    return called(plain(SchemaType.BYTES, BITS, {"length": known}), bits_base64, zero=b'""')


def bits_base64(text: bytes) -> bytes:
    """Return the bit string as little-endian bytes in base64, without the zero bytes at their end."""
    number = int(text, 2) if text else 0
    return b'"' + b2a_base64(number.to_bytes((number.bit_length() + 7) // 8, "little"), newline=False) + b'"'


def _scaled(text: bytes, modifier: int) -> bytes:
    """Return a number as a value of the column would be written: `1.50` for `1.5` in numeric(6,2)."""
    if modifier < 0:
        return b'"' + text + b'"'
    return b'"%b"' % f"{_rounded(text, precision_and_scale(modifier)[1]):f}".encode()


def _unscaled(text: bytes, scale: int) -> int:
    return int(_exact(text, scale).scaleb(_rounded(text, scale), scale))


def _rounded(text: bytes, scale: int) -> Decimal:
    """Return a number with exactly `scale` digits after the point."""
    return _exact(text, scale).quantize(Decimal(text.decode()), Decimal(1).scaleb(-scale))


def _exact(text: bytes, scale: int) -> Context:
    """A context in which nothing about `text` is lost; Python's own holds 28 digits."""
    return Context(prec=len(text) + abs(scale) + 2)
