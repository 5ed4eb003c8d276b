"""What has failed has a class, and its starts and ends are remembered: every way to end, with the real parts

The worker and its broker are processes of their own. A source and a sink that fail as a file says are installed for the
worker as any distribution would be.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

DEADLINE_S = 60.0  # for a loaded machine

PLUGINS = '''
from pathlib import Path
import itertools
import os
import signal
import time

from pydantic import BaseModel

from tidemill import Fatal, PartialFailure, Poison, Pos, Record, sink, source


class Settings(BaseModel):
    """Where the end is written."""

    end: str
    topic: str = ""


@source("EndingSource", version="1.0")
def ending_source(settings: Settings, pos: Pos):
    """Yield small records until an end is wanted."""
    for n in itertools.count():
        match Path(settings.end).read_text():
            case "fatal":
                raise Fatal("give the user the right to read")
            case "poison":
                raise Poison("row 7 cannot be read")
            case "bug":
                raise ZeroDivisionError("a bug in the plugin")
            case "kill":
                Path(settings.end).write_text("nothing")
                os.kill(os.getpid(), signal.SIGKILL)
            case "reset":
                raise ConnectionResetError("the other side hung up")
        yield Record(topic=settings.topic, value=str(n), partition={"of": "it"}, offset={"n": n})
        time.sleep(0.05)


@sink("EndingSink", version="1.0")
def ending_sink(settings: Settings, batch: list[Record]) -> None:
    """Refuse whatever comes."""
    raise PartialFailure({0: ValueError("no such column")})
'''


class Platform:
    """A broker, a worker and what a test does to them."""

    def __init__(self, broker: Service, worker: Service, folder: Path) -> None:
        self.bootstrap = broker.facts["address"]
        self.worker = worker
        self.api = httpx.Client(base_url=worker.facts["url"], timeout=60)
        self.end = folder / "end"
        self.want("nothing")

    def want(self, end: str) -> None:
        new = self.end.with_suffix(".new")
        new.write_text(end)
        new.rename(self.end)

    def connect(self, name: str, plugin: str, **more: str) -> None:
        config = {
            "connector.class": plugin,
            "end": str(self.end),
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        answer = self.api.put(f"/connectors/{name}/config", json=config | more)
        assert answer.is_success, answer.text

    def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """The first answer that is as wanted."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.api.get(path)
            if answer.status_code == 200 and wanted(answer.json()):
                return answer.json()
            assert time.monotonic() < deadline, f"{path} stayed {answer.text}\n{self.worker.tail()}"
            time.sleep(0.05)

    def task(self, name: str, state: str) -> Any:
        """The status of the first task once it is in this state."""
        found = self.until(
            f"/connectors/{name}/status", lambda said: bool(said["tasks"]) and said["tasks"][0]["state"] == state
        )
        return found["tasks"][0]

    def runs(self, name: str, count: int) -> Any:
        """The runs of the first task once there are so many."""
        found = self.until(
            f"/tidemill/connectors/{name}/history",
            lambda said: bool(said["tasks"]) and len(said["tasks"][0]["runs"]) == count,
        )
        return found["tasks"][0]["runs"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """A broker and a worker for all tests of this file."""
    folder = tmp_path_factory.mktemp("platform")
    (folder / "ending_plugins.py").write_text(PLUGINS)
    information = folder / "ending-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ending\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[tidemill.plugins]\nending_source = ending_plugins:ending_source\nending_sink = ending_plugins:ending_sink\n"
    )
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"group.initial.rebalance.delay.ms": "0"}
    broker = services.broker("broker", folder / "data", settings=settings, log=folder / "broker.log").start()
    try:
        worker = services.connect_worker(
            "worker", broker.facts["address"], log=folder / "worker.log", environ={"PYTHONPATH": path}
        ).start()
        try:
            yield broker, worker
        finally:
            worker.stop()
    finally:
        broker.stop()


@pytest.fixture
def platform(parts: tuple[Service, Service], tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(*parts, tmp_path)
    yield platform
    for name in platform.api.get("/connectors").json():
        platform.api.delete(f"/connectors/{name}")
    platform.api.close()


def test_every_failure_of_a_task_has_its_class_and_is_remembered(platform: Platform) -> None:
    platform.connect("ends", "EndingSource", topic="ends")
    ways = [
        ("fatal", "configuration", "give the user the right to read"),
        ("poison", "poison", "row 7 cannot be read"),
        ("bug", "bug", "ZeroDivisionError: a bug in the plugin"),
        ("reset", "transient", "ConnectionResetError: the other side hung up"),
    ]
    for number, (end, failure, reason) in enumerate(ways, 1):
        platform.task("ends", "RUNNING")
        platform.want(end)
        assert platform.task("ends", "FAILED")["failure"] == failure
        last = platform.runs("ends", number)[-1]
        assert (last["failure"], last["reason"]) == (failure, reason)
        assert last["started"] <= last["ended"] and last["ran_ms"] >= 0 and "next_try" not in last
        platform.want("nothing")
        assert platform.api.post("/connectors/ends/tasks/0/restart").status_code == 204
    assert "failure" not in platform.task("ends", "RUNNING")
    *_, now = platform.runs("ends", len(ways) + 1)
    assert "ended" not in now


def test_a_killed_task_is_in_the_history_with_its_next_try(platform: Platform) -> None:
    platform.connect("killed", "EndingSource", topic="killed")
    platform.task("killed", "RUNNING")
    platform.want("kill")
    first, second = platform.runs("killed", 2)
    assert first["failure"] == "killed" and first["reason"] == "killed by SIGKILL"
    assert first["next_try"] == first["ended"] <= second["started"]
    assert "ended" not in second
    platform.task("killed", "RUNNING")


def test_a_record_that_is_refused_is_poison(platform: Platform) -> None:
    admin = AdminClient({"bootstrap.servers": platform.bootstrap})
    admin.create_topics([NewTopic("refused", 1, 1)])["refused"].result(30)
    producer = Producer({"bootstrap.servers": platform.bootstrap})
    producer.produce("refused", "x")
    assert producer.flush(30) == 0
    platform.connect("refused", "EndingSink", topics="refused")
    status = platform.task("refused", "FAILED")
    assert status["failure"] == "poison" and "no such column" in status["trace"]
    (run,) = platform.runs("refused", 1)
    assert run["failure"] == "poison" and run["reason"].startswith("TASK_PUT: record 0 of refused-0")
    assert platform.api.get("/tidemill/connectors/refused/history").json()["connector"]["runs"][0].keys() == {
        "worker_id",
        "generation",
        "started",
    }


def test_a_transient_failure_is_tried_again_where_that_is_wanted(platform: Platform) -> None:
    platform.connect("again", "EndingSource", topic="again", **{"tidemill.restart.transient": "true"})
    platform.task("again", "RUNNING")
    platform.want("reset")
    waits = platform.until(
        "/connectors/again/status", lambda said: "tried again in" in str(said["tasks"][0].get("trace"))
    )
    task = waits["tasks"][0]
    assert (task["state"], task["failure"]) == ("RESTARTING", "transient")
    assert "of 10" in task["trace"] and task["problem"]["attempts"] >= 2
    platform.want("nothing")
    assert "failure" not in platform.task("again", "RUNNING")
    found = platform.api.get("/tidemill/connectors/again/history").json()
    *failed, now = found["tasks"][0]["runs"]
    assert {run["failure"] for run in failed} == {"transient"} and all("next_try" in run for run in failed)
    assert "ended" not in now
    refused = platform.api.put(
        "/connectors/other/config",
        json={"connector.class": "EndingSource", "end": "x", "tidemill.restart.transient": "perhaps"},
    )
    assert refused.status_code == 400 and "tidemill.restart.transient" in refused.json()["message"]
