"""Small files joined, old files removed"""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tidemill.spark_sink.upkeep import Upkeep, UpkeepPlan, Upkept


@pytest.mark.parametrize(
    ("before", "version", "due"),
    [
        (0, 1, (False, False)),
        (3, 4, (True, False)),
        (4, 5, (False, False)),
        (3, 5, (True, False)),
        (5, 7, (False, True)),
        (10, 13, (True, True)),
    ],
)
def test_when_what_is_due(before: int, version: int, due: tuple[bool, bool]) -> None:
    plan = UpkeepPlan(compact_interval_commits=4, vacuum_interval_commits=6, retention_hours=1)
    assert plan.due(before, version) == due


def test_never() -> None:
    plan = UpkeepPlan(compact_interval_commits=0, vacuum_interval_commits=0, retention_hours=0)
    assert plan.due(0, 9) == (False, False)


@pytest.mark.parametrize(
    ("asked", "hours"),
    [
        (None, 2),
        ("interval 7 days", 168),
        ("interval 1 hour", 2),
        ("interval 90 minutes", 2),
        ("150 MINUTES", 3),
        ("for ever", 2),
    ],
)
def test_the_tables_own_retention_wins_when_it_is_longer(asked: str | None, hours: int) -> None:
    plan = UpkeepPlan(compact_interval_commits=0, vacuum_interval_commits=1, retention_hours=2)
    assert plan.kept_hours({"delta.deletedFileRetentionDuration": asked}) == hours


def test_files_that_the_table_promises_its_readers_stay(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    promise = {"delta.deletedFileRetentionDuration": "interval 1 day"}
    DeltaTable.create(path, Schema.from_arrow(pa.schema([("n", pa.int64())])), configuration=promise)
    upkeep = Upkeep(UpkeepPlan(compact_interval_commits=0, vacuum_interval_commits=1, retention_hours=0))
    for number in range(3):
        write_deltalake(path, pa.table({"n": [number]}), mode="overwrite")
        upkeep.committed(DeltaTable(path))
    assert DeltaTable(path, version=1).to_pyarrow_table().column("n").to_pylist() == [0]


@pytest.mark.parametrize("jobs", [1, 20])
def test_a_table_stays_small_also_where_every_commit_is_a_job_of_its_own(tmp_path: Path, jobs: int) -> None:
    path = str(tmp_path / "t")
    plan = UpkeepPlan(compact_interval_commits=5, vacuum_interval_commits=10, retention_hours=0)
    upkeeps = [Upkeep(plan) for _ in range(jobs)]
    done = []
    for number in range(20):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
        done.append(upkeeps[number % jobs].committed(DeltaTable(path)))
    assert any(each.compacted for each in done) and any(each.vacuumed for each in done)
    assert not all(each.compacted for each in done) and not any(each.failed for each in done)
    table = DeltaTable(path)
    assert len(table.file_uris()) <= 5
    assert sorted(table.to_pyarrow_table().column("n").to_pylist()) == list(range(20))
    assert len([name for name in os.listdir(path) if name.endswith(".parquet")]) < 20  # what was joined is gone


def test_a_failure_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in range(2):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()
    plan = UpkeepPlan(compact_interval_commits=1, vacuum_interval_commits=1, retention_hours=0)
    assert Upkeep(plan).committed(DeltaTable(path)) == Upkept(failed=True)
