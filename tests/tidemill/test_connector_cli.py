"""`tidemill connector` against a real worker."""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from tidemill import services
from tidemill.connector_cli import TRACEBACK, app, end_line, problem_line

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def url(tidemill_broker: "Service", tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    group = f"connector-cli-{uuid.uuid4().hex[:8]}"
    settings = {"group.id": group} | {
        f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")
    }
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    worker = services.connect_worker("worker", tidemill_broker.facts["address"], settings=settings, log=log).start()
    yield worker.facts["url"]
    worker.stop()


class Connectors:
    """The command, and the configuration of a file source of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.name = f"lines-{uuid.uuid4().hex[:8]}"
        self.source = folder / "lines.txt"
        self.source.write_text("one\ntwo\n")

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--url", self.url])

    def config(self, **more: str) -> dict[str, str]:
        return {"connector.class": "FileStreamSource", "file": str(self.source), "topic": self.name, **more}

    def file(self, content: Any, name: str = "connector.json") -> str:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def created(self) -> None:
        result = self("create", self.file({"name": self.name, "config": self.config()}))
        assert result.exit_code == 0, result.output


@pytest.fixture
def connectors(url: str, tmp_path: Path) -> Iterator[Connectors]:
    found = Connectors(url, tmp_path)
    yield found
    found("delete", found.name)


def test_what_a_file_leaves_open_is_given_beside_it(connectors: Connectors) -> None:
    secret = connectors.folder / "secret"
    secret.write_text(f"{connectors.source}\n")
    file = connectors.file({"name": connectors.name, "config": {"connector.class": "FileStreamSource"}})
    given = ["--set", f"topic={connectors.name}", "--set-file", f"file={secret}"]
    for command in ("validate", "create"):
        assert connectors(command, file, *given).exit_code == 0
    shown = json.loads(connectors("config", connectors.name).stdout)["config"]
    assert (shown["file"], shown["topic"]) == (str(connectors.source), connectors.name)
    assert "cannot read /nowhere" in connectors("create", file, "--set-file", "file=/nowhere").stderr
    assert "Expected key=value" in connectors("create", file, "--set", "file").stderr


def test_what_is_given_beside_a_file_wins_over_it_as_the_help_says(connectors: Connectors) -> None:
    secret = connectors.folder / "secret"
    secret.write_text(f"{connectors.source}\n")
    file = connectors.file({"name": "other", "config": connectors.config(file="/nowhere", topic="other")})
    given = ["--set", f"topic={connectors.name}", "--set-file", f"file={secret}", "--set", f"name={connectors.name}"]
    assert connectors("create", file, *given).stdout.startswith(f"created: {connectors.name}\n")
    shown = json.loads(connectors("config", connectors.name).stdout)["config"]
    assert (shown["file"], shown["topic"]) == (str(connectors.source), connectors.name)
    for command in ("create", "validate"):
        assert "wins over FILE's" in " ".join(connectors(command, "--help").stdout.split())


def test_create_list_status_delete(connectors: Connectors) -> None:
    created = connectors("create", connectors.file({"name": connectors.name, "config": connectors.config()}))
    assert created.stdout == f"created: {connectors.name}\n{connectors.name} is RUNNING with 1 tasks\n"
    listed = connectors("list").stdout
    assert connectors.name in listed
    assert "1 RUNNING" in listed
    status = json.loads(connectors("status", connectors.name, "--json").stdout)
    assert status["connector"]["state"] == "RUNNING"
    assert "task 0" in connectors("status", connectors.name).stdout
    assert connectors("delete", connectors.name).stdout == f"deleted {connectors.name}\n"
    gone = connectors("config", connectors.name)
    assert (gone.exit_code, gone.stderr) == (
        1,
        f"tidemill: Connector {connectors.name} not found: 'tidemill connector list' shows those that are\n",
    )


def test_the_history_tells_starts_and_ends(connectors: Connectors) -> None:
    connectors.created()
    assert connectors("restart", connectors.name, "--task", "0").exit_code == 0
    deadline = time.monotonic() + 60
    while True:
        found = json.loads(connectors("history", connectors.name, "--json").stdout)
        runs = found["tasks"][0]["runs"]
        if len(runs) == 2 or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert [run.get("reason") for run in runs] == ["a restart was asked for", None]
    shown = connectors("history", connectors.name, "--task", "0").stdout
    assert "a restart was asked for" in shown and "runs" in shown and "connector" not in shown
    none = connectors("history", "none")
    assert (none.exit_code, none.stderr) == (1, "tidemill: Connector none not found\n")


def test_an_end_is_one_line() -> None:
    assert end_line({"started": "…"}) == ""
    stopped = {"ended": "…", "ran_ms": 1, "reason": "a restart was asked for"}
    assert end_line(stopped) == "a restart was asked for"
    killed = stopped | {"failure": "killed", "reason": "killed by SIGKILL", "next_try": "2026-03-01T12:00:00.000Z"}
    assert end_line(killed) == "killed: killed by SIGKILL (next try 2026-03-01T12:00:00.000Z)"


def test_files_of_every_shape(connectors: Connectors) -> None:
    flat = {"name": connectors.name, **connectors.config()}
    properties = "".join(f"{key}={value}\n" for key, value in flat.items())
    connectors.created()
    for content, name in ((flat, "flat.json"), (properties, "connector.properties")):
        changed = connectors("create", connectors.file(content, name), "--update")
        assert (changed.exit_code, changed.stdout.splitlines()[0]) == (0, f"in force: {connectors.name}")
    told = json.loads(connectors("config", connectors.name).stdout)
    assert told["config"]["file"] == str(connectors.source)
    assert connectors("create", connectors.file(told, "again.json"), "--update").exit_code == 0


def test_pause_resume_stop_restart_and_offsets(connectors: Connectors) -> None:
    connectors.created()
    assert connectors("pause", connectors.name).stdout == f"pausing {connectors.name}\n"
    assert connectors("resume", connectors.name).stdout == f"resuming {connectors.name}\n"
    assert connectors("restart", connectors.name).stdout == f"restarting {connectors.name}\n"
    assert connectors("restart", connectors.name, "--task", "0").stdout == f"restarting task 0 of {connectors.name}\n"
    refused = connectors("offsets", connectors.name, "--reset")
    assert (refused.exit_code, "must be in the STOPPED state" in refused.stderr) == (1, True)
    connectors("stop", connectors.name)
    offsets = {"offsets": [{"partition": {"filename": str(connectors.source)}, "offset": {"position": 4}}]}
    put = connectors("offsets", connectors.name, "--set", connectors.file(offsets, "offsets.json"))
    assert put.exit_code == 0, put.output
    assert json.loads(connectors("offsets", connectors.name).stdout) == offsets
    assert connectors("offsets", connectors.name, "--reset").exit_code == 0
    assert json.loads(connectors("offsets", connectors.name).stdout) == {"offsets": []}


def test_validation_names_what_is_wrong(connectors: Connectors) -> None:
    good = connectors("validate", connectors.file({"name": connectors.name, "config": connectors.config()}))
    assert (good.exit_code, "nothing is wrong" in good.stdout) == (0, True), good.output
    config = connectors.config()
    del config["topic"]
    bad = connectors("validate", connectors.file({"name": connectors.name, "config": config}))
    assert (bad.exit_code, "topic: " in bad.stderr) == (1, True), bad.output


def test_settings_that_do_nothing_are_told(connectors: Connectors) -> None:
    config = {**connectors.config(), "tpic": "x", "value.converter.schemas.enable": "false"}
    file = connectors.file({"name": connectors.name, "config": config})
    for command in (("validate", file), ("create", file), ("status", connectors.name), ("create", file, "--update")):
        done = connectors(*command)
        assert done.exit_code == 0, done.output
        assert "warning: 'tpic' is unknown and has no effect: did you mean 'topic'?\n" in done.stderr, command
        assert "warning: 'value.converter.schemas.enable' has no effect without 'value.converter'" in done.stderr


def test_a_connector_that_fails_says_why(connectors: Connectors) -> None:
    config = connectors.config()
    del config["topic"]
    refused = connectors("create", connectors.file({"name": connectors.name, "config": config}))
    assert (refused.exit_code, "topic" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (
            f"{TRACEBACK}\n  File ...\n    x\nValueError: no such topic\n",
            "ValueError: no such topic",
        ),
        (f"{TRACEBACK}\n  File ...\nOSError: first\nsecond\n", "OSError: first"),
        (
            f'{TRACEBACK}\n  File "/a/b.py", line 3, in run\n  File "/a/mine.py", line 25, in f\nValueError: boom\n',
            "ValueError: boom (mine.py:25)",
        ),
        (
            f'{TRACEBACK}\n  File "/a/b.py", line 3, in f\n  File "/a/mine.py", line 21\n    while\nSyntaxError: no\n',
            "SyntaxError: no (mine.py:21)",
        ),
        (
            "org.apache.ConnectException: gone\n\tat org.apache...\n",
            "org.apache.ConnectException: gone",
        ),
        ("killed by SIGKILL", "killed by SIGKILL"),
        (f"{TRACEBACK}\n  File ...", TRACEBACK),
        (None, ""),
    ],
)
def test_the_line_of_a_trace_that_says_what_is_wrong(trace: str | None, line: str) -> None:
    assert problem_line({"state": "FAILED", "trace": trace}) == line


def test_plugins(connectors: Connectors) -> None:
    assert "FileStreamSource" in connectors("plugins").stdout


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("{", "bad.json", "is not JSON"),
        ("[]", "list.json", "not a JSON object"),
        ({"config": {}}, "nameless.json", "has no name"),
    ],
)
def test_a_file_that_is_none(connectors: Connectors, content: Any, name: str, says: str) -> None:
    result = connectors("create", connectors.file(content, name))
    assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (1, True, 1)


def test_no_file(connectors: Connectors) -> None:
    assert "cannot read" in connectors("create", str(connectors.folder / "nothing.json")).stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:1"])
def test_nobody_there(url: str) -> None:
    result = CliRunner().invoke(app, ["list", "--url", url])
    assert result.exit_code == 1
    assert "no Connect worker answers at http://127.0.0.1:1 (Connection refused): start one" in result.stderr


def test_an_address_that_is_none() -> None:
    assert "--url takes http://HOST:PORT" in CliRunner().invoke(app, ["list", "--url", "ftp://x"]).stderr
