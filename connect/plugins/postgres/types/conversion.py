"""One column's way from PostgreSQL text to JSON text

A conversion is an expression of Python: from `x`, the bytes PostgreSQL sends for a value, to the bytes of its JSON.
There is no value in between. Most of PostgreSQL's text already is JSON but for quotes, and generated code that cuts
and joins bytes is half again as fast as code that makes values and serialises them. Where the work is more than an
expression, the expression is a call.

With it comes the Connect schema that says what the JSON means.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeAlias

import orjson

from tidemill.connect.api import Json, Schema, SchemaType

Convert: TypeAlias = Callable[[bytes], bytes]

NULL: Final = b"null"

UNCONVERTIBLE: Final = (ValueError, LookupError, TypeError, ArithmeticError)
"""What conversions raise over text that is no value of their type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """The connector's settings about values, by their Debezium names without `.handling.mode`."""

    decimal: str = "precise"  # precise, double, string
    time: str = "adaptive"  # adaptive, adaptive_time_microseconds, connect, isostring, microseconds, nanoseconds
    binary: str = "bytes"  # bytes, base64, base64-url-safe, hex
    interval: str = "numeric"  # numeric, string
    hstore: str = "json"  # json, map
    money_fraction_digits: int = 2
    money_scale: int = 2  # digits after the point that the server's money has, which follows its lc_monetary
    unavailable: str = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What to do with the values of a column.

    `zero` stands in where a value is not known but the column may not be null, e.g. in the image of a deleted row.
    `unavailable` stands for a large value that an update did not touch; null where the type has no such stand-in.
    `constant` converts the text of a default, where that need not look like a value of the column; `defaulted` tells
    whether schemas carry defaults of the type at all, as Debezium's do. `sometimes_null` names the function that
    answers null for values there is no other word for.
    """

    schema: Schema
    expression: str  # of `x`
    names: Mapping[str, Any] = field(default_factory=dict)  # the other words of the expression
    zero: bytes
    unavailable: bytes = NULL
    constant: Convert | None = None
    defaulted: bool = True
    sometimes_null: str = ""

    def for_column(self, index: int) -> tuple[str, dict[str, Any]]:
        """Return the expression and its names, made unique among the columns of a table."""
        expression = self.expression
        names = {}
        for name, value in self.names.items():
            expression = re.sub(rf"\b{name}\b", f"{name}_{index}", expression)
            names[f"{name}_{index}"] = value
        return expression, names

    @property
    def convert(self) -> Convert:
        """The expression as a function."""
        return compiled(self.expression, tuple(self.names.items()))


@cache
def _code(expression: str) -> Any:
    return compile(f"lambda x: {expression}", "<conversion>", "eval")


def compiled(expression: str, names: tuple[tuple[str, Any], ...]) -> Convert:
    """Return an expression of `x` as a function."""
    function: Convert = eval(_code(expression), dict(names))  # noqa: S307  # expressions are written in this package
    return function


def called(
    schema: Schema, function: Convert, zero: bytes, unavailable: bytes = NULL, constant: Convert | None = None
) -> Conversion:
    """A conversion that calls `function`."""
    return Conversion(
        schema=schema,
        expression="convert(x)",
        names={"convert": function},
        zero=zero,
        unavailable=unavailable,
        constant=constant,
    )


def plain(kind: SchemaType, name: str | None = None, parameters: Mapping[str, str] | None = None) -> Schema:
    """A schema without members; a semantic name brings version 1 with it."""
    return Schema(type=kind, name=name, version=None if name is None else 1, parameters=parameters or {})


def json_text(value: Json) -> bytes:
    """Return the JSON of a value."""
    return orjson.dumps(value)
