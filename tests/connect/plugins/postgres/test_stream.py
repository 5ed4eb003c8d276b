"""Frames in, batches out: generated code against the plain decoder, and every kind of change"""

import json
import struct
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import EncodedBatch
from tidemill.connect.plugins.postgres.envelope import Format
from tidemill.connect.plugins.postgres.pgoutput import POSTGRES_EPOCH_US, DecodeError, Relation
from tidemill.connect.plugins.postgres.progress import Lineage, Progress
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.stream import ChangeStream
from tidemill.connect.plugins.postgres.table import CatalogColumn, CatalogTable, Shaper, relation_of
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog

ORDERS = CatalogTable(
    oid=7,
    schema="public",
    table="orders",
    replica_identity="d",
    columns=(
        CatalogColumn(name="id", type_oid=20, not_null=True),
        CatalogColumn(name="note", type_oid=25),
        CatalogColumn(name="big", type_oid=25, not_null=True),
        CatalogColumn(name="n", type_oid=23, default="3"),
    ),
    primary_key=("id",),
)
OTHERS = CatalogTable(
    oid=8,
    schema="public",
    table="others",
    replica_identity="d",
    columns=(CatalogColumn(name="id", type_oid=20, not_null=True),),
    primary_key=("id",),
)
KEYLESS = CatalogTable(
    oid=9,
    schema="public",
    table="keyless",
    replica_identity="f",
    columns=(CatalogColumn(name="a", type_oid=23),),
)
TABLES = {table.oid: table for table in (ORDERS, OTHERS, KEYLESS)}

Cell = str | None | type[Any]
UNCHANGED = type("Unchanged", (), {})


def data(payload: bytes, lsn: int = 1000) -> bytes:
    return b"w" + struct.pack("!QQq", lsn, lsn, 0) + payload


def cells(*values: Cell) -> bytes:
    out = struct.pack("!H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif isinstance(value, str):
            out += b"t" + struct.pack("!I", len(value.encode())) + value.encode()
        else:
            out += b"u"
    return out


def announce(table: CatalogTable) -> bytes:
    relation = relation_of(table)
    out = b"R" + struct.pack("!I", relation.oid) + relation.schema.encode() + b"\0" + relation.table.encode() + b"\0"
    out += relation.replica_identity.encode() + struct.pack("!H", len(relation.columns))
    for column in relation.columns:
        out += bytes([column.part_of_key]) + column.name.encode() + b"\0"
        out += struct.pack("!Ii", column.type_oid, column.type_modifier)
    return data(out)


def begin(xid: int = 5, time_us: int = 1_700_000_000_000_000, lsn: int = 2000) -> bytes:
    return data(b"B" + struct.pack("!QqI", lsn, time_us - POSTGRES_EPOCH_US, xid))


def commit(end: int) -> bytes:
    return data(b"C\0" + struct.pack("!QQq", end - 8, end, 0))


def insert(oid: int, *values: Cell, lsn: int = 1000) -> bytes:
    return data(b"I" + struct.pack("!I", oid) + b"N" + cells(*values), lsn)


def update(oid: int, *values: Cell, old: tuple[bytes, Sequence[Cell]] | None = None) -> bytes:
    before = b"" if old is None else old[0] + cells(*old[1])
    return data(b"U" + struct.pack("!I", oid) + before + b"N" + cells(*values))


def delete(oid: int, kind: bytes, *values: Cell) -> bytes:
    return data(b"D" + struct.pack("!I", oid) + kind + cells(*values))


def truncate(*oids: int) -> bytes:
    return data(b"T" + struct.pack("!IB", len(oids), 0) + b"".join(struct.pack("!I", oid) for oid in oids))


def keepalive(wal_end: int) -> bytes:
    return b"k" + struct.pack("!QqB", wal_end, 0, 0)


class Captured:
    """A stream with what came out of it."""

    def __init__(self, *, schemas: bool = False, captures: Any = lambda schema, table: True, **options: Any) -> None:
        self.progress = Progress(lsn=100, lineage=Lineage(), keepalive_interval_ms=1000)
        self.asked: list[str] = []
        self.stream = ChangeStream(
            shaper=Shaper(prefix="t", selection=Selection(), modes=Modes(), types=TypeCatalog()),
            form=Format(key_schemas=schemas, value_schemas=schemas, version="1", name="t", database="db"),
            lookup=self._lookup,
            progress=self.progress,
            partition={"server": "t"},
            captures=captures,
            **options,
        )

    def _lookup(self, relation: Relation) -> CatalogTable | None:
        self.asked.append(relation.table)
        return TABLES.get(relation.oid)

    def feed(self, *frames: bytes) -> list[EncodedBatch]:
        self.stream.feed(frames, 5)
        return self.stream.take()

    def records(self, *frames: bytes) -> list[tuple[Any, Any]]:
        out = []
        for batch in self.feed(announce(ORDERS), announce(OTHERS), announce(KEYLESS), begin(), *frames, commit(3000)):
            for key, value in zip(batch.keys, batch.values, strict=True):
                out.append((key and json.loads(key), value and json.loads(value)))
        return out


def essence(record: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    key, value = record
    return (key, value["op"], value["before"], value["after"]) if value else (key, None, None, None)


def test_an_insert() -> None:
    [(key, value)] = Captured().records(insert(7, "1", 'say "hi"', "b", None, lsn=1234))
    assert key == {"id": 1}
    assert value["before"] is None
    assert value["after"] == {"id": 1, "note": 'say "hi"', "big": "b", "n": None}
    assert value["source"]["lsn"] == 1234
    assert value["source"]["txId"] == 5
    assert value["source"]["ts_us"] == 1_700_000_000_000_000
    assert (value["op"], value["ts_ms"]) == ("c", 5)


def test_an_update_without_an_old_image() -> None:
    [record] = Captured().records(update(7, "1", "x", UNCHANGED, "4"))
    stand_in = "__debezium_unavailable_value"
    assert essence(record) == ({"id": 1}, "u", None, {"id": 1, "note": "x", "big": stand_in, "n": 4})


def test_a_full_old_image_fills_what_was_not_sent() -> None:
    old = (b"O", ("1", None, "large", "3"))
    [record] = Captured().records(update(7, "1", "x", UNCHANGED, "4", old=old))
    assert essence(record) == (
        {"id": 1},
        "u",
        {"id": 1, "note": None, "big": "large", "n": 3},
        {"id": 1, "note": "x", "big": "large", "n": 4},
    )


def test_a_changed_key_is_a_delete_and_a_create() -> None:
    captured = Captured()
    old = (b"K", ("1", None, None, None))
    frames = (announce(ORDERS), begin(), update(7, "2", "x", UNCHANGED, "4", old=old), commit(3000))
    [batch] = captured.feed(*frames)
    assert [json.loads(key or b"") for key in batch.keys] == [{"id": 1}, {"id": 1}, {"id": 2}]
    deleted, tombstone, created = batch.values
    assert tombstone is None
    stand_in = "__debezium_unavailable_value"
    assert json.loads(deleted or b"")["before"] == {"id": 1, "note": None, "big": "", "n": None}
    assert json.loads(created or b"")["after"] == {"id": 2, "note": "x", "big": stand_in, "n": 4}
    assert json.loads(created or b"")["op"] == "c"
    assert batch.headers == [
        (("__debezium.newkey", b'{"id":2}'),),
        (("__debezium.newkey", b'{"id":2}'),),
        (("__debezium.oldkey", b'{"id":1}'),),
    ]


def test_headers_name_keys_without_their_schema() -> None:
    old = (b"K", ("1", None, None, None))
    [batch] = Captured(schemas=True).feed(
        announce(ORDERS), begin(), update(7, "2", "x", "b", "4", old=old), commit(3000)
    )
    assert batch.headers[0] == (("__debezium.newkey", b'{"id":2}'),)
    assert json.loads(batch.keys[0] or b"")["payload"] == {"id": 1}


def test_a_key_image_with_the_same_key_is_an_update() -> None:
    [record] = Captured().records(update(7, "1", "x", "b", "4", old=(b"K", ("1", None, None, None))))
    assert essence(record)[:3] == ({"id": 1}, "u", {"id": 1, "note": None, "big": "", "n": None})


def test_a_delete_is_followed_by_a_tombstone() -> None:
    records = Captured().records(delete(7, b"K", "1", None, None, None))
    assert [essence(record) for record in records] == [
        ({"id": 1}, "d", {"id": 1, "note": None, "big": "", "n": None}, None),
        ({"id": 1}, None, None, None),
    ]
    assert len(Captured(tombstones=False).records(delete(7, b"K", "1", None, None, None))) == 1


def test_a_table_without_key_has_null_keys_and_no_tombstones() -> None:
    records = Captured().records(
        insert(9, "1"), update(9, "2", old=(b"O", ("1",))), delete(9, b"O", "2"), insert(9, None)
    )
    assert [essence(record) for record in records] == [
        (None, "c", None, {"a": 1}),
        (None, "u", {"a": 1}, {"a": 2}),
        (None, "d", {"a": 2}, None),
        (None, "c", None, {"a": None}),
    ]


def test_truncates_are_left_out_unless_asked_for() -> None:
    assert Captured().records(truncate(7, 8)) == []
    records = Captured(skipped=frozenset()).records(truncate(7, 8))
    assert [essence(record) for record in records] == [(None, "t", None, None)] * 2


@pytest.mark.parametrize(("skipped", "left"), [("c", ["u", "d", None]), ("u", ["c", "d", None]), ("d", ["c", "u"])])
def test_operations_can_be_left_out(skipped: str, left: list[str | None]) -> None:
    records = Captured(skipped=frozenset(skipped)).records(
        insert(7, "1", "x", "b", "4"), update(7, "1", "y", "b", "4"), delete(7, b"K", "1", None, None, None)
    )
    assert [essence(record)[1] for record in records] == left


def test_updates_without_change_can_be_left_out() -> None:
    same = update(9, "1", old=(b"O", ("1",)))
    assert len(Captured().records(same)) == 1
    assert Captured(skip_unchanged=True).records(same, update(9, "2", old=(b"O", ("1",)))) != []
    assert Captured(skip_unchanged=True).records(same) == []


def test_tables_that_are_not_captured_cost_nothing() -> None:
    captured = Captured(captures=lambda schema, table: table == "others")
    assert [key for key, _ in captured.records(insert(7, "1", "x", "b", "4"), insert(8, "2"))] == [{"id": 2}]
    assert captured.asked == ["others"]


def test_one_batch_a_topic_and_the_offset_on_the_last() -> None:
    captured = Captured()
    batches = captured.feed(
        announce(ORDERS), announce(OTHERS), begin(), insert(8, "1"), insert(7, "1", "x", "b", "4"), insert(8, "2"),
        commit(3000), begin(6), insert(7, "2", "x", "b", "4"), commit(4000),
    )  # fmt: skip
    assert [(batch.topic, len(batch.values)) for batch in batches] == [("t.public.others", 2), ("t.public.orders", 2)]
    assert batches[0].offset is None
    assert batches[1].offset is not None and batches[1].offset["lsn"] == 4000
    assert all(batch.partition == {"server": "t"} for batch in batches)
    sources = [json.loads(value or b"")["source"] for value in batches[1].values]
    assert [source["sequence"] for source in sources] == ['[null,"1000"]', '["3000","1000"]']
    assert [source["txId"] for source in sources] == [5, 6]


def test_a_transaction_over_several_turns_is_never_half_stored() -> None:
    captured = Captured()
    [first] = captured.feed(announce(OTHERS), begin(), insert(8, "1"))
    [second] = captured.feed(insert(8, "2"))
    [third] = captured.feed(insert(8, "3"), commit(3000))
    assert [batch.offset and batch.offset["lsn"] for batch in (first, second, third)] == [100, 100, 3000]
    assert captured.feed() == []


def test_keepalives_move_the_position_between_transactions() -> None:
    captured = Captured()
    captured.feed(keepalive(5000))
    assert captured.progress.position == 5000


WIDER = replace(OTHERS, columns=(*OTHERS.columns, CatalogColumn(name="more", type_oid=25)))


def test_every_announcement_is_looked_up() -> None:
    captured = Captured()
    captured.feed(announce(OTHERS), announce(OTHERS))
    assert captured.asked == ["others", "others"], "the same content may mean that NOT NULL was dropped"
    [batch] = captured.feed(announce(WIDER), begin(), insert(8, "1", "x"), commit(3000))
    assert json.loads(batch.values[0] or b"")["after"] == {"id": 1, "more": "x"}


def test_an_announcement_that_changes_nothing_makes_no_new_batch() -> None:
    batches = Captured().feed(announce(OTHERS), begin(), insert(8, "1"), announce(OTHERS), insert(8, "2"), commit(3000))
    assert [len(batch.values) for batch in batches] == [2]


def after_fields(value: bytes | None) -> dict[str, bool]:
    """Which columns of a record may be null, by its schema."""
    schema = json.loads(value or b"")["schema"]
    [row] = [field for field in schema["fields"] if field["field"] == "after"]
    return {field["field"]: field["optional"] for field in row["fields"]}


def test_a_dropped_not_null_shows_in_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = Captured(schemas=True)
    [batch] = captured.feed(announce(ORDERS), begin(), insert(7, "1", "x", "b", "2"), commit(3000))
    assert after_fields(batch.values[0]) == {"id": False, "note": True, "big": False, "n": True}
    loose = tuple(replace(column, not_null=column.name == "id") for column in ORDERS.columns)
    monkeypatch.setitem(TABLES, 7, replace(ORDERS, columns=loose))
    [batch] = captured.feed(announce(ORDERS), begin(), insert(7, "2", "x", None, "2"), commit(3000))
    assert after_fields(batch.values[0]) == {"id": False, "note": True, "big": True, "n": True}


def test_a_null_from_before_the_catalogs_not_null_makes_the_column_optional() -> None:
    captured = Captured(schemas=True)
    frames = (insert(7, "1", "x", "b", "2"), insert(7, "2", "x", None, "2"), insert(7, "3", "x", "b", "2"))
    batches = captured.feed(announce(ORDERS), begin(), *frames, commit(3000))
    values = [value for batch in batches for value in batch.values]
    assert [json.loads(value or b"")["payload"]["after"]["big"] for value in values] == ["b", None, "b"]
    assert [after_fields(value)["big"] for value in values] == [False, True, True]
    [batch] = captured.feed(announce(ORDERS), begin(), insert(7, "4", "x", "b", "2"), commit(4000))
    assert not after_fields(batch.values[0])["big"], "until the catalog is asked again"


@pytest.mark.parametrize("kind", ["new", "old", "deleted", "moved"])
def test_a_null_in_any_whole_image_is_a_null(kind: str) -> None:
    whole, holed = ("1", "x", "b", "2"), ("1", "x", None, "2")
    frame = {
        "new": update(7, *holed),
        "old": update(7, *whole, old=(b"O", holed)),
        "deleted": delete(7, b"O", *holed),
        "moved": update(7, "9", "x", "b", "2", old=(b"O", holed)),
    }[kind]
    first, *_ = Captured().records(frame)
    image = first[1]["after" if kind == "new" else "before"]
    assert image == {"id": 1, "note": "x", "big": None, "n": 2}


def test_the_key_of_rows_written_before_the_key_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = Captured()
    monkeypatch.setitem(TABLES, 7, replace(ORDERS, primary_key=("big",)))
    [batch] = captured.feed(announce(ORDERS), begin(), delete(7, b"K", "1", None, None, None), commit(3000))
    assert [json.loads(key or b"") for key in batch.keys] == [{"id": 1}, {"id": 1}]


def test_rows_before_and_after_a_new_column_are_in_one_turn() -> None:
    batches = Captured().feed(
        announce(OTHERS), begin(), insert(8, "1"), announce(WIDER), insert(8, "2", "x"), commit(3000)
    )
    assert [json.loads(value or b"")["after"] for batch in batches for value in batch.values] == [
        {"id": 1},
        {"id": 2, "more": "x"},
    ]


def test_the_origin_of_a_replicated_transaction() -> None:
    [(_, value)] = Captured().records(data(b"O" + struct.pack("!Q", 9) + b"elsewhere\0"), insert(8, "1"))
    assert (value["source"]["origin"], value["source"]["origin_lsn"]) == ("elsewhere", 9)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1).map(str),
            st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=300),
            st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=5),
            st.none() | st.integers(-(2**31), 2**31 - 1).map(str),
        ),
        max_size=5,
    )
)
def test_any_row_comes_out_as_it_went_in(rows: list[tuple[str, str | None, str, str | None]]) -> None:
    records = Captured().records(*(insert(7, *row) for row in rows))
    assert [record[1]["after"] for record in records] == [
        {"id": int(id), "note": note, "big": big, "n": None if n is None else int(n)} for id, note, big, n in rows
    ]


SAMPLES = [
    insert(7, "1", "x", "b", "4"),
    update(7, "1", "x", UNCHANGED, "4"),
    update(7, "2", "x", UNCHANGED, None, old=(b"K", ("1", None, None, None))),
    update(7, "1", "x", UNCHANGED, None, old=(b"O", ("1", "y", "b", "3"))),
    delete(7, b"K", "1", None, None, None),
    truncate(7),
    commit(3000),
]


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: chr(frame[25]))
def test_a_frame_cut_anywhere_is_refused(frame: bytes) -> None:
    for end in range(len(frame)):
        captured = Captured(skipped=frozenset())
        captured.feed(announce(ORDERS), begin())
        with pytest.raises(DecodeError):
            captured.feed(frame[:end])


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: chr(frame[25]))
def test_trailing_bytes_are_refused(frame: bytes) -> None:
    captured = Captured(skipped=frozenset())
    captured.feed(announce(ORDERS), begin())
    with pytest.raises(DecodeError):
        captured.feed(frame + b"\0")


@given(st.sampled_from(SAMPLES), st.integers(25, 80), st.integers(0, 255))
def test_one_wrong_byte_is_a_change_or_a_decode_error(frame: bytes, at: int, byte: int) -> None:
    broken = bytearray(frame)
    broken[min(at, len(frame) - 1)] = byte
    captured = Captured(skipped=frozenset())
    captured.feed(announce(ORDERS), begin())
    try:
        captured.feed(bytes(broken))
    except DecodeError:
        return


def test_a_value_that_does_not_convert_names_its_column() -> None:
    captured = Captured()
    captured.feed(announce(ORDERS), begin())
    with pytest.raises(DecodeError, match=r"public\.orders\.note holds a value of 7 bytes") as caught:
        captured.feed(data(b"I" + struct.pack("!I", 7) + b"N" + struct.pack("!H", 4) + b"t\0\0\0\1" + b"1"
                           + b"t\0\0\0\7secret\xff" + b"t\0\0\0\1b" + b"n"))  # fmt: skip
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret" not in shown, "errors are stored, logged and shown by REST; rows are not"


def test_a_row_of_an_unknown_relation_is_refused() -> None:
    with pytest.raises(DecodeError, match="not announced"):
        Captured().feed(begin(), insert(99, "1"))


def test_a_frame_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DecodeError, match="unknown replication frame"):
        Captured().feed(b"x")
