"""What Debezium's own transformations make of records, and what they refuse, recorded

`python -m tests.golden.record_debezium_transforms` compiles `RecordChains.java` against the jars of the peer (`peer
fetch-debezium`), has it send the records of `change_records.py` through every chain below and writes
`debezium_transforms.jsonl` beside this file. Its lines are of four kinds: a schema with its number, which stands for it
everywhere else; a record with its name; a chain with what became of each record; and a configuration with what was said
about it. `tests/connect/transforms/debezium_cases.py` reads them.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.change_records import RECORDS

GOLDEN = Path(__file__).parent / "debezium_transforms.jsonl"
PEERS = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache" / "tidemill-peers"))
KAFKA = "org.apache.kafka.connect.transforms."
DEBEZIUM = "io.debezium.transforms."
UNWRAP, OUTBOX, LOGICAL = "ExtractNewRecordState", "outbox.EventRouter", "ByLogicalTableRouter"

CHANGES = [name for name in RECORDS if not name.startswith("EVENT")]
EVENTS = [name for name in RECORDS if name.startswith("EVENT")]
NO_CHANGES = ["TOMBSTONE", "HEARTBEAT", "TEXT", "SCHEMA_CHANGE", "MESSAGE", "PLAIN_MAP"]
ROWS = ["CREATE", "UPDATE_OLD", "DELETE_OLD", "TOMBSTONE"]


def stage(name: str, config: dict[str, str], predicate: tuple[str, dict[str, str]] | None = None) -> dict[str, Any]:
    """A transformation of Debezium's, or of Kafka's if its name has its package."""
    out: dict[str, Any] = {"type": name if name.startswith(KAFKA) else DEBEZIUM + name, "config": config}
    if predicate is not None:
        type_, options = predicate
        out["predicate"] = {"type": f"{KAFKA}predicates.{type_.removeprefix('!')}", "config": options}
        out["negate"] = type_.startswith("!")
    return out


def chain(records: list[str], *stages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A case."""
    return {"stages": list(stages), "records": records, **more}


def unwraps() -> Iterator[dict[str, Any]]:
    """ExtractNewRecordState, option by option."""
    yield chain(CHANGES, stage(UNWRAP, {}))
    added = {"add.fields": "op,table,source.ts_ms,lsn:LSN,transaction.id", "add.headers": "op,source.snapshot,db:DB"}
    for mode in ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone", "REWRITE"):
        chosen = {"delete.tombstone.handling.mode": mode}
        yield chain(CHANGES, stage(UNWRAP, chosen))
        yield chain(CHANGES, stage(UNWRAP, chosen | added))
        for keep in ("true", "false"):
            config = chosen | {"replace.null.with.default": keep}
            yield chain(
                ["CREATE", "READ", "NULLS", "DELETE", "DELETE_NAMELESS"], stage(UNWRAP, config), keeps_nulls=True
            )
    for names in (
        "op", "ts_ms,ts_us,ts_ns", "version,connector,name,db,sequence,schema,table,txId,lsn,xmin,origin,origin_lsn",
        "source.lsn,source.nowhere", "id,total_order,data_collection_order", "transaction.total_order,nowhere",
        "op:operation, source.ts_ms:when", "before", "source", "after,transaction", "op,,ts_ms", "op,", ",op",
        "source.ts_ms.more", "nowhere.x", "op:id", ":x", "source.snapshot", "snapshot", "op: spaced",
    ):  # fmt: skip
        for option in ("add.fields", "add.headers"):
            records = ["READ", "UPDATE_OLD", "DELETE_OLD", "TOMBSTONE", "IN_TRANSACTION", "ORIGIN", "HEARTBEAT"]
            config = {option: names, "delete.tombstone.handling.mode": "rewrite-with-tombstone"}
            yield chain(records, stage(UNWRAP, config))
    for prefix in ("", "x.", "é_", " "):
        config = {"add.fields": "op,source.lsn", "add.headers": "op:o,lsn"}
        yield chain(ROWS, stage(UNWRAP, config | {"add.fields.prefix": prefix, "add.headers.prefix": prefix}))
    for field in ("name", "note", "id", "nowhere", "after", "at", "doc"):
        for mode in ("tombstone", "rewrite", "drop", "delete-to-tombstone"):
            config = {"route.by.field": field, "delete.tombstone.handling.mode": mode}
            yield chain([*ROWS, "NULLS", "DELETE", "DELETE_NAMELESS", "HEARTBEAT"], stage(UNWRAP, config))
    dropping = [name for name in CHANGES if name.startswith("DROPPING")] + ["CREATE", "DELETE_OLD", "TOMBSTONE"]
    for mode in ("tombstone", "rewrite", "delete-to-tombstone"):
        for from_key in ("true", "false"):
            for compatible in ("true", "false"):
                config = {
                    "drop.fields.header.name": "gone",
                    "drop.fields.from.key": from_key,
                    "drop.fields.keep.schema.compatible": compatible,
                    "delete.tombstone.handling.mode": mode,
                    "add.fields": "op",
                }
                yield chain(dropping, stage(UNWRAP, config))
    yield chain(dropping, stage(UNWRAP, {"drop.fields.header.name": " "}))


def unwraps_in_chains() -> Iterator[dict[str, Any]]:
    """ExtractNewRecordState with others before and behind it."""
    unwrap = stage(UNWRAP, {"add.fields": "op,lsn", "delete.tombstone.handling.mode": "rewrite"})
    kafka = (
        (KAFKA + "RegexRouter", {"regex": "shop\\.public\\.(.*)", "replacement": "$1"}),
        (KAFKA + "InsertField$Value", {"static.field": "from", "static.value": "us"}),
        (KAFKA + "ReplaceField$Value", {"exclude": "note,doc"}),
        (KAFKA + "ValueToKey", {"fields": "id"}),
        (KAFKA + "ExtractField$Key", {"field": "id"}),
        (KAFKA + "HeaderFrom$Value", {"fields": "name", "headers": "who", "operation": "copy"}),
        (KAFKA + "SetSchemaMetadata$Value", {"schema.name": "row"}),
    )
    for name, config in kafka:
        yield chain(CHANGES, unwrap, stage(name, config))
        yield chain(CHANGES, stage(name, config), unwrap)
    routed = stage(*kafka[0])
    for predicate in (
        ("TopicNameMatches", {"pattern": "shop\\.public\\..*"}),
        ("!TopicNameMatches", {"pattern": "shop\\.public\\..*"}),
        ("RecordIsTombstone", {}),
        ("!RecordIsTombstone", {}),
        ("HasHeaderKey", {"name": "h"}),
    ):
        yield chain(CHANGES, stage(UNWRAP, {"add.headers": "op"}, predicate))
        yield chain(CHANGES, routed, stage(UNWRAP, {}, predicate), stage(*kafka[1]))
    yield chain(CHANGES, unwrap, unwrap)


def outboxes() -> Iterator[dict[str, Any]]:
    """EventRouter, option by option."""
    every = [*EVENTS, *NO_CHANGES, "CREATE", "DELETE", "TRUNCATE"]
    yield chain(every, stage(OUTBOX, {}))
    placed = "type:header:eventType,tenant:envelope,shard:partition"
    for config in (
        {"table.fields.additional.placement": placed},
        {
            "table.fields.additional.placement": "type:header,version:header:v,price:header,"
            "at:header:when,nowhere:header"
        },
        {"table.fields.additional.placement": " type : envelope : kind ,price:envelope"},
        {"table.fields.additional.placement": "nowhere:envelope"},
        {"table.fields.additional.placement": "nowhere:partition"},
        {"table.fields.additional.placement": "tenant:partition"},
        {
            "table.fields.additional.placement": "type:HEADER,nowhere:envelope",
            "table.field.additional.missing": "ignore",
        },
        {"table.fields.additional.placement": "nowhere:header:x", "table.field.additional.missing": "ignore"},
        {"table.field.event.schema.version": "version"},
        {"table.field.event.schema.version": "version", "table.fields.additional.placement": "type:envelope"},
        {"table.field.event.schema.version": "tenant", "table.fields.additional.placement": "type:envelope"},
        {"route.tombstone.on.empty.payload": "true"},
        {"route.tombstone.on.empty.payload": "true", "table.fields.additional.placement": "type:envelope"},
        {"table.field.event.id": "tenant", "table.field.event.key": "id", "table.field.event.payload": "type"},
        {"table.field.event.id": "nowhere"},
        {"table.field.event.key": "nowhere"},
        {"table.field.event.key": "version"},
        {"table.field.event.payload": "nowhere"},
        {"table.field.event.payload": "price"},
        {"table.field.event.payload": "version", "route.tombstone.on.empty.payload": "true"},
        {"table.field.event.type": "nowhere"},
        {"table.field.event.timestamp": "at"},
        {"table.field.event.timestamp": "at_us"},
        {"table.field.event.timestamp": "plain"},
        {"table.field.event.timestamp": "tenant"},
        {"table.field.event.timestamp": "nowhere"},
        {"route.by.field": "tenant"},
        {"route.by.field": "nowhere"},
        {"route.by.field": "version"},
        {"route.topic.regex": "(O.*)", "route.topic.replacement": "events.$1"},
        {"route.topic.replacement": "all"},
        {"route.topic.replacement": "${routedByValue}.v1"},
        {"table.op.invalid.behavior": "error"},
        {"table.op.invalid.behavior": "fatal"},
        {"tracing.operation.name": "x"},
    ):
        yield chain(every, stage(OUTBOX, config))
    for more in (
        {},
        {"table.json.payload.null.behavior": "optional_bytes"},
        {"table.fields.additional.placement": "type:envelope"},
        {"route.tombstone.on.empty.payload": "true"},
        {"table.field.event.payload": "version"},
    ):
        yield chain(EVENTS, stage(OUTBOX, {"table.expand.json.payload": "true"} | more))
    only_outbox = ("TopicNameMatches", {"pattern": ".*\\.outbox"})
    yield chain([*EVENTS[:4], *ROWS], stage(OUTBOX, {}, only_outbox), stage(UNWRAP, {"add.fields": "op"}))
    yield chain([*EVENTS[:4], *ROWS], stage(UNWRAP, {}, ("!" + only_outbox[0], only_outbox[1])), stage(OUTBOX, {}))
    upper = stage(KAFKA + "RegexRouter", {"regex": "outbox.event.(.*)", "replacement": "$1"})
    yield chain(EVENTS[:6], stage(OUTBOX, {}), upper, stage(KAFKA + "HoistField$Value", {"field": "event"}))


def logical_tables() -> Iterator[dict[str, Any]]:
    """ByLogicalTableRouter, option by option."""
    base = {"topic.regex": "(.*)orders(.*)", "topic.replacement": "$1all"}
    for more in (
        {},
        {"key.enforce.uniqueness": "false"},
        {"key.field.name": "shard"},
        {"key.field.name": "id"},
        {"key.field.regex": "shop\\.public\\.(.*)", "key.field.replacement": "$1"},
        {"key.field.regex": "other(.*)", "key.field.replacement": "$1"},
        {"key.field.regex": " ", "key.field.replacement": " "},
        {"topic.replacement": " "},
        {"topic.replacement": "a b-c/1"},
        {"topic.replacement": "1.2ä", "schema.name.adjustment.mode": "avro"},
        {"topic.replacement": "1.2ä", "schema.name.adjustment.mode": "avro_unicode"},
        {"topic.replacement": "1.2ä", "schema.name.adjustment.mode": "none"},
        {"topic.replacement": "a_b-c", "schema.name.adjustment.mode": "avro"},
        {"topic.replacement": "a_b-c", "schema.name.adjustment.mode": "avro_unicode"},
        {"topic.regex": "(?<a>[a-z]+)\\.(?<b>.*)", "topic.replacement": "${b}.${a}"},
        {"topic.regex": "nothing", "topic.replacement": "x"},
        {"topic.regex": "(.*)", "topic.replacement": "all"},
        {"topic.regex": "(.*)", "topic.replacement": "$2"},
        {"logical.table.cache.size": "1"},
    ):
        yield chain(CHANGES, stage(LOGICAL, base | more))
    for mode in ("tombstone", "rewrite"):
        unwrap = stage(UNWRAP, {"add.fields": "op,table", "delete.tombstone.handling.mode": mode})
        yield chain(CHANGES, stage(LOGICAL, base), unwrap)
        yield chain(CHANGES, unwrap, stage(LOGICAL, base))
    yield chain(CHANGES, stage(LOGICAL, base, ("!RecordIsTombstone", {})))
    yield chain(CHANGES, stage(LOGICAL, base), stage(KAFKA + "ExtractField$Key", {"field": "id"}))


def refusals() -> Iterator[dict[str, Any]]:
    """Configurations that cannot be."""
    for name, configs in {
        UNWRAP: [
            {},
            {"delete.tombstone.handling.mode": "none"},
            {"delete.tombstone.handling.mode": ""},
            {"drop.fields.from.key": "yes"},
            {"drop.fields.keep.schema.compatible": "1"},
            {"replace.null.with.default": "maybe"},
            {"add.fields": "op:a:b"},
            {"add.headers": "op:a:b"},
            {"add.fields": "op,op"},
            {"add.fields": ":"},
            {"add.headers": "."},
            {"drop.tombstones": "false"},
            {"delete.handling.mode": "rewrite"},
        ],
        OUTBOX: [
            {},
            {"table.fields.additional.placement": "type"},
            {"table.fields.additional.placement": "type:header:a:b"},
            {"table.fields.additional.placement": "type:header,id"},
            {"table.fields.additional.placement": "type:elsewhere"},
            {"table.fields.additional.placement": ""},
            {"table.fields.additional.placement": "a:envelope,b:envelope:a"},
            {"table.field.additional.missing": "maybe"},
            {"table.op.invalid.behavior": "ignore"},
            {"table.op.invalid.behavior": " FATAL "},
            {"table.expand.json.payload": "yes"},
            {"table.json.payload.null.behavior": "keep"},
            {"route.tombstone.on.empty.payload": "1"},
            {"route.topic.regex": "("},
            {"route.topic.regex": ""},
            {"route.topic.replacement": "${nobody}"},
            {"route.topic.replacement": ""},
            {"tracing.span.context.field": "x"},
            {"tracing.with.context.field.only": "maybe"},
        ],
        LOGICAL: [
            {},
            {"topic.regex": "a"},
            {"topic.replacement": "a"},
            {"topic.regex": "(", "topic.replacement": "a"},
            {"topic.regex": " ", "topic.replacement": "a"},
            {"topic.regex": "a", "topic.replacement": ""},
            {"topic.regex": "a", "topic.replacement": "$1"},
            {"topic.regex": "a", "topic.replacement": "b", "key.enforce.uniqueness": "1"},
            {"topic.regex": "a", "topic.replacement": "b", "key.field.regex": "("},
            {"topic.regex": "a", "topic.replacement": "b", "key.field.regex": "(", "key.field.replacement": "a"},
            {"topic.regex": "a", "topic.replacement": "b", "key.field.regex": "x"},
            {"topic.regex": "a", "topic.replacement": "b", "key.field.replacement": "x"},
            {"topic.regex": "a", "topic.replacement": "b", "schema.name.adjustment.mode": "some"},
            {"topic.regex": "a", "topic.replacement": "b", "logical.table.cache.size": "0"},
            {"topic.regex": "a", "topic.replacement": "b", "logical.table.cache.size": "x"},
            {"topic.regex": "a", "topic.replacement": "b", "logical.table.cache.size": "-1"},
        ],
    }.items():
        for config in configs:
            yield {"type": DEBEZIUM + name, "config": config}


def cases() -> list[dict[str, Any]]:
    """Every case."""
    return [*unwraps(), *unwraps_in_chains(), *outboxes(), *logical_tables(), *refusals()]


# ------------------------------------------------------------------------ files


class Schemas:
    """Schemas by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def shorter(self, node: Any) -> Any:
        """The same with numbers for the schemas of keys and values."""
        if not isinstance(node, dict):
            return node
        out = dict(node)
        for part in ("key", "value"):
            if isinstance(out.get(part), dict):
                text = json.dumps(out[part]["schema"], ensure_ascii=False, separators=(",", ":"))
                number = self.numbers.setdefault(text, len(self.numbers))
                out[part] = {"schema": number, "payload": out[part]["payload"]}
        return out


def asked(case: dict[str, Any]) -> str:
    """The line for Java."""
    if "stages" in case:
        case = {**case, "records": [RECORDS[name] for name in case["records"]]}
    return json.dumps(case, ensure_ascii=False) + "\n"


def told(lines: str) -> list[Any]:
    """What Java answers."""
    path = f"{PEERS / 'kafka' / 'libs'}/*:{PEERS / 'plugins' / 'debezium-postgres'}/*"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(__file__).parent / "RecordChains.java"
        subprocess.run(["javac", "-nowarn", "-d", folder, "-cp", path, str(source)], check=True)
        java = ["java", "-Duser.language=en", "-Duser.country=US", "-Duser.timezone=UTC", "-cp", f"{folder}:{path}"]
        done = subprocess.run([*java, "RecordChains"], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("told:")]


def line(node: Any) -> str:
    """One line of the file."""
    return json.dumps(node, ensure_ascii=False, separators=(",", ":")) + "\n"


def main() -> None:
    """Record."""
    schemas, every = Schemas(), cases()
    named = [line({"name": name, "record": schemas.shorter(each)}) for name, each in RECORDS.items()]
    answers = told("".join(map(asked, every)))
    chains = []
    for case, answer in zip(every, answers, strict=True):
        short = [schemas.shorter(each) for each in answer] if isinstance(answer, list) else answer
        chains.append(line({**case, "told": short}))
    numbered = [f'{{"schema":{number},"is":{text}}}\n' for text, number in schemas.numbers.items()]
    GOLDEN.write_text("".join([*numbered, *named, *chains]), encoding="utf-8")


if __name__ == "__main__":
    main()
