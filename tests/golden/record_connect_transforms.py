"""What Kafka's own transformations make of a record, recorded

`python -m tests.golden.record_connect_transforms` compiles `RecordTransforms.java` against the jars of the peer, has it
apply every case below and writes `connect_transforms.jsonl` beside this file: one line per case, with the
configuration and the record as JsonConverter reads it. Under `told` stands the record as JsonConverter writes it, as
far as it differs, or the error. A record that is `MAP` or `STRUCT` below is named, not written out.

`tests/connect/transforms/test_registry.py` expects the same of our transformations.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "connect_transforms.jsonl"
PEERS = Path(os.environ.get("PEERS_HOME", Path.home() / ".cache" / "tidemill-peers"))
KAFKA = "org.apache.kafka.connect.transforms."
DEBEZIUM = "io.debezium.transforms."

TIMESTAMP_MS = 1_700_000_000_123

PLAIN: dict[str, Any] = {
    "id": 7,
    "name": "Ann",
    "ratio": 1.5,
    "big": 3_000_000_000,
    "flag": True,
    "nothing": None,
    "when": "2024-02-29 13:14:15.678",
    "ms": 1_709_212_455_678,
    "digits": "42",
    "address": {"city": "Ghent", "geo": {"lat": 51.05, "lon": 3.72}},
    "tags": ["a", "b"],
}


def field(member: str, kind: str, **more: Any) -> dict[str, Any]:
    """A member of a struct's schema."""
    return {"field": member, "type": kind, "optional": False, **more}


STAMP = {"name": "org.apache.kafka.connect.data.Timestamp", "version": 1}
GEO = [field("lat", "double"), field("lon", "double", optional=True)]
FIELDS = [
    field("id", "int32"),
    field("name", "string", optional=True),
    field("ratio", "double"),
    field("small", "int8"),
    field("big", "int64"),
    field("flag", "boolean"),
    field("nothing", "string", optional=True),
    field("preset", "string", optional=True, default="x"),
    field("when", "string"),
    field("ms", "int64"),
    field("at", "int64", **STAMP),
    field("day", "int32", name="org.apache.kafka.connect.data.Date", version=1),
    field("raw", "bytes"),
    field("price", "bytes", name="org.apache.kafka.connect.data.Decimal", version=1, parameters={"scale": "2"}),
    field("digits", "string"),
    field("address", "struct", name="addr", fields=[field("city", "string"), field("geo", "struct", fields=GEO)]),
    field("tags", "array", items={"type": "string", "optional": False}),
]
ROW = {
    **{name: value for name, value in PLAIN.items() if name != "nothing"},
    "small": 5,
    "nothing": None,
    "preset": None,
    "at": 1_709_212_455_678,
    "day": 19_782,
    "raw": "AQID",
    "price": "BNI=",
}


def struct(fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The schema of a struct."""
    return {"type": "struct", "optional": False, "fields": fields, **more}


def typed(schema: Any, payload: Any) -> dict[str, Any]:
    """JsonConverter's envelope."""
    return {"schema": schema, "payload": payload}


VALUE = typed(struct(FIELDS, name="row", version=3, doc="a row", parameters={"p": "q"}), ROW)
KEY = typed(struct([field("k", "int32")]), {"k": 1})
HEADERS = [["h", "text"], ["n", "12"], ["h", "again"], ["none", None]]


def record(value: Any, key: Any, **more: Any) -> dict[str, Any]:
    """A record as the recorder reads it."""
    return {"topic": "db.shop.orders", "key": key, "value": value, "timestamp": TIMESTAMP_MS, "headers": HEADERS} | more


MAP, STRUCT = record(PLAIN, {"k": 1}), record(VALUE, KEY)
RECORDS = {False: MAP, True: STRUCT}
AS_WRITTEN = {
    False: MAP,
    True: STRUCT
    | {"value": typed(VALUE["schema"], {**ROW, "preset": "x"})},  # JsonConverter reads a null as the default
}
BOTH = tuple(RECORDS.items())


def case(type_: str, config: dict[str, str], given: dict[str, Any], *, schemas: bool) -> dict[str, Any]:
    """One line for the recorder."""
    package = KAFKA + "predicates." if type_ in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches") else KAFKA
    return {"type": type_ if "." in type_ else package + type_, "config": config, "schemas": schemas, "record": given}


def over_both(type_: str, **config: str) -> Iterator[dict[str, Any]]:
    """A transformation of a map and of a struct; `__` in an option's name is a point."""
    options = {name.replace("__", "."): text for name, text in config.items()}
    for schemas, given in BOTH:
        yield case(type_, options, given, schemas=schemas)


def scalar(kind: str, payload: Any, **more: Any) -> tuple[bool, dict[str, Any]]:
    """A record whose value has no fields."""
    return True, record(typed({"type": kind, "optional": True, **more}, payload), None)


def fields() -> Iterator[dict[str, Any]]:
    """Whole values from members, and the other way round."""
    for name in ("id", "address", "address.city", "missing", "preset", "nothing", "tags"):
        yield from over_both("ExtractField$Value", field=name)
        yield from over_both("ExtractField$Value", field=name, field__syntax__version="V2")
    yield from over_both("ExtractField$Value", field="preset", replace__null__with__default="false")
    yield from over_both("ExtractField$Key", field="k")
    yield from over_both("ExtractField$Value", field="address.geo.lat", field__syntax__version="V2")
    yield from over_both("ExtractField$Value", field="address.no.lat", field__syntax__version="V2")
    yield from over_both("HoistField$Value", field="all")
    yield from over_both("HoistField$Key", field="all")
    yield from over_both("ValueToKey", fields="id,name")
    yield from over_both("ValueToKey", fields="id,missing")
    yield from over_both("ValueToKey", fields="preset,at")
    yield from over_both("ReplaceField$Value", exclude="name,tags,missing")
    yield from over_both("ReplaceField$Value", include="id,name,preset")
    yield from over_both("ReplaceField$Value", renames="id:ident,name:who")
    yield from over_both("ReplaceField$Value", include="id,name", renames="id:ident", exclude="name")
    yield from over_both("ReplaceField$Value", include="preset", replace__null__with__default="false")
    yield from over_both("ReplaceField$Key", renames="k:kk")
    yield from over_both("Flatten$Value")
    yield from over_both("Flatten$Value", delimiter="_")
    yield from over_both("Flatten$Key")
    nested = {"type": "map", "optional": True, "keys": {"type": "string"}, "values": {"type": "int32"}}
    inner = struct([field("b", "int32", default=3)], optional=True, field="s")
    value = typed(struct([{**nested, "field": "m"}, inner]), {"m": {"a": 1}, "s": None})
    yield case("Flatten$Value", {}, record(value, None), schemas=True)
    yield from over_both("InsertField$Value", topic__field="t", partition__field="p?", offset__field="o!")
    yield from over_both("InsertField$Value", timestamp__field="ts", static__field="s", static__value="fix")
    yield from over_both("InsertField$Value", static__field="name", static__value="replaced")
    yield from over_both("InsertField$Value", static__field="s!", static__value="12")
    yield from over_both("InsertField$Key", topic__field="t")
    for schemas, given in BOTH:
        yield case("InsertField$Value", {"timestamp.field": "ts"}, given | {"timestamp": None}, schemas=schemas)


def masks() -> Iterator[dict[str, Any]]:
    """Values that nobody may see."""
    every = "id,name,ratio,big,flag,nothing,ms,when,address,tags"
    yield from over_both("MaskField$Value", fields="id,name,ratio,big,flag,ms,when,tags")
    yield from over_both("MaskField$Value", fields="small,at,day,preset,nothing")
    yield from over_both("MaskField$Value", fields="address")
    yield from over_both("MaskField$Value", fields="raw")
    yield from over_both("MaskField$Value", fields="name,when", replacement="***")
    yield from over_both("MaskField$Value", fields="id,big,ratio", replacement="9")
    yield from over_both("MaskField$Value", fields="small", replacement="9")
    yield from over_both("MaskField$Value", fields="id", replacement="nine")
    yield from over_both("MaskField$Value", fields="flag", replacement="9")
    yield from over_both("MaskField$Value", fields=every, replacement="1")
    yield from over_both("MaskField$Key", fields="k")


def casts() -> Iterator[dict[str, Any]]:
    """Types changed."""
    kinds = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
    for kind in kinds:
        # Java before 19 writes some numbers of 32 bits longer than they are, and plain JSON has no Infinity here.
        rounded = kind == "float32"
        for name in ("id", "ratio", "flag", "digits", "big", "name", *([] if rounded else ["ms"])):
            yield from over_both("Cast$Value", spec=f"{name}:{kind}")
        yield from over_both("Cast$Value", spec=f"small:{kind}" if rounded else f"small:{kind},at:{kind}")
        yield from over_both("Cast$Value", spec=f"day:{kind}")
        yield from over_both("Cast$Value", spec=f"preset:{kind}")
        yield from over_both("Cast$Value", spec=f"price:{kind}")
        yield from over_both("Cast$Value", spec=f"nothing:{kind}")
        yield from over_both("Cast$Value", spec=kind)
        plain = (12, -1, 300, 1.9, -1.9, True, "true", "no", "12", " 12", "1e3", "1.5")
        for payload in (*plain, *(() if rounded else (2**40, 1e300))):
            yield case("Cast$Value", {"spec": kind}, record(payload, None), schemas=False)
        for name, payload in (("int32", 70_000), ("double", -2.7), ("string", "1.25"), ("boolean", False)):
            schemas, given = scalar(name, payload)
            yield case("Cast$Value", {"spec": kind}, given, schemas=schemas)
            schemas, given = scalar(name, None)
            yield case("Cast$Value", {"spec": kind}, given, schemas=schemas)
    yield from over_both("Cast$Value", spec="raw:string")
    yield from over_both("Cast$Value", spec="tags:string")
    yield from over_both("Cast$Value", spec="id:string,ratio:int32,flag:int8,missing:int8")
    yield from over_both("Cast$Key", spec="k:string")
    for payload in (1.0, 100.0, 1e7, 12345678.9, 1e-3, 1e-4, 123456789012345680.0, 0.1, 1e21):
        yield case("Cast$Value", {"spec": "string"}, record(payload, None), schemas=False)


def headers() -> Iterator[dict[str, Any]]:
    """Between headers and fields."""
    yield from over_both("DropHeaders", headers="h,missing")
    for literal in (
        "text",
        "12",
        "300",
        "true",
        "1.50",
        "007",
        "",
        '"quoted"',
        "[1, 2]",
        '{"a":1}',
        "null",
        "a b",
        " x ",
    ):
        yield case("InsertHeader", {"header": "new", "value.literal": literal}, BOTH[0][1], schemas=False)
    yield case("InsertHeader", {"header": "h", "value.literal": "x"}, BOTH[0][1], schemas=False)
    for operation in ("copy", "move"):
        for names in (
            "id,name",
            "ratio,flag",
            "nothing,tags",
            "missing,id",
            "big,when",
            "preset,at",
            "day,price",
        ):
            into = ",".join(f"x-{name}" for name in names.split(","))
            yield from over_both("HeaderFrom$Value", fields=names, headers=into, operation=operation)
    config = {"fields": "address", "headers": "x", "operation": "copy"}
    yield case("HeaderFrom$Value", config, STRUCT, schemas=True)
    yield from over_both("HeaderFrom$Key", fields="k", headers="key", operation="move")


def routes() -> Iterator[dict[str, Any]]:
    """Other topics."""
    for regex, replacement in (
        ("db\\.(.*)", "$1"),
        ("(.*)\\.(.*)\\.(.*)", "$3-$1"),
        ("orders", "x"),
        ("(?<db>[^.]+)\\..*\\.(?<table>.+)", "${table}_${db}"),
        (".*(shop).*", "\\$1-$1"),
        ("(db|db\\.shop\\.orders)", "z"),
        ("(.*)", "$10"),
        ("\\p{Lower}+\\.\\w++\\.\\S*", "posix"),
        ("\\Qdb.\\E.*", "quoted"),
        (".*?", "lazy"),
        ("(?i)DB\\..*", "any-case"),
    ):
        yield case("RegexRouter", {"regex": regex, "replacement": replacement}, BOTH[0][1], schemas=False)
        yield case("TopicNameMatches", {"pattern": regex}, BOTH[0][1], schemas=False)
    for form in (
        "yyyyMMdd",
        "yyyy-MM-dd HH:mm:ss.SSS",
        "yy/M/d h:m a",
        "EEE, d MMM yyyy HH:mm:ss Z",
        "'at' k o''clock",
    ):
        given = BOTH[0][1]
        yield case("TimestampRouter", {"timestamp.format": form}, given, schemas=False)
    for form in ("yyyy-MM-dd'T'HH:mm:ssXXX", "EEEE MMMM X XX z", "D K SSSSSS G yyyyy S"):
        yield case("TimestampRouter", {"timestamp.format": form, "topic.format": "${topic}"}, given, schemas=False)
        yield case(
            "TimestampRouter", {"timestamp.format": form, "topic.format": "${timestamp}$1"}, given, schemas=False
        )
    yield case("TimestampRouter", {}, given | {"timestamp": None}, schemas=False)
    yield case("Filter", {}, given, schemas=False)
    yield case("HasHeaderKey", {"name": "none"}, given, schemas=False)
    yield case("HasHeaderKey", {"name": "other"}, given, schemas=False)
    yield case("RecordIsTombstone", {}, given, schemas=False)
    yield case("RecordIsTombstone", {}, given | {"value": None}, schemas=False)


def times() -> Iterator[dict[str, Any]]:
    """Points in time in one form and another."""
    form = "yyyy-MM-dd HH:mm:ss.SSS"
    targets = ("string", "unix", "Date", "Time", "Timestamp")
    for target in targets:
        for name in ("when", "ms", "at", "day", "nothing", "missing", "id", "name"):
            yield from over_both("TimestampConverter$Value", field=name, target__type=target, format=form)
        for precision in ("seconds", "microseconds", "nanoseconds"):
            yield from over_both(
                "TimestampConverter$Value",
                field="ms",
                target__type=target,
                format=form,
                unix__precision=precision,
            )
        for payload in ("2024-02-29 13:14:15.678", "bad", 1_709_212_455_678, -1, None):
            options = {"target.type": target, "format": form}
            yield case("TimestampConverter$Value", options, record(payload, None), schemas=False)
        for kind, payload, more in (("int64", -1, STAMP), ("int64", 12, {}), ("int32", 12, {}), ("int64", None, STAMP)):
            schemas, given = scalar(kind, payload, **more)
            yield case("TimestampConverter$Value", options, given, schemas=schemas)
    yield from over_both("TimestampConverter$Value", field="ms", target__type="unix", unix__precision="seconds")
    for form, text in (
        ("yyyyMMdd", "20240229"),
        ("yyyyMMddHHmmssSSS", "20240229131415678"),
        ("yyyy-MM-dd", "2024-2-9 and more"),
        ("yyyy-MM-dd", "2024-13-40"),
        ("dd MMM yyyy", "29 feb 2024"),
        ("dd MMMM yyyy", "29 February 2024"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T13:14:15+02:00"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T13:14:15Z"),
        ("yyyy-MM-dd HH:mm:ss Z", "2024-02-29 13:14:15 -0530"),
        ("yyyy-MM-dd HH:mm:ss z", "2024-02-29 13:14:15 GMT+01:00"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "2024-02-29 13:14:15.123456"),
        ("h:mm a, d/M/y", "1:05 PM, 3/4/2024"),
        ("EEE, d MMM yyyy", "Thu, 29 Feb 2024"),
        ("k:mm yyyy D", "24:00 2024 60"),
        ("K:mm a yyyy", "0:30 pm 2024"),
        ("yyyy-MM-dd", "nothing"),
        ("HH:mm", "07:08"),
    ):
        options = {"target.type": "unix", "format": form}
        yield case("TimestampConverter$Value", options, record(text, None), schemas=False)


def schemas_and_nulls() -> Iterator[dict[str, Any]]:
    """Names of schemas, and records that hold nothing."""
    yield from over_both("SetSchemaMetadata$Value", schema__name="other", schema__version="9")
    yield from over_both("SetSchemaMetadata$Value", schema__name="other")
    yield from over_both("SetSchemaMetadata$Key", schema__version="2")
    schemas, given = scalar("int32", 5)
    yield case("SetSchemaMetadata$Value", {"schema.name": "n"}, given, schemas=schemas)
    options: dict[str, dict[str, str]] = {
        "ExtractField$Value": {"field": "a"},
        "HoistField$Value": {"field": "a"},
        "ValueToKey": {"fields": "a"},
        "ReplaceField$Value": {"renames": "a:b"},
        "Flatten$Value": {},
        "InsertField$Value": {"topic.field": "t"},
        "InsertField$Key": {"topic.field": "t"},
        "MaskField$Value": {"fields": "a"},
        "Cast$Value": {"spec": "a:int8"},
        "HeaderFrom$Value": {"fields": "a", "headers": "b", "operation": "copy"},
        "TimestampConverter$Value": {"field": "a", "target.type": "unix"},
        "SetSchemaMetadata$Value": {"schema.name": "n"},
    }
    optional = struct([field("a", "int64", optional=True, default=4)], name="opt", optional=True)
    for type_, config in options.items():
        yield case(type_, config, record(None, None), schemas=False)
        yield case(type_, config, record(typed(optional, None), None), schemas=True)
        yield case(type_, config, record(typed(optional, {"a": None}), None), schemas=True)
        yield case(type_, config, record(typed(optional, {"a": 1}), None), schemas=True)
        yield case(type_, config, record("text", None), schemas=False)
        yield case(type_, config, record(typed({"type": "string", "optional": True}, "text"), None), schemas=True)


def cases() -> list[dict[str, Any]]:
    """Every case."""
    return [
        *fields(),
        *masks(),
        *casts(),
        *headers(),
        *routes(),
        *times(),
        *schemas_and_nulls(),
    ]


def shorter(line: dict[str, Any]) -> str:
    """A line without what it shares with others."""
    given, told = line["record"], line["told"]
    for member in ("topic", "timestamp", "headers", "key", "value"):
        if (
            member in told
            and told[member] == AS_WRITTEN[line["schemas"]].get(member, 0)
            and given == RECORDS[line["schemas"]]
        ):
            del told[member]
    if given == RECORDS[line["schemas"]]:
        line["record"] = "STRUCT" if line["schemas"] else "MAP"
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


def main() -> None:
    """Record."""
    path = f"{PEERS / 'kafka' / 'libs'}/*"
    source = Path(__file__).parent / "RecordTransforms.java"
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in cases())
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-nowarn", "-d", folder, "-cp", path, str(source)], check=True)
        java = ["java", "-Duser.language=en", "-Duser.country=US", "-Duser.timezone=UTC", "-cp", f"{folder}:{path}"]
        told = subprocess.run([*java, "RecordTransforms"], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    GOLDEN.write_text("".join(shorter(json.loads(line)) for line in told.stdout.splitlines()), encoding="utf-8")


if __name__ == "__main__":
    main()
