"""What a worker counts, under the names dashboards know

Kafka Connect's metrics as the usual JMX exporter rules spell them: `kafka_connect_<group>_<attribute>` with the labels
`connector` and `task`, so a dashboard made for Apache's worker shows this one. What Connect does not have (restarts
after a kill, memory and processor time of a task, whatever a plugin reports) carries the prefix `tidemill_connect_`.

Nothing is counted here. A scrape reads the herder's state and the facts that tasks reported last.
"""

import re
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.loader import Plugins, UnknownPlugin
from tidemill.connect.stores import State

TASK_STATES = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED, State.DESTROYED, State.RESTARTING)

FACT_GROUPS: Mapping[str, str] = {
    "source-record-": "source_task",
    "poll-batch-": "source_task",
    "sink-record-": "sink_task",
    "put-batch-": "sink_task",
    "partition-count": "sink_task",
    "offset-commit-": "connector_task",
    "batch-size-": "connector_task",
    "total-record": "task_error",
    "total-retries": "task_error",
    "total-errors": "task_error",
    "deadletterqueue-": "task_error",
    "last-error-": "task_error",
}
"""How the name of a reported fact starts, and the group Connect has it in."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")


class WorkerMetrics(Collector):
    """The metrics of one worker."""

    def __init__(self, machine: HerderMachine, plugins: Plugins) -> None:
        self._machine = machine
        self._plugins = plugins
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> str:
        """Prometheus' text exposition."""
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Read everything once."""
        yield from self._worker()
        yield from self._connectors()
        yield from self._tasks()
        yield from self._facts()

    def _worker(self) -> Iterator[Metric]:
        names = self._machine.state.names()
        tasks = sum(len(self._machine.state.tasks(name)) for name in names)
        for name, doc, value in (
            ("kafka_connect_worker_connector_count", "Connectors of this worker", len(names)),
            ("kafka_connect_worker_task_count", "Tasks of this worker", len(self._machine.alive())),
            ("kafka_connect_coordinator_assigned_connectors", "Connectors assigned to this worker", len(names)),
            ("kafka_connect_coordinator_assigned_tasks", "Tasks assigned to this worker", tasks),
            ("kafka_connect_worker_rebalance_rebalancing", "Whether work is being redistributed", 0),
        ):
            yield GaugeMetricFamily(name, doc, value=value)

    def _connectors(self) -> Iterator[Metric]:
        board, state = self._machine.board, self._machine.state
        status = GaugeMetricFamily(
            "kafka_connect_connector_status", "State of a connector, as a label", labels=["connector", "status"]
        )
        kind = GaugeMetricFamily(
            "kafka_connect_connector_connector_type", "Type of a connector", labels=["connector", "type"]
        )
        plugin_class = GaugeMetricFamily(
            "kafka_connect_connector_connector_class", "Class of a connector", labels=["connector", "class"]
        )
        version = GaugeMetricFamily(
            "kafka_connect_connector_connector_version", "Version of a connector", labels=["connector", "version"]
        )
        counts = {
            each: GaugeMetricFamily(
                f"kafka_connect_worker_connector_{each.value.lower()}_task_count",
                f"Tasks of a connector that are {each.value}",
                labels=["connector"],
            )
            for each in TASK_STATES
        }
        for name in state.names():
            said = board.instance(name)
            status.add_metric([name, said.state.value.lower() if said else "unassigned"], 1)
            submitted = state.submitted(name)
            class_name = submitted.config.get("connector.class", "") if submitted else ""
            plugin_class.add_metric([name, class_name], 1)
            kind.add_metric([name, self._kind(class_name)], 1)
            version.add_metric([name, (said.version if said else None) or "unknown"], 1)
            states = [board.instance(name, task) for task in range(len(state.tasks(name)))]
            for each, family in counts.items():
                family.add_metric([name], sum(1 for task in states if task is not None and task.state is each))
        yield from (status, kind, plugin_class, version, *counts.values())

    def _kind(self, class_name: str) -> str:
        try:
            return self._plugins.find(class_name).kind.value
        except UnknownPlugin:
            return "unknown"

    def _tasks(self) -> Iterator[Metric]:
        board, state = self._machine.board, self._machine.state
        status = GaugeMetricFamily(
            "kafka_connect_connector_task_status", "State of a task, as a label", labels=["connector", "task", "status"]
        )
        for name in state.names():
            for task in range(len(state.tasks(name))):
                said = board.instance(name, task)
                status.add_metric([name, str(task), said.state.value.lower() if said else "unassigned"], 1)
        yield status
        restarts = CounterMetricFamily(
            "tidemill_connect_task_restarts",
            "Starts after a kill",
            labels=["connector", "task"],
        )
        for task_id, count in self._machine.restarts.items():
            restarts.add_metric([task_id.connector, str(task_id.task)], count)
        yield restarts
        waiting = GaugeMetricFamily(
            "tidemill_connect_task_has_problem",
            "Whether something keeps a task of this worker from its work; its status says what",
            labels=["connector", "task"],
        )
        for task_id in self._machine.runs:
            waiting.add_metric([task_id.connector, str(task_id.task)], task_id in self._machine.problems)
        yield waiting

    def _facts(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for task, facts in self._machine.facts.items():
            for fact, value in facts.items():
                if isinstance(value, bool) or not isinstance(value, int | float):
                    continue
                name = metric_name(fact)
                family = families.get(name)
                if family is None:
                    families[name] = family = Metric(name, f"{fact} of a task", "gauge")
                family.add_sample(name, {"connector": task.connector, "task": str(task.task)}, value)
        yield from families.values()


def metric_name(fact: str) -> str:
    """The metric a reported fact becomes.

    >>> metric_name("source-record-poll-total"), metric_name("lag_bytes")
    ('kafka_connect_source_task_source_record_poll_total', 'tidemill_connect_task_lag_bytes')
    """
    spelled = _NOT_IN_NAMES.sub("_", fact).strip("_").lower()
    for start, group in FACT_GROUPS.items():
        if fact.startswith(start):
            return f"kafka_connect_{group}_{spelled}"
    return f"tidemill_connect_task_{spelled}"
