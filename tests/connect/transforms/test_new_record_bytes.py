"""Rows cut out of bytes: the same as the general way makes of them read, or left to it"""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.connect.transforms.debezium_cases import RECORDS, Way, record_of
from tests.connect.transforms.options_of import made
from tests.golden.change_records import ORDERS, ROW, change
from tidemill.connect.api import EncodedBatch, Predicate, Record
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.tasks.chained import records_of, unless_encoded
from tidemill.connect.transforms.chain import UNREAD, Chain, Encoded, Stage
from tidemill.connect.transforms.new_record_state import ExtractNewRecordState


def unwrap(**options: str) -> ExtractNewRecordState:
    transform = made("ExtractNewRecordState", **options)
    assert isinstance(transform, ExtractNewRecordState)
    return transform


def encoded(record: dict[str, Any], *, schemas: bool = True) -> Record:
    return record_of(record, Way(True, schemas), JsonConverter(schemas_enable=schemas))


def cut(record: dict[str, Any], *, schemas: bool = True, **options: str) -> Any:
    return unwrap(**options).of_bytes(encoded(record, schemas=schemas))


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize("name", ["CREATE", "UPDATE", "NEW_KEY", "IN_TRANSACTION", "ORIGIN", "SHARD"])
def test_rows_that_were_written_are_cut_out(name: str, schemas: bool) -> None:
    out = cut(RECORDS[name], schemas=schemas, add_fields="op,source.lsn,id", add_headers="op")
    assert (
        isinstance(out, Record)
        and type(out.value) is Encoded
        and out.headers[-1] == ("__op", b"c" if name != "UPDATE" else b"u")
    )


@pytest.mark.parametrize("schemas", [True, False])
def test_a_delete_that_is_rewritten_is_cut_out_too(schemas: bool) -> None:
    bare = change(ORDERS, "d", {**ROW, "note": "old"}, None)
    del bare["value"]["payload"]["before"]["after"]  # the column of that name, in front of the member
    out = cut(bare, schemas=schemas, delete_tombstone_handling_mode="rewrite")
    assert isinstance(out, Record) and type(out.value) is Encoded
    value = orjson.loads(bytes(out.value))
    assert (value["payload"] if schemas else value)["__deleted"] == "true"


@pytest.mark.parametrize(
    "name", ["DELETE", "UPDATE_OLD", "NULLS", "READ", "HEARTBEAT", "TEXT", "NO_COLUMNS", "NAMELESS"]
)
def test_what_is_not_so_simple_is_left_to_the_general_way(name: str) -> None:
    assert cut(RECORDS[name]) is UNREAD


FOREIGN = [
    b'{"before":null,"after":{"a":1},"transaction":{"id":"5"},"source":{"lsn":7},"op":"c"}',
    b'{"before":{"a":1},"after":{"a":2},"more":{"b":1},"source":{"lsn":7},"op":"u"}',
    b'{"before":null,"after":{"a":{"b":1},"source":{"c":2}},"op":"c"}',
    b'{"before":null,"after":{"a":{"b":1},"source":{"c":2}},"source":null,"op":"c"}',
    b'{"before":null,"after":{"a":1},"source":{"lsn":7}}',
    b'{"before":null,"after":{"a":1},"source":{"lsn":7},"op":"c"',
]


@pytest.mark.parametrize("data", FOREIGN)
@pytest.mark.parametrize("mode", ["drop", "rewrite"])
def test_changes_with_other_members_are_left_to_the_general_way(data: bytes, mode: str) -> None:
    """Without a schema, only the first change of a topic can tell what those of somebody else are like."""
    transform = unwrap(delete_tombstone_handling_mode=mode)
    for _ in range(2):
        assert transform.of_bytes(Record(topic="t", value=Encoded(data))) is UNREAD
        assert transform.of_batch(EncodedBatch(topic="t", keys=[None], values=[data])) is None
    older = b'{"before":null,"after":{"a":1},"source":{"lsn":7},"op":"c","transaction":{"id":"1"}}'
    assert transform.of_bytes(Record(topic="t", value=Encoded(older))) is not UNREAD


def test_truncates_and_dropped_deletes_need_no_reading() -> None:
    assert cut(RECORDS["TRUNCATE"]) is None
    assert cut(change(ORDERS, "d", {"id": 1}, None), delete_tombstone_handling_mode="drop") is None


@pytest.mark.parametrize(
    "options", [{"route_by_field": "name"}, {"add_fields": "before"}, {"add_headers": "after.id"}], ids=str
)
def test_options_that_look_into_rows_need_them_read(options: dict[str, str]) -> None:
    assert cut(RECORDS["CREATE"], **options) is UNREAD


def test_a_record_with_the_header_to_drop_by_is_read() -> None:
    assert cut(RECORDS["DROPPING_NOTHING"], drop_fields_header_name="gone") is UNREAD
    assert cut(RECORDS["CREATE"], drop_fields_header_name="gone") is not UNREAD


def test_a_column_called_as_what_is_added_is_no_second_member() -> None:
    twice = change(ORDERS, "c", None, {**ROW, "__op": "x"})
    assert cut(twice, schemas=False, add_fields="op") is UNREAD
    assert cut(twice, schemas=False) is not UNREAD
    both = {"add_fields": "op:deleted", "delete_tombstone_handling_mode": "rewrite"}
    assert cut(RECORDS["CREATE"], schemas=False, **both) is UNREAD


def test_a_table_that_changes_is_learned_anew() -> None:
    transform = unwrap()
    wider = encoded(RECORDS["CREATE"])
    narrow = replace(encoded(RECORDS["SHARD"]), topic=wider.topic)
    for record, width in ((wider, 9), (narrow, 1), (wider, 9)):
        out = transform.of_bytes(record)
        assert isinstance(out, Record) and len(orjson.loads(bytes(out.value))["payload"]) == width


rows = st.dictionaries(
    st.sampled_from(["id", "after", "source", "before", "op", ",", '"', "a,", "payload"]),
    st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=12), st.sampled_from([',"source":{', '","after":', "}}"]),
              st.dictionaries(st.sampled_from(["after", "source", "x"]), st.integers(0, 3), max_size=2)),
    max_size=4,
)  # fmt: skip


@given(st.one_of(st.none(), rows), st.one_of(st.none(), rows), st.sampled_from(["rewrite", "tombstone", "drop"]))
def test_both_ways_make_the_same(before: Any, after: Any, mode: str) -> None:
    envelope = {"before": before, "after": after, "source": {"lsn": 7, "name": ',"source":{'}, "transaction": None}
    data = orjson.dumps({**envelope, "op": "u", "ts_ms": 1, "ts_us": 2, "ts_ns": 3})
    transform = unwrap(delete_tombstone_handling_mode=mode, add_fields="op,lsn", add_headers="op")
    converter = JsonConverter(schemas_enable=False)
    stage = Stage(alias="u", name="u", transform=transform)
    [out] = Chain([stage], converter.decode, converter.decode).apply([Record(topic="t", value=Encoded(data))])
    [read] = transform.apply([Record(topic="t", value=orjson.loads(data))])
    if isinstance(out, Record) and type(out.value) is Encoded:
        out = replace(out, value=orjson.loads(bytes(out.value)))
    assert out == read


# ----------------------------------------------------------------------- batches


def whole(batch: EncodedBatch, **options: str) -> EncodedBatch | None:
    stage = Stage(alias="u", name="u", transform=unwrap(**options))
    return Chain([stage], no_reading, no_reading).apply_encoded(batch)


def no_reading(data: bytes | None) -> tuple[Any, None]:
    raise AssertionError("nothing is read")


def of(*names: str, **more: Any) -> EncodedBatch:
    records = [encoded(RECORDS[name]) for name in names]
    return EncodedBatch(
        topic="shop.public.orders",
        keys=[each.key and bytes(each.key) for each in records],
        values=[each.value and bytes(each.value) for each in records],
        partition={"server": "shop"},
        offset={"lsn": 9},
        **more,
    )


def test_a_batch_becomes_a_batch_that_ends_where_it_ended() -> None:
    batch = of(
        "CREATE", "TOMBSTONE", "UPDATE", "TRUNCATE", timestamps_ms=[1, 2, 3, 4], headers=[(), (), (("h", b""),), ()]
    )
    out = whole(batch, add_fields="op")
    assert out is not None and out.offset == batch.offset and out.partition == batch.partition
    assert (len(out.keys), out.timestamps_ms, out.headers) == (2, [1, 3], [(), (("h", b""),)])
    assert [orjson.loads(each or b"")["payload"]["__op"] for each in out.values] == ["c", "u"]
    kept = whole(batch, delete_tombstone_handling_mode="rewrite-with-tombstone")
    assert kept is not None and [each is None for each in kept.values] == [False, True, False]


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["CREATE", "DELETE"], {"delete_tombstone_handling_mode": "rewrite"}),
        (["CREATE", "NULLS"], {}),
        (["CREATE", "HEARTBEAT"], {}),
        (["CREATE"], {"add_headers": "op"}),
        (["CREATE"], {"route_by_field": "name"}),
        (["CREATE"], {"add_fields": "nowhere.x"}),
    ],
    ids=str,
)
def test_one_record_that_has_to_be_read_sends_its_batch_the_general_way(names: list[str], options: Any) -> None:
    assert whole(of(*names), **options) is None


@pytest.mark.parametrize("mode", ["tombstone", "delete-to-tombstone", "drop"])
def test_deletes_of_a_batch_become_what_the_general_way_makes_of_them(mode: str) -> None:
    batch = of("CREATE", "DELETE_OLD", "TOMBSTONE", "DELETE")
    out = whole(batch, delete_tombstone_handling_mode=mode)
    assert out is not None
    converter = JsonConverter()
    stage = Stage(alias="u", name="u", transform=unwrap(delete_tombstone_handling_mode=mode))
    given = [encoded(RECORDS[name]) for name in ("CREATE", "DELETE_OLD", "TOMBSTONE", "DELETE")]
    one_by_one = Chain([stage], converter.decode, converter.decode).apply(given)
    encode = unless_encoded(converter.encode)
    alone = [encode(each.value, each.value_schema) for each in one_by_one if isinstance(each, Record)]
    assert [each and orjson.loads(bytes(each)) for each in alone] == [
        each and orjson.loads(each) for each in out.values
    ]
    assert len(out.values) == len(out.keys) == (1 if mode == "drop" else 3)


def test_headers_may_name_what_to_drop() -> None:
    batch = of("CREATE", headers=[(("gone", b'["note"]'),)])
    assert whole(batch, drop_fields_header_name="gone") is None
    assert whole(batch) is not None


def test_only_one_stage_for_everything_takes_a_batch() -> None:
    stage = Stage(alias="u", name="u", transform=unwrap())
    predicate = made("RecordIsTombstone")
    assert isinstance(predicate, Predicate)
    for stages in ([stage, stage], [replace(stage, predicate=predicate)], []):
        assert Chain(stages, no_reading, no_reading).apply_encoded(of("CREATE")) is None


SOURCES = st.sampled_from(
    [{"lsn": 7}, {"lsn": 7, "name": "{"}, {"lsn": 7, "name": "}0123456789{"}, {"x": ',"source":{'}]
)
TRANSACTIONS = st.sampled_from([None, {"id": "5", "source": {}}])
SIMPLE = st.dictionaries(
    st.sampled_from(["id", "note", "op", "__deleted"]), st.none() | st.text(max_size=3), min_size=1
)
CHANGES = (
    st.tuples(st.none(), SIMPLE, SOURCES, TRANSACTIONS),
    st.tuples(SIMPLE, st.none() | SIMPLE, SOURCES, TRANSACTIONS),
    st.tuples(st.none() | rows, st.none() | rows, SOURCES, TRANSACTIONS),
)
"""Among the rows of a batch are mostly those that can be cut out: one that cannot hides all the others."""


@given(
    st.lists(st.one_of(*CHANGES), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["rewrite", "drop", "tombstone"]),
    st.sampled_from(["", "op,lsn"]),
)
@example([(None, {"id": 1}, {"name": "}0123456789{"}, None)], False, "drop", "")  # the last brace is of no object
def test_a_batch_is_what_its_records_are_one_by_one(changes: list[Any], tombstone: bool, mode: str, added: str) -> None:
    """Also once the table is known."""
    names = ("before", "after", "source", "transaction")
    made: list[bytes | None] = [orjson.dumps({**dict(zip(names, each, strict=True)), "op": "u"}) for each in changes]
    values = [*made, None] if tombstone else made
    batch = EncodedBatch(topic="t", keys=[b"1"] * len(values), values=values)
    stage = Stage(alias="u", name="u", transform=unwrap(delete_tombstone_handling_mode=mode, add_fields=added))
    converter = JsonConverter(schemas_enable=False)
    chain = Chain([stage], converter.decode, converter.decode)
    out = chain.apply_encoded(batch)
    assert chain.apply_encoded(batch) == out
    if out is not None:
        alone = [each for each in chain.apply(records_of(batch)) if each is not None]
        assert [each.value and bytes(each.value) for each in alone if isinstance(each, Record)] == out.values


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"delete_tombstone_handling_mode": "rewrite"}, {"add_fields": "op,source.lsn"}], ids=str
)
def test_a_table_that_is_known_gives_the_same_rows(schemas: bool, options: dict[str, str]) -> None:
    """Whether rows are cut as they stand or not: deletes, other tables, columns with a default, none."""
    stage = Stage(alias="u", name="u", transform=unwrap(**options))
    known = Chain([stage], no_reading, no_reading)
    names = ("CREATE", "UPDATE", "DELETE_OLD", "SHARD", "TRUNCATE", "NULLS", "UPDATE_OLD", "NO_COLUMNS", "CREATE")
    values = [encoded(RECORDS[name], schemas=schemas).value for name in names]
    told = []
    for chosen in ([0], [0, 1, 2, 4, 0], *([each] for each in range(len(values))), [0, 5], [0, 3, 0]):
        batch = EncodedBatch(topic="t", keys=[b"k"] * len(chosen), values=[bytes(values[each]) for each in chosen])
        told.append(known.apply_encoded(batch))
        assert told[-1] == whole(batch, **options)
    assert None in told and any(each is not None for each in told[2:])
