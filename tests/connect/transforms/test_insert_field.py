"""InsertField: beyond what Kafka was asked (see test_registry)"""

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig


@pytest.mark.parametrize(("options", "name"), [({}, "topic.field"), ({"static_field": "a"}, "static.value")])
def test_nothing_to_insert_is_told(options: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        made("InsertField$Value", **options)
    assert caught.value.field_name == name


def test_a_source_has_no_offsets_to_insert() -> None:
    with pytest.raises(ValueError, match="no offset yet"):
        applied(made("InsertField$Value", offset_field="o"), {})
    assert applied(made("InsertField$Value", partition_field="p"), {}).value == {}


def test_a_key_stays_as_it_is_beside_a_tombstone() -> None:
    insert = made("InsertField$Key", topic_field="t")
    assert insert.uses_value
    assert applied(insert, None, key={"a": 1}).key == {"a": 1}
