"""A source and a sink in JavaScript, with the real parts: killed again and again, and nothing is lost

Broker and worker are processes of their own; the connectors are created over REST, as a user would. What is killed is
the plugin's own process, in the middle of its work.
"""

import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemill import services
from tidemill.rest_client import RestFailure
from tidemill.testing.connect_worker import ConnectWorker

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin-node"
COUNT = 6_000
KILLS = 4  # of each plugin
DEADLINE_S = 120.0

pytestmark = [
    pytest.mark.integration,
    pytest.mark.crash,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed: apt-get install nodejs"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("platform")


@pytest.fixture(scope="module")
def bootstrap(folder: Path) -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    broker = services.broker("broker", folder / "data", settings=settings, log=folder / "broker.log").start()
    try:
        yield broker.facts["address"]
    finally:
        broker.stop()


@contextmanager
def running(bootstrap: str, folder: Path, name: str, **settings: str) -> Iterator[ConnectWorker]:
    """A worker with these settings, underscores for dots, which finds no list of commands but its own."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    service = services.connect_worker(
        name,
        bootstrap,
        settings={"offset.flush.interval.ms": "200", **given},
        log=folder / f"{name}.log",
        environ={"TIDEMILL_PROCESS_COMMANDS": "[[]]"},  # if it counted, everything would be allowed
    ).start()
    try:
        yield ConnectWorker(service)
    finally:
        service.stop()


@pytest.fixture(scope="module")
def worker(bootstrap: str, folder: Path) -> Iterator[ConnectWorker]:
    """One that may run the examples, and a plugin that is not written yet."""
    commands = [command("source.json"), command("sink.json"), f"node {shlex.quote(str(folder / 'trouble.js'))}"]
    with running(bootstrap, folder, "worker", process_commands=",".join(commands)) as found:
        yield found


def command(example: str) -> str:
    """The command of the example's file, to be run from anywhere."""
    found: str = json.loads((EXAMPLE / example).read_text(encoding="utf-8"))["config"]["process.command"]
    return found.replace("examples/plugin-node", str(EXAMPLE))


def config(example: str, **changes: str) -> dict[str, str]:
    """The configuration of the example's file, run from anywhere."""
    found: dict[str, str] = json.loads((EXAMPLE / example).read_text(encoding="utf-8"))["config"]
    return {**found, "process.command": command(example), **changes}


def until(what: str, found: Callable[[], Any]) -> Any:
    """The first result that is something."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = found()
        if result:
            return result
        assert time.monotonic() < deadline, f"{what} has not happened within {DEADLINE_S:g} s"
        time.sleep(0.05)


def task(worker: ConnectWorker, name: str) -> dict[str, Any]:
    """Its first task, as the status tells it; empty before there is one."""
    try:
        tasks = worker.status(name)["tasks"]
    except RestFailure as failure:
        if failure.status != HTTPStatus.NOT_FOUND:  # a status follows the creation of its connector
            raise
        return {}
    found: dict[str, Any] = tasks[0] if tasks else {}
    return found


def plugin_pid(worker: ConnectWorker, name: str, but: int = 0) -> int:
    """The plugin's process, as the status tells it, other than `but`."""

    def look() -> int:
        pid = int(task(worker, name).get("facts", {}).get("plugin-pid", 0))
        return pid if pid != but and pid and os.path.exists(f"/proc/{pid}") else 0

    return int(until(f"a process of {name}", look))


def numbers(file: Path) -> list[int]:
    """What the sink has written, in its order; the last line may be half of one."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(json.loads(line)["value"])["number"] for line in lines if line.endswith("}")]


def more_than(count: int, file: Path) -> Callable[[], bool]:
    return lambda: len(numbers(file)) > count


def test_nothing_is_lost_when_plugins_are_killed(worker: ConnectWorker, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    worker.create("numbers", config("source.json", topic="killed", count=str(COUNT), **{"per.second": "600"}))
    worker.create(
        "lines",
        config("sink.json", topics="killed", file=str(file), **{"consumer.override.auto.offset.reset": "earliest"}),
    )
    worker.wait_running("numbers")
    worker.wait_running("lines")
    last = {"numbers": 0, "lines": 0}
    for _ in range(KILLS):
        went_through = more_than(len(numbers(file)), file)
        until("a record that went through", went_through)
        for name in last:
            last[name] = plugin_pid(worker, name, but=last[name])
            os.kill(last[name], signal.SIGKILL)
    until("the last number", lambda: COUNT in numbers(file))
    assert set(numbers(file)) == set(range(1, COUNT + 1))
    worker.delete("numbers")
    worker.delete("lines")


def test_a_plugin_that_dies_is_told_and_one_that_talks_nonsense_fails(worker: ConnectWorker, folder: Path) -> None:
    script = folder / "trouble.js"
    good = (EXAMPLE / "numbers-source.js").read_text().replace("./tidemill", str(EXAMPLE / "tidemill.js"))
    poll = "async poll({ wait_ms, records_max }) {"
    made = config("source.json", topic="trouble", **{"process.command": f"node {script}"})
    script.write_text(good.replace(poll, poll + "\n    console.error('the disk is on fire'); process.exit(7);"))
    worker.create("trouble", made)
    problem = until("the status says so", lambda: task(worker, "trouble").get("problem"))
    assert "has ended with exit status 7 while it was to poll" in problem["message"]
    assert "the disk is on fire" in problem["message"]
    script.write_text(good.replace(poll, poll + "\n    require('fs').writeSync(1, 'hello '.repeat(1000));"))
    found = until("it fails", lambda: task(worker, "trouble").get("state") == "FAILED" and task(worker, "trouble"))
    assert "does not speak the record protocol" in found["trace"]
    assert "prints belong on standard error" in found["trace"]
    worker.delete("trouble")


def test_what_is_wrong_is_told_under_its_name(worker: ConnectWorker) -> None:
    url = f"{worker.url}/connector-plugins/ProcessSource/config/validate"
    made = config("source.json", name="wrong", count="0", **{"per.second": "-1"})
    answer = httpx.put(url, json=made, timeout=60).json()
    errors = {each["value"]["name"]: each["value"]["errors"] for each in answer["configs"] if each["value"]["errors"]}
    assert errors == {"count": ["count is at least 1."], "per.second": ["per.second is at least 1."]}
    listed = {each["class"]: each["type"] for each in httpx.get(f"{worker.url}/connector-plugins", timeout=30).json()}
    assert (listed["ProcessSource"], listed["ProcessSink"]) == ("source", "sink")


def test_no_other_command_is_run(worker: ConnectWorker, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    for given in (f"touch {mark}", f"node -e \"require('fs').mkdirSync('{mark}')\"", "node x.js"):
        with pytest.raises(RestFailure) as refused:
            worker.create("other", config("source.json", **{"process.command": given}))
        assert "This worker may not run this command. On every worker add to its setting" in str(refused.value)
        assert "process.commands, after a comma if there are others, and restart it: " in str(refused.value)
        assert given.split()[0] + " " in str(refused.value).rpartition("restart it: ")[2]
    options = {"process.environment.NODE_OPTIONS": f"--require={mark}"}
    with pytest.raises(RestFailure, match="Set NODE_OPTIONS in the environment of every worker"):
        worker.create("other", config("source.json", **options))
    assert not mark.exists()


def test_what_was_accepted_is_not_run_by_a_worker_that_may_not(bootstrap: str, folder: Path) -> None:
    """A second group, whose first worker may run anything and whose second one nothing."""
    topics = {f"{role}_storage_topic": f"second-{role}" for role in ("config", "offset", "status")}
    group = {"group_id": "second", "scheduled_rebalance_max_delay_ms": "0", **topics}
    with running(bootstrap, folder, "anything", process_commands="*", **group) as first:
        with pytest.raises(RestFailure, match="there is no program 'nod' on this worker: install it on every worker"):
            first.create("wrong", config("source.json", **{"process.command": "nod x.js"}))
        first.create("one", config("source.json", topic="second", **{"process.environment.LANG": "C"}))
        first.wait_running("one")
    with running(bootstrap, folder, "nothing", **group) as second:
        failed = until("it fails", lambda: task(second, "one").get("state") == "FAILED" and task(second, "one"))
        sentence = f"and restart it: {config('source.json')['process.command']}"
        assert failed["trace"].startswith("process.command: This worker may not run this command.")
        assert failed["trace"].endswith(sentence)
        httpx.put(f"{second.url}/connectors/one/stop", timeout=30).raise_for_status()
        until("it is stopped", lambda: second.status("one")["connector"]["state"] == "STOPPED")
        httpx.put(f"{second.url}/connectors/one/resume", timeout=30).raise_for_status()
        told = until("it is not divided", lambda: (found := second.status("one")["connector"]).get("trace") and found)
        assert told["state"] == "FAILED" and sentence in told["trace"]


def test_a_plugin_dies_with_its_worker(worker: ConnectWorker) -> None:
    """Whatever ends the worker: here, a kill that leaves nobody to clean up but its guardian."""
    worker.create("orphan", config("source.json", topic="orphan", count="1000000", **{"per.second": "10"}))
    worker.wait_running("orphan")
    pid = plugin_pid(worker, "orphan")
    worker.service.kill()
    until("the plugin's end", lambda: not os.path.exists(f"/proc/{pid}"))
