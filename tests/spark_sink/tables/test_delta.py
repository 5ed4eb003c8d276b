"""A Delta table fed in random batches with replays, reopened handles and rivals, against the source table"""

import contextlib
import pickle
import random
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tests.spark_sink.debezium_events import FIELDS, Message, Shop, event, rows_of, value_schema
from tidemill.spark_sink.changes import Chunk, decoded_chunks
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.envelope import EnvelopeOptions
from tidemill.spark_sink.offsets import OffsetRange, TopicRecreated
from tidemill.spark_sink.tables.delta import DeltaTarget, Fenced, TableUnusable, Unread, check_path, table_offsets
from tidemill.spark_sink.tables.evolution import SchemaConflict
from tidemill.spark_sink.tables.plan import TruncateUnordered

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
    target.commit([chunk([small("c", 1, "a")], start=1)], IDS)
    target.commit([chunk([Message(small("c", 1).key, None)], start=2)], IDS)
    assert DeltaTarget(str(tmp_path / "t"), "wh").positions([TopicPartition("t", 0)], IDS) == {
        TopicPartition("t", 0): 3
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


Overtake = Callable[[DeltaTarget, Callable[[], object]], list[bool]]


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Overtake:
    """Do something between a target's look at the table and its commit, once; the list says whether it was done."""

    def arrange(late: DeltaTarget, action: Callable[[], object]) -> list[bool]:
        original, done = DeltaTarget._write, []

        def overtaken(self: DeltaTarget, *arguments: Any) -> int:
            if self is late and not done:
                done.append(True)
                action()
            return original(self, *arguments)

        monkeypatch.setattr(DeltaTarget, "_write", overtaken)
        return done

    return arrange


def test_a_commit_that_loses_the_race_for_its_offsets_applies_nothing_twice(tmp_path: Path, overtake: Overtake) -> None:
    late, early = DeltaTarget(str(tmp_path / "t"), "wh"), DeltaTarget(str(tmp_path / "t"), "wh")
    early.commit([chunk([small("c", 1, "a")])], IDS)
    batch = [chunk([small("u", 1, "b"), small("c", 2, "c")], start=1)]
    raced = overtake(late, lambda: early.commit(batch, IDS))
    done = late.commit(batch, IDS)
    assert raced
    assert dict(done.ends) == {}
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b"}, {"id": 2, "Name": "c"}]


def test_the_first_rows_of_two_jobs_are_merged_when_they_come_at_once(tmp_path: Path, overtake: Overtake) -> None:
    one, two = DeltaTarget(str(tmp_path / "t"), "one"), DeltaTarget(str(tmp_path / "t"), "two")
    one.commit([chunk([small("d", 9)])], IDS)
    raced = overtake(one, lambda: two.commit([chunk([small("c", 1, "a")])], IDS))
    one.commit([chunk([small("c", 1, "b")], start=1)], IDS)
    assert raced
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b"}]


def test_a_table_that_takes_no_change_says_so(tmp_path: Path) -> None:
    """Delta reports that like a lost race."""
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a")])], IDS)
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TableUnusable, match=r"refused 10 commits, the last one for this: .*append.only"):
        target.commit([chunk([small("u", 1, "b")], start=1)], IDS)


def test_a_table_that_goes_away_is_waited_for_and_not_made_anew(tmp_path: Path) -> None:
    target, elsewhere = DeltaTarget(str(tmp_path / "t"), "wh"), tmp_path / "elsewhere"
    target.commit([chunk([small("c", 1, "a")])], IDS)
    (tmp_path / "t").rename(elsewhere)
    with pytest.raises(TableUnusable):
        target.positions([P0], IDS)
    for look in (lambda: target.positions([P0], IDS), lambda: target.commit([chunk([small("c", 2, "b")], 1)], IDS)):
        with pytest.raises(TableUnusable, match="is gone; bring it back, or restart the job"):
            look()
    elsewhere.rename(tmp_path / "t")
    assert target.positions([P0], IDS) == {P0: 1}
    target.commit([chunk([small("c", 2, "b")], 1)], IDS)
    assert [row["id"] for row in rows(tmp_path / "t")] == [1, 2]


def test_a_foreign_append_does_not_disturb(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a")])], IDS)
    write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array([77]), "Name": ["guest"]}), mode="append")
    target.commit([chunk([small("u", 1, "b")], start=1)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "b"}, {"id": 77, "Name": "guest"}]


def test_two_jobs_with_different_names_keep_their_own_offsets(tmp_path: Path) -> None:
    DeltaTarget(str(tmp_path / "t"), "one").commit([chunk([small("c", 1, "a")])], IDS)
    assert DeltaTarget(str(tmp_path / "t"), "two").positions([TopicPartition("t", 0)], IDS) == {}


def test_two_jobs_of_different_names_merge_into_one_table(tmp_path: Path) -> None:
    one, two = DeltaTarget(str(tmp_path / "t"), "one"), DeltaTarget(str(tmp_path / "t"), "two")
    one.commit([chunk([small("d", 9)])], IDS)  # the table is empty when this job looks at it
    two.commit([chunk([small("c", 1, "a"), small("c", 2, "b")])], IDS)
    one.commit([chunk([small("c", 1, "c")], start=1)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "c"}, {"id": 2, "Name": "b"}]


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_where_a_job_begins_is_in_the_table_before_its_first_row(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTarget(path, "other").commit([chunk([small("c", 9, "other")])], IDS)
    version = DeltaTable(path).version()
    assert DeltaTarget(path, "wh").begin({P0: 40, P1: 7}, IDS) == {P0: 40, P1: 7}
    assert table_offsets(path) == {"t-0": 40, "t-1": 7}
    again = DeltaTarget(path, "wh")
    assert again.positions([P0, P1], IDS) == {P0: 40, P1: 7}
    assert again.begin({P0: 99, P1: 99}, IDS) == {P0: 40, P1: 7}  # what is written stays
    assert DeltaTable(path).version() == version + 1
    again.commit([chunk([small("c", 1, "a")], start=40)], IDS)
    assert [row["id"] for row in rows(tmp_path / "t")] == [1, 9]
    assert DeltaTarget(path, "wh").positions([P0, P1], IDS) == {P0: 41, P1: 7}


def test_where_a_job_begins_waits_for_the_table(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTarget(path, "wh").begin({P0: 40}, IDS)
    assert DeltaTarget(path, "wh").begin({P0: 99, P1: 7}, IDS) == {P0: 40, P1: 7}
    assert not DeltaTable.is_deltatable(path)
    check_path(path)
    again = DeltaTarget(path, "wh")
    again.positions([P0, P1], IDS)
    for start in (40, 41):
        assert again.commit([chunk([Message(b"{}", None)], start=start)], IDS).version == -1  # no columns yet
    DeltaTable.create(path, Schema.from_arrow(pa.schema([("id", pa.int64())])))  # and a kill before the first commit
    again = DeltaTarget(path, "wh")
    assert again.positions([P0, P1], IDS) == {P0: 42, P1: 7}
    again.commit([chunk([Message(b"{}", None), small("c", 1, "a")], start=41)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "a"}]
    assert sorted(each.name for each in (tmp_path / "t").iterdir() if each.is_dir()) == ["_delta_log"]
    assert DeltaTarget(path, "wh").positions([P0, P1], IDS) == {P0: 43, P1: 7}


def test_what_a_partition_without_a_position_is(tmp_path: Path) -> None:
    target, other = DeltaTarget(str(tmp_path / "t"), "wh"), {"t": uuid.UUID(int=9 << 100)}
    assert target.unread("t", IDS, {}) is Unread.TOPIC
    target.begin({P0: 3}, IDS)
    found = target.positions([P0, P1], IDS)
    assert target.unread("t", IDS, found) is Unread.PARTITION_ADDED
    assert target.unread("t", other, {}) is Unread.TOPIC_RECREATED
    assert target.unread("u", IDS, {}) is Unread.TOPIC
    old = DeltaTarget(str(tmp_path / "without ids"), "wh")  # a cluster that has no topic ids
    old.begin({P0: 3}, {})
    assert old.unread("t", {}, old.positions([P0, P1], {})) is Unread.PARTITION_ADDED


def test_two_jobs_of_one_name_that_begin_at_once_begin_alike(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTarget(path, "other").commit([chunk([small("c", 9, "other")])], IDS)
    one, two = DeltaTarget(path, "wh"), DeltaTarget(path, "wh")
    assert two.begin({P0: 5}, IDS) == {P0: 5}
    assert one.begin({P0: 8}, IDS) == {P0: 5}


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


def test_a_column_that_became_wider_within_the_first_batch_is_made_wide(tmp_path: Path) -> None:
    def changed(kind: str, key: int) -> Message:
        schema = value_schema([FIELDS[0], {"field": "n", "type": kind, "optional": True}])
        return event("c", {"id": key}, {"id": key, "n": key}, schema=schema)

    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([changed("int32", 1), changed("int64", 2**40), changed("int32", 3)])], IDS)
    assert [row["n"] for row in rows(tmp_path / "t")] == [1, 3, 2**40]


def test_a_truncate_empties_the_table(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.commit([chunk([small("c", 1, "a"), small("c", 2, "b")])], IDS)
    target.commit([chunk([event("t", None, schema=SMALL), small("c", 3, "c"), small("c", 2, "new")], start=2)], IDS)
    assert rows(tmp_path / "t") == [{"id": 2, "Name": "new"}, {"id": 3, "Name": "c"}]
    target.commit([chunk([event("t", None, schema=SMALL)], start=5)], IDS)
    assert rows(tmp_path / "t") == []


def test_a_truncate_of_one_of_several_partitions_stops_unless_it_is_chosen(tmp_path: Path) -> None:
    path, cut = str(tmp_path / "t"), event("t", None, schema=SMALL)
    target = DeltaTarget(path, "wh")
    target.commit([chunk([small("c", 1, "a")]), chunk([small("c", 2, "b")], partition=1)], IDS)
    with pytest.raises(TruncateUnordered):
        target.commit([chunk([cut], start=1)], IDS)
    again = DeltaTarget(path, "wh")  # knows the partitions from the table
    again.positions([TopicPartition("t", 0), TopicPartition("t", 1)], IDS)
    with pytest.raises(TruncateUnordered):
        again.commit([chunk([cut], start=1)], IDS)
    assert rows(tmp_path / "t") == [{"id": 1, "Name": "a"}, {"id": 2, "Name": "b"}]
    chosen = DeltaTarget(path, "wh", truncate_always=True)
    chosen.commit([chunk([cut], start=1), chunk([small("c", 4, "d")], start=1, partition=1)], IDS)
    assert rows(tmp_path / "t") == [{"id": 4, "Name": "d"}]
    log = DeltaTarget(str(tmp_path / "log"), "wh", mode="append")
    log.commit(
        [chunk([small("c", 1, "a"), cut], keep_all=True), chunk([small("c", 2)], partition=1, keep_all=True)], IDS
    )
    assert len(rows(tmp_path / "log")) == 2


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


def test_offsets_of_a_topic_made_anew_are_not_compared_with_those_of_the_old_one(tmp_path: Path) -> None:
    """A query may follow the new topic, as fail.on.data.loss=false lets it, before the job hears of it."""
    target, anew = DeltaTarget(str(tmp_path / "t"), "wh"), {"t": uuid.UUID(int=9 << 100)}
    target.commit([chunk([small("c", 1, "a"), small("c", 2, "b")])], IDS)
    batch = [chunk([small("c", 3, "of the new topic")])._replace(topic_id=str(anew["t"]))]
    with pytest.raises(TopicRecreated, match=r"topic t was deleted and created again.*topic\.recreated=continue"):
        target.commit(batch, IDS)
    target.commit(batch, anew)
    assert [row["id"] for row in rows(tmp_path / "t")] == [1, 2, 3]


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


WRITER = """
import pathlib, pickle, sys, uuid
from tests.spark_sink.tables.test_delta import IDS, TopicPartition, chunk
from tidemill.spark_sink.tables.delta import DeltaTarget
path, logs = sys.argv[1], pickle.loads(pathlib.Path(sys.argv[2]).read_bytes())
places = [TopicPartition("t", number) for number in range(len(logs))]
target = DeltaTarget(path, "wh")
found = target.begin(dict.fromkeys(places, 0), IDS)
print("ready", flush=True)
while any(found[place] < len(logs[place.partition]) for place in places):
    batch = []
    for place in places:
        start, log = found[place], logs[place.partition]
        if start < len(log):
            batch.append(chunk(log[start : start + 7], start, place.partition))
    found |= target.commit(batch, IDS).ends
print("done", flush=True)
"""


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_a_writer_killed_at_any_moment_goes_on_where_the_table_is(tmp_path: Path) -> None:
    """The kills follow nothing that the writer says of its commits, so they fall before, inside and behind them."""
    shop, pick = Shop(seed=3, keys=60), random.Random(3)
    log_file = tmp_path / "logs"
    log_file.write_bytes(pickle.dumps(shop.load(900, partitions=2)))
    command = [sys.executable, "-c", WRITER, str(tmp_path / "t"), str(log_file)]
    for number in range(10):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(pick.uniform(0, 0.05 * 1.6**number))
            process.kill()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # the last one is left alone
    assert rows(tmp_path / "t") == shop.rows
