"""Bad neighbours: what a task that allocates without bound, one that spins and one that hangs in C do to the others

Ten ordinary sources of one worker, at a rate and as fast as they can; first by themselves, then beside the three, whose
limits are set low so that all of them are killed meanwhile, and start again, and are killed again. Told of the others:
records a second (the median of seconds), and the task that lost most; of the worker, how long it takes to answer for a
status. Told of the three: how long each ran until it was killed, and until the history said so.

Who wants all of the machine has to share it: as fast as they can the ten lose a task's share for each that spins. Where
the worker may make control groups (`cgroup`; TIDEMILL_BENCH_CGROUP names a folder of cgroup v2 for that) the kernel
keeps the limit of memory, and the three are held to a tenth of a processor.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from benchmarks import plugin_site
from benchmarks.measure import emit
from tidemill import services

ORDINARY = 10
PER_S = 1_000
ALONE_S = 15
TOGETHER_S = 45
SETTLE_S = 5
TIMEOUT_S = 120
PLUGINS = ("steady", "hoarder", "spinner", "hanger")
BAD: Mapping[str, Mapping[str, str]] = {
    "hoarder": {"task.memory.max.bytes": str(400 << 20)},
    "spinner": {"task.call.max.ms": "15000"},
    "hanger": {"task.hang.max.ms": "15000"},
}
HELD = {"task.cpu.max.cores": "0.1"}  # with control groups


@contextmanager
def worker(folder: Path) -> Iterator[tuple[httpx.Client, str]]:
    """A broker and a worker that finds the plugins: its API, and the broker's address."""
    path = plugin_site.install(folder / "site", "bad_plugins", PLUGINS)
    with ExitStack() as stack:
        broker = services.broker("broker", folder / "data", log=folder / "broker.log").start()
        stack.callback(broker.stop)
        address = broker.facts["address"]
        settings = {"tidemill.task.cgroup": os.environ.get("TIDEMILL_BENCH_CGROUP", "auto")}
        log = folder / "connect.log"
        connect = services.connect_worker("connect", address, settings=settings, log=log, environ={"PYTHONPATH": path})
        connect.start()
        stack.callback(connect.stop)
        yield stack.enter_context(httpx.Client(base_url=connect.facts["url"], timeout=60)), address


def create(client: httpx.Client, name: str, plugin: str, settings: Mapping[str, str]) -> None:
    """Register a source."""
    config = {
        "connector.class": plugin,
        "topic": name,
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **settings,
    }
    client.put(f"/connectors/{name}/config", json=config).raise_for_status()


def wait_until_running(client: httpx.Client, names: list[str]) -> None:
    """Return once every task of these runs."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        found = client.get("/connectors", params={"expand": "status"}).json()
        tasks = [task for name in names for task in found.get(name, {}).get("status", {}).get("tasks", [])]
        if len(tasks) == len(names) and all(task["state"] == "RUNNING" for task in tasks):
            return
        if time.monotonic() > until:
            raise RuntimeError(f"not all of them run: {tasks}")
        time.sleep(0.1)


class Watch:
    """What the ordinary tasks do second by second, and how fast the worker answers meanwhile."""

    def __init__(self, client: httpx.Client, bootstrap: str, names: list[str]) -> None:
        self._client, self._names = client, names
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bad-neighbours"})

    def ends(self) -> list[int]:
        """Where each topic ends."""
        return [self._consumer.get_watermark_offsets(TopicPartition(name, 0))[1] for name in self._names]

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def look(self, seconds: float) -> tuple[list[float], list[float], list[float]]:
        """Records of all in each second; a second of each task, on average; milliseconds of each answer."""
        rates: list[float] = []
        answers: list[float] = []
        begun = time.monotonic()
        first = last = self.ends()
        at = begun
        while (now := time.monotonic()) < begun + seconds:
            self._client.get(f"/connectors/{self._names[0]}/status").raise_for_status()
            answers.append((time.monotonic() - now) * 1000)
            time.sleep(0.05)
            if (now := time.monotonic()) - at >= 1:
                ends = self.ends()
                rates.append((sum(ends) - sum(last)) / (now - at))
                last, at = ends, now
        each = [(end - start) / (at - begun) for start, end in zip(first, last, strict=True)]
        return rates, each, answers


def told(client: httpx.Client, name: str, until: float, found: dict[str, dict[str, Any]]) -> None:
    """Wait for the first end of a bad task to be told."""
    created = time.monotonic()
    while time.monotonic() < until:
        tasks = client.get(f"/tidemill/connectors/{name}/history").json().get("tasks", [])
        ended = [run for task in tasks for run in task["runs"] if "ended" in run]
        if ended:
            facts = ended[0]
            found[name] = {
                "ran_s": round(facts["ran_ms"] / 1000, 1),
                "told_s": round(time.monotonic() - created, 1),
                "failure": facts.get("failure"),
                "reason": facts.get("reason"),
            }
            return
        time.sleep(0.5)


def beside(client: httpx.Client, measure: Callable[[], Any], *, kernel: bool) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Measure beside the bad ones; what became of each of them."""
    found: dict[str, dict[str, Any]] = {}
    until = time.monotonic() + TOGETHER_S
    with httpx.Client(base_url=client.base_url, timeout=60) as other:
        for name, settings in BAD.items():
            create(other, name, name, {**settings, **(HELD if kernel else {})})
        threads = [threading.Thread(target=told, args=(other, name, until, found)) for name in BAD]
        for thread in threads:
            thread.start()
        figures = measure()
        for thread in threads:
            thread.join()
        for name in BAD:
            runs = other.get(f"/tidemill/connectors/{name}/history").json()["tasks"][0]["runs"]
            found.setdefault(name, {})["kills"] = sum(run.get("failure") == "killed" for run in runs)
            other.delete(f"/connectors/{name}").raise_for_status()
    return figures, found


def one(folder: Path, per_s: int) -> dict[str, Any]:
    """One worker at one load: alone, then beside."""
    names = [f"steady-{number}" for number in range(ORDINARY)]
    with worker(folder) as (client, bootstrap):
        kernel = "cgroup" in client.get("/tidemill/worker").json()
        for name in names:
            create(client, name, "steady", {"per.s": str(per_s)})
        wait_until_running(client, names)
        time.sleep(SETTLE_S)
        watch = Watch(client, bootstrap, names)
        alone = watch.look(ALONE_S)
        together, bad = beside(client, lambda: watch.look(TOGETHER_S), kernel=kernel)
        watch.close()
    return {"cgroup": kernel, "bad": bad, **compared(alone, together)}


def compared(alone: tuple[list[float], ...], together: tuple[list[float], ...]) -> dict[str, Any]:
    """Both, and what is left."""
    before, beside = (statistics.median(rates) for rates in (alone[0], together[0]))
    worst = min(after / was for was, after in zip(alone[1], together[1], strict=True))
    return {
        "alone_records_per_s": round(before),
        "beside_records_per_s": round(beside),
        "ratio": round(beside / before, 3),
        "worst_task_ratio": round(worst, 3),
        **{f"alone_{name}": value for name, value in answered(alone[2]).items()},
        **{f"beside_{name}": value for name, value in answered(together[2]).items()},
    }


def answered(answers: list[float]) -> dict[str, float]:
    """How long the worker took to answer."""
    ordered = sorted(answers)
    return {
        "rest_p50_ms": round(statistics.median(ordered), 1),
        "rest_p99_ms": round(ordered[int(len(ordered) * 0.99)], 1),
    }


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure; of several rounds the one in the middle."""
    results: dict[str, Any] = {}
    for name, per_s in (("paced", PER_S), ("flat_out", 0)):
        found = [one(folder / f"{name}-{number}", per_s) for number in range(rounds)]
        found.sort(key=lambda each: each["ratio"])
        results[name] = {**found[len(found) // 2], "ratios": [each["ratio"] for each in found]}
    emit("bad_neighbours", {"ordinary": ORDINARY, "paced_per_s": PER_S, **results})
