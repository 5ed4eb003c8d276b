"""Text and what is carried as text"""

from base64 import b64decode, urlsafe_b64decode

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, SchemaType
from tidemill.connect.plugins.postgres.types import text
from tidemill.connect.plugins.postgres.types.conversion import Conversion, Modes

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


def convert(conversion: Conversion, value: str) -> Json:
    return orjson.loads(conversion.convert(value.encode()))


@given(any_text)
def test_text_stays_what_it_is(value: str) -> None:
    assert convert(text.text(Modes()), value) == value


def test_documents_are_not_rewritten() -> None:
    assert convert(text.document(Modes()), '{"a": 1.50, "a": null}') == '{"a": 1.50, "a": null}'
    assert text.document(Modes()).schema.name == "io.debezium.data.Json"


def test_enumerations_list_their_labels() -> None:
    conversion = text.enumeration(Modes(), ("sad", "ok"))
    assert conversion.schema.parameters == {"allowed": "sad,ok"}
    assert convert(conversion, "ok") == "ok"


@given(st.binary())
def test_binary_in_every_mode(value: bytes) -> None:
    sent = f"\\x{value.hex()}"
    assert b64decode(convert(text.binary(Modes()), sent)) == value
    assert b64decode(convert(text.binary(Modes(binary="base64")), sent)) == value
    assert urlsafe_b64decode(convert(text.binary(Modes(binary="base64-url-safe")), sent)) == value
    assert convert(text.binary(Modes(binary="hex")), sent) == value.hex()


def test_binary_schemas() -> None:
    assert text.binary(Modes()).schema.type is SchemaType.BYTES
    assert text.binary(Modes(binary="base64")).schema.type is SchemaType.STRING


def test_untouched_values_have_debeziums_stand_in() -> None:
    stand_in = "__debezium_unavailable_value"
    assert orjson.loads(text.text(Modes()).unavailable) == stand_in
    assert b64decode(orjson.loads(text.binary(Modes()).unavailable)) == stand_in.encode()
    assert orjson.loads(text.text(Modes(unavailable='a"b')).unavailable) == 'a"b'


def quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(any_text, st.none() | any_text, max_size=5))
def test_hstore_in_both_modes(pairs: dict[str, str | None]) -> None:
    sent = ", ".join(f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}" for key, value in pairs.items())
    assert convert(text.hstore(Modes(hstore="map")), sent) == pairs
    assert orjson.loads(convert(text.hstore(Modes()), sent)) == pairs


@pytest.mark.parametrize("value", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "10.0.0.1/8", "08:00:2b:01:02:03"])
def test_harmless_text_needs_no_escaping(value: str) -> None:
    assert convert(text.harmless(Modes()), value) == value


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError):
        text.text(Modes()).convert(b"\xff")
