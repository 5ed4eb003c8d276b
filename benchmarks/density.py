"""Density: what fifty small file sources cost a worker, beside Kafka Connect

Each worker on a node of its own kind. The clock of `create_s` runs from the first POST to the last answer, that of
`running_s` on until every task is RUNNING. Memory is the proportional set size of the worker and all below it, so that
a page that many share counts once. Ours is then asked to bring back a task that is killed: a line that is appended in
the moment of the kill has to arrive, which is later than the status says RUNNING.

With `--shared` our tasks share processes (`tidemill.task.isolation=shared`); what is killed is then the process of all
that share it.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import psutil
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from benchmarks import peers
from benchmarks.measure import cpu_seconds, emit, ratio, tree
from tidemill import services
from tidemill.connect.task_isolation import TASKS_MAX

SOURCES = 50
IDLE_S = 20
SETTLE_S = 10
REST_S = 45
"""Between two looks at what idling costs: our sources let go of their clients after a minute."""
CRASHES = 5
TIMEOUT_S = 180


def pss_mb(pid: int) -> float:
    """Proportional set size of a process and everything below it, MB."""
    total = 0
    for process in tree(pid):
        with suppress(OSError):
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024 / 1e6


def wait_for(check: Callable[[], bool], what: str, pause_s: float = 0.05) -> None:
    """Return once `check` is true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} after {TIMEOUT_S} s")
        time.sleep(pause_s)


def running(client: httpx.Client) -> int:
    """How many tasks run."""
    found = client.get("/connectors", params={"expand": "status"}).json()
    return sum(task["state"] == "RUNNING" for each in found.values() for task in each["status"]["tasks"])


def create(client: httpx.Client, folder: Path, more: Mapping[str, str]) -> None:
    """Register the sources, one after the other."""
    for number in range(SOURCES):
        file = folder / f"{number}.txt"
        file.write_text("a line\n" * 10)
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(file),
            "topic": f"lines-{number}",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **more,
        }
        client.post("/connectors", json={"name": f"lines-{number}", "config": config}).raise_for_status()


def one(url: str, pid: int, folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, float]:
    """Create, settle, look."""
    folder.mkdir()
    with httpx.Client(base_url=url, timeout=90) as client:
        empty_mb = pss_mb(pid)
        begun = time.monotonic()
        create(client, folder, more)
        created = time.monotonic()
        wait_for(lambda: running(client) == SOURCES, "not all tasks run")
        ready = time.monotonic()
    time.sleep(SETTLE_S)
    idle = cpu_percent(pid)
    time.sleep(REST_S)
    return {
        "create_s": round(created - begun, 2),
        "running_s": round(ready - begun, 2),
        "empty_pss_mb": round(empty_mb),
        "pss_mb": round(pss_mb(pid)),
        "processes": len(tree(pid)),
        "threads": sum(process.num_threads() for process in tree(pid)),
        "idle_cpu_percent": idle,
        "rested_cpu_percent": cpu_percent(pid),
    }


def cpu_percent(pid: int) -> float:
    """Of one processor, of a process and everything below it."""
    before = cpu_seconds(pid)
    time.sleep(IDLE_S)
    return round(100 * (cpu_seconds(pid) - before) / IDLE_S, 1)


def task_process(pid: int, name: str, file: Path) -> psutil.Process:
    """The process of a task of ours; of several that share it, the one that has the task's file open."""
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline())
            several = "tidemill: tasks " in title
            if f"task {name}-0" in title or (several and any(each.path == str(file) for each in process.open_files())):
                return process
    raise RuntimeError(f"no process runs task {name}-0")


def back_ms(url: str, pid: int, bootstrap: str, folder: Path, numbers: Sequence[int]) -> dict[str, float]:
    """Kill tasks; how long until a status says RUNNING again, and until a line that was appended meanwhile arrives."""
    says, arrives = [], []
    with httpx.Client(base_url=url, timeout=90) as client:
        for number in numbers:
            name = f"lines-{number}"
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "density", "fetch.wait.max.ms": 5})
            consumer.assign([TopicPartition(name, 0, OFFSET_END)])
            consumer.consume(1, 1.0)
            task = task_process(pid, name, folder / f"{number}.txt")
            killed = time.monotonic()
            os.kill(task.pid, signal.SIGKILL)
            with (folder / f"{number}.txt").open("a") as file:
                file.write("after the crash\n")
            seen: set[str] = set()
            status = 0.0
            while not consumer.consume(1, 0.001):
                state = client.get(f"/connectors/{name}/status").json()["tasks"][0]["state"]
                seen.add(state)
                if state == "RUNNING" and len(seen) > 1 and not status:
                    status = time.monotonic()
            arrived = time.monotonic()
            says.append(((status or arrived) - killed) * 1000)
            arrives.append((arrived - killed) * 1000)
            consumer.close()
    return {
        "back_status_ms": round(statistics.median(says)),
        "back_record_ms": round(statistics.median(arrives)),
        "back_record_max_ms": round(max(arrives)),
    }


@contextmanager
def ours(folder: Path) -> Iterator[tuple[str, str, int, float]]:
    """A Tidemill broker and worker: REST address, bootstrap address, process, seconds of its start."""
    with ExitStack() as stack:
        broker = services.broker("broker", folder / "data", log=folder / "broker.log").start()
        stack.callback(broker.stop)
        address = broker.facts["address"]
        settings = {"offset.flush.interval.ms": "1000"}
        begun = time.monotonic()
        worker = services.connect_worker("connect", address, settings=settings, log=folder / "connect.log").start()
        stack.callback(worker.stop)
        yield worker.facts["url"], address, worker.pid, time.monotonic() - begun


@contextmanager
def theirs(folder: Path) -> Iterator[tuple[str, str, int, float]]:
    """Apache Kafka and Connect: the same four."""
    with ExitStack() as stack:
        address, _ = stack.enter_context(peers.kafka_node(folder / "kafka"))
        plugins = folder / "plugins" / "file"
        plugins.mkdir(parents=True)
        for jar in peers.libraries("kafka", peers.KAFKA).glob("connect-file-*.jar"):
            (plugins / jar.name).symlink_to(jar)
        begun = time.monotonic()
        url, worker = stack.enter_context(peers.connect_worker(folder / "connect", address, plugins=plugins.parent))
        yield url, address, worker.pid, time.monotonic() - begun


def run(folder: Path, *, with_peers: bool, rounds: int, shared: bool = False) -> None:
    """Measure one after the other, each alone on the machine."""
    results: dict[str, Any] = {}
    (folder / "tidemill").mkdir()
    more = {"tidemill.task.isolation": "shared"} if shared else {}
    # Of each process one: the second death within a minute has a back-off, and those who share die together.
    killed = range(0, SOURCES, TASKS_MAX) if shared else range(CRASHES)
    with ours(folder / "tidemill") as (url, bootstrap, pid, start_s):
        figures = {"start_s": round(start_s, 2), **one(url, pid, folder / "tidemill" / "files", more)}
        results["tidemill"] = {**figures, **back_ms(url, pid, bootstrap, folder / "tidemill" / "files", killed)}
    if with_peers:
        with theirs(folder / "kafka") as (url, bootstrap, pid, start_s):
            results["kafka_connect"] = {"start_s": round(start_s, 2), **one(url, pid, folder / "kafka" / "files")}
    peer = results.get("kafka_connect", {})
    ratios = {key: ratio(value, peer.get(key)) for key, value in results["tidemill"].items() if key in peer}
    emit("density", {"sources": SOURCES, "shared": shared, **results, "ratios": ratios})
