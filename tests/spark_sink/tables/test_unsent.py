"""Values that neither the update nor the table has: the job stops, or stores NULL and counts"""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark_sink.debezium_events import FIELDS, UNAVAILABLE, Message, event, rows_of, value_schema
from tests.spark_sink.tables.test_delta import IDS
from tidemill.spark_sink.changes import Chunk, decoded_chunks
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.envelope import EnvelopeOptions
from tidemill.spark_sink.offsets import OffsetRange
from tidemill.spark_sink.tables.delta import DeltaTarget
from tidemill.spark_sink.tables.unsent import ValueMissing

SCHEMA = value_schema([FIELDS[0], FIELDS[1], FIELDS[9]])  # id, Name, note


def change(op: str, key: int, note: str | None, name: str = "n") -> Message:
    return event(op, {"id": key}, {"id": key, "Name": name, "note": note}, schema=SCHEMA)


def chunk(messages: list[Message], start: int = 0, **options: Any) -> Chunk:
    wanted = OffsetRange(partition=TopicPartition("t", 1), start=start, end=start + len(messages))
    (found,) = decoded_chunks(wanted, [rows_of(messages, start)], options=EnvelopeOptions(**options))
    return found


def rows(path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist())


def test_the_job_stops_at_an_update_of_a_row_that_is_not_there(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path), "wh")
    target.commit([chunk([change("c", 1, "one")])], IDS)
    target.commit([chunk([change("u", 1, UNAVAILABLE, "new")], 1)], IDS)
    assert rows(tmp_path) == [(1, "new", "one")]
    late = [change("u", 1, UNAVAILABLE, "newer"), change("u", 7, UNAVAILABLE), change("c", 8, "eight")]
    with pytest.raises(ValueMissing, match=r"t-1: the update at offset 3 leaves out note as unchanged.* no row id=7 "):
        target.commit([chunk(late, 2)], IDS)
    assert rows(tmp_path) == [(1, "new", "one")]


def test_an_empty_table_has_no_value_either(tmp_path: Path) -> None:
    with pytest.raises(ValueMissing, match=r"no row id=1 .*unavailable\.value\.missing=null"):
        DeltaTarget(str(tmp_path), "wh").commit([chunk([change("u", 1, UNAVAILABLE)])], IDS)


def test_null_is_stored_and_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path), "wh", missing_as_null=True)
    first = target.commit([chunk([change("c", 1, "one"), change("u", 5, UNAVAILABLE)])], IDS)
    assert first.values_missing == 1
    more = [change("u", 1, UNAVAILABLE), change("u", 5, UNAVAILABLE), change("u", 6, UNAVAILABLE), change("c", 7, "x")]
    assert target.commit([chunk(more, 2)], IDS).values_missing == 1
    assert rows(tmp_path) == [(1, "n", "one"), (5, "n", None), (6, "n", None), (7, "n", "x")]


def test_many_updates_and_several_key_columns(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path), "wh", missing_as_null=True)
    keys = ("id", "Name")
    made = [change("c", n, f"note {n}") for n in range(1_500)]
    target.commit([chunk(made, key_columns=keys)], IDS)
    again = [change("u", n, UNAVAILABLE) for n in range(1_498, 1_503)] + [change("u", 3, UNAVAILABLE, "other")]
    assert target.commit([chunk(again, 1_500, key_columns=keys)], IDS).values_missing == 4
    many = [change("u", n, UNAVAILABLE) for n in range(1_200)]
    assert target.commit([chunk(many, 1_506, key_columns=keys)], IDS).values_missing == 0
    assert (1_499, "n", "note 1499") in rows(tmp_path)


def test_text_alone_is_a_key_too(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path), "wh", missing_as_null=True)
    target.commit([chunk([change("c", n, "x", f"name {n}") for n in range(3)], key_columns=("Name",))], IDS)
    again = [change("u", n, UNAVAILABLE, f"name {n}") for n in range(2, 5)]
    assert target.commit([chunk(again, 3, key_columns=("Name",))], IDS).values_missing == 2
