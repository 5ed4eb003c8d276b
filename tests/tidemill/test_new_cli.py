"""`tidemill new`: each kind is made, passes its own test, is installed, deployed, and its records are there."""

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from tidemill import services
from tidemill.new_cli import app

if TYPE_CHECKING:
    from tidemill.services import Service

KINDS = {"numbers-in": "source", "lines-out": "sink", "loud-lines": "transform"}


def new(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_it_says_what_was_made_and_what_is_next(tmp_path: Path) -> None:
    result = new("source", "web-orders", "--into", str(tmp_path))
    assert result.exit_code == 0
    folder = tmp_path / "web-orders"
    assert {path.name for path in folder.iterdir()} >= {"pyproject.toml", "web_orders.py", "test_web_orders.py"}
    assert f"made {folder}:" in result.output
    assert "tidemill connector create web-orders.json" in result.output
    for text in (result.output, (folder / "README.md").read_text(encoding="utf-8")):
        assert text.index("pip install pytest") < text.index("python -m pytest"), "Tidemill does not bring it"


@pytest.mark.parametrize("there", ["folder", "file", "link"])
def test_what_is_there_is_never_touched(tmp_path: Path, there: str) -> None:
    path = tmp_path / "web-orders"
    match there:
        case "folder":
            path.mkdir()
        case "file":
            path.write_text("mine")
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
    result = new("sink", "web-orders", "--into", str(tmp_path))
    assert result.exit_code == 1 and "is there already and is left as it is" in result.stderr
    assert not (tmp_path / "elsewhere").exists()
    assert not path.is_dir() or list(path.iterdir()) == []


def test_a_bad_name_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = new("source", "Web Orders", "--into", str(tmp_path))
    assert result.exit_code == 2 and "such as web-orders" in result.stderr
    result = new("source", "web-orders", "--into", str(tmp_path / "missing"))
    assert result.exit_code == 1 and "No such file" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment of its own that has what this one has: a test installs nothing for others."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (site / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def projects(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each kind: made, tested and installed as the README says, without the network."""
    folder = tmp_path_factory.mktemp("projects")
    for name, kind in KINDS.items():
        assert new(kind, name, "--into", str(folder)).exit_code == 0
        done = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], folder / name)
        assert " passed" in done.stdout, done.stdout + done.stderr
        offline = ["install", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-q", "-e", "."]
        done = run([sys.executable, "-m", "pip", "--python", python, *offline], folder / name)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def worker(
    projects: Path, python: str, tidemill_broker: "Service", tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Service"]:
    settings = {"group.id": "new-cli"} | {f"{role}.storage.topic": f"new-cli-{role}" for role in TOPICS}
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    address = tidemill_broker.facts["address"]
    service = services.connect_worker("worker", address, settings=settings, log=log, python=python).start()
    yield service
    service.stop()


TOPICS = ("config", "offset", "status")


def run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    found = {**os.environ, **environ}
    return subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True, timeout=100, check=False)


def deploy(name: str, projects: Path, worker: "Service") -> None:
    command = [sys.executable, "-m", "tidemill.cli", "connector", "create", f"{name}.json"]
    done = run(command, projects / name, TIDEMILL_CONNECT_URL=worker.facts["url"])
    assert done.returncode == 0, done.stdout + done.stderr + worker.tail()


def consumed(topic: str, count: int, broker: "Service") -> list[str]:
    """The first records; the connector that writes them is RUNNING, but may not have made the topic yet."""
    command = [sys.executable, "-m", "tidemill.cli", "consume", topic, "--from-beginning", "--max-messages", str(count)]
    deadline = time.monotonic() + 60
    while True:
        done = run(command, Path.cwd(), TIDEMILL_BOOTSTRAP=broker.facts["address"])
        if done.returncode == 0:
            return done.stdout.splitlines()
        assert "there is no topic" in done.stderr and time.monotonic() < deadline, done.stderr


@pytest.mark.integration
def test_a_source_of_ones_own(projects: Path, worker: "Service", tidemill_broker: "Service") -> None:
    deploy("numbers-in", projects, worker)
    assert [json.loads(line) for line in consumed("numbers-in", 2, tidemill_broker)] == [{"number": 1}, {"number": 2}]


@pytest.mark.integration
def test_a_sink_of_ones_own(projects: Path, worker: "Service", tidemill_broker: "Service", tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": tidemill_broker.facts["address"]})
    producer.produce("lines-out", key="k", value="hello")
    assert producer.flush(30) == 0
    file = tmp_path / "lines.jsonl"
    change(projects / "lines-out" / "lines-out.json", file=str(file))
    deploy("lines-out", projects, worker)
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), worker)
    assert json.loads(file.read_text()) == {"key": "k", "value": "hello"}


@pytest.mark.integration
def test_a_transform_of_ones_own(projects: Path, worker: "Service", tidemill_broker: "Service", tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("hello\n")
    change(projects / "loud-lines" / "loud-lines.json", file=str(tmp_path / "lines.txt"))
    deploy("loud-lines", projects, worker)
    assert consumed("loud-lines", 1, tidemill_broker) == ["HELLO!"]


def change(path: Path, **settings: str) -> None:
    """What a user would edit before deploying."""
    connector = json.loads(path.read_text())
    connector["config"] |= settings
    path.write_text(json.dumps(connector))


def wait_for(reached: Callable[[], bool], worker: "Service", seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, worker.tail()
        time.sleep(0.05)
