"""Counters of a job"""

from tidemill.core.runtime.clock import ManualClock
from tidemill.core.types import TopicPartition
from tidemill.spark_sink.figures import JobFigures, Restart
from tidemill.spark_sink.upkeep import Upkept

A, B, ADDED = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def test_what_is_not_in_the_table_lags() -> None:
    figures = JobFigures(ManualClock())
    figures.source_ends({A: 10, B: 5, ADDED: 3})
    assert figures.snapshot().lag == {}  # where the table stands is not known yet
    figures.stands_at({A: 4, B: 5})
    assert figures.snapshot().lag == {A: 6, B: 0, ADDED: 3}
    figures.committed("/w", records=6, rows=6, version=1, ends={A: 10}, took_s=0.5)
    assert figures.snapshot().lag == {A: 0, B: 0, ADDED: 3}
    figures.stands_at({A: 2, B: 5, ADDED: 0})  # another query found less than was thought
    assert figures.snapshot().lag == {A: 8, B: 0, ADDED: 3}
    figures.source_ends({A: 1})  # the topic was made anew
    assert figures.snapshot().lag == {A: 0}
    figures.source_ends({})
    assert figures.snapshot().lag == {}


def test_commits_are_counted_by_table_and_only_where_something_moved() -> None:
    clock = ManualClock()
    figures = JobFigures(clock)
    figures.targets("/v")
    figures.committed("/w", records=3, rows=2, version=1, ends={A: 3}, took_s=0.5)
    clock.advance(2_000)
    figures.committed("/w", records=4, rows=1, version=2, ends={A: 7}, took_s=0.25, values_missing=1, refused=2)
    clock.advance(9_000)
    figures.committed("/w", records=0, rows=0, version=2, ends={}, took_s=7.0)  # it was there before
    figures.batch_done()
    now = figures.snapshot()
    table = now.tables["/w"]
    assert (table.commits, table.records, table.rows, table.version) == (2, 7, 3, 2)
    assert (table.commit_s, table.last_commit_s, table.last_commit_ms) == (0.75, 0.25, clock.now_ms() - 9_000)
    assert (now.tables["/v"].commits, now.tables["/v"].last_commit_ms) == (0, None)
    assert (now.batches, now.records, now.rows, now.version) == (1, 7, 3, 2)
    assert (now.refused, now.values_missing) == (2, 1)


def test_upkeep_and_restarts_are_counted() -> None:
    figures = JobFigures(ManualClock())
    for done in (Upkept(compacted=True), Upkept(compacted=True, failed=True), Upkept(compacted=True, vacuumed=True)):
        figures.kept_small("/w", done)
    figures.restarted(Restart.FAILURE)
    figures.restarted(Restart.FAILURE)
    now = figures.snapshot()
    table = now.tables["/w"]
    assert (table.compactions, table.vacuums, table.upkeep_failures) == (3, 1, 1)
    assert now.restarts == {Restart.FAILURE: 2}
    assert now.version == -1
