"""Changes reduced to the last of each key, against a plain interpreter of the same events"""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark_sink.debezium_events import FIELDS, UNAVAILABLE, Message, encode, event, rows_of, value_schema
from tidemill.spark_sink.changes import (
    KEPT,
    OFFSET,
    OP,
    BadChange,
    Chunk,
    NoKey,
    chunks_of,
    decoded_chunks,
    from_bytes,
    keys_of,
    to_bytes,
)
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.envelope import EnvelopeOptions
from tidemill.spark_sink.offsets import OffsetRange

SMALL = value_schema([FIELDS[0], FIELDS[1], FIELDS[9]])  # id, Name, note


def chunks(messages: list[Message], pieces: int = 1, **more: Any) -> list[Chunk]:
    wanted = OffsetRange(partition=TopicPartition("t", 2), start=0, end=len(messages) + 3)
    step = max(1, -(-len(messages) // pieces))
    rows = [rows_of(messages[i : i + step], i) for i in range(0, len(messages), step)]
    options = EnvelopeOptions(**{k: more.pop(k) for k in ("key_columns", "want_before") if k in more})
    return list(decoded_chunks(wanted, rows, options=options, **more))


def small(op: str, key: int, name: str | None = None, note: str | None = None) -> Message:
    after = None if op == "d" else {"id": key, "Name": name, "note": note}
    return event(op, {"id": key}, after, schema=SMALL)


ops = st.lists(
    st.tuples(
        st.sampled_from("cccuuud"), st.integers(1, 4), st.text(max_size=3), st.sampled_from(["x", "y", UNAVAILABLE])
    ),
    max_size=30,
)


@given(ops, st.integers(1, 5))
def test_the_last_change_of_each_key_with_earlier_values_filled_in(changes: list[Any], pieces: int) -> None:
    expected: dict[int, tuple[str, str | None, Any, bool]] = {}
    messages = []
    for op, key, name, note in changes:
        messages.append(small(op, key, name, note))
        before = expected.get(key)
        if op == "d":
            expected[key] = ("d", None, None, False)
        elif note != UNAVAILABLE:
            expected[key] = (op, name, note, False)
        elif before is None:
            expected[key] = (op, name, None, True)
        else:
            expected[key] = (op, name, before[2], before[3])
    (chunk,) = chunks(messages, pieces)
    assert (chunk.start, chunk.end, chunk.records) == (0, len(messages) + 3, len(messages))
    found = {}
    for table in chunk.tables:
        assert keys_of(table) == ("id",)
        assert table.column(OFFSET).to_pylist() == sorted(table.column(OFFSET).to_pylist())
        for row in table.to_pylist():
            found[row["id"]] = (row[OP], row["Name"], row["note"], bool(row.get(KEPT + "note")))
    assert found == expected


def test_a_truncate_voids_what_came_before() -> None:
    messages = [small("c", 1, "a"), small("c", 2, "b"), event("t", None, schema=SMALL), small("c", 2, "again")]
    (chunk,) = chunks(messages)
    assert chunk.truncated_at == 2
    assert [(row["id"], row["Name"]) for table in chunk.tables for row in table.to_pylist()] == [(2, "again")]


def test_all_changes_are_kept_where_wanted_with_the_old_row_of_deletes() -> None:
    gone = event("d", {"id": 1}, before={"id": 1, "Name": "old", "note": None}, schema=SMALL)
    messages = [small("c", 1, "a"), small("u", 1, "b"), gone, Message(gone.key, None)]
    (chunk,) = chunks(messages, keep_all=True, want_before=True)
    assert [(row[OP], row["Name"]) for table in chunk.tables for row in table.to_pylist()] == [
        ("c", "a"),
        ("u", "b"),
        ("d", "old"),
    ]


def test_a_changed_primary_key_is_a_delete_and_a_create() -> None:
    (chunk,) = chunks([small("c", 1, "a"), small("d", 1), small("c", 9, "a")])
    assert [(row["id"], row[OP]) for table in chunk.tables for row in table.to_pylist()] == [(1, "d"), (9, "c")]


def test_a_change_without_key_needs_key_columns() -> None:
    bare = event("c", None, {"id": 1, "Name": "a", "note": None}, schema=SMALL)
    with pytest.raises(NoKey, match="t-2: the record at offset 0 has no key"):
        chunks([bare])
    gone = event("d", None, before={"id": 1, "Name": "a", "note": None}, schema=SMALL)
    (chunk,) = chunks([bare, gone], key_columns=("id",))
    assert [(row["id"], row[OP]) for table in chunk.tables for row in table.to_pylist()] == [(1, "d")]
    with pytest.raises(NoKey, match="'nope' is not among the columns"):
        chunks([bare], key_columns=("nope",))
    unnamed = event("c", None, {"id": 1, "Name": None, "note": None}, schema=SMALL)
    with pytest.raises(NoKey, match=r"no value for key 'Name'; set errors\.tolerance=all"):
        chunks([unnamed], key_columns=("Name",))


def test_changes_without_key_are_passed_over_and_named_where_that_is_tolerated() -> None:
    bare = event("c", None, {"id": 9, "Name": "a", "note": None}, schema=SMALL)
    messages = [small("c", 1, "a"), bare, small("c", 2, "b"), Message(None, bare.value), small("d", 1)]
    with pytest.raises(NoKey, match=r"t-2: the record at offset 1 .* errors\.tolerance=all"):
        chunks(messages)
    (chunk,) = chunks(messages, tolerate=True)
    assert [(row["id"], row[OP]) for table in chunk.tables for row in table.to_pylist()] == [(2, "c"), (1, "d")]
    assert (chunk.records, chunk.refused) == (5, 2)
    assert chunk.complaint == "t-2: the record at offset 1 has no key, so its row cannot be found in the table"
    unnamed = [event("c", None, {"id": n, "Name": name, "note": None}, schema=SMALL) for n, name in enumerate("ab")]
    unnamed.append(event("c", None, {"id": 2, "Name": None, "note": None}, schema=SMALL))
    (chunk,) = chunks(unnamed, key_columns=("Name",), tolerate=True)
    assert (chunk.refused, chunk.complaint) == (1, "t-2: the record at offset 2 has no value for key 'Name'")
    with pytest.raises(NoKey, match="'nope' is not among the columns"):  # every record would be passed over
        chunks(messages, key_columns=("nope",), tolerate=True)


def test_bad_records_stop_or_are_counted() -> None:
    bad = Message(encode({"id": 5}), b"nonsense")
    messages = [small("c", 1, "a"), bad, small("c", 2, "b"), bad, small("c", 3, "c")]
    with pytest.raises(BadChange, match=r"t-2: the record at offset 1 .* set errors\.tolerance=all"):
        chunks(messages)
    (chunk,) = chunks(messages, tolerate=True)
    assert chunk.refused == 2
    assert chunk.complaint.startswith("t-2: the record at offset 1 is not a Debezium change event: ")
    assert [row["id"] for table in chunk.tables for row in table.to_pylist()] == [1, 2, 3]


def test_an_empty_range_still_moves_the_position() -> None:
    wanted = OffsetRange(partition=TopicPartition("t", 2), start=5, end=9)
    (chunk,) = decoded_chunks(wanted, [], options=EnvelopeOptions())
    assert (chunk.start, chunk.end, chunk.records, chunk.tables) == (5, 9, 0, ())


def test_many_records_become_several_chunks_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.spark_sink.changes.CHUNK_ROWS", 10)
    found = chunks([small("c", key, "a") for key in range(35)], pieces=7)
    assert [(chunk.start, chunk.end) for chunk in found] == [(0, 10), (10, 20), (20, 30), (30, 38)]


def test_large_records_become_more_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.spark_sink.changes.CHUNK_BYTES", 10_000)
    found = chunks([small("c", key, "a" * 3_000) for key in range(12)], pieces=12)
    assert [chunk.records for chunk in found] == [3, 3, 3, 3, 0]
    assert [chunk.start for chunk in found[1:]] == [chunk.end for chunk in found[:-1]]


def test_a_task_ends_early_when_its_changes_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.spark_sink.changes.CHUNK_BYTES", 10_000)
    messages = [small("c", key, "a" * 3_000) for key in range(30)]
    found = chunks(messages, pieces=30, bytes_max=25_000)
    assert [chunk.cut for chunk in found] == [False] * (len(found) - 1) + [True]
    assert 25_000 <= sum(chunk.size_bytes for chunk in found) < 40_000
    assert found[-1].end < len(messages)
    assert not any(chunk.cut for chunk in chunks(messages, pieces=30, bytes_max=10_000_000))
    assert all(chunk.end > chunk.start for chunk in chunks(messages, pieces=30, bytes_max=1))  # always progress


def test_placeholders_of_every_type() -> None:
    base64_placeholder = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    fields = [
        FIELDS[0],
        {"field": "b", "type": "bytes", "optional": True},
        {"field": "texts", "type": "array", "items": {"type": "string"}, "optional": True},
        {"field": "numbers", "type": "array", "items": {"type": "int32"}, "optional": True},
    ]
    after = {"id": 1, "b": base64_placeholder, "texts": [UNAVAILABLE], "numbers": list(UNAVAILABLE.encode())}
    (chunk,) = chunks([event("u", {"id": 1}, after, schema=value_schema(fields))])
    (row,) = chunk.tables[0].to_pylist()
    assert [row[KEPT + name] for name in ("b", "texts", "numbers")] == [True] * 3
    assert [row[name] for name in ("b", "texts", "numbers")] == [None] * 3


def test_chunks_travel_as_rows() -> None:
    (chunk,) = chunks([small("c", 1, "a"), small("d", 2)])
    assert chunks_of(pa.Table.from_batches([chunk.to_batch(), chunk._replace(start=-5).to_batch()])) == [
        chunk._replace(start=-5),
        chunk,
    ]
    assert from_bytes(to_bytes(())) == ()
