"""A Delta table fed in random batches with replays, reopened handles and rivals, against the source table"""

import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.spark_sink.debezium_events import FIELDS, Message, Shop, event, rows_of, value_schema
from tidemill.spark_sink.changes import Chunk, decoded_chunks
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.envelope import EnvelopeOptions
from tidemill.spark_sink.offsets import OffsetRange, TopicRecreated
from tidemill.spark_sink.tables.delta import DeltaTarget, Fenced, TableUnusable, check_path, table_offsets
from tidemill.spark_sink.tables.evolution import SchemaConflict

IDS = {"t": uuid.UUID(int=(5 << 100) + 1)}
SMALL = value_schema(FIELDS[:2])


def chunk(messages: list[Message], start: int = 0, partition: int = 0, **more: Any) -> Chunk:
    wanted = OffsetRange(partition=TopicPartition("t", partition), start=start, end=start + len(messages))
    options = EnvelopeOptions(want_before=bool(more.get("keep_all")))
    (found,) = decoded_chunks(wanted, [rows_of(messages, start)], options=options, **more)
    return found


def small(op: str, key: int, name: str | None = None) -> Message:
    after = None if op == "d" else {"id": key, "Name": name}
    return event(op, {"id": key}, after, schema=SMALL)


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("seed", range(4))
def test_any_batches_with_any_replays_lead_to_the_same_table(tmp_path: Path, seed: int) -> None:
    shop, pick = Shop(seed, keys=40), random.Random(seed)
    logs = shop.load(600, partitions=3)
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    positions = [0, 0, 0]
    while any(positions[p] < len(logs[p]) for p in range(3)):
        chunks = []
        for partition in pick.sample(range(3), pick.randint(1, 3)):
            start = max(0, positions[partition] - pick.randrange(60))
            end = min(len(logs[partition]), positions[partition] + pick.randrange(120))
            if end > start:
                chunks.append(chunk(logs[partition][start:end], start, partition))
        for place, end in target.commit(sorted(chunks, key=lambda c: c.partition), IDS).ends.items():
            positions[place.partition] = end
        if pick.random() < 0.4:  # the job is killed and starts again
            target = DeltaTarget(str(tmp_path / "t"), "wh")
            places = [TopicPartition("t", partition) for partition in range(3)]
            known = target.positions(places, IDS)
            assert [known.get(place, 0) for place in places] == positions
    assert rows(tmp_path / "t") == shop.rows


def test_repeating_a_batch_commits_nothing(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    batch = [chunk([small("c", 1, "a"), small("c", 2, "b")])]
    first = target.commit(batch, IDS)
    assert (first.rows, first.records) == (2, 2)
    again = target.commit(batch, IDS)
    assert (again.rows, again.version, dict(again.ends)) == (0, first.version, {})


def test_offsets_move_without_rows(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    assert target.commit([chunk([Message(b"{}", None)])], IDS).version == -1  # no columns known: no table yet
    target.commit([chunk([small("c", 1, "a")])], IDS)
    target.commit([chunk([Message(small("c", 1).key, None)], start=1)], IDS)
    assert DeltaTarget(str(tmp_path / "t"), "wh").positions([TopicPartition("t", 0)], IDS) == {
        TopicPartition("t", 0): 2
    }
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "a"}]


def test_offsets_are_described_for_people(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    assert table_offsets(path) == {}
    target = DeltaTarget(path, "wh")
    target.commit([chunk([small("c", 1, "a")]), chunk([small("c", 2, "b")], partition=1)], IDS)
    target.commit([chunk([small("c", 3, "c")], start=1)], IDS)
    again = DeltaTarget(path, "wh")
    again.positions([TopicPartition("t", 0), TopicPartition("t", 1)], IDS)
    again.commit([chunk([small("c", 4, "d")], start=1, partition=1)], IDS)
    DeltaTable(path).optimize.compact()
    assert table_offsets(path) == {"t-0": 2, "t-1": 2}


def test_the_older_of_two_writers_stops(tmp_path: Path) -> None:
    old, new = DeltaTarget(str(tmp_path / "t"), "wh"), DeltaTarget(str(tmp_path / "t"), "wh")
    old.commit([chunk([small("c", 1, "a")])], IDS)
    new.commit([chunk([small("u", 1, "b")], start=1)], IDS)
    with pytest.raises(Fenced, match="another job named 'wh' writes table"):
        old.commit([chunk([small("u", 1, "stale")], start=1)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b"}]


def test_a_commit_that_loses_the_race_for_its_offsets_applies_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = DeltaTarget(str(tmp_path / "t"), "wh"), DeltaTarget(str(tmp_path / "t"), "wh")
    early.commit([chunk([small("c", 1, "a")])], IDS)
    batch = [chunk([small("u", 1, "b"), small("c", 2, "c")], start=1)]
    original = DeltaTarget._write
    raced = []

    def overtaken(self: DeltaTarget, *arguments: Any) -> int:
        if self is late and not raced:
            raced.append(True)
            early.commit(batch, IDS)  # between the look at the positions and the commit
        return original(self, *arguments)

    monkeypatch.setattr(DeltaTarget, "_write", overtaken)
    done = late.commit(batch, IDS)
    assert raced
    assert dict(done.ends) == {}
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b"}, {"id": 2, "Name": "c"}]


def test_a_foreign_append_does_not_disturb(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a")])], IDS)
    write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array([77]), "Name": ["guest"]}), mode="append")
    target.commit([chunk([small("u", 1, "b")], start=1)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b"}, {"id": 77, "Name": "guest"}]


def test_two_jobs_with_different_names_keep_their_own_offsets(tmp_path: Path) -> None:
    DeltaTarget(str(tmp_path / "t"), "one").commit([chunk([small("c", 1, "a")])], IDS)
    assert DeltaTarget(str(tmp_path / "t"), "two").positions([TopicPartition("t", 0)], IDS) == {}


def test_new_columns_are_added_and_wider_values_refused(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a")])], IDS)
    more = value_schema([*FIELDS[:2], {"field": "Age", "type": "int32", "optional": True}])
    target.commit([chunk([event("u", {"id": 1}, {"id": 1, "Name": "b", "Age": 7}, schema=more)], start=1)], IDS)
    target.commit([chunk([small("c", 2, "no age")], start=2)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b", "Age": 7}, {"id": 2, "Name": "no age", "Age": None}]
    text = value_schema([FIELDS[0], FIELDS[1], {"field": "Age", "type": "string", "optional": True}])
    with pytest.raises(SchemaConflict, match="column 'Age' is int32 in the table but string in the topic"):
        target.commit([chunk([event("u", {"id": 1}, {"id": 1, "Name": "b", "Age": "x"}, schema=text)], start=3)], IDS)


def test_a_truncate_empties_the_table(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a"), small("c", 2, "b")])], IDS)
    target.commit([chunk([event("t", None, schema=SMALL), small("c", 3, "c"), small("c", 2, "new")], start=2)], IDS)
    assert rows(tmp_path / "t") == [{"id": 2, "Name": "new"}, {"id": 3, "Name": "c"}]
    target.commit([chunk([event("t", None, schema=SMALL)], start=5)], IDS)
    assert rows(tmp_path / "t") == []


def test_append_keeps_every_change(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "log", mode="append")
    gone = event("d", {"id": 1}, before={"id": 1, "Name": "b"}, schema=SMALL)
    batch = [chunk([small("c", 1, "a"), small("u", 1, "b"), gone], keep_all=True)]
    target.commit(batch, IDS)
    target.commit(batch, IDS)
    found = sorted(DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist(), key=lambda row: row["_offset"])
    assert [(row["_op"], row["Name"], row["_offset"]) for row in found] == [("c", "a", 0), ("u", "b", 1), ("d", "b", 2)]


def test_a_topic_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a")])], IDS)
    other = {"t": uuid.UUID(int=9 << 100)}
    place = TopicPartition("t", 0)
    with pytest.raises(TopicRecreated, match=r"set topic\.recreated=continue"):
        target.positions([place], other)
    assert target.positions([place], other, recreated=True) == {}
    assert target.positions([place], IDS) == {place: 1}


def test_paths_that_cannot_be_tables(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other.txt").write_text("x")
    with pytest.raises(TableUnusable, match="is not a folder"):
        check_path(str(tmp_path / "file" / "t"))
    with pytest.raises(TableUnusable, match="folder with other files"):
        check_path(str(tmp_path / "full"))
    with pytest.raises(TableUnusable, match="/proc"):
        check_path("/proc/nothing/here")
    check_path(str(tmp_path / "new" / "deep"))
    check_path("s3://bucket/table")
