"""What an envelope is, and what stands in it besides rows"""

from collections import Counter, OrderedDict
from decimal import Decimal
from types import MappingProxyType

import pytest

from tidemill.connect.api import InvalidConfig, Record, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.change_event import Reference, has_members, is_change, references, text_member

STRING = Schema(type=SchemaType.STRING)
SOURCE = Schema(type=SchemaType.STRUCT, fields=(SchemaField(name="lsn", schema=Schema(type=SchemaType.INT64)),))
ENVELOPE = Schema(
    type=SchemaType.STRUCT,
    name="t.Envelope",
    fields=(SchemaField(name="source", schema=SOURCE), SchemaField(name="op", schema=STRING)),
)
CHANGE = {"op": "c", "source": {"lsn": 3}, "after": {}, "transaction": None}


@pytest.mark.parametrize(
    ("name", "expected"), [("t.Envelope", True), ("Envelope", False), ("xEnvelope", False), (None, False)]
)
def test_the_name_of_its_schema_tells_an_envelope(name: str | None, expected: bool) -> None:
    schema = Schema(type=SchemaType.STRUCT, name=name)
    assert is_change(Record(value=CHANGE, value_schema=schema)) is expected


@pytest.mark.parametrize("missing", ["op", "source", "after"])
def test_without_a_schema_its_members_tell(missing: str) -> None:
    assert is_change(Record(value=CHANGE))
    assert not is_change(Record(value={name: each for name, each in CHANGE.items() if name != missing}))


@pytest.mark.parametrize("value", [None, "text", 3, ["op"], {"op": 1, "source": {}, "after": {}}])
def test_what_is_no_map_of_a_change_is_none(value: object) -> None:
    assert not is_change(Record(value=value))


@pytest.mark.parametrize("value", [{}, OrderedDict(), Counter(), MappingProxyType({})])
def test_a_map_of_any_kind_has_members(value: object) -> None:
    assert has_members(value)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", b"bytes", ["a"], (), Decimal(1)])
def test_what_is_no_map_has_none(value: object) -> None:
    assert not has_members(value)


def test_names_lead_to_where_a_field_stands() -> None:
    assert references("op, lsn,total_order:n,source.ts_ms,,", "__", "add.fields") == (
        Reference(None, "op", "__op"),
        Reference("source", "lsn", "__lsn"),
        Reference("transaction", "total_order", "__n"),
        Reference("source", "ts_ms", "__source_ts_ms"),
    )
    assert references("", "__", "add.fields") == ()


def test_headers_may_have_one_name_and_fields_may_not() -> None:
    assert len(references("op,op", "", "add.headers")) == 2
    with pytest.raises(InvalidConfig):
        references("op,op", "", "add.fields")


def test_a_field_is_found_with_its_schema_and_without() -> None:
    [lsn, missing, operation] = references("lsn,xmin,op", "", "add.fields")
    for schema in (ENVELOPE, None):
        assert lsn.known(CHANGE, schema) and lsn.value(CHANGE) == 3
        assert operation.known(CHANGE, schema) and operation.value(CHANGE) == "c"
        assert not missing.known(CHANGE, schema)
    assert lsn.described(ENVELOPE) == Schema(type=SchemaType.INT64, optional=True)


def test_nobody_asked_for_transactions_so_their_fields_are_null() -> None:
    [identity] = references("id", "", "add.fields")
    assert identity.known(CHANGE, None) and identity.value(CHANGE) is None


def test_a_structure_that_is_not_there_is_an_error() -> None:
    [field] = references("nowhere.x", "", "add.fields")
    for schema in (ENVELOPE, None):
        with pytest.raises(ValueError, match="no 'nowhere'"):
            field.known(CHANGE, schema)


def test_text_of_a_row() -> None:
    schema = Schema(
        type=SchemaType.STRUCT,
        fields=(
            SchemaField(name="a", schema=Schema(type=SchemaType.STRING, default="d")),
            SchemaField(name="n", schema=Schema(type=SchemaType.INT32)),
        ),
    )
    assert text_member({"a": None}, schema, "a") == "d"
    assert text_member({"a": None}, None, "a") is None
    for name, message in (("n", "not of type STRING"), ("b", "not a valid field name")):
        for given in (schema, None):
            with pytest.raises(ValueError, match=message):
                text_member({"n": 1}, given, name)
