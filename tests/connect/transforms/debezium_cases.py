"""Debezium's recorded answers, and ours to the same records"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from tests.golden.record_debezium_transforms import GOLDEN
from tidemill.connect.api import InvalidConfig, Plugin, Predicate, Record, Transform
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.settings import parse_settings
from tidemill.connect.tasks.chained import unless_encoded
from tidemill.connect.transforms.chain import Chain, Encoded, Failure, Stage
from tidemill.connect.transforms.registry import find
from tidemill.connect.transforms.stages import problems

LINES = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
SCHEMAS = {line["schema"]: line["is"] for line in LINES if "is" in line}


def _whole(record: dict[str, Any]) -> dict[str, Any]:
    """With its schemas in the place of their numbers."""
    parts = {}
    for part in ("key", "value"):
        found = record.get(part)
        if isinstance(found, dict):
            parts[part] = {"schema": SCHEMAS[found["schema"]], "payload": found["payload"]}
    return {**record, **parts}


RECORDS = {line["name"]: _whole(line["record"]) for line in LINES if "name" in line}
CHAINS = [line for line in LINES if "stages" in line]
REFUSALS = [line for line in LINES if "type" in line]


def short(name: str) -> str:
    """A class without its packages."""
    return name.rpartition(".")[2]


def chains_of(name: str) -> list[dict[str, Any]]:
    """The cases with that transformation in them."""
    return [line for line in CHAINS if any(short(each["type"]) == name for each in line["stages"])]


def refusals_of(name: str) -> list[dict[str, Any]]:
    """The configurations of that transformation."""
    return [line for line in REFUSALS if short(line["type"]) == name]


class Way(NamedTuple):
    """How records come to the chain: read, or still in the bytes of their source; with schemas, or without."""

    encoded: bool
    schemas: bool


WAYS = (Way(False, True), Way(True, True), Way(False, False), Way(True, False))


def _made(given: dict[str, Any]) -> Transform | Predicate:
    plugin = find(given["type"])
    assert isinstance(plugin, Plugin)
    part = plugin.task(parse_settings(plugin, given["config"]))
    assert isinstance(part, Transform | Predicate)
    return part


def stages_of(line: dict[str, Any]) -> list[Stage]:
    """Our stages for a case."""
    stages = []
    for each in line["stages"]:
        transform, predicate = _made(each), _made(each["predicate"]) if "predicate" in each else None
        assert isinstance(transform, Transform) and not isinstance(predicate, Transform)
        made = Stage(
            alias="a", name=each["type"], transform=transform, predicate=predicate, negate=each.get("negate", False)
        )
        stages.append(made)
    return stages


def _data(part: Any, way: Way) -> bytes | None:
    if part is None:
        return None
    return orjson.dumps(part if way.schemas else part["payload"])


def record_of(given: dict[str, Any], way: Way, converter: JsonConverter) -> Record:
    """A recorded record on that way."""
    key, value = _data(given["key"], way), _data(given["value"], way)
    record = Record(
        topic=given["topic"],
        headers=tuple((name, None if text is None else text.encode()) for name, text in given["headers"]),
        timestamp_ms=given["timestamp"],
        kafka_partition=3,
    )
    if way.encoded:
        parts = {"key": None if key is None else Encoded(key), "value": None if value is None else Encoded(value)}
        return replace(record, **parts)
    read_key, key_schema = converter.decode_exactly(key)
    read_value, value_schema = converter.decode_exactly(value)
    return replace(record, key=read_key, key_schema=key_schema, value=read_value, value_schema=value_schema)


@cache
def _converter(*, schemas: bool, replaces: bool) -> JsonConverter:
    """One for all cases, so that it reads a schema once."""
    return JsonConverter(schemas_enable=schemas, replace_null_with_default=replaces)


def ours(line: dict[str, Any], way: Way) -> Iterator[dict[str, Any]]:
    """What our chain makes of the records."""
    converter = _converter(schemas=way.schemas, replaces=not line.get("keeps_nulls", False))
    try:
        stages = stages_of(line)
    except (InvalidConfig, ValidationError) as error:
        yield from ({"error": str(error)} for _ in line["records"])
        return
    chain = Chain(stages, converter.decode_exactly, converter.decode_exactly)
    encode = unless_encoded(converter.encode)
    given = [record_of(RECORDS[name], way, converter) for name in line["records"]]
    for outcome in chain.apply(given):
        if outcome is None:
            yield {"dropped": True}
        elif isinstance(outcome, Failure):
            yield {"error": str(outcome.error)}
        else:
            try:
                key = encode(outcome.key, outcome.key_schema)
                value = encode(outcome.value, outcome.value_schema)
            except ValueError as error:
                yield {"error": str(error)}
                continue
            yield {
                "topic": outcome.topic,
                "partition": outcome.kafka_partition,
                "timestamp": outcome.timestamp_ms,
                "key": None if key is None else json.loads(key),
                "value": None if value is None else json.loads(value),
                "headers": [[name, None if text is None else text.decode()] for name, text in outcome.headers],
            }


def expected(told: dict[str, Any], way: Way) -> dict[str, Any]:
    """What Debezium and JsonConverter made of a record; without schemas, its payloads."""
    if "dropped" in told or "error" in told:
        return told
    whole = _whole(told)
    if way.schemas:
        return whole
    return {**whole, **{part: whole[part] and whole[part]["payload"] for part in ("key", "value")}}


def differences(line: dict[str, Any], way: Way) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The records of which Debezium makes something else, with its and our answers where they differ."""
    for name, told, got in zip(line["records"], line["told"], ours(line, way), strict=True):
        wanted = expected(told, way)
        for part in ("key", "value"):
            if isinstance(wanted.get(part), dict) and wanted[part].get("schema", 0) is None and way.schemas:
                got[part]["schema"] = None  # ours infers one where JsonConverter writes none
        if wanted != got and not ("error" in wanted and "error" in got):
            every = {**wanted, **got}
            yield (
                name,
                {k: wanted.get(k) for k in every if wanted.get(k) != got.get(k)},
                {k: got.get(k) for k in every if wanted.get(k) != got.get(k)},
            )


def shown(line: dict[str, Any]) -> str:
    """The stages of a case."""
    return " | ".join(
        f"{'!' if each.get('negate') else ''}{short(each.get('predicate', {}).get('type', ''))} "
        f"{short(each['type'])} {each['config']}"
        for each in line["stages"]
    )


def problems_of(name: str, config: dict[str, str]) -> list[str]:
    """What is told about a configuration of ours, as far as it is wrong."""
    full = {"transforms": "u", "transforms.u.type": name}
    return [each.text for each in problems({**full, **{f"transforms.u.{key}": text for key, text in config.items()}})]


UNTOLD = ("Unable to validate config.", "Index ")
"""What says nothing: Debezium logs its reasons, or stumbles."""


def told_about(line: dict[str, Any]) -> list[str]:
    """What Debezium says about a configuration, as Connect shows it in a chain; empty for a refusal without a word."""
    found = []
    for name, texts in line["told"]["validate"].items():
        found += [text.replace(f"configuration {name}", f"configuration transforms.u.{name}") for text in texts]
    message = line["told"].get("configure", {}).get("message", "")
    if found or not message or message.startswith(UNTOLD):
        return found
    value, _, reason = message.partition(" value is invalid: ")
    if reason.startswith("A valid regular expressions"):
        reason = reason.partition(", but")[0]  # what is wrong with it is told in Python's words
    return [reason or value]
