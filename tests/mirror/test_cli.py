"""The commands as a user runs them."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.metrics_page import differences
from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import until
from tidemill import services
from tidemill.free_ports import free_port

COMMAND = [sys.executable, "-m", "tidemill.cli", "mirror"]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command, variables = [*COMMAND, *arguments], {**os.environ, **environ}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=variables)


def scrape(port: int, path: str = "metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def write(folder: Path, text: str) -> str:
    file = folder / "mm2.properties"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("command", ["start", "status", "verify", "config"])
def test_a_bad_file_is_refused_in_one_line_per_problem(tmp_path: Path, command: str) -> None:
    file = write(tmp_path, "clusters = A, B\nA.bootstrap.servers = a\ntopcs = x\n")
    done = run(command, file)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"tidemill mirror: {file}: Unknown configuration 'topcs': did you mean 'topics'?",
        f"tidemill mirror: {file}: A.bootstrap.servers: expected host:port, got 'a'",
        f"tidemill mirror: {file}: B.bootstrap.servers is missing: give host:port of a broker of B",
    ]


def test_a_missing_file_and_no_flow_are_said(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.properties")
    assert run("start", missing).stderr == f"tidemill mirror: cannot read {missing}: No such file or directory\n"
    file = write(tmp_path, "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\n")
    assert "no flow is enabled" in run("start", file).stderr
    assert "--clusters C" in run("start", file, "--clusters", "C").stderr
    assert "tidemill mirror: log format 'xml' is not one of" in run("start", file, "--log-format", "xml").stderr


def test_settings_are_shown_as_they_take_effect(tmp_path: Path) -> None:
    text = (
        "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
        "topics = x.*, y\ntasks.max = 7\nA.consumer.fetch.max.wait.ms = 100\n"
    )
    shown = run("config", write(tmp_path, text))
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[lines.index("A->B.topics = x.*, y") - 1] == "# given as topics"
    assert lines[lines.index("A->B.emit.checkpoints.interval.seconds = 60") - 1] == "# default"
    assert "A.consumer.fetch.max.wait.ms = 100" in lines
    assert "# accepted, changes nothing: tasks.max" in lines
    assert not any(line.startswith("B->A.") for line in lines), "a flow that is not enabled has no effect"
    again = run("config", write(tmp_path, shown.stdout))
    assert [line for line in again.stdout.splitlines() if line[0] != "#"] == [line for line in lines if line[0] != "#"]


def test_settings_come_from_the_environment_too(tmp_path: Path) -> None:
    environ = {
        "TIDEMILL_MIRROR_CLUSTERS": "east, w-1",
        "TIDEMILL_MIRROR_EAST_BOOTSTRAP_SERVERS": "a:1",
        "TIDEMILL_MIRROR_W_1_BOOTSTRAP_SERVERS": "b:1",
        "TIDEMILL_MIRROR_EAST__W_1_ENABLED": "true",
        "TIDEMILL_MIRROR_EAST_CONSUMER_FETCH_MAX_WAIT_MS": "70",
        "TIDEMILL_MIRROR_PROPERTIES": "topics = x.*\neast->w-1.groups = y",
    }
    lines = run("config", **environ).stdout.splitlines()
    assert {
        "clusters = east, w-1",
        "w-1.bootstrap.servers = b:1",
        "east.consumer.fetch.max.wait.ms = 70",
        "east->w-1.topics = x.*",
        "east->w-1.groups = y",
    } <= set(lines)
    file = write(tmp_path, "topics = file\neast->w-1.groups = file\ngroups.exclude = file\n")
    lines = run("config", file, "--set", "topics=argument", **environ).stdout.splitlines()
    assert {"east->w-1.topics = argument", "east->w-1.groups = y", "east->w-1.groups.exclude = file"} <= set(lines)


def test_wrong_variables_are_refused_by_name() -> None:
    done = run("start", TIDEMILL_MIRROR_CLUSTERS="east,west", TIDEMILL_MIRROR_EAST_BOOTSTRAP_SERVER="a:1")
    assert (done.returncode, done.stderr) == (
        2,
        "tidemill mirror: Unknown variable TIDEMILL_MIRROR_EAST_BOOTSTRAP_SERVER: "
        "did you mean TIDEMILL_MIRROR_EAST_BOOTSTRAP_SERVERS?\n",
    )
    done = run("start", TIDEMILL_MIRROR_CLUSTERS="east")
    assert done.stderr == (
        "tidemill mirror: TIDEMILL_MIRROR_*: clusters must name at least two clusters, as in `clusters = A, B`\n"
    )
    assert run("start").stderr.startswith("tidemill mirror: no settings given: clusters must name")


def test_help_names_the_commands() -> None:
    text = run("--help").stdout
    assert all(word in text for word in ("start", "status", "verify", "config"))


@pytest.mark.integration
def test_an_unreachable_cluster_is_named(tmp_path: Path) -> None:
    file = write(
        tmp_path, "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\nA->B.enabled=true\n"
    )
    done = run("status", file)
    assert done.returncode == 1
    assert "cluster A: unreachable from here: 127.0.0.1:1: cannot connect" in done.stdout
    assert "cluster B: unreachable from here: 127.0.0.1:2: cannot connect" in done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["mirror"], found["lag"], found["problems"]) == ({"A->B": "unknown"}, None, 2)
    proof = run("verify", file)
    assert proof.returncode == 2
    assert proof.stderr == f"tidemill mirror: A->B: {proof.stderr.partition('A->B: ')[2]}"


def test_an_address_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    file = write(
        tmp_path, "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("start", file, "--metrics", address)
    assert done.returncode == 2
    assert f"--metrics {address}: Address already in use; choose another address" in done.stderr
    done = run("start", file, "--metrics", "nowhere")
    assert (done.returncode, done.stderr) == (2, "tidemill mirror: --metrics nowhere: expected HOST:PORT\n")


@pytest.mark.integration
async def test_start_status_verify_and_stop(new_pair: Pair, tmp_path: Path) -> None:
    pair = new_pair
    await pair.create(partitions=2)
    await pair.write(0, [b"x"] * 7)
    file = write(tmp_path, pair.text())
    port = free_port()
    service = services.Service(
        "mirror",
        ["mirror", "start", file, "--metrics", f"127.0.0.1:{port}"],
        ready=r"tidemill mirror ready: (?P<flows>.*)",
        log=tmp_path / "mirror.log",
    )
    before = await asyncio.to_thread(run, "status", file)
    found = json.loads(before.stdout.splitlines()[-1])
    assert (before.returncode, found["mirror"]) == (3, {"A->B": "not started"})
    assert (found["lag"], found["unknown"]) == (None, 2), "nothing is known of partitions yet"
    await asyncio.to_thread(service.start)
    try:
        assert service.facts["flows"] == "A->B (1 topics, 2 partitions)"

        async def arrived() -> bool:
            return len(await read_records(pair.target, pair.remote)) == 7

        await until(arrived, "nothing is mirrored")
        text = await asyncio.to_thread(scrape, port)
        running = f"A->B: running on {socket.gethostname()} (process {service.pid})"

        async def told() -> bool:  # a sign of life is given every second: the newest may be of the start
            during = await asyncio.to_thread(run, "status", file)
            return during.returncode == 0 and running in during.stdout

        await until(told, "status does not tell that the mirror runs")
        assert re.search(rf'tidemill_mirror_lag_records{{.*topic="{pair.topic}"}} 0\.0', text)
        copied = (
            rf'kafka_connect_mirror_mirrorsourceconnector_record_count{{partition="0",.*topic="{pair.remote}"}} 7\.0'
        )
        assert re.search(copied, text)
        nothing_dropped = ["tidemill_mirror_batches_dropped_total"]
        assert differences(["Mirror"], await asyncio.to_thread(scrape, port), nothing_dropped) == []
        for question, answer in (("live", "live"), ("ready", "ready")):
            assert await asyncio.to_thread(scrape, port, f"health/{question}") == f'{{"status": "{answer}"}}\n'
    finally:
        status = await asyncio.to_thread(service.stop)
    assert status == 0
    assert service.output().endswith("tidemill mirror stopped\n")
    shown = await asyncio.to_thread(run, "status", file)
    assert json.loads(shown.stdout.splitlines()[-1]) == {
        "mirror": {"A->B": "stopped"},
        "partitions": 2,
        "lag": 0,
        "unknown": 0,
        "lost": 0,
        "problems": 0,
    }
    proven = await asyncio.to_thread(run, "verify", file)
    assert f"A->B {pair.topic}-0: EQUAL, 7 records" in proven.stdout
    assert json.loads(proven.stdout.splitlines()[-1]) == {"equal": True, "partitions": 2, "records": 7}
    assert (shown.returncode, proven.returncode) == (3, 0)


@pytest.mark.integration
@pytest.mark.crash
async def test_a_mirror_that_was_killed_gives_no_sign_of_life(pair: Pair, tmp_path: Path) -> None:
    file = write(tmp_path, pair.text())
    service = services.mirror("mirror", Path(file), log=tmp_path / "mirror.log")
    await asyncio.to_thread(service.start)

    async def told() -> bool:
        shown = await asyncio.to_thread(run, "status", file)
        return f"(process {service.pid})" in shown.stdout

    await until(told, "the mirror does not tell of itself")
    await asyncio.to_thread(service.kill)

    async def missed() -> bool:  # what it told in its last seconds is a sign of life for as long
        shown = await asyncio.to_thread(run, "status", file)
        silent = "not running: no sign of life from the mirror" in shown.stdout
        return silent and shown.returncode == 3

    await until(missed, "its end is not noticed")
