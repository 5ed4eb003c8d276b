"""One value, one text: a row has the same bytes whether the snapshot read it or the stream brought it

`test_every_column` says what the text is; this holds over values that are rarer still, which Debezium was not asked
about, alone and in arrays.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

PREPARE = [
    """CREATE TYPE "Odd "" Énum" AS ENUM ('a,b', '', 'NULL', 'q"\\', '😀')""",
    "CREATE TYPE pair AS (a int, b text, c int[])",
    "CREATE TYPE textrange AS RANGE (subtype = text)",
    "CREATE DOMAIN price AS numeric(6,2)",
    "CREATE DOMAIN dear AS price",
    "CREATE DOMAIN prices AS price[]",
    "CREATE DOMAIN grid AS int[][]",
    """CREATE DOMAIN odd AS "Odd "" Énum\"""",
]
STAMPS = [
    "infinity", "-infinity", "4713-01-01 BC", "0044-03-15 12:34:56.789 BC", "0001-12-31 23:59:59.999999 BC",
    "10000-01-01", "294276-12-31 23:59:59.999999", "0099-01-01",
    "2016-12-31 23:59:60", "1677-09-20", "24000-02-29 24:00:00",
]  # fmt: skip
DATES = ["infinity", "-infinity", "4713-01-01 BC", "0005-02-28 BC", "10000-01-01", "5874897-12-31", "0099-01-01"]
TIMES = ["24:00:00", "23:59:59.9999996", "00:00:00.000001", "12:00:60"]
ZONED_TIMES = ["24:00:00+05", "00:00:00+15:59:59", "23:59:59.999999-15:59:59", "01:02:03.000001-00:00:01"]
INTERVALS = [
    "1 year -1 mon", "-1 mons -1 days -00:00:00.000001", "178000000 years", "-2147483648 days", "-0.25 sec",
    "1 mon 1 day -1 hour -0.5 sec", "2562047788:00:54.775807",
]  # fmt: skip
NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "-0",
    "1e131071",
    "-1e-16383",
    "9" * 5000,
    "1.10",
    "-1e309",
    "0." + "1" * 400,
]
FLOATS = ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "123456.789", "1e15", "1e16", "-1.5e-7"]
TEXTS = [
    "NULL",
    "",
    "a,b",
    "a;b",
    '{"x":1}',
    '"',
    "\\",
    '\\"',
    "\x01\x7f",
    "é😀\u2028\uffff",
    " x ",
    "\t\r\n",
    "[1:2]={a}",
]

VALUES: dict[str, list[str]] = {
    "float4": FLOATS, "float8": [*FLOATS, "5e-324", "1.7976931348623157e308"], "numeric": NUMBERS,
    "numeric(1000,500)": ["1e499", "-1e-500", "NaN"], "numeric(3,-2)": ["-99949", "51", "NaN"],
    "numeric(3,10)": ["0.0000000999"], "numeric(5,-1000)": ["-1" + "0" * 1000],
    "money": ["-92233720368547758.08", "1234567.89"], "text": TEXTS, "char(30)": TEXTS, '"char"': ["", "\\377", "\\"],
    "bytea": ["\\x", "\\x00ff"], "timestamp": STAMPS, "timestamp(0)": STAMPS, "timestamp(3)": STAMPS,
    "timestamptz": STAMPS, "timestamptz(2)": STAMPS, "date": DATES, "time": TIMES, "time(2)": TIMES,
    "timetz": ZONED_TIMES, "timetz(3)": ZONED_TIMES, "interval": INTERVALS, "interval year": INTERVALS,
    "json": [' [1, "\\u2028"] ', "1e400"], "xml": ["<a>&amp;\n</a>"], "bit(9)": ["100000000"], "bit(70)": ["0" * 70],
    "varbit": ["", "0", "101" * 30], "varbit(1)": ["", "1"], "int4range": ["empty", "(,)", "[1,1]"],
    "numrange": ["[NaN,NaN]", "(,Infinity]"], "tsrange": ['["0044-01-01 BC",infinity]'],
    "daterange": ["[10000-01-01,)", "empty"],
    "tstzrange": ['["2026-01-01 00:00:00+05",infinity]'], "point": ["(NaN,Infinity)", "(-0,1e-300)"],
    "box": ["(NaN,1),(2,3)"], "circle": ["<(1,2),0>"], "tsvector": ["'a''b':1A,2B"], "inet": ["::ffff:1.2.3.4", "::/0"],
    "regclass": ["pg_class"], "int2vector": ["1 2 3"], '"Odd "" Énum"': ["a,b", "", "NULL", 'q"\\', "😀"],
    "pair": ['(1,"a,b","{1,2}")', "(,,)"], "textrange": ['["a b",c)'], "price": ["1.5", "NaN"], "dear": ["-0.01"],
    "prices": ["{1.5,NULL,NaN}", "{{1},{2}}"], "grid": ["{{1,2},{3,4}}", "{1,NULL}", "[0:1]={5,6}"], "odd": ["a,b", ""],
}  # fmt: skip
"""Types with values; a value that this server does not know is left out."""

EXTENSIONS = {"hstore": ['"NULL"=>NULL', '"q\\"\\\\"=>"é=>,"'], "citext": TEXTS, "ltree": ["a.b", ""]}

NO_ARRAY = ("box", "interval year", "grid", "prices")

MODES: dict[str, dict[str, str]] = {
    "precise": {},
    "string": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "binary.handling.mode": "hex",
    },
    "double": {"decimal.handling.mode": "double", "time.precision.mode": "nanoseconds"},
}


def columns(kinds: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """Every type with its values, and arrays of them: flat, of arrays, with bounds of their own, with nulls."""
    found = list(kinds.items())
    for kind, values in kinds.items():
        if kind in NO_ARRAY:
            continue
        quoted = ['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]
        flat = "{" + ",".join([*quoted, "NULL"]) + "}"
        arrays = ["{}", "{NULL}", flat, f"{{{flat},{flat}}}", f"[-1:{len(values) - 1}]={flat}"]
        found += [(f"{kind}[]", arrays), (f"{kind}[][]", arrays)]
    return found


def fill(database: Any, kinds: dict[str, list[str]]) -> list[str]:
    """Make a table a type, as many rows in it as there are values; return the tables."""
    tables = []
    for number, (kind, values) in enumerate(columns(kinds)):
        table = f"t{number}"
        try:
            database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind})")
        except psycopg.errors.DataError:  # negative scales came with PostgreSQL 15
            continue
        tables.append(table)
        database.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL", f"INSERT INTO {table} VALUES (0)")
        for row, value in enumerate(values, 1):
            try:
                database.rows(f"INSERT INTO {table} VALUES (%s, %s::text::{kind}) RETURNING 1", row, value)
            except psycopg.DataError:
                continue
    return tables


def image(value: bytes, field: bytes, behind: bytes) -> bytes:
    """Cut one image of a row out of a record, without its id."""
    match = re.search(rb'"%s":\{"id":\d+,(.*?)\}%s' % (field, behind), value, re.DOTALL)
    assert match is not None, value[:200]
    json.loads(b"{" + match[1] + b"}")
    return match[1]


@pytest.mark.parametrize("mode", MODES)
def test_snapshot_and_stream_write_the_same_bytes(database: Any, runtime: Callable[..., Any], mode: str) -> None:
    database.run(*PREPARE)
    available = {name for (name,) in database.rows("SELECT name FROM pg_available_extensions")} & EXTENSIONS.keys()
    database.run(*(f"CREATE EXTENSION {name}" for name in available))
    tables = fill(database, VALUES | {name: EXTENSIONS[name] for name in available})
    running = runtime(database.config() | MODES[mode], raw=True)
    running.until_streaming()
    read = {(each.topic, each.key): image(each.value, b"after", b',"source"') for each in running.records}
    assert len(read) > 700
    database.run(*(f"UPDATE {table} SET id = id" for table in tables))
    running.until_records(2 * len(read))
    streamed = running.records[len(read) :]
    for field, behind in ((b"before", b',"after"'), (b"after", b',"source"')):
        found = {(each.topic, each.key): image(each.value, field, behind) for each in streamed}
        assert {key: (read[key], text) for key, text in found.items() if read[key] != text} == {}
        assert found.keys() == read.keys()
