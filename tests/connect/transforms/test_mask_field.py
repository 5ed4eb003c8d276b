"""MaskField: beyond what Kafka was asked (see test_registry)"""

import datetime as dt
from decimal import Decimal

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import Json, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.values import DECIMAL


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        (Decimal("1.5"), Decimal(0)),
        (dt.date(2024, 1, 1), dt.date(1970, 1, 1)),
        (dt.datetime(2024, 1, 1), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (dt.time(1), dt.time(0)),
        ((1, 2), []),
        (None, None),
    ],
)
def test_pythons_values_are_masked(value: Json, masked: Json) -> None:
    assert applied(made("MaskField$Value", fields="a"), {"a": value}).value == {"a": masked}


@pytest.mark.parametrize("value", [b"secret", object()])
def test_what_cannot_be_masked_never_passes(value: Json) -> None:
    with pytest.raises(ValueError, match="Cannot mask"):
        applied(made("MaskField$Value", fields="a"), {"a": value})


def test_a_decimal_keeps_its_scale() -> None:
    schema = Schema(type=SchemaType.BYTES, name=DECIMAL, parameters={"scale": "2"})
    whole = Schema(type=SchemaType.STRUCT, fields=(SchemaField(name="a", schema=schema),))
    mask = made("MaskField$Value", fields="a", replacement="9")
    assert str(applied(mask, {"a": Decimal("1.50")}, whole).value["a"]) == "9.00"
