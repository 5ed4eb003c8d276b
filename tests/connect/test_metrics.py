"""Metrics under the names dashboards know"""

from tidemill.connect.api import PluginKind
from tidemill.connect.herder import events as e
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.loader import Plugins
from tidemill.connect.metrics import WorkerMetrics, metric_name
from tidemill.connect.plugins.file import file_source
from tidemill.connect.problem import Problem
from tidemill.connect.stores import ConnectorConfig, TaskConfig, TasksCommit
from tidemill.connect.task_spec import TaskId, TaskReport, TaskStarted


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
    facts = {"source-record-poll-total": 12, "lag bytes": 3.5, "topics": ["t"], "connected": True}
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
        'kafka_connect_source_task_source_record_poll_total{connector="c",task="0"} 12.0',
        'tidemill_connect_task_lag_bytes{connector="c",task="0"} 3.5',
        'tidemill_connect_task_restarts_total{connector="c",task="0"} 2.0',
        'tidemill_connect_task_has_problem{connector="c",task="0"} 0.0',
    ):
        assert line in lines, line
    assert not [line for line in lines if "connected" in line or "topics{" in line]


def test_facts_get_the_group_connect_has_them_in() -> None:
    assert metric_name("sink-record-lag-max") == "kafka_connect_sink_task_sink_record_lag_max"
    assert metric_name("offset-commit-success-total") == "kafka_connect_connector_task_offset_commit_success_total"
    assert metric_name("process-rss-bytes") == "tidemill_connect_task_process_rss_bytes"


def test_a_task_that_waits_is_seen() -> None:
    herder = machine()
    herder.problems[TaskId("c", 0)] = Problem(message="no database", since_ms=1)
    assert (
        'tidemill_connect_task_has_problem{connector="c",task="0"} 1.0'
        in WorkerMetrics(herder, Plugins([file_source])).text()
    )
