"""Kafka's own answers to the same records, and how a transformation is found"""

import json
from typing import Any

import pytest

from tests.golden.record_connect_transforms import AS_WRITTEN, GOLDEN, RECORDS
from tidemill.connect.api import InvalidConfig, Plugin, PluginKind, Predicate, Record, Transform
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.settings import parse_settings
from tidemill.connect.transforms import registry
from tidemill.connect.transforms.registry import BUILT_IN, OF_KAFKA, find

CASES = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def of_type(name: str) -> list[dict[str, Any]]:
    return [each for each in CASES if each["type"].rpartition(".")[2].partition("$")[0] == name]


def data(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


def record_of(given: dict[str, Any], converter: JsonConverter) -> Record:
    key, key_schema = converter.decode(data(given["key"]))
    value, value_schema = converter.decode(data(given["value"]))
    return Record(
        topic=given["topic"],
        key=key,
        key_schema=key_schema,
        value=value,
        value_schema=value_schema,
        headers=tuple((name, None if text is None else text.encode()) for name, text in given["headers"]),
        timestamp_ms=given["timestamp"],
        kafka_partition=3,
        kafka_offset=42,
    )


def written(record: Record, converter: JsonConverter) -> dict[str, Any]:
    key = converter.encode(record.key, record.key_schema)
    value = converter.encode(record.value, record.value_schema)
    return {
        "topic": record.topic,
        "partition": record.kafka_partition,
        "timestamp": record.timestamp_ms,
        "key": None if key is None else json.loads(key),
        "value": None if value is None else json.loads(value),
        "headers": [[name, None if text is None else text.decode()] for name, text in record.headers],
    }


def expected(case: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = case["told"]
    if not isinstance(case["record"], str) or told.keys() & {"dropped", "holds"}:
        return told
    same = AS_WRITTEN[case["schemas"]]
    return {**{name: same[name] for name in ("topic", "timestamp", "key", "value", "headers")}, **told}


def ours(case: dict[str, Any]) -> dict[str, Any]:
    plugin = find(case["type"])
    assert plugin is not None
    converter = JsonConverter(schemas_enable=case["schemas"])
    given = RECORDS[case["schemas"]] if isinstance(case["record"], str) else case["record"]
    record = record_of(given, converter)
    made = plugin.task(parse_settings(plugin, case["config"]))
    if isinstance(made, Predicate):
        return {"holds": made.test(record)}
    assert isinstance(made, Transform)
    [out] = made.apply([record])
    return {"dropped": True} if out is None else written(out, converter)


NAMES = sorted({each["type"].rpartition(".")[2].partition("$")[0] for each in CASES})

DATES_WITHOUT_SCHEMA = "Java class class java.util.Date does not have corresponding schema type."
"""Its JsonConverter cannot write what its TimestampConverter makes of a map; ours writes ISO 8601."""


@pytest.mark.parametrize("name", NAMES)
def test_records_become_what_kafka_makes_of_them(name: str) -> None:
    different = []
    for case in of_type(name):
        told = expected(case)
        if told.get("message") == DATES_WITHOUT_SCHEMA:
            continue
        try:
            got = ours(case)
        except (ValueError, InvalidConfig) as error:
            got = {"error": str(error)}
        if told != got and not ("error" in told and "error" in got):
            shown = {key: (told.get(key), got.get(key)) for key in {**told, **got} if told.get(key) != got.get(key)}
            different.append(f"{case['type']} {case['config']} {case['record']}\n    (Kafka's, ours): {shown}")
    assert not different, "\n".join(different)


def test_every_transformation_of_kafka_is_there_and_recorded() -> None:
    recorded = {each["type"] for each in CASES}
    unrecorded = {each.name for each in OF_KAFKA} - recorded
    keys_alone = {each.removesuffix("Key") + "Value" for each in unrecorded}
    assert keys_alone <= recorded
    assert len(OF_KAFKA) == len({each.name for each in OF_KAFKA}) == 26 + 3
    assert len(BUILT_IN) == len({each.name for each in BUILT_IN})


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("RegexRouter", "org.apache.kafka.connect.transforms.RegexRouter"),
        ("Cast$Key", "org.apache.kafka.connect.transforms.Cast$Key"),
        ("HasHeaderKey", "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"),
    ],
)
def test_a_class_is_found_without_its_package(name: str, full: str) -> None:
    found = find(name)
    assert found is not None and found.name == full and find(full) is found


@pytest.mark.parametrize("name", ["Router", "Cast", "transforms", "", "regexrouter"])
def test_part_of_a_name_is_no_name(name: str) -> None:
    assert find(name) is None


def test_a_kind_is_not_taken_for_another() -> None:
    assert find("HasHeaderKey", PluginKind.TRANSFORMATION) is None
    assert find("Filter", PluginKind.PREDICATE) is None


def test_installed_ones_are_found_by_name_and_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Plugin(
        name="own",
        kind=PluginKind.TRANSFORMATION,
        version="2",
        config=BUILT_IN[0].config,
        task=BUILT_IN[0].task,
        aliases=("com.example.Own",),
    )
    monkeypatch.setattr(registry, "installed_transforms", lambda: (own,))
    assert find("own") is find("com.example.Own") is find("Own") is own
