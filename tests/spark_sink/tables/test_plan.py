"""What a batch adds to a table that has some of it: replays, holes, truncates, order"""

import pyarrow as pa
import pytest

from tests.spark_sink.debezium_events import FIELDS, UNAVAILABLE, Message, event, rows_of, value_schema
from tidemill.spark_sink.changes import KEPT, OFFSET, OP, Chunk, decoded_chunks
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.envelope import EnvelopeOptions
from tidemill.spark_sink.offsets import OffsetRange
from tidemill.spark_sink.tables.plan import (
    APPEND_COLUMNS,
    OffsetGap,
    TruncateUnordered,
    append_source,
    check_truncates,
    merge_source,
    pending,
    row_schema,
)

SMALL = value_schema([FIELDS[0], FIELDS[1], FIELDS[9]])
P0 = TopicPartition("t", 0)


def small(op: str, key: int, name: str | None = None, note: str | None = None) -> Message:
    after = None if op == "d" else {"id": key, "Name": name, "note": note}
    return event(op, {"id": key}, after, schema=SMALL)


def chunk(start: int, messages: list[Message], partition: int = 0) -> Chunk:
    wanted = OffsetRange(partition=TopicPartition("t", partition), start=start, end=start + len(messages))
    (found,) = decoded_chunks(wanted, [rows_of(messages, start)], options=EnvelopeOptions())
    return found


def merged(chunks: list[Chunk], positions: dict[TopicPartition, int]) -> list[tuple[str, int, str]]:
    what = pending(chunks, positions)
    return [(row[OP], row["id"], row["Name"]) for row in merge_source(what, row_schema(what)).to_pylist()]


def test_rows_the_table_has_are_dropped() -> None:
    chunks = [chunk(10, [small("c", key, f"v{key}") for key in range(5)])]
    assert merged(chunks, {P0: 12}) == [("c", 2, "v2"), ("c", 3, "v3"), ("c", 4, "v4")]
    assert merged(chunks, {}) == [("c", key, f"v{key}") for key in range(5)]
    everything_there = pending(chunks, {P0: 15})
    assert not everything_there.ends and not everything_there.tables


def test_a_hole_is_refused() -> None:
    chunks = [chunk(10, [small("c", 1)])]
    with pytest.raises(OffsetGap, match="t-0: the batch begins at offset 10, the table needs 9 next"):
        pending(chunks, {P0: 9})
    apart = [chunk(10, [small("c", 1)]), chunk(12, [small("c", 1)])]
    with pytest.raises(OffsetGap, match="begins at offset 12"):
        pending(apart, {})


def test_what_lies_behind_a_cut_is_read_again() -> None:
    """Three tasks read a partition, and the first two end before their ranges do."""
    chunks = [chunk(start, [small("c", start, "a")])._replace(cut=start < 20) for start in (0, 10, 20)]
    what = pending([*chunks, chunk(5, [small("c", 9, "b")], partition=1)], {})
    assert what.ends == {P0: 1, TopicPartition("t", 1): 6}
    assert [row["id"] for row in merge_source(what, row_schema(what)).to_pylist()] == [0, 9]
    assert pending(chunks, {P0: 1}).ends == {}


def test_partitions_move_on_their_own() -> None:
    chunks = [chunk(0, [small("c", 1, "a")]), chunk(7, [small("c", 2, "b")], partition=1)]
    what = pending(chunks, {TopicPartition("t", 1): 8})
    assert what.ends == {P0: 1}
    assert what.records == 1


def test_the_later_chunk_wins_and_keeps_earlier_values() -> None:
    chunks = [chunk(0, [small("c", 1, "a", "kept")]), chunk(1, [small("u", 1, "b", UNAVAILABLE)])]
    what = pending(chunks, {})
    (row,) = merge_source(what, row_schema(what)).to_pylist()
    assert (row["Name"], row["note"]) == ("b", "kept")
    what = pending(chunks, {P0: 1})  # the table has the first one: it keeps the value itself
    (row,) = merge_source(what, row_schema(what)).to_pylist()
    assert (row["Name"], row["note"], row[KEPT + "note"]) == ("b", None, True)


def test_a_truncate_counts_once() -> None:
    messages = [small("c", 1, "a"), event("t", None, schema=SMALL), small("c", 2, "b")]
    chunks = [chunk(0, messages[:1]), chunk(1, messages[1:])]
    what = pending(chunks, {})
    assert what.truncated == (P0,)
    assert [row["id"] for row in merge_source(what, row_schema(what)).to_pylist()] == [2]
    replayed = pending(chunks, {P0: 2})
    assert not replayed.truncated
    assert [row["id"] for row in merge_source(replayed, row_schema(replayed)).to_pylist()] == [2]


def test_a_truncate_of_one_of_several_partitions_is_refused() -> None:
    cut = chunk(0, [event("t", None, schema=SMALL)])
    alone = pending([cut], {})
    check_truncates(alone, [P0, TopicPartition("other", 1)])
    with pytest.raises(TruncateUnordered, match=r"only partition 0 of 2 says.*set truncate\.policy=always"):
        check_truncates(alone, [P0, TopicPartition("t", 1)])
    with pytest.raises(TruncateUnordered):
        check_truncates(pending([cut, chunk(0, [small("c", 1)], partition=1)], {}), [P0])
    check_truncates(pending([chunk(0, [small("c", 1)])], {}), [P0, TopicPartition("t", 1)])


def test_columns_of_all_chunks_and_of_the_table_come_together() -> None:
    wide = value_schema([FIELDS[0], {"field": "extra", "type": "int32", "optional": True}])
    chunks = [
        chunk(0, [small("c", 1, "a")]),
        chunk(1, [event("c", {"id": 2}, {"id": 2, "extra": 5}, schema=wide)]),
    ]
    what = pending(chunks, {})
    schema = pa.schema([*row_schema(what), pa.field("only in the table", pa.date32())])
    rows = merge_source(what, schema).to_pylist()
    assert [(row["id"], row["Name"], row["extra"], row["only in the table"]) for row in rows] == [
        (1, "a", None, None),
        (2, None, 5, None),
    ]


def test_appended_rows_say_where_they_come_from() -> None:
    what = pending([chunk(3, [small("c", 1, "a"), small("d", 1)])], {})
    schema = pa.schema([*row_schema(what), *(pa.field(*each) for each in APPEND_COLUMNS)])
    rows = append_source(what, schema).to_pylist()
    assert [(row["_op"], row["_topic"], row["_partition"], row["_offset"]) for row in rows] == [("d", "t", 0, 4)]
    assert OFFSET not in rows[0]
