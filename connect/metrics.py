"""What a worker counts, under the names dashboards know

Kafka Connect's metrics as the usual JMX exporter rules spell them: `kafka_connect_<group>_<attribute>` with the labels
`connector` and `task`, so a dashboard made for Apache's worker shows this one. What Connect does not have (restarts
after a kill, memory and processor time of a task, whatever a plugin reports) carries the prefix `tidemill_connect_`.

Nothing is counted here. A scrape reads the herder's state and the facts that tasks reported last.
"""

import re
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidemill.connect.api import Json
from tidemill.connect.group.alone import Alone
from tidemill.connect.group.seat import Seat
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.loader import Plugins, UnknownPlugin
from tidemill.connect.stores import State
from tidemill.core.runtime.collected_parts import CollectedParts

TASK_STATES = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED, State.DESTROYED, State.RESTARTING)

KAFKA_FACTS: Mapping[str, tuple[str, ...]] = {
    "source_task": (
        "source-record-poll-total",
        "source-record-write-total",
        "source-record-active-count",
        "source-record-active-count-max",
        "source-record-active-count-avg",
        "poll-batch-max-time-ms",
        "poll-batch-avg-time-ms",
    ),
    "sink_task": (
        "sink-record-read-total",
        "sink-record-send-total",
        "sink-record-active-count",
        "sink-record-active-count-max",
        "sink-record-active-count-avg",
        "sink-record-lag-max",
        "partition-count",
        "offset-commit-completion-total",
        "put-batch-max-time-ms",
        "put-batch-avg-time-ms",
    ),
    "connector_task": (
        "running-ratio",
        "pause-ratio",
        "batch-size-max",
        "batch-size-avg",
        "offset-commit-max-time-ms",
        "offset-commit-avg-time-ms",
    ),
    "task_error": (
        "total-record-errors",
        "total-record-failures",
        "total-records-skipped",
        "total-retries",
        "total-errors-logged",
        "deadletterqueue-produce-requests",
        "deadletterqueue-produce-failures",
        "last-error-timestamp",
    ),
}
"""Reported facts that Kafka Connect has a name for, by the group it has them in."""

_GROUPS = {fact: group for group, facts in KAFKA_FACTS.items() for fact in facts}

STARTUPS = tuple(
    f"{what}-startup-{count}-total" for what in ("connector", "task") for count in ("attempts", "success", "failure")
)

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")


class WorkerMetrics:
    """The metrics of one worker."""

    def __init__(self, machine: HerderMachine, plugins: Plugins, seat: Seat | Alone | None = None) -> None:
        self._seat = seat
        self._machine = machine
        self._plugins = plugins
        self._parts = CollectedParts(
            {
                "worker": self._worker,
                "group": self._group,
                "connectors": self._connectors,
                "tasks": self._tasks,
                "facts": self._facts,
            }
        )

    def text(self) -> str:
        """Prometheus' text exposition."""
        return self._parts.text().decode()

    def _worker(self) -> Iterator[Metric]:
        connectors, tasks = self._machine.assigned
        for name, doc, value in (
            ("kafka_connect_worker_connector_count", "Connectors of this worker", connectors),
            ("kafka_connect_worker_task_count", "Tasks of this worker", len(self._machine.alive())),
            ("kafka_connect_coordinator_assigned_connectors", "Connectors assigned to this worker", connectors),
            ("kafka_connect_coordinator_assigned_tasks", "Tasks assigned to this worker", tasks),
        ):
            yield GaugeMetricFamily(name, doc, value=value)
        for name in STARTUPS:
            spelled = "kafka_connect_worker_" + name.replace("-", "_")
            yield CounterMetricFamily(spelled, f"Kafka Connect's {name}", value=self._machine.startups[name])

    def _group(self) -> Iterator[Metric]:
        seat = self._seat
        if seat is None:
            return
        rounds, prefix = seat.rounds, "kafka_connect_worker_rebalance"
        average_ms = rounds.total_ms / rounds.completed if rounds.completed else 0.0
        for name, doc, value in (
            (f"{prefix}_rebalancing", "Whether work is being redistributed", seat.phase != "stable"),
            (f"{prefix}_rebalance_avg_time_ms", "Time of a round, on average", average_ms),
            (f"{prefix}_rebalance_max_time_ms", "Time of the longest round", rounds.longest_ms),
            (f"{prefix}_time_since_last_rebalance_ms", "Since the last round ended", seat.settled_ms or 0),
            (f"{prefix}_epoch", "Generation of the group", seat.generation),
            ("tidemill_connect_group_workers", "Workers of the group", len(seat.workers)),
            ("tidemill_connect_group_leads", "Whether this worker leads the group", seat.is_leader),
            ("tidemill_connect_group_lease", "Whether this worker may run its tasks", seat.holds_lease),
            ("tidemill_connect_group_trouble_seconds", "Since when the coordinator is missed", seat.trouble[1] / 1000),
            (
                "tidemill_connect_group_behind_seconds",
                "Since when the config topic is to be read",
                seat.behind[1] / 1000,
            ),
        ):
            yield GaugeMetricFamily(name, doc, value=float(value))
        yield CounterMetricFamily(f"{prefix}_completed_rebalances", "Rounds of the group", value=rounds.completed)
        leader = GaugeMetricFamily(f"{prefix}_leader_name", "Who leads the group, as a label", labels=["leader_name"])
        leader.add_metric([seat.leader_url or ""], 1)
        yield leader

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
        total = GaugeMetricFamily(
            "kafka_connect_worker_connector_total_task_count", "Tasks of a connector", labels=["connector"]
        )
        for name in state.names():
            said = board.instance(name)
            status.add_metric([name, said.state.value.lower() if said else "unassigned"], 1)
            submitted = state.submitted(name)
            class_name = submitted.config.get("connector.class", "") if submitted else ""
            plugin_class.add_metric([name, class_name], 1)
            kind.add_metric([name, self._kind(class_name)], 1)
            version.add_metric([name, (said.version if said else None) or "unknown"], 1)
            states = [board.instance(name, task) for task in range(len(state.tasks(name)))]
            total.add_metric([name], len(states))
            for each, family in counts.items():
                family.add_metric([name], sum(1 for task in states if task is not None and task.state is each))
        yield from (status, kind, plugin_class, version, total, *counts.values())

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
            "Starts after a kill or a transient failure",
            labels=["connector", "task"],
        )
        for task_id in self._machine.runs:  # those without any, too: a counter that appears with 1 never increased
            restarts.add_metric([task_id.connector, str(task_id.task)], self._machine.restarts.get(task_id, 0))
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
                number = _number(value)
                if number is None:
                    continue
                name = metric_name(fact)
                family = families.get(name)
                if family is None:
                    kind = "counter" if name.endswith("_total") else "gauge"
                    families[name] = family = Metric(name.removesuffix("_total"), f"{fact} of a task", kind)
                family.add_sample(name, {"connector": task.connector, "task": str(task.task)}, number)
        yield from families.values()


def _number(value: Json) -> float | None:
    """A fact that can be told; a plugin may report anything, also a whole number that no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def metric_name(fact: str) -> str:
    """The metric a reported fact becomes.

    >>> metric_name("source-record-poll-total"), metric_name("lag_bytes")
    ('kafka_connect_source_task_source_record_poll_total', 'tidemill_connect_task_lag_bytes')
    """
    spelled = _NOT_IN_NAMES.sub("_", fact).strip("_").lower()
    group = _GROUPS.get(fact)
    return f"tidemill_connect_task_{spelled}" if group is None else f"kafka_connect_{group}_{spelled}"
