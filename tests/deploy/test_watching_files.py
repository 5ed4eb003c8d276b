"""The dashboard, the alerts and the list of what is collected name only what is really exported

docs/metrics.md lists every metric; that the list is true is tested beside each process, by a scrape of it at work.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.promql import Reading, read
from tests.metrics_page import SUFFIXES, listed, sections

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "tidemill.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
SCRAPES = DEPLOY / "prometheus" / "prometheus.yml"

GROWS = re.compile(r"_total$|_sum$|_count$|_bucket$|_total_record|_deadletterqueue_")
"""Metrics of which a rate makes sense; some of Kafka Connect's counters are gauges to the JMX exporter."""


def labels() -> dict[str, frozenset[str]]:
    """Of everything that can be queried."""
    found = {"up": frozenset[str]()}  # Prometheus' own
    for section in sections():
        for name, row in listed(section).items():
            for suffix in SUFFIXES.get(row.type, ("",)):
                more = {"le"} if suffix == "_bucket" else set()
                found[name + suffix] = row.labels | more
    return found


def panels() -> Iterator[dict[str, Any]]:
    """Those of the dashboard that show something."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return (panel for panel in board["panels"] if panel["type"] != "row")


def rules() -> list[dict[str, Any]]:
    """All alerts."""
    tree = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in tree["groups"] for rule in group["rules"]]


def named(text: str) -> set[str]:
    """The labels that a legend or an alert's text names."""
    return set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))


PANELS = [
    (f"panel {panel['title']}", target["expr"], target["legendFormat"])
    for panel in panels()
    for target in panel["targets"]
]
RULES = [(f"alert {rule['alert']}", rule["expr"], " ".join(rule["annotations"].values())) for rule in rules()]
QUERIES = PANELS + RULES


@pytest.mark.parametrize(("where", "expression", "text"), QUERIES, ids=lambda value: "")
def test_queries_name_metrics_and_labels_that_exist(where: str, expression: str, text: str) -> None:
    found: Reading = read(expression, labels())
    assert found.problems == (), where
    assert named(text) <= (found.result or frozenset()), f"{where}: {text}"
    for metric in re.findall(r"\b(?:rate|increase)\((\w+)", expression):
        assert GROWS.search(metric) or "record_count" in metric, f"{where}: the rate of {metric}, which is no counter"


def test_what_people_ask_first_is_on_the_dashboard_and_wakes_somebody() -> None:
    shown = {
        metric for where, query, _ in QUERIES if where.startswith("panel") for metric in read(query, labels()).metrics
    }
    told = {
        metric for where, query, _ in QUERIES if where.startswith("alert") for metric in read(query, labels()).metrics
    }
    for metric in (
        "kafka_network_requestmetrics_errors_total",
        "kafka_network_requestmetrics_totaltimems_bucket",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_server_replicamanager_underreplicatedpartitions",
        "tidemill_broker_disk_usable_bytes",
        "kafka_consumergroup_lag",
        "kafka_connect_sink_task_sink_record_lag_max",
        "tidemill_mirror_lag_seconds",
        "tidemill_spark_lag_records",
    ):
        assert metric in shown & told


def test_alerts_are_whole() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert {"summary", "description"} == rule["annotations"].keys(), rule["alert"]
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m")), rule["alert"]


def test_panels_lie_side_by_side() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_each_kind_of_process_is_collected_and_the_queries_ask_for_those_jobs() -> None:
    tree = yaml.safe_load(SCRAPES.read_text(encoding="utf-8"))
    jobs = {job["job_name"] for job in tree["scrape_configs"]}
    assert jobs == {"tidemill-broker", "tidemill-connect", "tidemill-mirror", "tidemill-spark"}
    assert tree["rule_files"] == [ALERTS.name]
    wanted = {word for _, query, _ in QUERIES for word in re.findall(r'job=~?"([^"]*)"', query)}
    assert all(any(re.fullmatch(word, job) for job in jobs) for word in wanted)
