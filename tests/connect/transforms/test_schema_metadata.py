"""SetSchemaMetadata: beyond what Kafka was asked (see test_registry)"""

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig, Schema, SchemaType


def test_nothing_to_set_is_told() -> None:
    with pytest.raises(InvalidConfig):
        made("SetSchemaMetadata$Value")


def test_a_schema_is_renamed_once() -> None:
    rename = made("SetSchemaMetadata$Value", schema_name="n")
    schema = Schema(type=SchemaType.STRUCT, version=4)
    first, second = (applied(rename, {}, schema).value_schema for _ in range(2))
    assert first is second and first == Schema(type=SchemaType.STRUCT, name="n", version=4)
