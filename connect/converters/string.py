"""Text as it is: Kafka Connect's StringConverter

Writing takes the text of any scalar (true and false in lower case, as Java spells them); reading always gives a
string. Structures have no agreed text form, so they are written as JSON, which is at least readable everywhere; bytes
in them are base64 then, as JsonConverter writes them (of Java's there is only the place they had in memory).
"""

import codecs
from collections.abc import Mapping

import orjson

from tidemill.connect.api import Json, Schema, SchemaType
from tidemill.connect.converters.json.values import encode_bytes

OPTIONAL_STRING = Schema(type=SchemaType.STRING, optional=True)


class StringConverter:
    """Text in one encoding, UTF-8 unless `converter.encoding` says otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        try:
            self.encoding = codecs.lookup(encoding).name
        except LookupError:
            raise ValueError(f"converter.encoding: no encoding {encoding!r}") from None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "StringConverter":
        """Read the converter's options."""
        return cls(options.get("converter.encoding", "utf-8"))

    def encode(self, value: Json, schema: Schema | None) -> bytes | None:
        """Write the text of `value`."""
        if value is None:
            return None
        try:
            return _text(value).encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ValueError(f"the text does not fit {self.encoding}: {error}") from error

    def decode(self, data: bytes | None) -> tuple[Json, Schema | None]:
        """Read text."""
        if data is None:
            return None, OPTIONAL_STRING
        try:
            return data.decode(self.encoding), OPTIONAL_STRING
        except UnicodeDecodeError as error:
            raise ValueError(f"not text in {self.encoding}: {error}") from error


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        try:
            return orjson.dumps(value, default=_inner).decode()
        except TypeError as error:
            raise ValueError(f"no text form: {error}") from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError("bytes have no text form: use ByteArrayConverter, or decode them in the source")
    return str(value)


def _inner(value: Json) -> str:
    """What JSON has no form for, within a structure."""
    return encode_bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else str(value)
