"""SparkSink: its settings, its supervision with a stand-in job, and the real job killed under it"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.spark_sink.conftest import Topics, poll
from tests.spark_sink.debezium_events import Shop
from tidemill.connect.api import ConverterSpec, Fatal, InvalidConfig, TaskContext
from tidemill.connect.herder.plugin_calls import split
from tidemill.connect.plugins import spark
from tidemill.connect.plugins.spark import SparkSinkSettings, SparkSinkTask, check, job_settings, properties_text
from tidemill.connect.settings import parse_settings
from tidemill.core.config import parse_properties

LEAST = {"connector.class": "SparkSink", "topics": "t", "table.path": "/w/t"}


def settings(**more: str) -> SparkSinkSettings:
    given = {**LEAST, **{name.replace("__", "."): value for name, value in more.items()}}
    parsed = parse_settings(spark.spark_sink, given)
    assert isinstance(parsed, SparkSinkSettings)
    return parsed


def test_settings_of_connect_and_of_spark_are_no_strangers() -> None:
    settings(
        name="x",
        tasks__max="1",
        key__converter="c",
        value__converter__schemas__enable="true",
        errors__tolerance="all",
        spark__sql__shuffle__partitions="3",
        kafka__security__protocol="SSL",
        trigger__interval__ms="500",
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"table__pth": "x"}, "did you mean 'table.path'"),
        ({"trigger__intervall__ms": "5"}, "did you mean 'trigger.interval.ms'"),
        ({"mode": "merge"}, "mode"),
        ({"max__offsets__per__trigger": "0"}, "max.offsets.per.trigger"),
        ({"topics": ""}, "topics"),
    ],
)
def test_mistakes_are_named(more: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(**more)


def test_the_job_file_has_what_the_job_knows_and_nothing_else() -> None:
    config = {**LEAST, "name": "wh", "tasks.max": "1", "key.converter": "c", "spark.master": "local[3]", "kafka.x": "y"}
    found = job_settings(config, "wh", "east:9092", {"client.id": "worker", "security.protocol": "SSL"})
    assert found == {
        "name": "wh",
        "topics": "t",
        "table.path": "/w/t",
        "spark.master": "local[3]",
        "kafka.x": "y",
        "kafka.security.protocol": "SSL",
        "kafka.bootstrap.servers": "east:9092",
    }


def test_another_cluster_inherits_nothing_of_the_workers() -> None:
    config = {**LEAST, "kafka.bootstrap.servers": "west:1"}
    found = job_settings(config, "wh", "east:9092", {"sasl.password": "secret"})
    assert found["kafka.bootstrap.servers"] == "west:1"
    assert not any("password" in name for name in found)


@pytest.mark.parametrize("value", ["plain", " lead", "a\\b", "tab\tnew\nline", "k=v:w", "#x", "ünï", ""])
def test_job_files_survive_any_text(value: str) -> None:
    written = {"a.b": value, "kafka.sasl.password": value}
    assert parse_properties(properties_text(written)) == written


@pytest.mark.parametrize("tasks_max", ["1", "4"])
def test_one_job_whatever_tasks_max_says(tasks_max: str) -> None:
    config = {**LEAST, "name": "wh", "tasks.max": tasks_max}
    assert split(spark.spark_sink, config) == (config,)


@pytest.mark.java
def test_variables_meant_for_a_job_of_its_own_do_not_reach_a_connectors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMILL_SPARK_TABLE_PATH", "/proc/x/table")
    monkeypatch.setenv("TIDEMILL_SPARK_NONSENSE", "1")
    check(settings(table__path=str(tmp_path / "table")))


def test_the_check_asks_the_job_program(tmp_path: Path) -> None:
    check(settings(table__path=str(tmp_path / "t")))
    with pytest.raises(InvalidConfig, match="/proc: ") as caught:
        check(settings(table__path="/proc/x/t"))
    assert caught.value.field_name == "table.path"
    with pytest.raises(InvalidConfig, match="unknown type 'money'") as caught:
        check(settings(table__path=str(tmp_path / "t"), columns="price:money"))
    assert caught.value.field_name == "columns"


class Running:
    """A task on a thread."""

    def __init__(self, config: Mapping[str, str], bootstrap: str = "127.0.0.1:1") -> None:
        self.facts: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.task = SparkSinkTask(parse_settings(spark.spark_sink, config))  # type: ignore[arg-type]
        spec = ConverterSpec(kind="json")
        self._context = TaskContext(
            connector="wh",
            task=0,
            config=config,
            bootstrap_servers=bootstrap,
            client_config={},
            key_converter=spec,
            value_converter=spec,
            offsets=lambda partition: None,
            stopping=lambda: False,
            report=self.facts.update,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.task.run(self._context)
        except BaseException as error:
            self.error = error

    def stop(self, timeout_s: float = 300) -> None:
        self.task.stop()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()


STAND_IN = """
import os, subprocess, sys, time
folder = {folder!r}
runs = os.path.join(folder, "runs")
with open(runs, "a") as file:
    file.write("x")
number = os.path.getsize(runs)
child = subprocess.Popen(["sleep", "600"])
with open(os.path.join(folder, "child"), "w") as file:
    file.write(str(child.pid))
print("tidemill spark ready: t -> /w/t", flush=True)
print('tidemill spark progress: {{"rows": 5, "lag": 0}}', file=sys.stderr, flush=True)
{behaviour}
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Running]]:
    """Run the task with a program in the job's place; `number` counts its starts."""
    running: list[Running] = []

    def start(behaviour: str) -> Running:
        script = tmp_path / "job.py"
        script.write_text(STAND_IN.format(folder=str(tmp_path), behaviour=behaviour))
        monkeypatch.setattr(spark, "COMMAND", (sys.executable, str(script)))
        monkeypatch.setattr(spark, "BACKOFF_S", 0.05)
        running.append(Running(LEAST))
        return running[-1]

    yield start
    for each in running:
        each.stop()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_facts_are_reported_and_a_stop_ends_everything(stand_in: Callable[[str], Running], tmp_path: Path) -> None:
    running = stand_in("time.sleep(600)")
    poll(lambda: running.facts.get("lag") == 0 and "pid" in running.facts, "the facts", 120)
    assert (running.facts["spark"], running.facts["rows"]) == ("running", 5)
    child = int((tmp_path / "child").read_text())
    running.stop()
    assert running.error is None
    poll(lambda: not alive(child), "the end of what the job had started", 120)


def test_a_job_that_dies_is_started_again_and_leaves_nothing(
    stand_in: Callable[[str], Running], tmp_path: Path
) -> None:
    running = stand_in("os.kill(os.getpid(), 9) if number < 3 else time.sleep(600)")
    poll(lambda: running.facts.get("restarts") == 2 and running.facts["spark"] == "running", "the third start", 120)
    poll(lambda: "killed by signal 9" in str(running.facts["last_error"] or "killed by signal 9"), "its cause", 120)
    assert not running.ended
    leftovers = [
        pid for pid in os.listdir("/proc") if pid.isdigit() and str(tmp_path / "job.py") in command_of(int(pid))
    ]
    assert len(leftovers) == 1


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize("status", [2, 3])
def test_a_job_that_needs_a_decision_fails_the_task(stand_in: Callable[[str], Running], status: int) -> None:
    complaint = "print('tidemill spark: column x changed', file=sys.stderr, flush=True)"
    running = stand_in(f"{complaint}; child.kill(); sys.exit({status})")
    poll(lambda: running.ended, "the task's end", 120)
    assert isinstance(running.error, Fatal)
    assert str(running.error) == "column x changed"


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.crash
@pytest.mark.timeout(1_200)
def test_the_real_job_killed_twice_still_makes_the_tables_equal(tidemill_broker: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    topics = Topics(tidemill_broker.facts["address"])
    shop = Shop(seed=8, keys=80)
    (log,) = shop.load(900, partitions=1)
    name = topics.create()
    topics.fill(name, [log[:300]])
    table = tmp_path / "t"
    config = {**LEAST, "topics": name, "table.path": str(table), "trigger.interval.ms": "200"}
    running = Running(config, topics.bootstrap)

    def rows() -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(table)):
            return []
        return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])

    try:
        poll(lambda: running.facts.get("rows", 0) > 0, "the first rows", 400)
        os.kill(running.facts["pid"], signal.SIGKILL)
        topics.fill(name, [log[300:]])
        poll(lambda: running.facts.get("restarts") == 1 and rows() == shop.rows, "equality", 400)
    finally:
        running.stop()
    assert running.error is None


def test_transforms_are_refused_because_no_record_passes() -> None:
    assert [name for name, _ in spark.spark_sink.refusals({"transforms": "a", "topics": "t"})] == ["transforms"]
