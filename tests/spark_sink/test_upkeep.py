"""Small files joined, old files removed"""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tidemill.spark_sink.upkeep import Upkeep, UpkeepPlan


@pytest.mark.parametrize(
    ("commits", "due"), [(1, (False, False)), (4, (True, False)), (6, (False, True)), (12, (True, True))]
)
def test_when_what_is_due(commits: int, due: tuple[bool, bool]) -> None:
    plan = UpkeepPlan(compact_interval_commits=4, vacuum_interval_commits=6, retention_hours=1)
    assert plan.due(commits) == due


def test_never() -> None:
    assert UpkeepPlan(compact_interval_commits=0, vacuum_interval_commits=0, retention_hours=0).due(0) == (False, False)


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


def test_a_table_stays_small(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    upkeep = Upkeep(UpkeepPlan(compact_interval_commits=5, vacuum_interval_commits=10, retention_hours=0))
    for number in range(20):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
        upkeep.committed(DeltaTable(path))
    table = DeltaTable(path)
    assert len(table.file_uris()) == 1
    assert sorted(table.to_pyarrow_table().column("n").to_pylist()) == list(range(20))
    assert len([name for name in os.listdir(path) if name.endswith(".parquet")]) == 1
