"""The commands as a user runs them."""

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import until
from tidemill import services
from tidemill.demo.pipeline import free_ports

COMMAND = [sys.executable, "-m", "tidemill.cli", "mirror"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def write(folder: Path, text: str) -> str:
    file = folder / "mm2.properties"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("command", ["start", "status", "verify"])
def test_a_bad_file_is_refused_in_one_line_per_problem(tmp_path: Path, command: str) -> None:
    file = write(tmp_path, "clusters = A, B\nA.bootstrap.servers = a\ntopcs = x\n")
    done = run(command, file)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"{file}: Unknown configuration 'topcs': did you mean 'topics'?",
        f"{file}: A.bootstrap.servers: expected host:port, got 'a'",
        f"{file}: B.bootstrap.servers is missing: give host:port of a broker of B",
    ]


def test_a_missing_file_and_no_flow_are_said(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.properties")
    assert run("start", missing).stderr == f"cannot read {missing}: No such file or directory\n"
    file = write(tmp_path, "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\n")
    assert "no flow is enabled" in run("start", file).stderr
    assert "--clusters C" in run("start", file, "--clusters", "C").stderr


def test_help_names_the_commands() -> None:
    text = run("--help").stdout
    assert all(word in text for word in ("start", "status", "verify"))


@pytest.mark.integration
def test_an_unreachable_cluster_is_named(tmp_path: Path) -> None:
    file = write(
        tmp_path, "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\nA->B.enabled=true\n"
    )
    done = run("status", file)
    assert done.returncode == 2
    assert "A->B: 127.0.0.1:1: cannot connect" in done.stderr


@pytest.mark.integration
async def test_start_status_verify_and_stop(pair: Pair, tmp_path: Path) -> None:
    await pair.create(partitions=2)
    await pair.write(0, [b"x"] * 7)
    file = write(tmp_path, pair.text())
    port = free_ports(1)[0]
    service = services.Service(
        "mirror",
        ["mirror", "start", file, "--metrics", f"127.0.0.1:{port}"],
        ready=r"tidemill mirror ready: (?P<flows>.*)",
        log=tmp_path / "mirror.log",
    )
    await asyncio.to_thread(service.start)
    try:
        assert service.facts["flows"] == "A->B (1 topics, 2 partitions)"

        async def arrived() -> bool:
            return len(await read_records(pair.target, pair.remote)) == 7

        await until(arrived, "nothing is mirrored")
        text = await asyncio.to_thread(scrape, port)
        assert re.search(rf'tidemill_mirror_lag_records{{.*topic="{pair.topic}"}} 0\.0', text)
    finally:
        status = await asyncio.to_thread(service.stop)
    assert status == 0
    assert service.output().endswith("tidemill mirror stopped\n")
    shown = await asyncio.to_thread(run, "status", file)
    assert json.loads(shown.stdout.splitlines()[-1]) == {"partitions": 2, "lag": 0, "problems": 0}
    proven = await asyncio.to_thread(run, "verify", file)
    assert f"A->B {pair.topic}-0: EQUAL, 7 records" in proven.stdout
    assert json.loads(proven.stdout.splitlines()[-1]) == {"equal": True, "partitions": 2, "records": 7}
    assert (shown.returncode, proven.returncode) == (0, 0)
