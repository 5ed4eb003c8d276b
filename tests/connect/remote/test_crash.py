"""kill -9 of a task in the middle of its load: after a restart nothing is missing"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connect.tasks.conftest import Cluster
from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.task_spec import TaskExited, TaskReport, TaskSpec, TaskStarted

pytestmark = [pytest.mark.integration, pytest.mark.crash]

LINES = 200_000
TEXT = ConverterSpec(kind="string")


def started(event: TaskStarted, incarnation: int) -> bool:
    return event.incarnation == incarnation


async def test_a_killed_source_loses_no_line(
    running: Any, spec: Callable[..., TaskSpec], bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """A file is written while its source is killed again and again."""
    cluster, topic, offsets, name = Cluster(bootstrap), unique("lines"), unique("offsets"), unique("files")
    cluster.create(topic, 3)
    file = tmp_path / "in.txt"
    file.touch()
    chance = random.Random(7)
    written = 0

    def life(incarnation: int) -> TaskSpec:
        return spec(
            "tidemill.connect.plugins.file:file_source",
            {"file": str(file), "topic": topic, "batch.size": "500"},
            name=name,
            incarnation=incarnation,
            bootstrap=bootstrap,
            offsets_topic=offsets,
            flush_ms=50,
            value_converter=TEXT,
        )

    for incarnation in range(1, 5):
        await running.start(life(incarnation))
        event = await running.events.wait(TaskStarted, lambda event, want=incarnation: started(event, want))
        with file.open("a", encoding="ascii") as out:
            for _ in range(10):
                out.writelines(f"line {n}\n" for n in range(written, written + LINES // 40))
                out.flush()
                written += LINES // 40
                await asyncio.sleep(chance.random() * 0.05)
        os.kill(event.pid, signal.SIGKILL)
        ended = await running.events.wait(TaskExited, lambda event, want=incarnation: event.incarnation == want)
        assert ended.returncode == -signal.SIGKILL
    await running.start(life(5))
    size = file.stat().st_size
    async with asyncio.timeout(60):
        while await asyncio.to_thread(last_offset, cluster, offsets) != size:  # noqa: ASYNC110  (polls a topic)
            await asyncio.sleep(0.1)
    await running.host.stop_task(life(5).task, 10)
    found = [value.decode() for value in await asyncio.to_thread(cluster.values, topic) if value is not None]
    assert set(found) == {f"line {n}" for n in range(written)}
    assert len(found) < 2 * written, "a restart reads on, it does not begin again"


def last_offset(cluster: Cluster, topic: str) -> int:
    """The highest position stored so far."""
    import orjson

    if not cluster.partitions(topic):
        return -1
    return max((orjson.loads(value)["position"] for value in cluster.values(topic) if value), default=-1)


async def test_a_killed_sink_loses_no_line(
    running: Any, spec: Callable[..., TaskSpec], bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    cluster, topic, name = Cluster(bootstrap), unique("lines"), unique("files")
    cluster.create(topic, 2)
    file = tmp_path / "out.txt"
    written = 0

    def life(incarnation: int) -> TaskSpec:
        return spec(
            "tidemill.connect.plugins.file:file_sink",
            {"file": str(file), "topics": topic},
            kind=PluginKind.SINK,
            name=name,
            incarnation=incarnation,
            bootstrap=bootstrap,
            flush_ms=50,
            value_converter=TEXT,
            consumer_config={"session.timeout.ms": "6000"},
        )

    for incarnation in range(1, 4):
        await running.start(life(incarnation))
        event = await running.events.wait(TaskStarted, lambda event, want=incarnation: started(event, want))
        batch = [(None, f"line {n}") for n in range(written, written + 5000)]
        await asyncio.to_thread(cluster.produce, topic, *batch)
        written += 5000
        if incarnation > 1:
            await running.events.wait(
                TaskReport,
                lambda event, want=incarnation: (
                    event.incarnation == want and event.facts.get("sink-record-send-total", 0) > 0
                ),
            )
        os.kill(event.pid, signal.SIGKILL)
        await running.events.wait(TaskExited, lambda event, want=incarnation: event.incarnation == want)
    await running.start(life(4))
    async with asyncio.timeout(60):
        while not file.exists() or len(set(file.read_text(encoding="ascii").splitlines())) < written:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await running.host.stop_task(life(4).task, 10)
    assert set(file.read_text(encoding="ascii").splitlines()) == {f"line {n}" for n in range(written)}


async def test_a_killed_broker_loses_no_record(
    running: Any,
    spec: Callable[..., TaskSpec],
    tidemill_broker_factory: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    """The source waits for the broker to come back and goes on in the same process."""
    broker = tidemill_broker_factory()
    address = broker.facts["address"]
    broker.command[broker.command.index("--listen") + 1] = address
    cluster, topic = Cluster(address), unique("numbers")
    cluster.create(topic)
    task = await running.start(
        spec(
            "task_plugins:numbers",
            {"topic": topic, "count": "3000", "pause.ms": "1"},
            bootstrap=address,
            offsets_topic=unique("offsets"),
        )
    )
    await running.events.wait(TaskReport, lambda event: event.facts.get("source-record-write-total", 0) > 300)
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(broker.restart)
    ended = await running.ended(task, 60)
    assert ended.returncode == 0, running.events.told()
    found = [message.key() for message in await asyncio.to_thread(cluster.read, topic)]
    assert found == [str(n).encode() for n in range(3000)], "idempotence keeps order and lets nothing in twice"


@pytest.mark.parametrize("isolation", ["process", "shared"])
async def test_tasks_stop_in_time_while_the_cluster_is_away(
    running: Any,
    spec: Callable[..., TaskSpec],
    tidemill_broker_factory: Callable[..., Any],
    tmp_path: Path,
    isolation: str,
) -> None:
    broker = tidemill_broker_factory()
    address = broker.facts["address"]
    await asyncio.to_thread(Cluster(address).produce, "in", *((None, "x") for _ in range(100)))
    (tmp_path / "lines").write_text("y\n" * 100, encoding="ascii")
    common = {"bootstrap": address, "flush_ms": 3_600_000, "value_converter": TEXT}
    sink = spec(
        "tidemill.connect.plugins.file:file_sink",
        {"file": str(tmp_path / "out"), "topics": "in", "tidemill.task.isolation": isolation},
        kind=PluginKind.SINK,
        **common,
    )
    source = spec(
        "tidemill.connect.plugins.file:file_source",
        {"file": str(tmp_path / "lines"), "topic": "out", "tidemill.task.isolation": isolation},
        **common,
    )
    await running.start(sink)
    await running.start(source)
    for fact in ("sink-record-send-total", "source-record-write-total"):
        await running.events.wait(TaskReport, lambda event, name=fact: event.facts.get(name) == 100)
    await asyncio.to_thread(broker.kill)
    await asyncio.gather(*(running.host.stop_task(each.task, 8) for each in (sink, source)))
    for each in (sink, source):
        ended = await running.ended(each.task)
        assert (ended.returncode, ended.reason) == (0, "ended by itself")
    assert (tmp_path / "out").read_text(encoding="ascii") == "x\n" * 100
