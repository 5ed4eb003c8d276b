"""The JSON converter against bytes that Kafka Connect's own JsonConverter (Apache Kafka 4.3.1) wrote"""

import contextlib
import datetime as dt
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.converters.json.values import DATE, DECIMAL, TIME, TIMESTAMP

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))


def plain(kind: SchemaType, **more: Any) -> Schema:
    return Schema(type=kind, **more)


def decimal(scale: int, **more: Any) -> Schema:
    return Schema(type=SchemaType.BYTES, name=DECIMAL, version=1, parameters={"scale": str(scale)}, **more)


def struct(fields: Mapping[str, Schema], **more: Any) -> Schema:
    members = tuple(SchemaField(name=name, schema=schema) for name, schema in fields.items())
    return Schema(type=SchemaType.STRUCT, fields=members, **more)


T = SchemaType
OUTER = struct(
    {
        "id": plain(T.INT32, default=5),
        "name": plain(T.STRING, optional=True),
        "amount": decimal(2, optional=True),
        "in": struct({"z": plain(T.BOOLEAN, optional=True)}, name="inner"),
        "tags": plain(T.ARRAY, items=plain(T.STRING), optional=True),
        "blob": plain(T.BYTES, default=b"\x01\x02"),
        "price": decimal(1, default=Decimal("2.5")),
        "op": plain(T.STRING, name="io.debezium.data.Enum", version=1, parameters={"allowed": "a,b"}, default="a"),
    },
    name="io.test.Outer",
    version=3,
    doc='an "outer" thing',
    optional=True,
    parameters={"p": "1"},
)
OUTER_VALUE = {
    "id": 1,
    "name": None,
    "amount": Decimal("10.00"),
    "in": {"z": True},
    "tags": ["x", "y"],
    "blob": b"\x09",
    "price": Decimal("0.5"),
    "op": "b",
}
DEFAULTED = struct({"s": plain(T.STRING, optional=True, default="d")})

VALUES: Mapping[str, tuple[Json, Schema | None]] = {
    "int8": (-128, plain(T.INT8)),
    "int16": (32767, plain(T.INT16)),
    "int32": (-7, plain(T.INT32)),
    "int64": (9007199254740993, plain(T.INT64)),
    "float32": (1.5, plain(T.FLOAT32)),
    "float64": (0.1, plain(T.FLOAT64)),
    "nan": (float("nan"), plain(T.FLOAT64)),
    "infinity": (float("-inf"), plain(T.FLOAT64)),
    "boolean": (True, plain(T.BOOLEAN)),
    "string": ('aé€"\\\n😀', plain(T.STRING)),
    "bytes": (b"\x00\x01\xff", plain(T.BYTES)),
    "optional null": (None, plain(T.STRING, optional=True)),
    "required null": (None, plain(T.STRING)),
    "null without schema": (None, None),
    "default for null": (None, plain(T.STRING, default="x")),
    "decimal": (Decimal("156.78"), decimal(2)),
    "decimal negative": (Decimal(-129), decimal(0)),
    "decimal zero": (Decimal("0.000"), decimal(3)),
    "decimal numeric": (Decimal("156.78"), decimal(2)),
    "decimal numeric zero": (Decimal("0.000"), decimal(3)),
    "decimal numeric big": (Decimal("123456789012345678901234567890"), decimal(0)),
    "date": (dt.date(2022, 1, 8), plain(T.INT32, name=DATE, version=1)),
    "time": (dt.time(1, 2, 3, 4000), plain(T.INT32, name=TIME, version=1)),
    "timestamp": (
        dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=dt.UTC),
        plain(T.INT64, name=TIMESTAMP, version=1),
    ),
    "array": ([1, 2, 3], plain(T.ARRAY, items=plain(T.INT32))),
    "array empty": ([], plain(T.ARRAY, items=plain(T.STRING, optional=True), optional=True)),
    "map string keys": ({"a": 1, "b": 2}, plain(T.MAP, keys=plain(T.STRING), items=plain(T.INT64))),
    "map int keys": ({1: "x", 2: "y"}, plain(T.MAP, keys=plain(T.INT32), items=plain(T.STRING))),
    "struct": (OUTER_VALUE, OUTER),
    "struct null": (None, OUTER),
    "null kept": ({"s": None}, DEFAULTED),
    "null replaced": ({"s": None}, DEFAULTED),
    "map without schema": ({"a": 1, "b": [True, "x"], "c": {"d": 1.5}}, None),
    "list without schema": ([1, "a"], None),
    "string without schema": ("text", None),
    "bytes without schema": (b"\x01\x02\x03", None),
    "int key map without schema": ({1: "a"}, None),
}
INFERRED = {"string without schema", "bytes without schema"}
"""Where we send a schema and JsonConverter, which cannot, says null."""


def vector_id(vector: dict[str, Any]) -> str:
    return f"{vector['name']} {vector['options']}"


@pytest.mark.parametrize("vector", GOLDEN, ids=vector_id)
def test_writes_what_kafka_connect_writes(vector: dict[str, Any]) -> None:
    converter = JsonConverter.from_options(vector["options"])
    value, schema = VALUES[vector["name"]]
    expected = vector["bytes"]
    if isinstance(expected, dict):
        with pytest.raises(ValueError, match="required"):
            converter.encode(value, schema)
        return
    written = converter.encode(value, schema)
    if expected is None or written is None:
        assert written is expected
    elif vector["name"] in INFERRED and not vector["options"]:
        assert json.loads(written)["payload"] == json.loads(expected)["payload"]
    elif "\\u" in expected:  # Jackson escapes what lies beyond the basic plane; both are the same JSON
        assert json.loads(written) == json.loads(expected)
    else:
        assert written.decode() == expected


@pytest.mark.parametrize("vector", [each for each in GOLDEN if isinstance(each["bytes"], str)], ids=vector_id)
def test_reads_what_kafka_connect_wrote(vector: dict[str, Any]) -> None:
    converter = JsonConverter.from_options(vector["options"])
    data = vector["bytes"].encode()
    first, second = converter.decode(data), converter.decode(data)  # the second through the schema cache
    assert repr(first) == repr(second)
    value, schema = first
    _, wanted_schema = VALUES[vector["name"]]
    if "schemas.enable" in vector["options"]:
        assert json.loads(orjson.dumps(value)) == json.loads(data)
        return
    assert schema == wanted_schema
    if "\\u" not in vector["bytes"] and wanted_schema is not None:
        assert converter.encode(value, schema) == data


def test_reads_values_as_plain_python() -> None:
    converter = JsonConverter()
    data = converter.encode(OUTER_VALUE, OUTER)
    assert converter.decode(data) == (OUTER_VALUE, OUTER)
    timestamp, schema = VALUES["timestamp"]
    assert converter.decode(converter.encode(timestamp, schema))[0] == 1_700_000_000_123


def test_a_decimal_as_a_number_keeps_every_digit() -> None:
    converter = JsonConverter(decimal_numeric=True)
    schema = struct({"d": decimal(10), "f": plain(T.FLOAT64)})
    value = {"d": Decimal("12345678901234567890.0123456789"), "f": 0.25}
    data = converter.encode(value, schema)
    assert data is not None and b'"d":12345678901234567890.0123456789' in data
    assert converter.decode(data) == (value, schema)
    assert converter.decode(data) == (value, schema)


def test_infers_a_schema_for_plain_values() -> None:
    data = JsonConverter().encode({"id": 1, "when": dt.date(1970, 1, 2), "none": None}, None)
    assert data is not None
    envelope = json.loads(data)
    assert [(each["field"], each["type"], each["optional"]) for each in envelope["schema"]["fields"]] == [
        ("id", "int64", True),
        ("when", "int32", True),
        ("none", "string", True),
    ]
    assert envelope["payload"] == {"id": 1, "when": 1, "none": None}


def test_equal_shapes_share_a_schema_and_others_do_not() -> None:
    converter = JsonConverter()
    for value in ({"a": 1}, {"a": "x"}, {"a": 2}, {"b": 1}, {"a": [1]}, {"a": []}, {"a": {}}):
        data = converter.encode(value, None)
        assert data is not None
        read, schema = converter.decode(data)
        assert read == value
        assert converter.encode(value, schema) == data


@pytest.mark.parametrize("kind", [OrderedDict, Counter, lambda members: defaultdict(int, members)])
def test_a_map_of_another_type_has_a_schema_of_its_own_members(kind: Callable[[Json], Json]) -> None:
    converter = JsonConverter()
    for members in ({"a": 1, "b": 2}, {"a": 1}, {"c": 1}, {"a": "x"}, {}):
        value = kind(members)
        assert converter.encode(value, None) == JsonConverter().encode(members, None)
        assert converter.encode([value], None) == JsonConverter().encode([members], None)


class Column(StrEnum):
    A = "a"


@pytest.mark.parametrize("schemas_enable", [False, True])
def test_names_of_another_type_are_names_and_leave_no_trace(schemas_enable: bool) -> None:
    """Equal names have one schema, which must be that of plain text whoever came first."""
    converter = JsonConverter(schemas_enable=schemas_enable)
    plain = converter.encode({"a": 1}, None)
    for value in ({Column.A: 1}, {"a": 1}):
        assert JsonConverter(schemas_enable=schemas_enable).encode(value, None) == plain
    other = JsonConverter(schemas_enable=schemas_enable)
    assert [other.encode(value, None) for value in ({Column.A: 1}, {"a": 1})] == [plain, plain]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"1",
        b"[]",
        b'{"payload":1}',
        b'{"schema":null}',
        b'{"schema":{"type":"int32"},"payload":1,"more":2}',
        b'{"schema":{"type":"int99"},"payload":1}',
        b'{"schema":{"type":"struct"},"payload":{}}',
        b'{"schema":{"type":"struct","fields":[{"type":"int32"}]},"payload":{}}',
        b'{"schema":{"type":"array"},"payload":[]}',
        b'{"schema":{"type":"map","keys":{"type":"string"}},"payload":{}}',
        b'{"schema":[],"payload":1}',
        b'{"schema":{"type":"int32","optional":false},"payload":"x"}',
        b'{"schema":{"type":"int32","optional":false},"payload":null}',
        b'{"schema":{"type":"int8","optional":false},"payload":128}',
        b'{"schema":{"type":"bytes","optional":false},"payload":"*"}',
        b'{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal"},"payload":"AA=="}',
    ],
)
def test_refuses_what_is_no_envelope(data: bytes) -> None:
    converter = JsonConverter()
    converter.decode(b'{"schema":{"type":"int32","optional":false},"payload":1}')  # fills the cache
    for _ in range(2):
        with pytest.raises(ValueError, match=r".+"):
            converter.decode(data)


@pytest.mark.parametrize("tail", [b"", b',"x":1}', b" ", b"}}"])
def test_a_known_schema_does_not_excuse_a_bad_payload(tail: bytes) -> None:
    converter = JsonConverter()
    good = b'{"schema":{"type":"int32","optional":false},"payload":1}'
    assert converter.decode(good)[0] == 1
    with pytest.raises(ValueError, match=r".+"):
        converter.decode(good[:-1] + tail)


@pytest.mark.parametrize(
    ("value", "schema", "words"),
    [
        ("x", plain(T.INT32), "expected an integer"),
        (True, plain(T.INT32), "expected an integer"),
        (1 << 31, plain(T.INT32), "32 bits"),
        (1, plain(T.STRING), "expected a string"),
        ("x", plain(T.BYTES), "expected bytes"),
        (Decimal("1.234"), decimal(2), "scale of 2"),
        ({"a": 1}, struct({"a": plain(T.STRING)}), "a: expected a string"),
        ({"b": 1}, struct({}), "no field 'b'"),
        ({}, struct({"a": plain(T.STRING)}), "a: null"),
        ({"in": {"z": 1}}, struct({"in": struct({"z": plain(T.STRING)})}), "in: z: expected a string"),
        (object(), None, "cannot be written"),
        ({"a": 1 << 70}, None, "64"),
    ],
)
def test_refuses_a_value_that_does_not_fit(value: Json, schema: Schema | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        JsonConverter().encode(value, schema)


@pytest.mark.parametrize(
    "options",
    [{"schemas.enable": "maybe"}, {"decimal.format": "ROMAN"}, {"schemas.cache.size": "many"}],
)
def test_refuses_a_bad_option(options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        JsonConverter.from_options(options)


def test_the_caches_stay_small() -> None:
    converter = JsonConverter(cache_size=3)
    for number in range(20):
        schema = struct({f"f{number}": plain(T.INT32)})
        data = converter.encode({f"f{number}": number}, schema)
        assert converter.decode(data) == ({f"f{number}": number}, schema)
        converter.encode({f"g{number}": number}, None)


# ----------------------------------------------------------------- properties

NAMES = st.text(max_size=6)
LEAVES = st.one_of(
    st.tuples(st.just(plain(T.BOOLEAN)), st.booleans()),
    st.tuples(st.just(plain(T.INT8)), st.integers(-128, 127)),
    st.tuples(st.just(plain(T.INT64)), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just(plain(T.FLOAT64)), st.floats(allow_nan=False)),
    st.tuples(st.just(plain(T.STRING)), st.text()),
    st.tuples(st.just(plain(T.STRING, optional=True, doc='a ,"payload": in the doc')), st.none()),
    st.tuples(st.just(plain(T.BYTES)), st.binary()),
    st.tuples(st.just(decimal(3)), st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-3))),
)


def grow(children: st.SearchStrategy[tuple[Schema, Json]]) -> st.SearchStrategy[tuple[Schema, Json]]:
    structs = st.dictionaries(NAMES, children, max_size=4).map(
        lambda members: (
            struct({name: schema for name, (schema, _) in members.items()}),
            {name: value for name, (_, value) in members.items()},
        )
    )
    arrays = st.tuples(children, st.integers(0, 3)).map(
        lambda pair: (plain(T.ARRAY, items=pair[0][0]), [pair[0][1]] * pair[1])
    )
    maps = st.tuples(NAMES, children).map(
        lambda pair: (plain(T.MAP, keys=plain(T.STRING), items=pair[1][0]), {pair[0]: pair[1][1]})
    )
    return st.one_of(structs, arrays, maps)


@given(st.recursive(LEAVES, grow, max_leaves=12), st.booleans())
def test_values_come_back(pair: tuple[Schema, Json], numeric: bool) -> None:
    """What is written with a schema is read back equal, through the cache or not."""
    schema, value = pair
    converter = JsonConverter(decimal_numeric=numeric)
    data = converter.encode(value, schema)
    for _ in range(2):
        assert converter.decode(data) == (value, schema)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Arbitrary input is a value or a ValueError, nothing else."""
    for converter in (JsonConverter(), JsonConverter(schemas_enable=False)):
        try:
            converter.decode(data)
        except ValueError:
            continue


@pytest.mark.parametrize(
    "data", [b'{"a":1.10,"b":[12345678901234567890123456789,-1,0.1e3]}', b"null", b'"x"', b"18446744073709551615"]
)
def test_what_is_read_exactly_is_written_again_with_all_its_digits(data: bytes) -> None:
    exact = JsonConverter(schemas_enable=False, decimal_numeric=True)
    value, schema = exact.decode_exactly(data)
    assert schema is None
    assert (exact.encode(value, None) or b"null") == data.replace(b"0.1e3", b"100")
    assert exact.decode_exactly(None) == (None, None)
    with pytest.raises(ValueError, match="not JSON"):
        exact.decode_exactly(b"{")


@pytest.mark.parametrize("schemas_enable", [False, True])
@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")], "b": None}, [1, float("-inf")]])
def test_a_number_that_is_none_is_no_null_without_a_schema_either(value: Json, schemas_enable: bool) -> None:
    """As JsonConverter writes it, in every way that a value may take."""
    data = JsonConverter(schemas_enable=schemas_enable).encode(value, None)
    assert data is not None
    payload = json.loads(data)["payload"] if schemas_enable else json.loads(data)
    assert payload in ("NaN", {"a": ["Infinity"], "b": None}, [1, "-Infinity"])


@pytest.mark.parametrize("data", [b"NaN", b'{"a":-Infinity}', b"[Infinity]"])
def test_numbers_that_json_does_not_have_are_not_read(data: bytes) -> None:
    for numeric in (False, True):
        with pytest.raises(ValueError, match="not JSON"):
            JsonConverter(schemas_enable=False, decimal_numeric=numeric).decode_exactly(data)


def nested(depth: int, inner: Any = 1) -> Any:
    value = inner
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("schemas_enable", [False, True])
@pytest.mark.parametrize("depth", [300, 900, 1_000, 5_000])
def test_what_is_nested_too_deeply_is_the_fault_of_its_record(depth: int, schemas_enable: bool) -> None:
    """Whatever gives up first, an error of another kind would end the task, whose policy leaves bad records out."""
    converter = JsonConverter(schemas_enable=schemas_enable)
    for value in (nested(depth), nested(depth, {1: 2})):
        with pytest.raises(ValueError, match=r"(?i)nested too deeply|recursion limit"):
            converter.encode(value, None)
    plain = b"[" * depth + b"1.5" + b"]" * depth
    for each in (plain, b'{"schema":null,"payload":' + plain + b"}"):
        for numeric in (False, True):
            with contextlib.suppress(ValueError):
                JsonConverter(schemas_enable=schemas_enable, decimal_numeric=numeric).decode_exactly(each)


@pytest.mark.parametrize("depth", [100, 300, 900, 1_000, 5_000])
def test_a_schema_that_is_nested_too_deeply_is_the_fault_of_its_record(depth: int) -> None:
    schema = b'{"type":"array","items":' * depth + b'{"type":"int32"}' + b"}" * depth
    data = b'{"schema":' + schema + b',"payload":' + b"[" * depth + b"7" + b"]" * depth + b"}"
    converter = JsonConverter()
    for _ in range(2):  # read whole, then by what is remembered of it
        if depth <= 300:
            value, read = converter.decode(data)
            assert read is not None and read.items is not None and value == nested(depth, 7)
        else:
            with pytest.raises(ValueError, match=r"nested too deeply|depth limit"):
                converter.decode(data)
