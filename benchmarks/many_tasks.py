"""Many tasks on three workers: created, asked, taken over, restarted in order

Two hundred connectors of two tasks each, on three workers of ours that share a group of one broker. Each task is a
process that tells of its start in a file and of its life in a record every two seconds, with its process and the time
(`ticking`). So whether it runs is seen in what it does, beside what a status says.

- `create`: the clock runs from the first POST, one after the other to one worker, to the last answer; until every
  status says RUNNING; and until there is a record of every task. What a POST costs in the first and the last quarter,
  `cpu_ms` of the three workers alone, tells whether it grows with what there is.
- `rest`: each worker is asked for statuses, twenty a second, while the tasks tick; and again while fifty connectors are
  created by PUT, three a second, whose answers are measured, too.
- `kills`: kill -9 of the worker that leads, then of one that does not. The clock runs until every status says RUNNING
  on a worker that lives, and until there is a record that each task of the dead one's has made since, in a new process.
  Then the worker is started again, and gets its share of what the others do.
- `rolling_restart`: SIGTERM, wait for the end, start again, one worker after the other.

Whatever must not be is told in `wrong`, and ends the benchmark with an error once it has told its figures: a task of
another worker whose process is another than before, one of which the old process still lives, one that was started
twice when its worker went, or that did something after another process of it had begun. So does what does not come in
time, at once.

`python -m benchmarks.many_tasks --connectors 10` runs a small one.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks import plugin_site
from benchmarks.density import pss_mb
from benchmarks.measure import cpu_seconds, emit, tree
from tidemill import services
from tidemill.free_ports import free_ports

CONNECTORS = 200
TASKS_EACH = 2
WORKERS = 3
NEW = 50
"""Connectors that are created while the others are at work."""
TICK_S = 2.0
LOOK_S = 30.0
SETTLE_S = 10.0
ASK_PAUSE_S = 0.05
PUT_PAUSE_S = 0.3
PAUSE_S = 0.2
PATIENCE_S = 300.0
GRACE_S = 120.0
TOPIC, PARTITIONS = "ticks", 3
TASK_TITLE = "tidemill: task "


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A record of a task: of which process, when it was made and when it was here."""

    pid: int
    at: float
    arrived: float


class Ticks:
    """All that the tasks have said so far."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "many-tasks", "fetch.wait.max.ms": 20})
        self._consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        self._by_task: dict[str, list[Tick]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take)

    def __enter__(self) -> "Ticks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _take(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    said, now = json.loads(message.value() or b""), time.monotonic()
                    tick = Tick(pid=said["pid"], at=said["at"], arrived=now)
                    self._by_task.setdefault(said["task"], []).append(tick)

    def of(self, task: str) -> Sequence[Tick]:
        """In the order in which they came."""
        return tuple(self._by_task.get(task, ()))

    def first(self, task: str, after: float, but: int | None = None) -> Tick | None:
        """The first one that was made after that moment, by another process than that."""
        return next((tick for tick in self.of(task) if tick.at > after and tick.pid != but), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A line of the file of starts."""

    task: str
    pid: int
    at: float


class Group:
    """The workers, by the address that they have in a status, and what is known of their tasks."""

    def __init__(self, workers: Mapping[str, services.Service], ticks: Ticks, folder: Path, connectors: int) -> None:
        self.workers, self.ticks = workers, ticks
        self.connectors = [f"many-{number:03}" for number in range(connectors)]
        self.tasks = [f"{name}-{number}" for name in self.connectors for number in range(TASKS_EACH)]
        self._starts = folder / "starts.txt"
        # no connection is kept: a worker may have been started again since
        self._client = httpx.Client(timeout=120, limits=httpx.Limits(max_keepalive_connections=0))

    def config(self, name: str) -> dict[str, str]:
        """Of a connector."""
        return {
            "connector.class": "ticking",
            "tasks.max": str(TASKS_EACH),
            "topic": TOPIC,
            "label": name,
            "starts": str(self._starts),
            "every.s": str(TICK_S),
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }

    def ask(self, method: str, worker: str, path: str, body: Any = None) -> Any:
        """What a worker answers; raises httpx.HTTPError."""
        answer = self._client.request(method, f"http://{worker}{path}", json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def leader(self) -> str:
        """The worker that leads, as another one tells."""
        found = self.ask("GET", next(iter(self.workers)), "/tidemill/group")["leader"]
        return str(found).removeprefix("http://")

    def places(self, asked: str) -> dict[str, tuple[str, str]]:
        """State and worker of each task, as one worker tells them."""
        found = self.ask("GET", asked, "/connectors?expand=status")
        return {
            f"{name}-{task['id']}": (task["state"], task["worker_id"])
            for name, each in found.items()
            for task in each["status"]["tasks"]
        }

    def not_running(self, asked: str, gone: str | None = None) -> list[str]:
        """The tasks that run nowhere, or where nothing can, with what is said of them."""
        places = self.places(asked)
        told = {task: places.get(task, ("unknown", "no worker")) for task in self.tasks}
        return [
            f"{task} ({state} on {place})"
            for task, (state, place) in told.items()
            if state != "RUNNING" or place == gone
        ]

    def uneven(self, asked: str) -> list[str]:
        """What keeps the group from being at rest, with as much on each worker."""
        for worker in self.workers:
            told = self.ask("GET", worker, "/tidemill/group")
            if told["phase"] != "stable" or len(told["workers"]) != WORKERS:
                return [f"{worker} is {told['phase']} in a group of {len(told['workers'])}"]
        if waiting := self.not_running(asked):
            return waiting
        places = self.places(asked)
        each = Counter(places[task][1] for task in self.tasks)
        if len(each) < WORKERS or max(each.values()) - min(each.values()) > 1:
            return [f"{worker} has {each[worker]}" for worker in self.workers]
        return []

    def silent(self, since: float, but: Mapping[str, int] | None = None) -> list[str]:
        """The tasks of which there is no record that was made since, by another process than `but` says."""
        but = but or {}
        return [task for task in self.tasks if self.ticks.first(task, since, but.get(task)) is None]

    def processes(self) -> dict[str, int]:
        """The process of each task, of those below the workers; raises RuntimeError if one has none, or two."""
        found: dict[str, list[int]] = {task: [] for task in self.tasks}
        for worker in self.workers.values():
            for process in tree(worker.pid) if worker.running else []:
                with suppress(psutil.NoSuchProcess):
                    title = " ".join(process.cmdline()).strip()
                    if (task := title.removeprefix(TASK_TITLE)) != title and task in found:
                        found[task].append(process.pid)
        wrong = [f"{task}: {pids}" for task, pids in found.items() if len(pids) != 1]
        if wrong:
            raise RuntimeError(f"tasks have not one process each: {', '.join(wrong[:10])}")
        return {task: pids[0] for task, pids in found.items()}

    def starts(self, since: float = 0.0) -> list[Start]:
        """All that these tasks have told of."""
        rows = (line.split() for line in self._starts.read_text().splitlines())
        found = (Start(task=task, pid=int(pid), at=float(at)) for task, pid, at in rows)
        wanted = set(self.tasks)
        return [start for start in found if start.at > since and start.task in wanted]

    def most_starts(self, since: float) -> int:
        """Of the task that was started most often since."""
        return max(Counter(start.task for start in self.starts(since)).values(), default=0)

    def ran_twice(self) -> list[str]:
        """The tasks that did something after another process of theirs had begun."""
        found = []
        for task, starts in itertools.groupby(
            sorted(self.starts(), key=lambda each: (each.task, each.at)), lambda each: each.task
        ):
            own = {start.pid: start.at for start in starts}
            begun = [*own.values(), float("inf")]
            over = dict(zip(own, begun[1:], strict=True))
            if any(tick.at > over[tick.pid] for tick in self.ticks.of(task)):
                found.append(task)
        return found


def moment_of(missing: Callable[[], Collection[str]], what: str) -> float:
    """When nothing is missing any more, by the clock; raises RuntimeError, which names some of what is."""
    until = time.monotonic() + PATIENCE_S
    while left := list(missing()):
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {PATIENCE_S:.0f} s; {len(left)} missing: {', '.join(left[:10])}")
        time.sleep(PAUSE_S)
    return time.monotonic()


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """How long answers took."""
    ordered = sorted(seconds)
    return {
        "answers": len(ordered),
        "p50_ms": round(statistics.median(ordered) * 1e3, 1),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 1),
        "max_ms": round(ordered[-1] * 1e3, 1),
    }


class Asking:
    """Asks each worker for one status after the other while the context lasts."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._over = threading.Event()
        self._took: dict[str, list[float]] = {worker: [] for worker in group.workers}
        self._failed: list[Exception] = []
        self._threads = [threading.Thread(target=self._ask, args=(worker,)) for worker in group.workers]

    def __enter__(self) -> "Asking":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _ask(self, worker: str) -> None:
        try:
            with httpx.Client(base_url=f"http://{worker}", timeout=120) as client:
                for name in itertools.cycle(self._group.connectors):
                    if self._over.wait(ASK_PAUSE_S):
                        return
                    begun = time.monotonic()
                    client.get(f"/connectors/{name}/status").raise_for_status()
                    self._took[worker].append(time.monotonic() - begun)
        except httpx.HTTPError as error:
            self._failed.append(error)

    def told(self) -> list[dict[str, float]]:
        """Of each worker."""
        return [spread(took) for took in self._took.values()]


def own_cpu_s(group: Group) -> float:
    """Processor time of the workers alone, without what is below them."""
    times = [psutil.Process(service.pid).cpu_times() for service in group.workers.values()]
    return sum(each.user + each.system for each in times)


def create(group: Group) -> dict[str, Any]:
    """Create all, and wait for all."""
    asked = next(iter(group.workers))
    took: list[float] = []
    cpu = [own_cpu_s(group)]
    begun = time.monotonic()
    for name in group.connectors:
        now = time.monotonic()
        group.ask("POST", asked, "/connectors", {"name": name, "config": group.config(name)})
        took.append(time.monotonic() - now)
        cpu.append(own_cpu_s(group))
    created = time.monotonic()
    running = moment_of(lambda: group.not_running(asked), "created, and every task is RUNNING")
    ticking = moment_of(lambda: group.silent(begun), "created, and every task has written")
    moment_of(lambda: group.uneven(asked), "created, and every worker has its share")
    some = max(1, len(took) // 4)
    return {
        "create_s": round(created - begun, 2),
        "running_s": round(running - begun, 2),
        "ticking_s": round(ticking - begun, 2),
        "post": spread(took),
        "first_quarter": {"p50_ms": spread(took[:some])["p50_ms"], "cpu_ms": round((cpu[some] - cpu[0]) / some * 1e3)},
        "last_quarter": {
            "p50_ms": spread(took[-some:])["p50_ms"],
            "cpu_ms": round((cpu[-1] - cpu[-1 - some]) / some * 1e3),
        },
        "most_starts": group.most_starts(begun),
    }


def rest(group: Group) -> dict[str, Any]:
    """How fast the workers answer."""
    pids = {worker: service.pid for worker, service in group.workers.items()}
    before, begun = {worker: cpu_seconds(pid) for worker, pid in pids.items()}, time.monotonic()
    with Asking(group) as at_work:
        time.sleep(LOOK_S)
    took = time.monotonic() - begun
    cpu = [round(100 * (cpu_seconds(pid) - before[worker]) / took) for worker, pid in pids.items()]
    names = [f"new-{number:03}" for number in range(NEW)]
    asked = itertools.cycle(group.workers)
    puts = []
    with Asking(group) as beside:
        for name, worker in zip(names, asked, strict=False):
            begun = time.monotonic()
            group.ask("PUT", worker, f"/connectors/{name}/config", group.config(name))
            puts.append(time.monotonic() - begun)
            time.sleep(PUT_PAUSE_S)
    for name, worker in zip(names, asked, strict=False):
        group.ask("DELETE", worker, f"/connectors/{name}")
    moment_of(lambda: group.uneven(next(asked)), "the new ones deleted, and every worker has its share")
    return {"status": at_work.told(), "cpu_percent": cpu, "put": spread(puts), "status_beside_puts": beside.told()}


def kill(group: Group, victim: str) -> dict[str, Any]:
    """Kill a worker, and see its tasks taken over."""
    asked = next(worker for worker in group.workers if worker != victim)
    places, before = group.places(asked), group.processes()
    theirs = {task: before[task] for task in group.tasks if places[task][1] == victim}
    killed = time.monotonic()
    group.workers[victim].kill()
    running = moment_of(lambda: group.not_running(asked, victim), "a worker killed, and every task is RUNNING again")
    moment_of(lambda: group.silent(killed, theirs), "a worker killed, and every task has written since")
    after = group.processes()
    first = [group.ticks.first(task, killed, pid) for task, pid in theirs.items()]
    return {
        "tasks": len(theirs),
        "running_s": round(running - killed, 2),
        "ticking_s": round(max(tick.arrived for tick in first if tick) - killed, 2),
        "most_starts": group.most_starts(killed),
        "others_changed": sum(after[task] != before[task] for task in group.tasks if task not in theirs),
        "left_running": sum(psutil.pid_exists(pid) for pid in theirs.values()),
    }


def come_back(group: Group, worker: str) -> dict[str, Any]:
    """Start a worker again, which gets its share."""
    begun = time.monotonic()
    group.workers[worker].start(PATIENCE_S)
    even = moment_of(lambda: group.uneven(worker), "a worker is back, and every worker has its share")
    moment_of(lambda: group.silent(even), "a worker is back, and every task writes")
    return {
        "even_s": round(even - begun, 2),
        "moved": len({start.task for start in group.starts(begun)}),
        "most_starts": group.most_starts(begun),
    }


def rolling_restart(group: Group) -> dict[str, Any]:
    """Restart one after the other."""
    begun = time.monotonic()
    at_first = group.places(next(iter(group.workers)))
    departures = [restart(group, worker) for worker in group.workers]
    took = time.monotonic() - begun
    now = group.places(next(iter(group.workers)))
    often = Counter(Counter(start.task for start in group.starts(begun)).values())
    return {
        "total_s": round(took, 2),
        "tasks_by_starts": {str(times): count for times, count in sorted(often.items())},
        "moved": sum(now[task] != at_first[task] for task in group.tasks),
        "departures": departures,
    }


def restart(group: Group, worker: str) -> dict[str, Any]:
    """Restart one worker; it is done when there is a record of every task."""
    service = group.workers[worker]
    asked = next(each for each in group.workers if each != worker)
    places, before = group.places(asked), group.processes()
    begun = time.monotonic()
    status = service.stop(GRACE_S)
    if status != 0:
        raise RuntimeError(f"{worker} ended with {status} after SIGTERM:\n{service.tail()}")
    stopped = time.monotonic()
    service.start(PATIENCE_S)
    ready = time.monotonic()
    even = moment_of(lambda: group.uneven(worker), "a worker restarted, and every task is RUNNING")
    moment_of(lambda: group.silent(stopped), "a worker restarted, and every task writes")
    after = group.processes()
    return {
        "stop_s": round(stopped - begun, 2),
        "start_s": round(ready - stopped, 2),
        "running_s": round(even - ready, 2),
        "most_starts": group.most_starts(begun),
        "others_changed": sum(after[task] != before[task] for task in group.tasks if places[task][1] != worker),
    }


def create_topic(bootstrap: str) -> None:
    """That of the ticks."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE_S)


@contextmanager
def ours(folder: Path, connectors: int) -> Iterator[tuple[Group, services.Service]]:
    """A broker and the workers; what they said last goes to stderr if something fails."""
    with ExitStack() as stack:
        broker = services.broker("broker", folder / "data", log=folder / "broker.log").start()
        stack.callback(broker.stop)
        address = broker.facts["address"]
        create_topic(address)
        environ = {"PYTHONPATH": plugin_site.install(folder / "site", "ticking", ["ticking"])}
        workers = {}
        for number, port in enumerate(free_ports(WORKERS), 1):
            rest, log = f"127.0.0.1:{port}", folder / f"worker-{number}.log"
            worker = services.connect_worker(f"worker {number}", address, rest=rest, log=log, environ=environ)
            workers[rest] = worker.start(PATIENCE_S)
            stack.callback(worker.stop, GRACE_S)
        ticks = stack.enter_context(Ticks(address))
        try:
            yield Group(workers, ticks, folder, connectors), broker
        except Exception:
            for worker in workers.values():
                print(f"{worker.name}:\n{worker.tail()}", file=sys.stderr)
            raise


def phases(group: Group, broker: services.Service) -> Iterator[tuple[str, Any]]:
    """One figure after the other, in the order in which they are measured."""
    yield "create", create(group)
    time.sleep(SETTLE_S)
    yield (
        "pss_mb",
        {
            "workers": [round(pss_mb(worker.pid)) for worker in group.workers.values()],
            "broker": round(pss_mb(broker.pid)),
        },
    )
    yield "rest", rest(group)
    kills: dict[str, Any] = {}
    for role in ("leader", "another"):
        leader = group.leader()
        victim = leader if role == "leader" else next(worker for worker in group.workers if worker != leader)
        kills[role] = {**kill(group, victim), "back": come_back(group, victim)}
    yield "kills", kills
    yield "rolling_restart", rolling_restart(group)
    yield "pss_after_mb", [round(pss_mb(worker.pid)) for worker in group.workers.values()]
    yield "ran_twice", len(group.ran_twice())


def wrong(figures: Mapping[str, Any]) -> list[str]:
    """What must not be."""
    departures = {
        **{f"kill of {role}": told for role, told in figures["kills"].items()},
        **{f"restart {number}": told for number, told in enumerate(figures["rolling_restart"]["departures"], 1)},
    }
    found = [
        f"{when}: {name} {told[name]}"
        for when, told in departures.items()
        for name, most in (("others_changed", 0), ("left_running", 0), ("most_starts", 1))
        if told.get(name, 0) > most
    ]
    return found + ([f"ran_twice {figures['ran_twice']}"] if figures["ran_twice"] else [])


def measure(folder: Path, connectors: int) -> None:
    """Measure, tell, and raise RuntimeError if something was as it must not be."""
    figures: dict[str, Any] = {}
    with ours(folder, connectors) as (group, broker):
        for name, told in phases(group, broker):
            print(f"{name}: {json.dumps(told)}", file=sys.stderr)
            figures[name] = told
    found = wrong(figures)
    emit("many_tasks", {"connectors": connectors, "tasks": connectors * TASKS_EACH, **figures, "wrong": found})
    if found:
        raise RuntimeError("; ".join(found))


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure once; only ours."""
    measure(folder, CONNECTORS)


def main() -> None:
    """So many connectors, and the logs in a folder that stays, if one is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_tasks")
    parser.add_argument("--connectors", type=int, default=CONNECTORS, help="of two tasks each")
    parser.add_argument("--folder", type=Path, help="an empty one, for the logs; they are removed without it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-many-tasks-") as passing:
        measure(options.folder or Path(passing), options.connectors)


if __name__ == "__main__":
    main()
