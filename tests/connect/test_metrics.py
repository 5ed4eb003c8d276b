"""Metrics under the names dashboards know"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.metrics_page import differences, listed
from tidemill.connect.api import Json, PluginKind
from tidemill.connect.herder import events as e
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.loader import Plugins
from tidemill.connect.metrics import WorkerMetrics, metric_name
from tidemill.connect.plugins.file import file_source
from tidemill.connect.problem import Problem
from tidemill.connect.stores import ConnectorConfig, TaskConfig, TasksCommit
from tidemill.connect.task_spec import TaskId, TaskReport, TaskStarted
from tidemill.connect.worker import Worker


def machine() -> HerderMachine:
    """A worker with one running task and one connector that has none yet."""
    herder = HerderMachine("w:1")
    herder.step(e.Assigned(generation=1))
    config = {"name": "c", "connector.class": "FileStreamSource"}
    records = [
        ConnectorConfig(connector="c", properties=config),
        ConnectorConfig(connector='odd "name"', properties={"connector.class": "Gone"}),
    ]
    offset = 0
    for record in records:
        herder.step(e.ConfigSeen(record=record, offset=offset))
        offset += 1
    herder.step(e.Split(connector="c", config_offset=0, version="1.0", tasks=(config,)))
    for record in (TaskConfig(connector="c", task=0, properties=config), TasksCommit(connector="c", tasks=1)):
        actions = herder.step(e.ConfigSeen(record=record, offset=offset))
        offset += 1
    (start,) = [action for action in actions if isinstance(action, e.StartTask)]
    actions = herder.step(TaskStarted(task=start.task, incarnation=start.incarnation, pid=1))
    for action in actions:
        if isinstance(action, e.WriteStatus):
            herder.step(e.StatusSeen(record=action.record))
    facts: dict[str, Json] = {
        "source-record-poll-total": 12,
        "poll-batch-avg-time-ms": None,
        "last-error-timestamp": 0,
        "lag bytes": 3.5,
        "topics": ["t"],
        "connected": True,
        "endless": 10**400,
    }
    herder.step(TaskReport(task=start.task, incarnation=start.incarnation, facts=facts))
    return herder


def test_the_lines_of_a_scrape() -> None:
    herder = machine()
    herder.restarts[TaskId("c", 0)] = 2
    lines = WorkerMetrics(herder, Plugins([file_source])).text().splitlines()
    for line in (
        "kafka_connect_worker_connector_count 2.0",
        "kafka_connect_worker_task_count 1.0",
        'kafka_connect_connector_status{connector="c",status="unassigned"} 1.0',
        f'kafka_connect_connector_connector_type{{connector="c",type="{PluginKind.SOURCE}"}} 1.0',
        'kafka_connect_connector_connector_type{connector="odd \\"name\\"",type="unknown"} 1.0',
        'kafka_connect_worker_connector_running_task_count{connector="c"} 1.0',
        'kafka_connect_worker_connector_failed_task_count{connector="c"} 0.0',
        'kafka_connect_connector_task_status{connector="c",status="running",task="0"} 1.0',
        "kafka_connect_worker_connector_startup_success_total 1.0",
        "kafka_connect_worker_connector_startup_failure_total 0.0",
        "kafka_connect_worker_task_startup_attempts_total 1.0",
        "kafka_connect_worker_task_startup_success_total 1.0",
        "kafka_connect_worker_task_startup_failure_total 0.0",
        "# TYPE kafka_connect_source_task_source_record_poll_total counter",
        'kafka_connect_source_task_source_record_poll_total{connector="c",task="0"} 12.0',
        'kafka_connect_task_error_last_error_timestamp{connector="c",task="0"} 0.0',
        'tidemill_connect_task_lag_bytes{connector="c",task="0"} 3.5',
        'tidemill_connect_task_restarts_total{connector="c",task="0"} 2.0',
        'tidemill_connect_task_has_problem{connector="c",task="0"} 0.0',
    ):
        assert line in lines, line
    assert not [
        line for line in lines if "connected" in line or "endless" in line or "topics{" in line or "poll_batch" in line
    ]


def test_facts_get_the_group_connect_has_them_in() -> None:
    assert metric_name("sink-record-lag-max") == "kafka_connect_sink_task_sink_record_lag_max"
    assert metric_name("put-batch-avg-time-ms") == "kafka_connect_sink_task_put_batch_avg_time_ms"
    assert metric_name("total-errors-logged") == "kafka_connect_task_error_total_errors_logged"
    assert metric_name("offset-commit-success-total") == "tidemill_connect_task_offset_commit_success_total"
    assert metric_name("process-rss-bytes") == "tidemill_connect_task_process_rss_bytes"


def test_a_task_that_waits_is_seen() -> None:
    herder = machine()
    herder.problems[TaskId("c", 0)] = Problem(message="no database", since_ms=1)
    assert (
        'tidemill_connect_task_has_problem{connector="c",task="0"} 1.0'
        in WorkerMetrics(herder, Plugins([file_source])).text()
    )


def test_a_part_that_raises_costs_its_own_metrics_only() -> None:
    herder = machine()
    herder.startups["task-startup-success-total"] = "many"  # type: ignore[assignment]  # as a mistake of ours would have it
    lines = WorkerMetrics(herder, Plugins([file_source])).text().splitlines()
    assert 'kafka_connect_connector_status{connector="c",status="unassigned"} 1.0' in lines
    assert 'tidemill_metrics_part_errors_total{part="worker"} 1' in lines
    assert 'tidemill_metrics_part_errors_total{part="connectors"} 0' in lines
    assert not [line for line in lines if line.startswith("kafka_connect_worker_task_count")]


class Watched:
    """A worker, asked over HTTP as a dashboard's collector asks it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def create(self, name: str, **config: str) -> None:
        settings = {setting.replace("__", "."): value for setting, value in config.items()}
        async with httpx.AsyncClient(base_url=self._worker.url, timeout=60) as client:
            answer = await client.put(f"/connectors/{name}/config", json=settings)
            assert answer.status_code == 201, answer.text

    async def scrape(self) -> str:
        async with httpx.AsyncClient(base_url=self._worker.url, timeout=30) as client:
            return (await client.get("/metrics")).text

    async def until(self, *lines: str, counted: tuple[str, ...] = ()) -> str:
        """The first scrape that has all these lines, and something above 0 in what is `counted`."""
        async with asyncio.timeout(90):
            while True:
                text = await self.scrape()
                values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
                if set(lines) <= set(text.splitlines()) and all(float(values.get(name, 0)) > 0 for name in counted):
                    return text
                await asyncio.sleep(0.1)

    async def differs(self, pages: list[str], absent: list[str]) -> list[str]:
        """How the scrapes go on to differ from the page: a task tells its averages a moment after its totals."""
        found: list[str] = []
        for _ in range(100):
            found = differences(pages, await self.scrape(), absent=absent)
            if not found:
                break
            await asyncio.sleep(0.1)
        return found


@pytest.mark.integration
async def test_a_scrape_of_a_worker_at_work_is_what_the_page_lists(
    worker: Worker, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    watched, topic, file = Watched(worker), unique("topic"), tmp_path / "in.txt"
    file.write_text('{"a": 1}\nno JSON at all\n{"a": 2}\n')
    text_converter = "org.apache.kafka.connect.storage.StringConverter"
    await watched.create(
        "in", connector__class="FileStreamSource", file=str(file), topic=topic, value__converter=text_converter
    )
    await watched.create(
        "out",
        connector__class="FileStreamSink",
        file=str(tmp_path / "out.txt"),
        topics=topic,
        value__converter="org.apache.kafka.connect.json.JsonConverter",
        value__converter__schemas__enable="false",
        errors__tolerance="all",
        errors__log__enable="true",
        errors__deadletterqueue__topic__name=unique("dead"),
    )
    of_source, of_sink = '{connector="in",task="0"}', '{connector="out",task="0"}'
    await watched.until(
        "kafka_connect_worker_connector_count 2.0",
        "kafka_connect_worker_task_startup_success_total 2.0",
        f"kafka_connect_source_task_source_record_poll_total{of_source} 3.0",
        f"kafka_connect_source_task_source_record_write_total{of_source} 3.0",
        f"kafka_connect_source_task_source_record_active_count{of_source} 0.0",
        f"tidemill_connect_task_offset_commit_success_total{of_source} 1.0",
        f"kafka_connect_sink_task_sink_record_read_total{of_sink} 3.0",
        f"kafka_connect_sink_task_sink_record_send_total{of_sink} 2.0",
        f"kafka_connect_sink_task_offset_commit_completion_total{of_sink} 1.0",
        f"kafka_connect_sink_task_partition_count{of_sink} 1.0",
        f"kafka_connect_task_error_total_record_errors{of_sink} 1.0",
        f"kafka_connect_task_error_total_records_skipped{of_sink} 1.0",
        f"kafka_connect_task_error_total_errors_logged{of_sink} 1.0",
        f"kafka_connect_task_error_deadletterqueue_produce_requests{of_sink} 1.0",
        'kafka_connect_connector_task_status{connector="out",status="running",task="0"} 1.0',
    )
    assert await watched.differs(["Connect worker"], []) == []


@pytest.mark.integration
@pytest.mark.postgres
async def test_what_the_postgresql_source_adds(
    worker: Worker, tidemill_postgres: Any, unique: Callable[[str], str]
) -> None:
    server, name = tidemill_postgres, unique("metrics").replace("-", "_")
    with psycopg.connect(server.dsn, autocommit=True) as database:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)".encode())
        database.execute(f"INSERT INTO {name} VALUES (1), (2)".encode())
        watched = Watched(worker)
        await watched.create(
            "pg",
            connector__class="PostgresSource",
            database__hostname=server.host,
            database__port=str(server.port),
            database__user=server.user,
            database__password=server.password or "",
            database__dbname=server.dbname,
            table__include__list=f"public.{name}",
            topic__prefix=name,
            slot__name=name,
            slot__drop__on__stop="true",
            publication__name=name,
            publication__autocreate__mode="filtered",
            topic__creation__default__partitions="1",
            topic__creation__default__replication__factor="1",
        )
        labels = '{connector="pg",task="0"}'
        text = await watched.until(
            f"tidemill_connect_task_snapshot_rows{labels} 2.0",
            counted=(f"tidemill_connect_task_offset_commit_success_total{labels}",),  # other tests write to the server
        )
        lines = [line for line in text.splitlines() if "_sink_task_" in line or "_deadletterqueue_" in line]
        assert lines == []
        absent = [row for row in listed("Connect worker") if "_sink_task_" in row or "_deadletterqueue_" in row]
        assert await watched.differs(["Connect worker", "PostgreSQL source"], absent) == []
