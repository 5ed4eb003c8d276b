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


@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["arrays", "objects"])
@pytest.mark.parametrize("levels", [98, 400, 50_000])
def test_without_schema_nesting_has_a_limit(opening: bytes, levels: int) -> None:
    """Beyond some thousand levels the JSON reader that is to find types would end the process."""
    deep = opening * levels + b"1" + (b"]" if opening == b"[" else b"}") * levels
    message = Message(encode({"id": 1}), b'{"op":"c","after":{"id":1,"x":' + deep + b"}}")
    if levels == 98:
        assert [each.name for each in read([message])[0].row.type] == ["id", "x"]
        return
    with pytest.raises(BadRecord, match=r"nested more than 100 levels deep|depth limit exceeded"):
        read([plain({"id": 1}), message])
    key = Message(b'{"id":' + deep + b"}", plain({"id": 1}).value)
    with pytest.raises(BadRecord, match=r"nested more than 100 levels deep|depth limit exceeded"):
        read([key])
    brackets = '[{"' * levels
    assert read([plain({"id": brackets})])[0].row.to_pylist() == [{"id": brackets}]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"id": 1, "a": 1}, {"id": 1, "a": "x"}),
        ({"id": 1, "a": 1}, {"id": 1, "a": [1]}),
        ({"id": 1, "a": True}, {"id": 1, "a": 1}),
        ({"id": 1}, "x"),
    ],
)
def test_without_schema_a_type_that_changes_is_a_bad_record(first: Any, then: Any) -> None:
    reader = EnvelopeReader(EnvelopeOptions())
    list(reader.read(rows_of([plain(first)])))
    with pytest.raises(BadRecord, match="types differ between records, set columns"):
        list(reader.read(rows_of([plain(then)])))
    assert next(reader.read(rows_of([plain(first)]))).row.to_pylist() == [first]
    with pytest.raises(BadRecord, match="types differ between records, set columns"):
        list(reader.read(rows_of([plain(first, key={"id": "one"})])))


def test_without_schema_what_the_source_says_of_itself_may_change_its_types_later() -> None:
    reader = EnvelopeReader(EnvelopeOptions())
    for transaction in (1, "two", [3]):
        tree = {"op": "c", "after": {"id": 1, "a": "x"}, "source": {"txId": transaction}}
        (events,) = reader.read(rows_of([Message(encode({"id": 1}), encode(tree))]))
        assert events.row.to_pylist() == [{"id": 1, "a": "x"}]


@pytest.mark.parametrize("image", [5, "x", [1], [{"id": 1}]])
def test_without_schema_a_row_that_is_none_is_not_remembered(image: Any) -> None:
    reader = EnvelopeReader(EnvelopeOptions())
    empty = plain(None, "t")
    with pytest.raises(BadRecord, match=r"at offset 1 .* its after is not a JSON object"):
        list(reader.read(rows_of([empty, plain(image), empty])))
    (events,) = reader.read(rows_of([plain({"id": 1})]))
    assert events.row.to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("op", [5, {"q": 1}, ["c"], True])
def test_without_schema_an_operation_that_is_no_text_is_not_remembered(op: Any) -> None:
    reader = EnvelopeReader(EnvelopeOptions())
    with pytest.raises(BadRecord, match=r"at offset 1 .* its op is not text"):
        list(reader.read(rows_of([Message(encode({"id": 1}), encode({"after": None})), plain({"id": 1}, op)])))
    assert next(reader.read(rows_of([plain({"id": 1})]))).op.to_pylist() == ["c"]


def test_without_schema_the_old_row_may_hold_nulls_where_the_new_one_holds_lists() -> None:
    rows = {"id": 1, "tags": None, "at": None}, {"id": 1, "tags": ["a"], "at": {"x": [1]}}
    for before, after in (rows, rows[::-1]):
        (events,) = read([event("u", {"id": 1}, after, before, schema=None)], want_before=True)
        assert events.before is not None
        assert (events.before.to_pylist(), events.row.to_pylist()) == ([before], [after])


@pytest.mark.parametrize(("old", "new"), [("text", ["a"]), (["a"], {"x": 1}), ({"x": 1}, ["a"]), ({"x": 1}, "text")])
def test_without_schema_old_and_new_row_have_the_same_types(old: Any, new: Any) -> None:
    message = event("u", {"id": 1}, {"id": 1, "v": new}, {"id": 1, "v": old}, schema=None)
    with pytest.raises(BadRecord, match=r"at offset 1 .*column before: "):
        read([plain({"id": 1, "v": new}), message], want_before=True)


@pytest.mark.parametrize("text", [b"\xff", b"\x80", b"\xc0\xaf", b"\xe2\x82", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
@pytest.mark.parametrize("schema", [None, value_schema(FIELDS[:2])])
@pytest.mark.parametrize("place", ["op", "after", "source"])
def test_text_that_is_not_utf8_is_refused_wherever_it_stands(place: str, schema: Any, text: bytes) -> None:
    tree: dict[str, Any] = {"op": "c", "after": {"id": 1, "Name": "a"}, "source": {"db": "s"}}
    good = encode(tree, schema)
    tree |= {"op": {"op": "?"}, "after": {"after": {"id": 1, "Name": "?"}}, "source": {"source": {"db": "?"}}}[place]
    bad = encode(tree, schema).replace(b'"?"', b'"' + text + b'"')
    key = encode({"id": 1}, KEY_SCHEMA if schema else None)
    with pytest.raises(BadRecord, match=r"at offset 1 .*not valid JSON"):
        read([Message(key, good), Message(key, bad), Message(key, good)])


def test_text_of_any_script_is_kept() -> None:
    name = "a\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff\x00"
    message = event("c", {"id": 1}, {"id": 1, "Name": name}, schema=value_schema(FIELDS[:2]))
    for messages in ([message], [plain({"id": 1, "Name": name})]):
        assert read(messages)[0].row.to_pylist() == [{"id": 1, "Name": name}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"op":"c","after":{"id":1}}{"op":"c","after":{"id":2}}', b""),
        (b"", b'{"op":"c","after":{"id":1}} {"op":"c","after":{"id":2}}'),
        (b'{"op":"c","after":{"id":1}}{"op":"c","after":', b'{"id":2}}'),
        (b'{"op":"c","after":{"id":1}', b'}{"op":"c","after":{"id":2}}'),
        (b'{"op":"c","after":{"id":1}}\n{"op":"c","after":{"id":2}}\n', b"\n"),
    ],
)
@pytest.mark.parametrize("columns", [None, parse_columns("id:int64")])
def test_one_document_does_not_stand_in_for_another(one: bytes, other: bytes, columns: Any) -> None:
    """As many rows as documents are not enough."""
    key = encode({"id": 1})
    with pytest.raises(BadRecord, match="at offset 0 "):
        read([Message(key, one), Message(key, other)], columns=columns)
    value = plain({"id": 1}).value
    with pytest.raises(BadRecord):
        read([Message(b'{"id":1}{"id":2}', value), Message(b"", value)], columns=columns)


@pytest.mark.parametrize("around", [b"%b", b" %b", b"%b\n", b"\r\n\t %b\r\n"])
def test_blanks_around_a_document_do_not_matter(around: bytes) -> None:
    message = Message(around % encode({"id": 1}), around % b'{ "op" : "c",\n "after": {"id":\n1} }')
    (events,) = read([message, plain({"id": 2}), message])
    assert [row["id"] for row in events.row.to_pylist()] == [1, 2, 1]


def test_a_number_too_large_is_refused_wherever_it_stands() -> None:
    for exponent, refused in ((b"308", False), (b"309", True), (b"-999", False), (b"+0099", False)):
        for place in (b'{"op":"c","after":{"id":1},"x":1e%b}', b'{"op":"c","after":{"id":1,"x":1e%b}}'):
            message = Message(encode({"id": 1}), place % exponent)
            if refused:
                with pytest.raises(BadRecord, match="not valid JSON"):
                    read([message])
            else:
                assert len(read([message])[0].row) == 1


def wrapped(row: Any, payload: Any = None) -> bytes:
    return encode(payload or {"op": "c", "after": {"id": 1}}, {"type": "struct", "fields": [row, {"field": "op"}]})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "struct", "fields": None}, "none of Kafka Connect's"),
        ({"type": "struct", "fields": [1]}, "none of Kafka Connect's"),
        ({"type": "struct", "fields": [{"type": "int32"}]}, "none of Kafka Connect's: KeyError: 'field'"),
        ({"type": "struct", "fields": [{"field": 5, "type": "int32"}]}, "none of Kafka Connect's"),
        ({"type": "array"}, "none of Kafka Connect's: KeyError: 'items'"),
        ({"type": "struct", "fields": [{"field": "a", "type": "map"}]}, "has the type 'map'"),
        ({**FIELDS[2], "parameters": {"scale": "two"}}, "none of Kafka Connect's"),
    ],
)
def test_a_schema_that_nobody_can_follow_is_a_bad_record(schema: Any, reason: str) -> None:
    value = wrapped({**schema, "field": "after"})
    with pytest.raises(BadRecord, match=reason):
        read([Message(encode({"id": 1}, KEY_SCHEMA), value)])
    with pytest.raises(BadRecord, match=reason):
        read([Message(encode({"id": 1}, schema), event("c", {"id": 1}, {"id": 1}).value)])


def test_a_schema_has_a_limit_to_its_nesting_and_rows_are_structs() -> None:
    key = encode({"id": 1}, KEY_SCHEMA)
    for levels, reason in ((50, None), (400, "nested more than 100 levels deep"), (2_000, "depth limit exceeded")):
        deep = b'{"field":"x","type":"array","items":' + b'{"type":"array","items":' * levels + b'{"type":"int32"}'
        value = wrapped({"field": "after", "type": "struct", "fields": ["?"]}).replace(
            b'"?"', deep + b"}" * (levels + 1)
        )
        if reason is None:
            assert read([Message(key, value)])[0].row.to_pylist() == [{"x": None}]
        else:
            with pytest.raises(BadRecord, match=reason):
                read([Message(key, value)])
    with pytest.raises(BadRecord, match="its row is a int32, not a struct"):
        read([Message(key, wrapped({"field": "after", "type": "int32"}, {"op": "c", "after": 5}))])
    for fields in ("x", [{"field": ["after"]}]):
        with pytest.raises(BadRecord, match="none of Kafka Connect's"):
            read([Message(key, encode({"op": "c"}, {"type": "struct", "fields": fields}))])


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
