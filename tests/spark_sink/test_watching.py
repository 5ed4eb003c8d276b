"""What a job tells of itself, asked over HTTP while it works"""

import json
from pathlib import Path

import pytest

from tests.metrics_page import differences, listed
from tests.spark_sink.conftest import Topics, poll
from tests.spark_sink.debezium_events import Shop
from tests.spark_sink.running_job import WAIT_S, Job
from tidemill.connect.metrics import metric_name
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.probe import Reason
from tidemill.core.types import TopicPartition
from tidemill.spark_sink.figures import JobFigures, Restart
from tidemill.spark_sink.pulse import Pulse
from tidemill.spark_sink.report import PROGRESS, QUERY, SOURCE, JobReport
from tidemill.spark_sink.watching import Watched, probe_of, unready


def watched(clock: ManualClock) -> Watched:
    figures = JobFigures(clock)
    return Watched(figures=figures, report=JobReport(lambda line: None, clock, figures), pulse=Pulse(60.0, clock))


def test_what_a_job_waits_for_is_what_is_not_ready() -> None:
    job = watched(ManualClock())
    assert unready(job) == [Reason(what="job", why="Spark is starting")]
    job.report.found(SOURCE, "h:1 does not answer")
    job.pulse.begins("it looks where its tables stand")
    assert unready(job) == [Reason(what="source", why="h:1 does not answer")]
    job.report.over(SOURCE)
    job.pulse.reads()
    assert unready(job) == []
    job.report.found(QUERY, "it fell over")  # a query that fell over an hour ago may still not work
    assert unready(job) == [Reason(what="query", why="it fell over")]


def test_a_commit_that_never_ends_is_not_ready() -> None:
    clock = ManualClock()
    job = watched(clock)
    job.pulse.reads()
    with job.pulse.commit("/w"):
        clock.advance(60_000)
        assert unready(job) == []
        clock.advance(10_000)
        (reason,) = unready(job)
        assert probe_of(job).live() is None
    assert reason.what == "table /w"
    assert reason.why.startswith("a commit has not ended for 70 s: ")
    assert unready(job) == []


def test_a_job_that_is_not_heard_is_not_live() -> None:
    clock = ManualClock()
    job = watched(clock)
    probe = probe_of(job)
    job.pulse.reads()
    assert probe.live() is None
    clock.advance(100_000)
    assert "not heard for 100 s" in (probe.live() or "")


def test_figures_as_text() -> None:
    clock = ManualClock()
    job = watched(clock)
    job.figures.stands_at({TopicPartition("t", 0): 0})
    job.figures.source_ends({TopicPartition("t", 0): 9})
    job.figures.committed("/w", records=7, rows=5, version=3, ends={TopicPartition("t", 0): 7}, took_s=0.5)
    job.figures.restarted(Restart.BATCH_SIZE)
    job.report.found(SOURCE, "away")
    metrics = probe_of(job).metrics
    assert metrics is not None
    lines = metrics().decode().splitlines()
    for line in (
        'tidemill_spark_lag_records{partition="0",topic="t"} 2.0',
        'tidemill_spark_rows_total{table="/w"} 5.0',
        'tidemill_spark_commit_duration_seconds_sum{table="/w"} 0.5',
        'tidemill_spark_commit_duration_seconds_count{table="/w"} 1.0',
        'tidemill_spark_last_commit_timestamp_seconds{table="/w"} 1.7e+09',
        'tidemill_spark_query_restarts_total{reason="batch_size"} 1.0',
        'tidemill_spark_query_restarts_total{reason="failure"} 0.0',
        'tidemill_spark_has_problem{where="source"} 1.0',
        'tidemill_spark_has_problem{where="table"} 0.0',
        "tidemill_spark_query_running 0.0",
    ):
        assert line in lines


def test_a_part_that_raises_costs_its_own_metrics_only() -> None:
    job = watched(ManualClock())
    job.figures.targets(7)  # type: ignore[arg-type]  # a mistake of ours
    metrics = probe_of(job).metrics
    assert metrics is not None
    lines = metrics().decode().splitlines()
    assert 'tidemill_metrics_part_errors_total{part="tables"} 1' in lines
    assert 'tidemill_metrics_part_errors_total{part="lag"} 0' in lines
    assert "tidemill_spark_query_running 0.0" in lines


class TestInSpark:
    pytestmark = [  # noqa: RUF012  (as pytest wants it)
        pytest.mark.integration,
        pytest.mark.spark,
        pytest.mark.java,
        pytest.mark.timeout(1_800),
    ]

    def test_a_scrape_of_a_job_at_work_is_what_the_page_lists(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=3)
        logs = shop.load(400, partitions=2)
        name = topics.create(partitions=2)
        topics.fill(name, logs)
        job = Job(
            tmp_path,
            topics,
            topics=name,
            metrics__listener="127.0.0.1:0",
            max__offsets__per__trigger="100",
            table__compact__interval__commits="1",
        )
        jobs.append(job)
        job.start().says("tidemill spark watched at: ")
        assert job.is_live
        assert job.waits_for == {"job": "Spark is starting"}
        poll(lambda: not job.waits_for, "readiness", WAIT_S)
        done = [f'tidemill_spark_lag_records{{partition="{each}",topic="{name}"}} 0.0' for each in (0, 1)]
        poll(lambda: all(each in job.asked("/metrics")[1] for each in done), "the end of the topic", WAIT_S)
        text = job.asked("/metrics")[1]
        assert differences(["Spark job"], text) == []
        assert job.rows() == shop.rows  # what does not lag is in the table
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        table = f'{{table="{job.table}"}}'
        assert float(values[f"tidemill_spark_records_total{table}"]) == sum(map(len, logs))
        commits = float(values[f"tidemill_spark_commit_duration_seconds_count{table}"])
        assert commits >= 4
        assert float(values[f'tidemill_spark_upkeep_runs_total{{table="{job.table}",what="compact"}}']) > 0
        assert float(values[f"tidemill_spark_table_version{table}"]) >= commits - 1
        job.terminate()
        assert job.wait() == 0
        (*_, progress) = [line for line in job.said.splitlines() if line.startswith(PROGRESS)]
        facts = json.loads(progress.removeprefix(PROGRESS))  # what a connector shows of it
        numbers = {metric_name(name) for name, fact in facts.items() if isinstance(fact, int | float)}
        assert numbers <= listed("SparkSink").keys()
