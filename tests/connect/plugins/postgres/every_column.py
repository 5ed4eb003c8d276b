"""Every column type with values that are rare, and what is done to them

One table with a column for each type, in rows: every column goes through its own list of values, so that the n-th row
holds each column's n-th value. A second table has the same types with defaults, half of them NOT NULL. `CHANGES`
brings every kind of event to both. What Debezium made of it under each of `MODES` is recorded in
`every_column.json`; `comparable` takes out what differs from run to run.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PREPARE = [
    "CREATE EXTENSION IF NOT EXISTS hstore",
    "CREATE EXTENSION IF NOT EXISTS citext",
    "CREATE EXTENSION IF NOT EXISTS ltree",
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy, \"or\" so')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN price AS numeric(8,2)",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN dear AS price CHECK (VALUE > 10)",
    "CREATE DOMAIN code AS varchar(7)",
    "CREATE DOMAIN many AS int[]",
    "CREATE TYPE textrange AS RANGE (subtype = text)",
    "CREATE SEQUENCE numbers",
]

STAMPS = [
    "2026-02-03 04:05:06.789012", "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999", "1900-02-28 12:34:56.5", "2000-02-29 00:00:00.000001", "1582-10-10 10:10:10",
]  # fmt: skip
TEXTS = ["", "plain", 'quo"te', "back\\slash", "a;b,c d", "{}", "NULL", "tab\there\nnew", "é😀", "\u0001\u2028", " x "]
ARRAYS = ["{}", "{a}", '{"a;b","c d",NULL}', '{"NULL","","q\\"b\\\\s"}', '{"{x}","é😀","tab\there"}', "[2:3]={x,y}"]

TYPES: dict[str, tuple[str, list[str | None]]] = {
    "c_bool": ("bool", ["t", "f"]),
    "c_int2": ("int2", ["-32768", "32767", "0"]),
    "c_int4": ("int4", ["-2147483648", "2147483647"]),
    "c_int8": ("int8", ["-9223372036854775808", "9223372036854775807", "9007199254740993"]),
    "c_oid": ("oid", ["0", "4294967295"]),
    "c_float4": ("float4", ["1.1", "-0", "1e-45", "3.4028235e38", "NaN", "Infinity", "-Infinity", "16777216", "1e7"]),
    "c_float8": ("float8", ["1.1", "-0", "5e-324", "1.7976931348623157e308", "NaN", "Infinity", "1e15", "0.0001"]),
    "c_numeric": ("numeric", [
        "Infinity", "-Infinity", "123.4500", "0", "-0.000001", "100", "1e30", "NaN", "0.00", "-99999999999999999999.9",
    ]),
    "c_numeric_9_4": ("numeric(9,4)", ["-1234.5678", "0", "99999.9999", "-0.0001", "0.01275", "NaN"]),
    "c_numeric_5": ("numeric(5)", ["12345", "-1", "0", "127", "128", "-128", "-129"]),
    "c_numeric_30_10": ("numeric(30,10)", ["12345678901234567890.0123456789", "-0.0000000001"]),
    "c_money": ("money", ["-1234.56", "0", "92233720368547758.07", "0.01"]),
    "c_text": ("text", [*TEXTS]),
    "c_varchar": ("varchar", [*TEXTS]),
    "c_varchar_9": ("varchar(9)", ["short", "ninechars"]),
    "c_char": ("char", ["x", " "]),
    "c_char_5": ("char(5)", ["ab", "abcde", ""]),
    "c_qchar": ('"char"', ["z", ""]),
    "c_name": ("name", ["nämé", ""]),
    "c_citext": ("citext", ["Mixed", ""]),
    "c_bytea": ("bytea", ["\\xdeadbeef00", "\\x", "\\xfbff"]),
    "c_timestamp": ("timestamp", STAMPS),
    "c_timestamp_0": ("timestamp(0)", STAMPS),
    "c_timestamp_1": ("timestamp(1)", STAMPS),
    "c_timestamp_3": ("timestamp(3)", STAMPS),
    "c_timestamp_5": ("timestamp(5)", STAMPS),
    "c_timestamptz": ("timestamptz", [*(f"{each}+02" for each in STAMPS), "2026-07-01 00:00:00+05:30"]),
    "c_timestamptz_0": ("timestamptz(0)", [*(f"{each}+00" for each in STAMPS)]),
    "c_timestamptz_3": ("timestamptz(3)", [*(f"{each}+00" for each in STAMPS)]),
    "c_date": ("date", ["2026-02-03", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "1582-10-10"]),
    "c_time": ("time", ["04:05:06.789012", "00:00:00", "23:59:59.999999", "24:00:00", "12:00:00.5"]),
    "c_time_0": ("time(0)", ["04:05:06.789012", "00:00:00", "23:59:59"]),
    "c_time_3": ("time(3)", ["04:05:06.789012", "00:00:00", "23:59:59.999"]),
    "c_timetz": ("timetz", ["04:05:06.789012+02", "00:00:00+00", "23:59:59.999999-08", "12:00:00+05:30", "01:00+02"]),
    "c_timetz_0": ("timetz(0)", ["04:05:06+02", "23:59:59-08"]),
    "c_interval": ("interval", [
        "1 year 2 mons 3 days 04:05:06.789", "0", "-1 year -2 mons +3 days -04:05:06", "00:00:00.000001",
        "-00:00:00.5", "1 mon", "400 days", "100 hours", "-1 mon 1 day", "178000 years",
    ]),
    "c_interval_ym": ("interval year to month", ["3 years 2 mons"]),
    "c_json": ("json", ['{"a": [1, 2],  "a": 3}', "null", '"s"', "1.50"]),
    "c_jsonb": ("jsonb", ['{"b": null, "a": 1.50}', "null", "[]"]),
    "c_xml": ("xml", ["<a b='c'>d</a>", ""]),
    "c_uuid": ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
    "c_mood": ("mood", ["sad", 'happy, "or" so']),
    "c_price": ("price", ["12.30", "-0.01"]),
    "c_positive": ("positive", ["5"]),
    "c_dear": ("dear", ["12.34"]),
    "c_code": ("code", ["abc"]),
    "c_many": ("many", ["{1,NULL,2}"]),
    "c_inet": ("inet", ["10.0.0.1/8", "192.168.0.1", "2001:db8::1", "2001:db8::/32"]),
    "c_cidr": ("cidr", ["10.0.0.0/8", "2001:db8::/32"]),
    "c_macaddr": ("macaddr", ["08:00:2B:01:02:03"]),
    "c_macaddr8": ("macaddr8", ["08:00:2b:01:02:03:04:05"]),
    "c_int4range": ("int4range", ["[1,5]", "empty", "(,)", "[3,)"]),
    "c_int8range": ("int8range", ["[1,5]", "empty"]),
    "c_numrange": ("numrange", ["[1.5,2.50]", "(,7]"]),
    "c_tsrange": ("tsrange", ['["2026-01-01 00:00:00","2026-01-02 00:00:00.5")', "(,)"]),
    "c_tstzrange": ("tstzrange", ['["2026-01-01 00:00:00+02","2026-01-02 00:00:00+00")', "(,)", "empty"]),
    "c_daterange": ("daterange", ["[2026-01-01,2026-01-05]", "empty"]),
    "c_bit": ("bit", ["1", "0"]),
    "c_bit_8": ("bit(8)", ["10110011", "00000000"]),
    "c_bit_10": ("bit(10)", ["1011001110", "0000000000", "0000000001", "1000000000"]),
    "c_bit_64": ("bit(64)", ["1" * 64, "0" * 64, "1" + "0" * 63]),
    "c_bit_70": ("bit(70)", ["1" * 70, "0" * 69 + "1"]),
    "c_varbit": ("varbit", ["101", "", "1", "0000000000000001", "00000000"]),
    "c_varbit_12": ("varbit(12)", ["101", "", "111111111111", "000000000001"]),
    "c_varbit_1": ("varbit(1)", ["1", "0", ""]),
    "c_hstore": ("hstore", ['"a"=>"1","b"=>NULL', "", '"q\\"k"=>"b\\\\s"', '"é"=>"x=>y, z"']),
    "c_ltree": ("ltree", ["a.b.c", ""]),
    "c_tsvector": ("tsvector", ["a fat cat", "", "'it''s':1A b:2"]),
    "c_point": ("point", ["(1.5,2)", "(0,-0)", "(1e300,-1e-300)"]),
    "c_box": ("box", ["(2,2),(1,1)"]),
    "c_lseg": ("lseg", ["[(1,1),(2,2)]"]),
    "c_path": ("path", ["[(1,1),(2,2)]", "((0,0),(1,0),(1,1))"]),
    "c_polygon": ("polygon", ["((0,0),(1,0),(1,1))"]),
    "c_circle": ("circle", ["<(1,2),3>"]),
    "c_line": ("line", ["{1,2,3}"]),
    "a_bool": ("bool[]", ["{t,f,NULL}", "{}"]),
    "a_int2": ("int2[]", ["{-1,NULL,2}", "{}"]),
    "a_int4": ("int4[]", ["{1,NULL,3}", "{}", "[0:1]={1,2}"]),
    "a_int8": ("int8[]", ["{9007199254740993}", "{}"]),
    "a_oid": ("oid[]", ["{4294967295}"]),
    "a_float4": ("float4[]", ["{1.1,NaN,NULL,Infinity}", "{}"]),
    "a_float8": ("float8[]", ["{1.5,NaN,NULL,-Infinity,1e300}", "{}"]),
    "a_numeric": ("numeric[]", ["{1.50,NULL,0}", "{}"]),
    "a_numeric_6_2": ("numeric(6,2)[]", ["{1.5,2.25,NULL}", "{}"]),
    "a_text": ("text[]", ARRAYS),
    "a_varchar": ("varchar(20)[]", ARRAYS),
    "a_char_3": ("char(3)[]", ["{ab,NULL}"]),
    "a_citext": ("citext[]", ["{Ab,NULL}"]),
    "a_bytea": ("bytea[]", ['{"\\\\xdead",NULL}', "{}"]),
    "a_timestamp": ("timestamp[]", ['{"2026-02-03 04:05:06.789012",NULL}']),
    "a_timestamp_3": ("timestamp(3)[]", ['{"2026-02-03 04:05:06.789012"}']),
    "a_timestamptz": ("timestamptz[]", ['{"2026-02-03 04:05:06.789012+02",NULL}']),
    "a_date": ("date[]", ["{2026-02-03,NULL}"]),
    "a_time": ("time[]", ["{04:05:06.789012,NULL}"]),
    "a_timetz": ("timetz[]", ["{04:05:06.789012+02}"]),
    "a_json": ("json[]", ['{"{\\"a\\": 1}",NULL}']),
    "a_jsonb": ("jsonb[]", ['{"{\\"a\\": 1}",NULL}']),
    "a_uuid": ("uuid[]", ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"]),
    "a_inet": ("inet[]", ["{10.0.0.1/8}"]),
    "a_cidr": ("cidr[]", ["{10.0.0.0/8}"]),
    "a_macaddr": ("macaddr[]", ["{08:00:2b:01:02:03}"]),
    "a_macaddr8": ("macaddr8[]", ["{08:00:2b:01:02:03:04:05}"]),
    "a_int4range": ("int4range[]", ['{"[1,6)",empty,NULL}']),
    "a_int8range": ("int8range[]", ['{"[1,6)"}']),
    "a_numrange": ("numrange[]", ['{"[1.5,2.5]"}']),
    "a_tsrange": ("tsrange[]", ['{"[\\"2026-01-01 00:00:00\\",\\"2026-01-02 00:00:00\\")"}']),
    "a_tstzrange": ("tstzrange[]", ['{"[\\"2026-01-01 00:00:00+00\\",\\"2026-01-02 00:00:00+00\\")"}']),
    "a_daterange": ("daterange[]", ['{"[2026-01-01,2026-01-05)"}']),
    "a_mood": ("mood[]", ["{sad,NULL,ok}", "{}"]),
    "a_ltree": ("ltree[]", ["{a.b,NULL}"]),
    "a_hstore": ("hstore[]", ['{"\\"a\\"=>\\"1\\""}']),
    "a_price": ("price[]", ["{1.50,NULL}"]),
    "a_money": ("money[]", ["{$1.50,NULL}"]),
    "a_interval": ("interval[]", ['{"1 day",NULL}']),
    "a_bit_8": ("bit(8)[]", ["{10110011,NULL}"]),
    "a_varbit": ("varbit[]", ["{101}"]),
    "a_point": ("point[]", ['{"(1,2)",NULL}']),
    "a_box": ("box[]", ["{(2,2),(1,1);(4,4),(3,3)}"]),
    "a_xml": ("xml[]", ["{<a/>}"]),
    "a_name": ("name[]", ["{ab}"]),
    "a_tsvector": ("tsvector[]", ["{'a':1}"]),
    "a_deep": ("int[][]", ["{{1,2},{3,4}}", "{}"]),
    "u_pair": ("pair", ["(1,x)"]),
    "u_multirange": ("int4multirange", ["{[1,3),[5,7)}"]),
    "u_lsn": ("pg_lsn", ["16/B374D848"]),
    "u_jsonpath": ("jsonpath", ["$.a"]),
    "u_tsquery": ("tsquery", ["fat & cat"]),
    "u_textrange": ("textrange", ["[a,b]"]),
    "u_regclass": ("regclass", ["pg_class"]),
    "u_xid8": ("xid8", ["7"]),
}  # fmt: skip
"""Column, its type and the values it goes through."""

DEFAULTS: dict[str, tuple[str, str]] = {
    "d_bool": ("bool", "true"),
    "d_int2": ("int2", "7"),
    "d_int4": ("int4", "-42"),
    "d_int8": ("int8", "9007199254740993"),
    "d_float4": ("float4", "1.5"),
    "d_float8": ("float8", "'NaN'"),
    "d_numeric": ("numeric", "1.50"),
    "d_numeric_9_4": ("numeric(9,4)", "1.5"),
    "d_money": ("money", "12.34"),
    "d_text": ("text", "'it''s; \"so\"'"),
    "d_varchar_9": ("varchar(9)", "''"),
    "d_char_5": ("char(5)", "'ab'"),
    "d_bytea": ("bytea", "'\\xdeadbeef00'"),
    "d_timestamp": ("timestamp", "'2026-02-03 04:05:06.789012'"),
    "d_timestamp_3": ("timestamp(3)", "'2026-02-03 04:05:06.789'"),
    "d_timestamptz": ("timestamptz", "'2026-02-03 04:05:06.789012+00'"),
    "d_now": ("timestamptz", "now()"),
    "d_date": ("date", "'2026-02-03'"),
    "d_time": ("time", "'04:05:06.789012'"),
    "d_time_3": ("time(3)", "'04:05:06.789'"),
    "d_timetz": ("timetz", "'04:05:06+02'"),
    "d_interval": ("interval", "'1 year 2 mons 3 days 04:05:06'"),
    "d_json": ("json", "'{\"a\": 1}'"),
    "d_jsonb": ("jsonb", "'{\"a\": 1}'"),
    "d_uuid": ("uuid", "'00000000-0000-0000-0000-000000000001'"),
    "d_mood": ("mood", "'ok'"),
    "d_price": ("price", "1.5"),
    "d_inet": ("inet", "'10.0.0.1/8'"),
    "d_bit": ("bit", "'1'"),
    "d_bit_10": ("bit(10)", "'1011001110'"),
    "d_varbit": ("varbit", "'101'"),
    "d_hstore": ("hstore", "'a=>1'"),
    "d_point": ("point", "'(1,2)'"),
    "d_ltree": ("ltree", "'a.b'"),
    "d_range": ("int4range", "'[1,5)'"),
    "d_a_int4": ("int4[]", "'{1,2}'"),
    "d_a_text": ("text[]", "'{a,b}'"),
    "d_oid": ("oid", "7"),
    "d_xml": ("xml", "'<a/>'"),
    "d_citext": ("citext", "'X'"),
    "d_macaddr": ("macaddr", "'08:00:2b:01:02:03'"),
    "d_cidr": ("cidr", "'10.0.0.0/8'"),
    "d_tsvector": ("tsvector", "'a'"),
    "d_timestamp_now": ("timestamp", "now()"),
    "d_timestamp_current": ("timestamp", "CURRENT_TIMESTAMP"),
    "d_today": ("date", "CURRENT_DATE"),
    "d_time_now": ("time", "CURRENT_TIME"),
    "d_uuid_made": ("uuid", "gen_random_uuid()"),
    "d_text_computed": ("text", "upper('x')"),
    "d_text_user": ("text", "CURRENT_USER"),
    "d_bool_computed": ("bool", "(NOT true)"),
    "d_int_negative": ("int", "(-5)"),
    "d_int_rounded": ("int", "(5.4 * 10)::int"),
    "d_int_cast": ("int", "'5'::text::int"),
    "d_float_computed": ("float8", "pi()"),
    "d_numeric_computed": ("numeric(9,4)", "abs(-1.5)"),
    "d_json_computed": ("jsonb", "jsonb_build_object('a', 1)"),
    "d_enum_computed": ("mood", "('o' || 'k')::mood"),
    "d_text_cast": ("text", "'a'::varchar(3)"),
    "d_next": ("bigint", "nextval('numbers')"),
    "d_interval_computed": ("interval", "make_interval(days => 1)"),
    "d_bytea_computed": ("bytea", "decode('00', 'hex')"),
    "d_computed": ("int", "1 + 1"),
    "d_null": ("text", "NULL"),
}
"""Column, its type and its default as SQL; each NOT NULL, and again, with an underscore behind its name, nullable."""

MODES: dict[str, dict[str, str]] = {
    "default": {},
    "connect": {
        "time.precision.mode": "connect",
        "decimal.handling.mode": "string",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "binary.handling.mode": "base64",
    },
    "microseconds": {
        "time.precision.mode": "microseconds",
        "decimal.handling.mode": "double",
        "binary.handling.mode": "hex",
        "money.fraction.digits": "4",
    },
    "adaptive": {"time.precision.mode": "adaptive_time_microseconds", "binary.handling.mode": "base64-url-safe"},
    "nanoseconds": {"time.precision.mode": "nanoseconds"},
    "isostring": {"time.precision.mode": "isostring"},
}


def rows(first_id: int) -> Iterator[str]:
    """Statements that insert every value of every column."""
    count = max(len(values) for _, values in TYPES.values())
    for number in range(count):
        columns, expressions = ["id"], [str(first_id + number)]
        for column, (kind, values) in TYPES.items():
            value = values[number] if number < len(values) else None
            if value is not None:
                columns.append(column)
                expressions.append(f"""E'{value.replace(chr(92), chr(92) * 2).replace("'", "''")}'::{kind}""")
        yield f"INSERT INTO every ({', '.join(columns)}) VALUES ({', '.join(expressions)})"


def tables() -> list[str]:
    """Statements that make the tables."""
    columns = "".join(f", {column} {kind}" for column, (kind, _) in TYPES.items())
    defaults = "".join(
        f", {column} {kind}{'' if default == 'NULL' else ' NOT NULL'} DEFAULT {default}"
        f", {column}_ {kind} DEFAULT {default}"
        for column, (kind, default) in DEFAULTS.items()
    )
    return [
        f"CREATE TABLE every (id int PRIMARY KEY{columns})",
        f"CREATE TABLE defaults (id int PRIMARY KEY{defaults})",
    ]


def fill() -> list[str]:
    """Statements before the snapshot."""
    return [*rows(1), "INSERT INTO every (id) VALUES (99)", "INSERT INTO defaults VALUES (1)"]


def changes() -> list[str]:
    """Statements after the snapshot, each a transaction."""
    return [
        *rows(101),
        "INSERT INTO every (id) VALUES (199)",
        "INSERT INTO defaults VALUES (2)",
        "UPDATE every SET c_bool = NOT c_bool WHERE id < 50",
        "UPDATE every SET id = 1001 WHERE id = 1",
        "DELETE FROM every WHERE id = 2",
        "DELETE FROM defaults WHERE id = 1",
        "ALTER TABLE every REPLICA IDENTITY FULL",
        "ALTER TABLE defaults REPLICA IDENTITY FULL",
        "UPDATE every SET c_int4 = 5 WHERE id > 100",
        "UPDATE every SET id = 1002 WHERE id = 102",
        "DELETE FROM every WHERE id > 104",
        "UPDATE defaults SET d_int4 = 7, d_text_ = NULL",
        "DELETE FROM defaults",
        "TRUNCATE every",
        "INSERT INTO defaults VALUES (3)",
    ]


def comparable(data: bytes | None) -> Any:
    """A record without what cannot be equal."""
    if data is None:
        return None
    value = json.loads(data)
    payload = value.get("payload", value)
    if payload is not None and "source" in payload:
        source = payload["source"]
        for each in ("ts_ms", "ts_us", "ts_ns"):
            del payload[each]
        del source["version"]
        if payload["op"] == "r":
            for each in ("ts_ms", "ts_us", "ts_ns", "lsn", "sequence", "txId"):
                del source[each]
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two records differ: the path, our value and theirs. Members of a struct's schema are named, not counted."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if "fields" in ours and "fields" in theirs:
            mine, other = ([each["field"] for each in side["fields"]] for side in (ours, theirs))
            if [name for name in mine if name in other] != [name for name in other if name in mine]:
                yield f"{path}.fields", mine, other
            ours = ours | {"fields": {each["field"]: each for each in ours["fields"]}}
            theirs = theirs | {"fields": {each["field"]: each for each in theirs["fields"]}}
        for name in {**ours, **theirs}:
            yield from differences(ours.get(name, ABSENT), theirs.get(name, ABSENT), f"{path}.{name}")
    elif not same(ours, theirs, path):
        yield path, ours, theirs


ABSENT = "(absent)"


def same(ours: Any, theirs: Any, path: str) -> bool:
    """Whether two values are one: a whole float may be written without its fraction, a float4 with fewer digits."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(same(*pair, path) for pair in zip(ours, theirs, strict=True))
    if isinstance(ours, float | int) and isinstance(theirs, float) and not isinstance(ours, bool):
        form = "<f" if "float4" in path else "<d"
        return struct.pack(form, ours) == struct.pack(form, theirs)
    return json.dumps(ours) == json.dumps(theirs)


LEFT_OUT = {
    "c_box", "c_lseg", "c_path", "c_polygon", "c_circle", "c_line", "u_pair", "u_multirange", "u_lsn", "u_jsonpath",
    "u_tsquery", "u_textrange", "u_regclass", "u_xid8", "a_price", "a_money", "a_interval", "a_varbit", "a_point",
    "a_box", "a_xml", "a_name",
}  # fmt: skip
"""Columns Debezium does not capture; here they are text, or arrays of what their element is."""

OTHERWISE = {
    "c_name": "Debezium writes null",
    "a_mood": "an array with a null in it is null in Debezium, because its schema allows none",
    "a_tsvector": "an array with a null in it is null in Debezium, because its schema allows none",
    "a_ltree": "an array with a null in it is null in Debezium",
    "a_time": "Debezium loses microseconds in arrays",
    "a_timetz": "Debezium loses microseconds in arrays",
    "a_deep": "Debezium writes nulls for inner arrays",
    "a_bit_8": "Debezium writes null, under the schema of an element",
}
"""Columns that differ in schema or value, and why."""


def known(path: str, ours: Any, theirs: Any) -> bool:
    """Whether a difference is one of those that docs/postgres.md lists."""
    place, _, column = path.rpartition(".")
    columns = {column, place.rpartition(".")[2], *path.split(".")}
    if columns & LEFT_OUT:
        return theirs == ABSENT
    if columns & set(OTHERWISE):
        return True
    if column.startswith("d_") and column.endswith("_"):
        return ours is None  # Kafka's JSON converter replaces a null by the column's default
    if column == "d_text_user":
        return theirs == "CURRENT_USER"
    if column == "default" and "d_text_user" in path:
        return theirs == "CURRENT_USER"
    if column == "c_date":
        return theirs in (-141_422, "1582-10-20Z")  # a day that the Julian calendar did not have
    if ours in ("NaN", "Infinity", "-Infinity"):
        return theirs in ("NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY")
    return theirs is None and ours in (2**63 - 1, -(2**63))  # nanoseconds beyond the years 1677 to 2262


RECORDED = Path(__file__).with_name("every_column.json")
VARYING = ("now", "current", "today", "made", "user")


def by_column(records: Mapping[str, Sequence[tuple[bytes | None, bytes | None, Any]]]) -> dict[str, Any]:
    """Schema and values of every column, from the rows of the snapshot and those inserted before anything else."""
    columns: dict[str, Any] = {}
    for topic, each in records.items():
        for _, data, _ in each:
            event = None if data is None else json.loads(data)
            if event is None or event["payload"]["op"] not in "rc":
                break
            [row] = [member for member in event["schema"]["fields"] if member["field"] == "after"]
            for schema in row["fields"]:
                name = schema["field"]
                column = columns.setdefault(f"{topic.rpartition('.')[2]}.{name}", {"schema": schema, "values": []})
                if not any(part in name.split("_") for part in VARYING):
                    column["values"].append(event["payload"]["after"][name])
    return columns


def record(mode: str, records: Mapping[str, Sequence[tuple[bytes | None, bytes | None, Any]]]) -> None:
    """Keep what Debezium made of the columns; of modes other than the first, only what differs from that."""
    kept = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    found = by_column(records)
    if mode != "default":
        found = {name: column for name, column in found.items() if column != kept["default"].get(name)}
    kept[mode] = found
    lines = (
        f"{json.dumps(each)}: {{\n"
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(column)}" for name, column in columns.items())
        + "\n}"
        for each, columns in kept.items()
    )
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def recorded(mode: str) -> dict[str, Any]:
    """What Debezium 3.6.3 made of every column under a mode."""
    kept: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {**kept["default"], **kept[mode]}
