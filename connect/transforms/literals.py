"""Literals: what Connect takes a configured text for, and writes it as

Kafka's `Values.parseString` looks at a text before it becomes a header: a number becomes the smallest type that holds
it, and it is written as that. So a fraction has the digits of 32 bits, or of 64 where it is larger than these reach,
and a fraction of zero is an integer. What is no integer of 64 bits and no fraction in the range of those keeps its
digits. Numbers of one list are all fractions if one of them is.

Kafka reads a number up to the first delimiter and forgets the rest, so that it makes `14` of `14:30`: here such a text
is a text. So is a list in which a null stands beside something else, there as well.
"""

import json
import re
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, Never

from tidemill.connect.api import Json
from tidemill.connect.transforms.casting import float32
from tidemill.connect.transforms.text import value_text

_NUMBER: Final = re.compile(r"([+-]?[0-9]+(\.[0-9]*)?|[+-]\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_INTEGER_DIGITS: Final = 19  # of the largest integer of 64 bits
_LONG: Final = range(-(1 << 63), 1 << 63)


class _Single(float):
    """A number of 32 bits, as the shortest decimal that stands for it."""


def literal_text(literal: str) -> str | None:
    """What Connect writes of a literal; None for null.

    >>> literal_text(" 007 "), literal_text("1.50"), literal_text("3.14159265358979"), literal_text("[1, 2.5]")
    ('7', '1.5', '3.1415927', '[1.0,2.5]')
    """
    text = literal.strip()
    if text == "null":
        return None
    if _NUMBER.fullmatch(text):
        return value_text(_number(text))
    if text.startswith(("[", "{")):
        try:
            return value_text(_alike(json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_none)))
        except (ValueError, RecursionError):
            pass
    return text


def _number(text: str) -> int | float | Decimal:
    exact = Decimal(text)
    if not exact:
        return 0
    if exact.adjusted() < _INTEGER_DIGITS and exact == exact.to_integral_value() and int(exact) in _LONG:
        return int(exact)
    if exact.as_tuple().exponent == 0:
        return exact
    number = float(exact)
    single = float32(number)
    if abs(single) != float("inf"):
        return _Single(single)
    return number if abs(number) != float("inf") else exact


def _none(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")


def _alike(value: Json) -> Json:
    """With the numbers of each list, and of each map, in one type; a ValueError where it is a text for Connect."""
    if isinstance(value, dict):
        return dict(zip(value, _all_alike([*value.values()]), strict=True))
    return _all_alike(value) if isinstance(value, list) else value


def _all_alike(values: Sequence[Json]) -> Sequence[Json]:
    nulls = sum(each is None for each in values)
    if 0 < nulls < len(values):
        raise ValueError("a null beside something else")
    fractions = [type(each) for each in values if isinstance(each, float)]
    if not fractions or any(type(each) not in (int, float, _Single) for each in values):
        return [_alike(each) for each in values]
    if float in fractions:
        return [_widened(each) for each in values]
    return [_Single(float32(float(each))) for each in values]


def _widened(number: Json) -> float:
    return struct.unpack("f", struct.pack("f", number))[0] if type(number) is _Single else float(number)
