"""EventRouter: Debezium's own answers to the same rows of an outbox, and what only we meet"""

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
from tidemill.connect.transforms.chain import Chain, Severity, Stage, Telling

NAME = "EventRouter"
CASES = chains_of(NAME)

LISTS = ("EVENT_ARRAY", "EVENT_NUMBERS")
"""Debezium 3.6 gives the text of a list the schema of the list and fails on it; later ones keep the text, as ours."""
ORDER = "EVENT_LISTS"
"""The fields that objects of a list have together come in the order of a hash there."""


def known(line: dict[str, Any], name: str, told: dict[str, Any], way: Way) -> bool:
    """Differences there are on purpose."""
    config = line["stages"][0]["config"]
    if name in LISTS and "for" in str(told.get("message")) and "ARRAY" in told["message"]:
        return True
    if told.get("topic") == "":
        return True  # which no producer takes: here the record fails, and its neighbours pass
    if name == ORDER and "null.behavior" in str(config):
        return True
    if way.schemas:
        return False
    without_units = "timestamp" in str(config)
    without_types = "INT32" in str(told.get("message"))
    digits = name == "EVENT_BIG" and "expand" in str(config)
    by_name = name in ("CREATE", "TRUNCATE", "DELETE") or "price" in str(config)
    return without_units or without_types or digits or by_name


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_rows_become_the_events_debezium_makes_of_them(way: Way) -> None:
    different = []
    for line in CASES:
        if not way.schemas and any(short(each["type"]) != NAME for each in line["stages"]):
            continue
        for name, told, got in differences(line, way):
            if not known(line, name, told, way):
                different.append(f"{shown(line)} {name}\n    Debezium's: {told}\n    ours: {got}")
    assert not different, f"{len(different)} differ\n" + "\n".join(each[:900] for each in different[:5])


def test_what_debezium_refuses_is_refused_in_its_words() -> None:
    for line in refusals_of(NAME):
        found = problems_of(NAME, line["config"])
        if any(name.startswith("tracing.") for name in line["config"]):
            continue  # refused whatever it says
        assert all(any(words in text for text in found) for words in told_about(line)), (line, found)
        if "configure" in line["told"]:
            assert found, line["config"]


@pytest.mark.parametrize(
    ("option", "given", "words"),
    [
        ("table.fields.additional.placement", "type:elsewhere", "Write header, envelope or partition."),
        ("table.fields.additional.placement", "a:envelope,b:envelope:a", "Give one of them an alias."),
        ("table.fields.additional.placement", "payload:envelope", "Give one of them an alias."),
        ("route.topic.replacement", "${nobody}", "route.topic.replacement"),
        ("tracing.operation.name", "x", "tracing.operation.name is not supported"),
        ("tracing.span.context.field", "x", "tracing.span.context.field is not supported"),
        ("field.name.adjustment.mode", "avro", "field.name.adjustment.mode is not supported"),
    ],
)
def test_what_could_not_be_done_is_refused_when_it_is_asked_for(option: str, given: str, words: str) -> None:
    [text] = problems_of(NAME, {option: given})
    assert option in text and words in text


def router(**options: str) -> Transform:
    transform = made(NAME, **options)
    assert isinstance(transform, Transform)
    return transform


def event(name: str, *, schemas: bool = True) -> Record:
    return record_of(RECORDS[name], Way(False, schemas), JsonConverter(schemas_enable=schemas))


def test_a_schema_is_called_after_the_topic_of_its_event_whatever_came_before() -> None:
    transform = router(table_fields_additional_placement="type:envelope")
    out = transform.apply([event("EVENT"), event("EVENT_OTHER"), event("EVENT")])
    names = [each.value_schema.name for each in out if each is not None and each.value_schema is not None]
    assert names == [f"shop.public.outbox.{kind}.Value" for kind in ("Order", "Customer Ärger", "Order")]


def test_schemas_are_made_once_also_of_expanded_payloads() -> None:
    transform = router(table_fields_additional_placement="type:envelope", table_expand_json_payload="true")
    given = event("EVENT")
    first, second = transform.apply([given, given])
    assert first is not None and second is not None and first.value_schema is second.value_schema is not None


def test_without_its_schema_a_time_has_no_unit() -> None:
    with pytest.raises(ValueError, match=r"value.converter.schemas.enable=true"):
        router(table_field_event_timestamp="at").apply([event("EVENT", schemas=False)])


def test_an_event_without_a_route_has_no_topic() -> None:
    with pytest.raises(ValueError, match="the column tenant is null"):
        router(route_by_field="tenant").apply([event("EVENT_NULLS")])


def test_what_was_left_out_or_left_alone_is_told_by_batch() -> None:
    stage = Stage(alias="o", name=NAME, transform=router(table_expand_json_payload="true"))
    chain = Chain([stage], lambda data: (data, None), lambda data: (data, None))
    chain.apply([event("EVENT_UPDATE"), event("EVENT_BROKEN"), event("EVENT_UPDATE"), event("EVENT")])
    assert chain.notices() == {
        (Severity.WARNING, "o: an updated row of the outbox shop.public.outbox was left out"): 2,
        (Severity.WARNING, "o: the JSON of payload was not expanded: it is not JSON"): 1,
    }
    assert not chain.notices()


def test_an_update_is_an_error_where_that_is_asked_for() -> None:
    transform = router(table_op_invalid_behavior="error")
    assert transform.apply([event("EVENT_UPDATE")]) == [None]
    assert isinstance(transform, Telling) and [severity for severity, _ in transform.notices] == [Severity.ERROR]
    with pytest.raises(ValueError, match="Unexpected update"):
        router(table_op_invalid_behavior="fatal").apply([event("EVENT_UPDATE")])
