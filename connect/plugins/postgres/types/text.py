"""Text, documents, identifiers, enumerations and binary strings

Almost everything that is text in PostgreSQL stays the text it is; only its schema's name tells a JSON document from
a UUID. Types nobody has told us about are text too: Debezium leaves them out, we would rather carry them.
"""

import re
from base64 import urlsafe_b64encode
from binascii import b2a_base64, unhexlify
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from tidemill.connect.api import Json, Schema, SchemaType
from tidemill.connect.plugins.postgres.types.conversion import Conversion, Modes, called, json_text, plain

_HSTORE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def text(modes: Modes, name: str | None = None, parameters: Mapping[str, str] | None = None) -> Conversion:
    """Anything that is carried as text; `name` is the semantic name of its schema."""
    return Conversion(
        schema=plain(SchemaType.STRING, name, parameters),
        expression="dumps(x.decode())",
        names={"dumps": orjson.dumps},
        zero=b'""',
        unavailable=json_text(modes.unavailable),
    )


def harmless(modes: Modes, name: str | None = None) -> Conversion:
    """Text that never holds a character JSON would escape: UUIDs, addresses."""
    return Conversion(
        schema=plain(SchemaType.STRING, name),
        expression="b'\"' + x + b'\"'",
        zero=b'""',
        unavailable=json_text(modes.unavailable),
    )


def document(modes: Modes) -> Conversion:
    """json and jsonb: the document as text."""
    return text(modes, "io.debezium.data.Json")


def enumeration(modes: Modes, labels: Sequence[str]) -> Conversion:
    """An enum type with its labels in their order."""
    return text(modes, "io.debezium.data.Enum", {"allowed": ",".join(labels)})


def binary(modes: Modes) -> Conversion:
    """bytea, sent in hexadecimal."""
    stand_in = modes.unavailable.encode()
    match modes.binary:
        case "hex":
            return Conversion(
                schema=plain(SchemaType.STRING),
                expression="b'\"' + x[2:] + b'\"'",
                zero=b'""',
                unavailable=json_text(modes.unavailable),
            )
        case "base64-url-safe":
            return Conversion(
                schema=plain(SchemaType.STRING),
                expression="b'\"' + base64(unhexlify(x[2:])) + b'\"'",
                names={"base64": urlsafe_b64encode, "unhexlify": unhexlify},
                zero=b'""',
                unavailable=b'"' + urlsafe_b64encode(stand_in) + b'"',
            )
    return Conversion(
        schema=plain(SchemaType.STRING if modes.binary == "base64" else SchemaType.BYTES),
        expression="b'\"' + base64(unhexlify(x[2:]), newline=False) + b'\"'",
        names={"base64": b2a_base64, "unhexlify": unhexlify},
        zero=b'""',
        unavailable=b'"' + b2a_base64(stand_in, newline=False) + b'"',
    )


def hstore(modes: Modes) -> Conversion:
    """hstore: a JSON object as text, or a map."""
    stand_in = json_text({modes.unavailable: modes.unavailable})
    if modes.hstore == "map":
        schema = Schema(
            type=SchemaType.MAP, keys=plain(SchemaType.STRING), items=Schema(type=SchemaType.STRING, optional=True)
        )
        return called(schema, lambda raw: json_text(hstore_pairs(raw)), zero=b"{}", unavailable=stand_in)
    return called(
        plain(SchemaType.STRING, "io.debezium.data.Json"),
        lambda raw: json_text(json_text(hstore_pairs(raw)).decode()),
        zero=b'"{}"',
        unavailable=json_text(stand_in.decode()),
    )


def hstore_pairs(raw: bytes) -> dict[str, Json]:
    """Return the pairs of `"a"=>"1", "b"=>NULL`."""
    pairs: dict[str, Json] = {}
    for match in _HSTORE.finditer(raw.decode()):
        key, value = match.groups()
        pairs[_ESCAPED.sub(r"\1", key)] = None if value is None else _ESCAPED.sub(r"\1", value)
    return pairs
