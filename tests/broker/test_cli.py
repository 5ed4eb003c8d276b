"""`tidemill broker start` as people run it: the readiness line, mistakes in one line, a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidemill.broker import cli
from tidemill.broker.cli import app, gather
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN
from tidemill.core.config import ConfigError

READY = re.compile(
    r"tidemill broker ready: listening on 127\.0\.0\.1:(\d+), node (\d+), cluster ([\w-]{22}), data (.+)\n"
)
COMMAND = [sys.executable, "-m", "tidemill.cli", "broker", "start"]


@contextmanager
def started(*arguments: str, **environ: str) -> Iterator[tuple["subprocess.Popen[str]", re.Match[str]]]:
    """A broker process and its readiness line; killed if the test has not ended it."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, line + process.stderr.read()
        yield process, ready
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    """Exit status and standard error of a start that must fail."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_stops_when_told(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with started("--data", str(data), "--listen", "127.0.0.1:0", "--set", "node.id=7") as (process, ready):
        assert (ready[2], ready[4]) == ("7", str(data))
        with socket.create_connection(("127.0.0.1", int(ready[1])), timeout=5):
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert out == ""
        assert "broker stops" in err
        assert "survives a power cut" in err
    with started("--data", str(data), "--listen", "127.0.0.1:0", "--set", "node.id=7") as (_, again):
        assert again[3] == ready[3], "the cluster keeps its id"


@pytest.mark.integration
def test_a_file_the_environment_and_options_in_that_order(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=3\nnum.io.threads=8\nlog.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    with started("--config", str(file), TIDEMILL_BROKER_NODE_ID="4", TIDEMILL_BROKER_FLUSH_POLICY="os") as (
        process,
        ready,
    ):
        assert ready[2] == "4"
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert "one event loop serves the node" in err
    assert "power cut can lose the last seconds" in err


@pytest.mark.integration
def test_a_folder_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    with started("--data", str(tmp_path), "--listen", "127.0.0.1:0"):
        status, err = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--log-level", "error")
    assert status == 1
    assert re.fullmatch(r"tidemill broker: .* is in use by another process: .*\n", err)


@pytest.mark.integration
def test_an_address_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, err = refused("--data", str(tmp_path), "--listen", address, "--log-level", "error")
    assert status == 1
    assert err.startswith(f"tidemill broker: cannot listen on {address}: Address already in use; ")
    assert err.count("\n") == 1


@pytest.mark.integration
@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_a_read_only_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        status, err = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    finally:
        tmp_path.chmod(0o700)
    assert status == 1
    assert "cannot write to" in err


@pytest.mark.integration
def test_a_file_where_the_folder_should_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, err = refused("--data", str(tmp_path / "file"), "--listen", "127.0.0.1:0", "--log-level", "error")
    assert status == 1
    assert re.fullmatch(r"tidemill broker: cannot write to .*\n", err)


@pytest.mark.integration
def test_a_file_of_the_folder_that_cannot_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    with started("--data", str(tmp_path), "--listen", "127.0.0.1:0") as (process, _ready):
        process.terminate()
        process.wait(20)
    mark = tmp_path / CLEAN_SHUTDOWN
    mark.unlink()
    mark.mkdir()  # root removes any file, but not this one
    status, err = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--log-level", "error")
    assert status == 1
    assert re.fullmatch(rf"tidemill broker: cannot use {re.escape(str(mark))}: Is a directory; .*owner.*\n", err)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--set", "num.partition=3"), "did you mean 'num.partitions'"),
        (("--set", "nonsense"), "Expected key=value"),
        (("--listen", "nowhere"), "Expected HOST:PORT"),
        (("--listen", "SSL://localhost:9093"), "try --set listeners=SSL://localhost:9093"),
        (("--config", "/nonexistent.properties"), "cannot read /nonexistent.properties: No such file"),
        (("--log-format", "xml"), "is not one of"),
        (
            ("--set", "metrics.listener=9404"),
            "Invalid value '9404' for configuration metrics.listener: expected HOST:PORT",
        ),
        (("--set", "ssl.keystore.location=x"), "no listener has the protocol SSL"),
    ],
)
def test_settings_that_cannot_be_used_are_status_2_and_one_line(arguments: tuple[str, ...], says: str) -> None:
    status, err = refused(*arguments)
    assert status == 2
    assert says in err
    assert err.startswith("tidemill broker: ")
    assert err.count("\n") == 1


@pytest.mark.integration
def test_a_wrong_variable_is_status_2_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER_LOG_RETENTION", "1")
    status, err = refused()
    assert status == 2
    assert err == (
        "tidemill broker: Unknown variable TIDEMILL_BROKER_LOG_RETENTION: "
        "did you mean TIDEMILL_BROKER_LOG_RETENTION_MS?\n"
    )


def test_settings_are_shown_as_they_take_effect(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=3\nnum.partitions=5\n")
    command = [*COMMAND[:-1], "config", "--config", str(file), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    given, defaults = done.stdout.split("\n\n# defaults\n")
    assert given.splitlines() == ["# given", "node.id=3", "num.partitions=5", f"log.dirs={tmp_path}"]
    assert "flush.policy=group" in defaults.splitlines()
    wrong = subprocess.run(
        [*command, "--set", "num.partition=1"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (wrong.returncode, wrong.stdout, "did you mean" in wrong.stderr) == (2, "", True)


@pytest.mark.parametrize(
    ("controllers", "given", "shown"),
    [
        ("1@a:1,2@b:1,3@c:1", {}, ("3", "3", "2")),
        ("1@a:1,2@b:1", {}, ("2", "2", "1")),
        ("1@a:1,2@b:1,3@c:1", {"default.replication.factor": "1"}, ("1", "3", "1")),
        ("1@a:1,2@b:1,3@c:1", {"min.insync.replicas": "1"}, ("3", "3", "1")),
        ("", {}, ("1", "1", "1")),
    ],
)
def test_defaults_of_a_cluster_are_shown_as_they_take_effect(
    capsys: pytest.CaptureFixture[str], controllers: str, given: dict[str, str], shown: tuple[str, str, str]
) -> None:
    settings = {"listeners": "PLAINTEXT://a:9092,CONTROLLER://:1", "controller.listener.names": "CONTROLLER", **given}
    several = {**settings, "controller.quorum.voters": controllers} if controllers else given
    options = app.parse_args(["config", *(f"--set={name}={value}" for name, value in several.items())])
    assert options.run(options) == 0
    found = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines() if "=" in line)
    names = ("default.replication.factor", "offsets.topic.replication.factor", "min.insync.replicas")
    assert tuple(found[name] for name in names) == shown


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = [*COMMAND[:-1], "config", "--reference"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # before anything is printed
        assert (process.stderr.read(), process.wait(30)) == ("", 1)


def test_wrong_usage_is_status_2_and_says_what_is_wrong() -> None:
    status, err = refused("--nonsense")
    assert status == 2
    assert err.endswith("tidemill broker: error: unrecognized arguments: --nonsense\n")
    status, err = refused("--dat", "/tmp")
    assert status == 2, "a shortened option would change its meaning with the next option that is added"
    done = subprocess.run(COMMAND[:-1], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "Run one broker until it is told to stop." in done.stdout


def test_what_a_broker_does_not_use_is_not_in_its_memory() -> None:
    code = (
        "import sys, tidemill.broker.node, tidemill.cli\n"
        "try: tidemill.cli.main(['broker', 'start', '--set', 'nonsense'])\n"
        "finally: print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    unused = ("typer", "pydantic", "cramjam", "http.server", "prometheus_client")
    done = subprocess.run(
        [sys.executable, "-c", code, *unused], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "Expected key=value" in done.stderr
    assert done.stdout == "[]\n"


def test_the_strongest_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[num]\npartitions = 2\n[log]\ndirs = ["/from/file"]\n')
    environ = {"TIDEMILL_BROKER_NUM_PARTITIONS": "3", "UNRELATED": "x"}
    assert gather(file, {}, [], None, None) == {"num.partitions": "2", "log.dirs": "/from/file"}
    assert gather(file, environ, [], None, None)["num.partitions"] == "3"
    assert gather(file, environ, ["num.partitions=4"], None, None)["num.partitions"] == "4"
    assert gather(file, environ, [], "/data", None)["log.dirs"] == "/data"


def test_listen_takes_the_place_of_all_listeners() -> None:
    raw = ["listeners=A://:1,C://:2", "advertised.listeners=A://h:1", "controller.listener.names=C"]
    assert gather(None, {}, raw, None, "[::1]:9092") == {"listeners": "PLAINTEXT://[::1]:9092"}
    raw = ["advertised.listeners=PLAINTEXT://h:1, A://h:2"]
    assert gather(None, {}, raw, None, ":9092")["advertised.listeners"] == "PLAINTEXT://h:1"
    with pytest.raises(ConfigError):
        gather(None, {}, [], None, "9092")


def test_a_folder_is_formatted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "listeners": "PLAINTEXT://h:1,CONTROLLER://h:2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "h:2,other:2",
        "node.id": "7",
    }
    settings = [option for key, value in given.items() for option in ("--set", f"{key}={value}")]
    options = cli.app.parse_args(["format", "--data", str(tmp_path), *settings, "--standalone"])
    assert options.run(options) == 0
    assert re.search(r": node 7 of cluster [\w-]{22}, directory [\w-]{22}, voters 7\n", capsys.readouterr().out)
    assert options.run(options) == 1
    assert "belongs to a node already" in capsys.readouterr().err
    options = cli.app.parse_args(["format", "--data", str(tmp_path), "--standalone"])
    assert options.run(options) == 2
    assert "those of a node by itself" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.app.parse_args(["format", "--data", str(tmp_path)])
