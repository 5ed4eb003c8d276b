"""`tidemill connect start` as an operator runs it, and what survives when parts of it are killed"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.processes import processes_below
from tidemill import services
from tidemill.connect.cli import gather, run
from tidemill.connect.config import parse_worker
from tidemill.core.config import ConfigError

Settings = Callable[..., dict[str, str]]


def test_the_strongest_setting_wins(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text("bootstrap.servers=from-file:1\ngroup.id=from-file\nlisteners=http://:1\nclient.id=from-file\n")
    environ = {"TIDEMILL_CONNECT_GROUP_ID": "from-environment", "TIDEMILL_CONNECT_CLIENT_ID": "from-environment"}
    raw = gather(file, environ, ["client.id=from-set"], "from-option:1", "127.0.0.1:2")
    assert raw == {
        "bootstrap.servers": "from-option:1",
        "group.id": "from-environment",
        "listeners": "http://127.0.0.1:2",
        "client.id": "from-set",
    }
    assert gather(None, {}, [], None, "[::1]:2") == {"listeners": "http://[::1]:2"}


def test_the_variable_of_every_command_names_the_cluster_where_nothing_else_does() -> None:
    environ = {"TIDEMILL_BOOTSTRAP": "everywhere:1"}
    assert gather(None, environ, [], None, None) == {"bootstrap.servers": "everywhere:1"}
    assert gather(None, environ, ["bootstrap.servers=mine:1"], None, None) == {"bootstrap.servers": "mine:1"}
    assert gather(None, environ, [], "mine:1", None) == {"bootstrap.servers": "mine:1"}


def test_variables_of_clients_secrets_and_of_the_other_commands(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    environ = {
        "TIDEMILL_CONNECT_URL": "http://elsewhere:8083",
        "TIDEMILL_CONNECT_SASL_PASSWORD_FILE": str(secret),
        "TIDEMILL_CONNECT_PRODUCER_LINGER_MS": "5",
        "TIDEMILL_CONNECT_PROPERTIES": "producer.new.setting=1",
    }
    assert gather(None, environ, [], None, None) == {
        "sasl.password": "s3cret",
        "producer.linger.ms": "5",
        "producer.new.setting": "1",
    }
    with pytest.raises(ConfigError, match="did you mean TIDEMILL_CONNECT_GROUP_ID"):
        gather(None, {"TIDEMILL_CONNECT_GRUP_ID": "x"}, [], None, None)


def test_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text('[offset.storage]\ntopic = "o"\npartitions = 3\n')
    assert gather(file, {}, [], None, None) == {"offset.storage.topic": "o", "offset.storage.partitions": "3"}


@pytest.mark.parametrize(
    ("file", "settings", "rest", "text"),
    [
        ("missing.properties", [], None, "cannot read .*missing.properties: No such file"),
        (None, ["no-sign"], None, "Expected key=value"),
        (None, [], "localhost", "--rest: localhost is not HOST:PORT"),
    ],
)
def test_what_cannot_be_read(file: str | None, settings: Sequence[str], rest: str | None, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        gather(None if file is None else Path(file), {}, settings, None, rest)


def tidemill(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidemill.cli", "connect", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.integration
def test_wrong_settings_end_with_2_and_a_line_each() -> None:
    done = tidemill("start", "--set", "grup.id=x", "--set", "offset.flush.interval.ms=soon")
    assert done.returncode == 2 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith("tidemill connect: ") for line in lines)
    assert "did you mean 'group.id'" in done.stderr


@pytest.mark.integration
def test_every_setting_can_be_listed() -> None:
    done = tidemill("config", "--reference")
    assert done.returncode == 0 and "| `group.id` | string | `connect-cluster` |" in done.stdout


@pytest.mark.integration
def test_settings_are_shown_as_they_take_effect(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text("group.id=mine\nproducer.linger.ms=7\n")
    done = tidemill("config", "--config", str(file), "-b", "east:9092", "--set", "key.converter.schemas.enable=false")
    assert done.returncode == 0, done.stderr
    given, defaults = done.stdout.split("\n\n# defaults\n")
    assert {"group.id=mine", "producer.linger.ms=7", "bootstrap.servers=east:9092"} < set(given.splitlines())
    assert "offset.flush.interval.ms=60000" in defaults.splitlines()
    wrong = tidemill("config", "--set", "grup.id=x")
    assert (wrong.returncode, "did you mean 'group.id'" in wrong.stderr) == (2, True)


@pytest.mark.integration
def test_no_cluster_ends_with_1_and_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "500", "listeners": "http://127.0.0.1:0"}
    assert run(parse_worker(settings)) == 1
    assert re.search(
        r"^tidemill connect: no Kafka cluster at 127\.0\.0\.1:1 after 0\.5 s", capfd.readouterr().err, re.M
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"security.protocol": "SASL_SSL"}, "client settings cannot be used"),
        ({"ssl.truststore.location": "/no/such/file", "security.protocol": "SSL"}, "client settings cannot be used"),
    ],
)
def test_security_settings_no_client_can_use_end_with_1_and_one_line(
    capfd: pytest.CaptureFixture[str], settings: dict[str, str], text: str
) -> None:
    assert run(parse_worker({"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0", **settings})) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tidemill connect: ")]
    assert text in line


@pytest.mark.integration
def test_a_stop_while_it_waits_for_the_cluster(worker_settings: Settings, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemill.cli", "connect", "start"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--bootstrap", "127.0.0.1:1", "--rest", "127.0.0.1:0"], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 30
        while "waiting for the Kafka cluster" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


# ------------------------------------------------------------- a live pipeline


class Pipeline:
    """A worker process with a file source and a file sink, and what can happen to it."""

    def __init__(self, worker: services.Service, folder: Path, topic: str) -> None:
        self.worker = worker
        self.names = (f"from-{topic}", f"into-{topic}")
        self.source, self.target = folder / "in.txt", folder / "out.txt"
        self.topic = topic
        self.written = 0
        self.source.write_text("")

    def call(self, method: str, path: str, **more: Any) -> Any:
        answer = httpx.request(method, self.worker.facts["url"] + path, timeout=60, **more)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def create(self) -> None:
        source = {"connector.class": "FileStreamSource", "file": str(self.source), "topic": self.topic}
        sink = {"connector.class": "FileStreamSink", "file": str(self.target), "topics": self.topic}
        plain = {"value.converter": "string"}
        for name, config in zip(self.names, (source, sink), strict=True):
            self.call("PUT", f"/connectors/{name}/config", json=config | plain)

    def write(self, lines: int) -> None:
        with self.source.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self.written, self.written + lines))
        self.written += lines

    def states(self) -> list[str]:
        found = self.call("GET", "/connectors?expand=status")
        return [each["state"] for name in self.names for each in found[name]["status"]["tasks"]]

    def places(self) -> set[str]:
        found = self.call("GET", "/connectors?expand=status")
        return {each["worker_id"] for name in self.names for each in found[name]["status"]["tasks"]}

    def wait(self, wanted: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if wanted():
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, f"{what}; {self.worker.tail()}"
            time.sleep(0.05)

    def arrived(self) -> set[str]:
        return set(self.target.read_text().split()) if self.target.exists() else set()

    def wait_for_everything(self) -> None:
        wanted = {str(number) for number in range(self.written)}
        self.wait(lambda: self.arrived() == wanted, "lines are missing")

    def task_processes(self) -> list[psutil.Process]:
        """The processes that run plugins."""
        return processes_below(self.worker.pid, "tidemill: task")


@pytest.fixture
def pipeline(
    bootstrap: str, worker_settings: Settings, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[Pipeline]:
    """A running pipeline of two connectors."""
    settings = {key: value for key, value in worker_settings().items() if key not in ("bootstrap.servers", "listeners")}
    worker = services.connect_worker("worker", bootstrap, settings=settings, log=tmp_path / "worker.log").start()
    found = Pipeline(worker, tmp_path, unique("topic"))
    found.create()
    found.write(100)
    found.wait_for_everything()
    yield found
    worker.stop()


@pytest.mark.integration
def test_a_stop_in_order(pipeline: Pipeline) -> None:
    processes = psutil.Process(pipeline.worker.pid).children(recursive=True)
    assert len(pipeline.task_processes()) == 2
    assert pipeline.worker.stop() == 0
    assert not [process for process in processes if process.is_running()]
    lines = pipeline.target.read_text().split()
    pipeline.worker.start()
    pipeline.write(10)
    pipeline.wait_for_everything()
    # Offsets were stored on the way out: nothing comes twice.
    assert pipeline.target.read_text().split() == lines + [str(number) for number in range(100, 110)]


@pytest.mark.integration
@pytest.mark.crash
def test_a_killed_task_heals_by_itself(pipeline: Pipeline) -> None:
    for _ in range(2):
        for process in pipeline.task_processes():
            process.kill()
        pipeline.write(50)
        pipeline.wait_for_everything()
        pipeline.wait(lambda: pipeline.states() == ["RUNNING", "RUNNING"], "tasks did not come back")
    metrics = httpx.get(pipeline.worker.facts["url"] + "/metrics").text
    restarts = re.findall(r'^tidemill_connect_task_restarts_total{connector="[\w-]+",task="0"} (\d+)', metrics, re.M)
    assert restarts == ["2", "2"]


@pytest.mark.integration
@pytest.mark.crash
def test_a_killed_worker_takes_its_tasks_along_and_comes_back(pipeline: Pipeline) -> None:
    processes = psutil.Process(pipeline.worker.pid).children(recursive=True)
    pipeline.write(50)
    pipeline.worker.kill()
    gone, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive, alive
    pipeline.write(50)
    pipeline.worker.start()
    pipeline.wait_for_everything()
    pipeline.wait(lambda: pipeline.states() == ["RUNNING", "RUNNING"], "tasks did not come back")


@pytest.mark.integration
def test_a_second_worker_shares_the_work_until_it_leaves(pipeline: Pipeline, bootstrap: str, tmp_path: Path) -> None:
    first = pipeline.worker
    settings = dict(part.split("=", 1) for part in first.command if "=" in part)
    settings |= {"scheduled.rebalance.max.delay.ms": "0"}
    second = services.connect_worker("second", bootstrap, settings=settings, log=tmp_path / "second.log").start()
    try:
        pipeline.wait(lambda: len(pipeline.places()) == 2, "the second got nothing")
        pipeline.write(10)
        pipeline.wait_for_everything()
        pipeline.wait(lambda: pipeline.states() == ["RUNNING", "RUNNING"], "tasks did not come back")
    finally:
        assert second.stop() == 0
    pipeline.wait(lambda: len(pipeline.places()) == 1, "its tasks were not taken over")
    pipeline.write(10)
    pipeline.wait_for_everything()
    pipeline.wait(lambda: pipeline.states() == ["RUNNING", "RUNNING"], "tasks did not come back")
