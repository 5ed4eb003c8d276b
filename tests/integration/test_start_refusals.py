"""A start that cannot succeed ends at once, with one line that says what to do and the exit status that is documented

`deploy/README.md` promises it of every process: whoever starts it again and again must be able to tell from the status
that this changes nothing. Faults that need a container (a volume of root's, a full disk) are in `tests/deploy`.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
MIRROR = {
    "TIDEMILL_MIRROR_CLUSTERS": "a,b",
    "TIDEMILL_MIRROR_A_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "TIDEMILL_MIRROR_B_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "TIDEMILL_MIRROR_A__B_ENABLED": "true",
}
COMMANDS = {
    "BROKER": ("broker", "start"),
    "CONNECT": ("connect", "start"),
    "MIRROR": ("mirror", "start"),
    "SPARK": ("spark", "run"),
}
A_SETTING = {"BROKER": "NODE_ID", "CONNECT": "GROUP_ID", "MIRROR": "CLUSTERS", "SPARK": "TOPICS"}


def started(*command: str, **environ: str) -> tuple[int, str]:
    """Exit status and the one line on standard error of a start that ends by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", *command],
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("tidemill ")]
    assert "Traceback" not in done.stderr
    return done.returncode, line


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("process", COMMANDS)
def test_an_unknown_variable(process: str) -> None:
    variable = f"TIDEMILL_{process}_{A_SETTING[process]}"
    status, line = started(*COMMANDS[process], **{f"{variable[:-1]}": "x"})
    assert status == 2
    assert line == (f"tidemill {process.lower()}: Unknown variable {variable[:-1]}: did you mean {variable}?")


@pytest.mark.parametrize("process", COMMANDS)
def test_a_secret_that_is_not_there(process: str) -> None:
    variable = f"TIDEMILL_{process}_{A_SETTING[process]}_FILE"
    status, line = started(*COMMANDS[process], **{variable: "/run/secrets/none"})
    assert status == 2
    assert line == (
        f"tidemill {process.lower()}: {variable}: cannot read '/run/secrets/none': No such file or directory; "
        "mount the secret there or correct the path"
    )


@pytest.mark.parametrize(
    ("setting", "advice"), [("LISTENERS", "--listen HOST:PORT"), ("METRICS_LISTENER", "metrics.listener")]
)
def test_a_port_of_the_broker_in_use(tmp_path: Path, taken: str, setting: str, advice: str) -> None:
    environ = {
        "TIDEMILL_BROKER_LOG_DIRS": str(tmp_path),
        "TIDEMILL_BROKER_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        f"TIDEMILL_BROKER_{setting}": f"PLAINTEXT://{taken}" if setting == "LISTENERS" else taken,
    }
    status, line = started(*COMMANDS["BROKER"], **environ)
    assert status == 1
    assert "Address already in use" in line
    assert advice in line


def test_a_port_of_the_worker_in_use(taken: str) -> None:
    status, line = started(*COMMANDS["CONNECT"], TIDEMILL_CONNECT_LISTENERS=f"http://{taken}")
    assert status == 1
    assert line.startswith(f"tidemill connect: cannot listen on {taken}: Address already in use; choose another")


def test_a_port_of_the_mirror_in_use(taken: str) -> None:
    status, line = started(*COMMANDS["MIRROR"], "--metrics", taken, **MIRROR)
    assert status == 2
    assert line == f"tidemill mirror: --metrics {taken}: Address already in use; choose another address"


@pytest.mark.java
def test_a_port_of_the_spark_job_in_use(tmp_path: Path, taken: str) -> None:
    environ = {
        "TIDEMILL_SPARK_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "TIDEMILL_SPARK_TOPICS": "t",
        "TIDEMILL_SPARK_TABLE_PATH": str(tmp_path / "t"),
        "TIDEMILL_SPARK_METRICS_LISTENER": taken,
    }
    status, line = started(*COMMANDS["SPARK"], **environ)
    assert status == 2
    assert line.startswith(f"tidemill spark: metrics.listener {taken}: Address already in use")


def test_a_volume_of_another_node(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "version=1\ncluster.id=YWFhYWFhYWFhYWFhYWFhYQ\nnode.id=2\ndirectory.id=YWFhYWFhYWFhYWFhYWFhYQ\n"
    )
    status, line = started(*COMMANDS["BROKER"], TIDEMILL_BROKER_LOG_DIRS=str(tmp_path), TIDEMILL_BROKER_NODE_ID="1")
    assert status == 1
    assert line == (
        f"tidemill broker: {tmp_path} belongs to node.id 2, not 1: set node.id to match or use another data folder"
    )


def test_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    environ = {"TIDEMILL_SPARK_BOOTSTRAP_SERVERS": "127.0.0.1:1", "TIDEMILL_SPARK_TOPICS": "t"}
    status, line = started(*COMMANDS["SPARK"], TIDEMILL_SPARK_TABLE_PATH="/proc/x/t", **environ)
    assert status == 2
    assert line.startswith("tidemill spark: table.path '/proc/x/t' cannot be used")
