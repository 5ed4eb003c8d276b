"""ByLogicalTableRouter: Debezium's own answers to the same records, and what only we meet"""

from dataclasses import replace
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

NAME = "ByLogicalTableRouter"
CASES = chains_of(NAME)

NULL_WITH_DEFAULT = ("READ", "NULLS", "DELETE", "OLD_KEY", "DELETE_NAMELESS")
"""Without schemas nobody knows the default of a column, so a null stays one; bytes that no stage reads stay, too."""


def known(line: dict[str, Any], name: str, way: Way) -> bool:
    """Differences there are on purpose."""
    return name in NULL_WITH_DEFAULT and not way.schemas


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_records_become_what_debezium_makes_of_them(way: Way) -> None:
    different = []
    for line in CASES:
        if not way.schemas and any(short(each["type"]) != NAME for each in line["stages"]):
            continue
        for name, told, got in differences(line, way):
            if not known(line, name, way):
                different.append(f"{shown(line)} {name}\n    Debezium's: {told}\n    ours: {got}")
    assert not different, f"{len(different)} differ\n" + "\n".join(each[:900] for each in different[:5])


WORDS = {
    "topic.regex": "A value is required",
    "topic.replacement": "A value is required",
    "key.field.replacement": "key.field.replacement must be non-empty if key.field.regex is set.",
    "schema.name.adjustment.mode": "Value must be one of none, avro, avro_unicode",
    "logical.table.cache.size": "Value must be at least 1",
}


def test_what_debezium_refuses_is_refused_in_its_words() -> None:
    for line in refusals_of(NAME):
        found = problems_of(NAME, line["config"])
        assert all(any(words in text for text in found) for words in told_about(line)), (line, found)
        if "configure" in line["told"]:
            assert found, line["config"]


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("topic.regex", " "),
        ("topic.replacement", ""),
        ("key.field.regex", "x"),
        ("schema.name.adjustment.mode", "some"),
        ("logical.table.cache.size", "0"),
    ],
)
def test_reasons_that_debezium_only_logs_are_told(option: str, given: str) -> None:
    [text] = problems_of(NAME, {"topic.regex": "a", "topic.replacement": "b", option: given})
    named = "key.field.replacement" if option == "key.field.regex" else option
    assert named in text and WORDS[named] in text


def test_a_group_that_is_not_there_is_refused() -> None:
    [text] = problems_of(NAME, {"topic.regex": "a", "topic.replacement": "$1"})
    assert "topic.replacement" in text


def router(**options: str) -> Transform:
    transform = made(NAME, **{"topic_regex": "(.*)orders.*", "topic_replacement": "$1all", **options})
    assert isinstance(transform, Transform)
    return transform


def test_a_schema_goes_to_two_topics_under_two_names() -> None:
    transform = router(topic_regex="(.*)", topic_replacement="to.$1", logical_table_cache_size="1")
    given = record_of(RECORDS["CREATE"], Way(False, True), JsonConverter())
    out = transform.apply([given, replace(given, topic="other"), given])
    names = [each.value_schema.name for each in out if each is not None and each.value_schema is not None]
    assert names == ["to.shop.public.orders.Envelope", "to.other.Envelope", "to.shop.public.orders.Envelope"]


def test_a_schema_is_made_once_per_topic() -> None:
    given = record_of(RECORDS["CREATE"], Way(False, True), JsonConverter())
    first, second = router().apply([given, given])
    assert first is not None and second is not None
    assert first.value_schema is second.value_schema is not None
    assert first.key_schema is second.key_schema is not None


def test_a_plain_key_gets_the_field_and_keeps_its_own() -> None:
    given = Record(topic="orders1", key={"id": 1}, value={"x": 1})
    [out] = router().apply([given])
    assert out == replace(given, topic="all", key={"id": 1, "__dbz__physicalTableIdentifier": "orders1"})
    with pytest.raises(ValueError, match="duplication id"):
        router(key_field_name="id").apply([given])
