"""Debezium's JSON as typed columns: with and without schema part, mixed, odd and bad

Every test runs twice where there is a compiler: with documents that the kernel has reduced, and with whole ones.
"""

import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark_sink.compiled import COMPILED
from tests.spark_sink.debezium_events import (
    FIELDS,
    KEY_SCHEMA,
    VALUE_SCHEMA,
    Message,
    Shop,
    encode,
    event,
    rows_of,
    table_row,
    value_schema,
)
from tidemill.spark_sink.column_types import parse_columns
from tidemill.spark_sink.envelope import (
    BadRecord,
    EnvelopeOptions,
    EnvelopeReader,
    Events,
    SchemaPrefixes,
    find_prefix,
    unprojected,
)

PROJECTORS = {"whole": unprojected} | ({"reduced": COMPILED.project} if COMPILED is not None else {})


@pytest.fixture(autouse=True, params=PROJECTORS.values(), ids=PROJECTORS.keys())
def projector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way that readers take which are not told another."""
    monkeypatch.setattr("tidemill.spark_sink.envelope.fastest", lambda: request.param)


def read(messages: list[Message], **options: Any) -> list[Events]:
    return list(EnvelopeReader(EnvelopeOptions(**options)).read(rows_of(messages)))


def test_rows_have_the_types_of_their_schema() -> None:
    shop = Shop(seed=3)
    messages = [message for _ in range(200) for message in shop.change()[1]]
    (events,) = read(messages)
    sent = [json.loads(message.value)["payload"] for message in messages if message.value is not None]
    assert events.op.to_pylist() == [tree["op"] for tree in sent]
    assert events.offset.to_pylist() == [i for i, message in enumerate(messages) if message.value is not None]
    found = [row for row, op in zip(events.row.to_pylist(), events.op.to_pylist(), strict=True) if op != "d"]
    assert found == [table_row(tree["after"]) for tree in sent if tree["op"] != "d"]
    assert events.key is not None
    assert [each["id"] for each in events.key.to_pylist()] == [(t["after"] or t["before"])["id"] for t in sent]


def test_schemas_may_change_from_record_to_record() -> None:
    more = value_schema([*FIELDS[:2], {"field": "extra", "type": "int32", "optional": True}])
    messages = [
        event("c", {"id": 1}, {"id": 1, "Name": "a", "extra": 5}, schema=more),
        event("c", {"id": 2}, {"id": 2, "Name": "b"}, schema=value_schema(FIELDS[:2])),
        event("c", {"id": 3}, {"id": 3, "Name": "c", "extra": 7}, schema=more),
    ]
    first, second = read(messages)
    assert (first.offset.to_pylist(), second.offset.to_pylist()) == ([0, 2], [1])
    assert first.row.to_pylist() == [{"id": 1, "Name": "a", "extra": 5}, {"id": 3, "Name": "c", "extra": 7}]
    assert second.row.to_pylist() == [{"id": 2, "Name": "b"}]


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=12),
    lambda inner: st.dictionaries(st.sampled_from(["payload", "schema", "a"]), inner, max_size=3),
    max_leaves=6,
)


@given(documents, st.dictionaries(st.sampled_from(["doc", '"payload":', "payload"]), documents, max_size=3))
def test_a_prefix_is_cut_where_the_payload_begins(payload: Any, extra: dict[str, Any]) -> None:
    schema = {"type": "struct", **extra}
    document = orjson.dumps({"schema": schema, "payload": payload})
    found = find_prefix(document)
    assert found is not None
    prefix, parsed = found
    assert parsed == schema
    assert orjson.loads(document[len(prefix) : -1]) == payload


@pytest.mark.parametrize(
    "document", [b"{}", b"[1]", b"nonsense", b'{"schema":"s","payload":1}', b'{"schema":{},"a":1}']
)
def test_what_is_not_wrapped_has_no_prefix(document: bytes) -> None:
    assert find_prefix(document) is None


def test_a_null_schema_is_the_same_as_none() -> None:
    message = Message(encode({"id": 1}), b'{"schema":null,"payload":{"op":"c","after":{"id":1}}}')
    (events,) = read([message])
    assert events.row.to_pylist() == [{"id": 1}]


def test_prefixes_are_forgotten_one_by_one() -> None:
    prefixes = SchemaPrefixes()
    for number in range(200):
        prefixes.remember(b"%d" % number, None)
    assert len(prefixes.known) == 64
    assert next(iter(prefixes.known)) == b"199"


def plain(after: Any, op: str = "c", key: Any = None) -> Message:
    return event(op, key or {"id": 1}, after, schema=None)


def test_without_schema_types_are_guessed_and_text_stays_text() -> None:
    reader = EnvelopeReader(EnvelopeOptions())
    (first,) = reader.read(rows_of([plain({"id": 1, "n": 1, "at": "2026-01-01T00:00:00Z", "none": None})]))
    assert first.row.to_pylist() == [{"id": 1, "n": 1, "at": "2026-01-01T00:00:00Z"}]
    (second,) = reader.read(rows_of([plain({"id": 1, "n": 1.5, "at": "soon", "none": [1], "new": True})]))
    assert second.row.to_pylist() == [{"id": 1, "n": 1.5, "at": "soon", "none": [1], "new": True}]
    (third,) = reader.read(rows_of([plain({"id": 2, "n": 3, "at": None, "none": None, "new": None})]))
    assert third.row.type == second.row.type  # a type once seen stays


def test_without_schema_what_the_source_says_of_itself_may_change_its_types() -> None:
    one, two = ({"op": "c", "after": {"id": n}, "source": {"txId": n}, "extra": n} for n in (1, 2))
    two |= {"source": {"txId": "two"}, "extra": [2]}
    key = encode({"id": 1})
    (events,) = read([Message(key, encode(one)), Message(key, encode(two))])
    assert events.row.to_pylist() == [{"id": 1}, {"id": 2}]


def test_without_schema_a_new_column_is_found_in_any_record() -> None:
    reader = EnvelopeReader(EnvelopeOptions())
    list(reader.read(rows_of([plain({"id": 1})])))
    (events,) = reader.read(rows_of([plain({"id": 1}), plain({"id": 2, "late": "x"}), plain({"id": 3})]))
    assert events.row.to_pylist() == [{"id": 1, "late": None}, {"id": 2, "late": "x"}, {"id": 3, "late": None}]


def test_members_twice_escaped_or_deep_are_read_by_the_general_way() -> None:
    key = encode({"id": 1})
    deep = b'{"op":"c","after":{"id":1},"x":' + b"[" * 220 + b"]" * 220 + b"}"
    for document in (rb'{"\u006fp":"c","after":{"id":1}}', deep):
        (events,) = read([Message(key, document)])
        assert (events.op.to_pylist(), events.row.to_pylist()) == (["c"], [{"id": 1}])


def test_a_schema_that_was_forgotten_leaves_nothing_behind() -> None:
    """Columns are kept with their schema, not under a number that the next one may get."""
    reader = EnvelopeReader(EnvelopeOptions())
    for number in range(200):
        schema = value_schema([FIELDS[0], {"field": f"c{number}", "type": "int32", "optional": True}])
        (events,) = reader.read(rows_of([event("c", {"id": 1}, {"id": 1, f"c{number}": number}, schema=schema)]))
        assert events.row.to_pylist() == [{"id": 1, f"c{number}": number}]


def test_without_schema_a_delete_alone_still_has_columns() -> None:
    message = event("d", {"id": 4}, before={"id": 4, "name": "x"}, schema=None)
    (events,) = read([message])
    assert [each.name for each in events.row.type] == ["id", "name"]
    assert events.key is not None
    assert events.key.to_pylist() == [{"id": 4}]


def test_columns_name_the_types_of_topics_without_schema() -> None:
    columns = parse_columns("id:int32, placed:timestamp_us, name:string")
    message = plain({"id": 1, "placed": 1_000_000, "name": "n", "other": {"a": 1}})
    (events,) = read([message], columns=columns)
    assert [str(each.type) for each in events.row.type] == ["int32", "timestamp[us]", "string"]
    assert events.key is not None
    assert str(events.key.type) == "struct<id: int32>"


def test_not_a_number_is_read_the_slow_way() -> None:
    schema = value_schema([*FIELDS[:1], {"field": "ratio", "type": "double", "optional": True}])
    messages = [
        event("c", {"id": i}, {"id": i, "ratio": ratio}, schema=schema)
        for i, ratio in enumerate([0.5, "NaN", "-Infinity", None])
    ]
    (events,) = read(messages)
    assert str(events.row.field("ratio").to_pylist()) == "[0.5, nan, -inf, None]"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"nonsense", "not valid JSON"),
        (b"[1,2]", "not a JSON object"),
        (encode({"op": "x", "after": None}, VALUE_SCHEMA), "operation is 'x'"),
        (encode({"after": {"id": 1}}, VALUE_SCHEMA), "operation is None"),
        (encode({"id": 1}, {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}), "no op and after"),
        (encode({"op": "c", "after": {"id": "one"}}, VALUE_SCHEMA), "'one' is not a value of"),
        (encode({"op": "c", "after": {"id": 1, "unit price": "?"}}, VALUE_SCHEMA), "column after: "),
        (encode({"op": "c", "after": {"id": 1, "placed": "soon"}}, VALUE_SCHEMA), "column after: "),
    ],
)
def test_a_bad_record_is_named_by_its_offset(bad: bytes, reason: str) -> None:
    good = event("c", {"id": 1}, Shop()._row(1))
    with pytest.raises(BadRecord, match=reason) as caught:
        read([good, good, Message(good.key, bad), good])
    assert caught.value.offset == 2


def test_a_bad_key_is_named_too() -> None:
    good = event("c", {"id": 1}, Shop()._row(1))
    with pytest.raises(BadRecord, match="at offset 1"):
        read([good, Message(b"{", good.value)])


def test_records_without_key_stay_in_line() -> None:
    row = Shop()._row(1)
    keyed, bare = event("c", {"id": 1}, row), event("t", None)
    found = read([keyed, bare, keyed])
    assert sorted(offset for events in found for offset in events.offset.to_pylist()) == [0, 1, 2]
    assert {offset: events.key is None for events in found for offset in events.offset.to_pylist()} == {
        0: False,
        1: True,
        2: False,
    }


def test_tombstones_alone_yield_nothing() -> None:
    assert read([Message(encode({"id": 1}, KEY_SCHEMA), None)]) == []


def test_old_rows_are_read_where_wanted() -> None:
    row = {"id": 1, "Name": "a"}
    (events,) = read([event("d", {"id": 1}, before=row, schema=value_schema(FIELDS[:2]))], want_before=True)
    assert events.before is not None
    assert events.before.to_pylist() == [row]
    assert isinstance(events.row, pa.StructArray)
