"""ExtractNewRecordState: Debezium's own answers to the same records, and what only we meet"""

from typing import Any

import pytest

from tests.connect.transforms.debezium_cases import (
    RECORDS,
    WAYS,
    Way,
    chains_of,
    differences,
    problems_of,
    record_of,
    refusals_of,
    short,
    shown,
    told_about,
)
from tests.connect.transforms.options_of import made
from tidemill.connect.api import Record, Transform
from tidemill.connect.converters.json import JsonConverter

NAME = "ExtractNewRecordState"
CASES = chains_of(NAME)

NAMED_BY_SCHEMA = ("ENVELOPE_ALONE", "ENVELOPE_ENDING", "NAMELESS", "MESSAGE_ENVELOPE")
"""Without schemas an envelope is known by its members, whatever the schema was called."""
NULL_WITH_DEFAULT = ("READ", "NULLS", "DELETE", "OLD_KEY", "DELETE_NAMELESS")
"""Without schemas nobody knows the default of a column, so a null stays one."""
NOTHING_TO_DROP_FROM = 'Cannot invoke "org.apache.kafka.connect.data.Schema.fields()" because "schema" is null'
"""Debezium stumbles over its own tombstone of delete-to-tombstone when it is to drop fields of it."""


def told_by_schemas(line: dict[str, Any], name: str) -> bool:
    """Whether what Debezium makes of a record depends on a schema."""
    options = line["stages"][0]["config"]
    compatibly = options.get("drop.fields.keep.schema.compatible") == "true" and name.startswith("DROPPING")
    number = options.get("route.by.field") == "after"
    text_of_decimals = options.get("add.headers") in ("before", "after,transaction")
    return name in (*NAMED_BY_SCHEMA, *NULL_WITH_DEFAULT) or compatibly or number or text_of_decimals


def only_ours(line: dict[str, Any]) -> bool:
    return all(short(each["type"]) == NAME for each in line["stages"])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_records_become_what_debezium_makes_of_them(way: Way) -> None:
    different = []
    for line in CASES:
        if not way.schemas and not only_ours(line):
            continue
        for name, told, got in differences(line, way):
            known = told.get("message") == NOTHING_TO_DROP_FROM or (not way.schemas and told_by_schemas(line, name))
            if way.encoded and got.get("value") == RECORDS[name]["value"]:
                known = name in NULL_WITH_DEFAULT  # the capture's own bytes, which no stage has read
            if not known:
                different.append(f"{shown(line)} {name}\n    Debezium's: {told}\n    ours: {got}")
    assert not different, f"{len(different)} differ\n" + "\n".join(each[:900] for each in different[:5])


def unwrap(**options: str) -> Transform:
    transform = made(NAME, **options)
    assert isinstance(transform, Transform)
    return transform


def test_what_debezium_refuses_is_refused_in_its_words() -> None:
    for line in refusals_of(NAME):
        found = problems_of(NAME, line["config"])
        assert all(any(words in text for text in found) for words in told_about(line)), (line, found)
        if "configure" in line["told"]:
            assert found, line["config"]


@pytest.mark.parametrize("name", ["drop.tombstones", "delete.handling.mode", "operation.header", "add.source.fields"])
def test_an_option_of_old_is_refused_by_name_with_what_took_its_place(name: str) -> None:
    [text] = problems_of(NAME, {name: "true"})
    assert text.startswith(f"transforms.u.{name} is not supported: ") and " set " in text


def test_a_value_for_null_with_default_is_judged_though_debezium_forgets_to() -> None:
    [text] = problems_of(NAME, {"replace.null.with.default": "maybe"})
    assert text.endswith("Expected value to be either true or false")


@pytest.mark.parametrize(("option", "given"), [("add.fields", ":"), ("add.headers", "."), ("add.fields", "op:a:b")])
def test_a_list_that_names_nothing_is_refused_with_what_to_write(option: str, given: str) -> None:
    [text] = problems_of(NAME, {option: given})
    assert option in text and "FIELD:NEW_NAME" in text


def test_two_fields_of_one_name_are_refused_before_any_record_fails() -> None:
    [text] = problems_of(NAME, {"add.fields": "op,op"})
    assert "two fields would be called __op" in text


def test_a_header_to_drop_by_that_is_no_list_says_so() -> None:
    change = {"op": "c", "source": {}, "before": None, "after": {"id": 1}}
    record = Record(topic="t", value=change, headers=(("gone", b"id"),))
    with pytest.raises(ValueError, match="gone does not hold a list of fields"):
        unwrap(drop_fields_header_name="gone").apply([record])


def test_a_map_that_is_no_change_passes() -> None:
    given = Record(topic="t", value={"op": "c", "after": {"id": 1}})
    assert unwrap().apply([given]) == [given]


def test_a_schema_is_made_once_per_schema() -> None:
    converter = JsonConverter()
    given = [record_of(RECORDS[name], WAYS[0], converter) for name in ("CREATE", "UPDATE")]
    first, second = unwrap().apply(given)
    assert first is not None and second is not None
    assert first.value_schema is second.value_schema is not None
