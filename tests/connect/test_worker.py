"""A worker put together and taken apart"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from tidemill import services
from tidemill.connect import forwarding
from tidemill.connect.config import parse_worker
from tidemill.connect.group.lives import Lives
from tidemill.connect.herder import events as e
from tidemill.connect.worker import StartRefused, Worker, open_worker

pytestmark = pytest.mark.integration

Settings = Callable[..., dict[str, str]]


async def get(worker: Worker, path: str) -> Any:
    async with httpx.AsyncClient(base_url=worker.url, timeout=30) as client:
        return (await client.get(path)).json()


async def create(worker: Worker, name: str, config: dict[str, str]) -> None:
    async with httpx.AsyncClient(base_url=worker.url, timeout=60) as client:
        answer = await client.put(f"/connectors/{name}/config", json=config)
        assert answer.status_code == 201, answer.text


async def running(worker: Worker, name: str) -> None:
    async with asyncio.timeout(60):
        while True:
            status = await get(worker, f"/connectors/{name}/status")
            if [task["state"] for task in status.get("tasks", [])] == ["RUNNING"]:
                return
            await asyncio.sleep(0.05)


async def test_the_next_worker_goes_on_where_the_last_one_stopped(
    worker_settings: Settings, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    settings, file = worker_settings(), tmp_path / "in.txt"
    file.write_text("one\n")
    source = {"connector.class": "FileStreamSource", "file": str(file), "topic": unique("topic")}
    async with open_worker(parse_worker(settings)) as worker:
        assert worker.worker_id == f"127.0.0.1:{worker.port}" and worker.port != 0
        await create(worker, "c", source)
        await running(worker, "c")
        before = (await get(worker, "/connectors/c"), await get(worker, "/connectors/c/tasks"))
    with pytest.raises(httpx.ConnectError):
        await get(worker, "/")
    with file.open("a") as lines:
        lines.write("two\n")
    async with open_worker(parse_worker(settings)) as later:
        assert (await get(later, "/connectors/c"), await get(later, "/connectors/c/tasks")) == before
        await running(later, "c")
        async with asyncio.timeout(30):
            while (await get(later, "/connectors/c/offsets"))["offsets"][0]["offset"] != {"position": 8}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        status = await get(later, "/connectors/c/status")
        assert status["tasks"][0]["worker_id"] == later.worker_id


async def test_the_advertised_address_is_the_workers_name(worker_settings: Settings) -> None:
    settings = worker_settings({"rest.advertised.host.name": "connect-1", "rest.advertised.port": "80"})
    async with open_worker(parse_worker(settings)) as worker:
        assert worker.worker_id == "connect-1:80"
        assert (await get(worker, "/health"))["status"] == "healthy"


async def test_a_worker_tells_whether_its_tasks_have_control_groups(worker_settings: Settings) -> None:
    settings = worker_settings({"tidemill.task.cgroup": "none"})
    config = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "task.cpu.max.cores": "0.5"}
    with capture_logs() as lines:
        async with open_worker(parse_worker(settings)) as worker:
            assert await get(worker, "/tidemill/worker") == {
                "url": worker.url,
                "no_cgroup": "tidemill.task.cgroup=none",
            }
            async with httpx.AsyncClient(base_url=worker.url, timeout=30) as client:
                answer = await client.post("/connectors", json={"name": "c", "config": config})
    assert answer.status_code == 400
    assert "task.cpu.max.cores cannot be kept by this worker: tidemill.task.cgroup=none." in answer.json()["message"]
    assert [line["reason"] for line in lines if "control groups" in line["event"]] == ["tidemill.task.cgroup=none"]


async def test_a_folder_that_is_no_control_group_is_refused(worker_settings: Settings, tmp_path: Path) -> None:
    settings = worker_settings({"tidemill.task.cgroup": str(tmp_path)})
    with pytest.raises(StartRefused, match=r"tidemill\.task\.cgroup: .* is no control group of cgroup v2"):
        async with open_worker(parse_worker(settings)):
            pass


async def test_a_taken_port_is_refused(worker_settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartRefused, match=rf"cannot listen on {address}: Address already in use"):
            async with open_worker(parse_worker(worker_settings({"listeners": f"http://{address}"}))):
                pass


async def test_no_cluster_is_refused_after_a_while(worker_settings: Settings) -> None:
    settings = worker_settings({"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "1000"})
    with pytest.raises(StartRefused, match=r"no Kafka cluster at 127\.0\.0\.1:1 after 1 s \(.*refused"):
        async with open_worker(parse_worker(settings)):
            pass


async def test_a_config_topic_of_several_partitions_is_refused(worker_settings: Settings) -> None:
    first = worker_settings()
    async with open_worker(parse_worker(first)):
        pass
    settings = worker_settings({"config.storage.topic": first["offset.storage.topic"]})
    with pytest.raises(StartRefused, match="has 3 partitions but must have 1"):
        async with open_worker(parse_worker(settings)):
            pass


async def test_a_worker_that_is_refused_for_one_topic_has_not_made_the_others(worker_settings: Settings) -> None:
    settings = worker_settings()
    names = [settings[f"{role}.storage.topic"] for role in ("config", "offset", "status")]
    admin = AdminClient({"bootstrap.servers": settings["bootstrap.servers"]})
    forgets = NewTopic(names[2], num_partitions=2, config={"cleanup.policy": "delete"})
    admin.create_topics([forgets])[names[2]].result(20)
    with pytest.raises(StartRefused, match=r"has cleanup\.policy=delete"):
        async with open_worker(parse_worker(settings)):
            pass
    there = admin.list_topics(timeout=20).topics
    assert [name for name in names if name in there] == [names[2]]


async def test_an_ipv6_address(worker_settings: Settings) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with open_worker(parse_worker(worker_settings({"listeners": "http://[::1]:0"}))) as worker:
        assert worker.url == f"http://[::1]:{worker.port}"
        assert (await get(worker, "/"))["kafka_cluster_id"] == worker.cluster_id


@pytest.mark.crash
async def test_the_cluster_may_come_up_later_and_die_in_between(
    tmp_path: Path, worker_settings: Settings, unique: Callable[[str], str]
) -> None:
    broker = services.broker("b", tmp_path / "data", log=tmp_path / "broker.log").start()
    address = broker.facts["address"]
    broker.stop()
    file = tmp_path / "in.txt"
    file.write_text("one\n")
    settings = worker_settings({"bootstrap.servers": address})
    broker = services.broker("b", tmp_path / "data", listen=address, log=tmp_path / "broker.log")
    try:
        async with asyncio.TaskGroup() as tasks:
            opened: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
            done = asyncio.Event()

            async def hold() -> None:
                async with open_worker(parse_worker(settings)) as worker:
                    opened.set_result(worker)
                    await done.wait()

            tasks.create_task(hold())
            await asyncio.sleep(0.5)
            broker.start()
            worker = await asyncio.wait_for(opened, 60)
            source = {"connector.class": "FileStreamSource", "file": str(file), "topic": unique("topic")}
            await create(worker, "c", source)
            await running(worker, "c")
            broker.kill()
            with file.open("a") as lines:
                lines.write("two\n")
            broker.start()
            async with asyncio.timeout(60):
                while True:
                    offsets = (await get(worker, "/connectors/c/offsets"))["offsets"]
                    if offsets and offsets[0]["offset"] == {"position": 8}:
                        break
                    await asyncio.sleep(0.05)
            done.set()
    finally:
        broker.stop()


@pytest.mark.crash
async def test_a_change_while_the_cluster_is_away_is_refused_with_what_is_stuck(
    tmp_path: Path, worker_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "SETTLE_S", 1.0)
    broker = services.broker("b", tmp_path / "data", log=tmp_path / "broker.log").start()
    address = broker.facts["address"]
    settings = worker_settings({"bootstrap.servers": address, "request.timeout.ms": "5000"})
    file = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "t"}
    try:
        async with open_worker(parse_worker(settings)) as worker:
            async with httpx.AsyncClient(base_url=worker.url, timeout=30) as client:
                await create(worker, "c", file)
                broker.kill()
                at_once = await client.put("/connectors/c/pause")
                async with asyncio.timeout(30):
                    while worker.herder.seat.holds_lease:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                later = await client.put("/connectors/c/pause")
            assert (at_once.status_code, later.status_code) == (500, 500)
            assert "Failed to write to config topic" in at_once.json()["message"]
            assert settings["config.storage.topic"] in at_once.json()["message"]
            assert "has not reached its group's coordinator for" in later.json()["message"]
            broker = services.broker("b", tmp_path / "data", listen=address, log=tmp_path / "b2").start()
    finally:
        broker.stop()


async def test_the_clock_is_told_on_the_event_loop(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[type[object], int]] = []
    step = worker.herder.machine.step

    def listened(event: e.Event) -> list[e.Action]:
        heard.append((type(event), threading.get_ident()))
        return step(event)

    monkeypatch.setattr(worker.herder.machine, "step", listened)
    async with asyncio.timeout(30):
        while [kind for kind, _ in heard].count(e.Tick) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert {thread for _, thread in heard} == {threading.get_ident()}


async def test_what_a_worker_had_started_that_was_killed_with_its_guardian_ends_before_its_work_is_taken_up(
    worker_settings: Callable[..., dict[str, str]],
) -> None:
    config = parse_worker(worker_settings())
    async with open_worker(config) as worker:
        lives = Lives.of_group(worker.cluster_id, worker.group_id)
    before = lives.begin("w:1")
    program = await asyncio.create_subprocess_exec("sleep", "600", env={**os.environ, **before.environ})
    os.close(before.descriptor)
    try:
        async with open_worker(config):
            assert await asyncio.wait_for(program.wait(), 10) == -signal.SIGKILL
    finally:
        if program.returncode is None:
            program.kill()


async def test_tasks_that_share_a_process_come_back_after_it_was_killed(
    worker_settings: Settings, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    names, topic = ("one", "two", "three"), unique("topic")
    async with open_worker(parse_worker(worker_settings({"tidemill.task.shared.max": "3"}))) as worker:
        for name in names:
            (tmp_path / name).write_text("a line\n")
            shared = {"file": str(tmp_path / name), "topic": topic, "tidemill.task.isolation": "shared"}
            await create(worker, name, {"connector.class": "FileStreamSource", **shared})
            await running(worker, name)
        (process,) = [
            each for each in psutil.Process().children(recursive=True) if "tidemill: tasks 1 of" in title(each)
        ]
        process.kill()
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(30):
            while not any("tidemill: tasks 2 of" in title(each) for each in psutil.Process().children(recursive=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for name in names:
            await running(worker, name)
        assert asyncio.get_running_loop().time() - began < 5
        async with httpx.AsyncClient(base_url=worker.url, timeout=30) as client:
            assert (await client.put("/connectors/one/stop")).status_code == 204
        await running(worker, "two")


def title(process: psutil.Process) -> str:
    """What lists of processes show of it."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
