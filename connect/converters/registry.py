"""The registry of converters

A converter turns keys or values into the bytes of a Kafka record and back. A connector names one by the Java class it
would use in Apache Connect; the worker's configuration translates that to a kind, and here a kind becomes a converter.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from tidemill.connect.api import ConverterSpec, Json, Schema
from tidemill.connect.converters.bytes import BytesConverter
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.converters.string import StringConverter


class Converter(Protocol):
    """Between plain Python values, perhaps with a schema beside them, and bytes; a bad value is a ValueError."""

    def encode(self, value: Json, schema: Schema | None) -> bytes | None:
        """Write a value; None is a tombstone."""
        ...

    def decode(self, data: bytes | None) -> tuple[Json, Schema | None]:
        """Read a value and, where the bytes carry one, its schema."""
        ...


CONVERTERS: Mapping[str, Callable[[Mapping[str, str]], Converter]] = {
    "json": JsonConverter.from_options,
    "string": StringConverter.from_options,
    "bytes": BytesConverter.from_options,
}
"""How to make a converter of each kind from its options."""


OPTIONS: Mapping[str, frozenset[str]] = {
    "json": frozenset(
        {"schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default", "converter.type"}
    ),
    "string": frozenset({"converter.encoding", "converter.type"}),
    "bytes": frozenset({"converter.type"}),
}
"""The options each kind reads; Connect itself passes `converter.type` to all of them."""


def make_converter(spec: ConverterSpec) -> Converter:
    """Make the converter of `spec`; raises ValueError for an unknown kind or a bad option."""
    factory = CONVERTERS.get(spec.kind)
    if factory is None:
        raise ValueError(f"no converter {spec.kind!r}: use one of {', '.join(CONVERTERS)}")
    return factory(spec.options)
