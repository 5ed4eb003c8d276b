"""Three workers that share a group: killed, halted, restarted in order; what need not move lives on"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemill import services
from tidemill.free_ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(400)]

CONNECTORS = 6
TAKE_OVER_S = 15.0


def task_processes(group: str) -> dict[str, set[int]]:
    """Processes of the group's tasks, by task."""
    found: dict[str, set[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes().rstrip(b"\0 ").decode()
        except OSError:
            continue
        if command.startswith(f"tidemill: task {group}"):
            found.setdefault(command.removeprefix("tidemill: task "), set()).add(int(name))
    return found


@dataclass
class Watch:
    """Looks at the processes all the time: no task may ever have two."""

    group: str
    twice: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert not self.twice, f"had two processes: {self.twice}"

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for task, pids in task_processes(self.group).items():
                if len(pids) > 1 and len(task_processes(self.group).get(task, ())) > 1:
                    self.twice.append(task)


@dataclass
class Cluster:
    """Three workers and their connectors."""

    group: str
    workers: dict[str, services.Service]
    settings: Mapping[str, str]

    def names(self) -> list[str]:
        return [f"{self.group}-{number}" for number in range(CONNECTORS)]

    def get(self, path: str, worker: str | None = None) -> Any:
        for name, service in self.workers.items():
            if worker in (None, name) and service.running:
                return httpx.get(service.facts["url"] + path, timeout=30).json()
        raise AssertionError("no worker runs")

    def url_of(self, worker: str) -> str:
        return self.workers[worker].facts["url"].removeprefix("http://")

    def places(self, asked: str) -> dict[str, tuple[str, str]]:
        """State and place of each task, as one worker tells them."""
        status = self.get("/connectors?expand=status", asked)
        return {
            f"{name}-{task['id']}": (task["state"], task["worker_id"])
            for name, each in status.items()
            for task in each["status"]["tasks"]
        }

    def until(self, holds: Callable[[dict[str, tuple[str, str]]], bool], asked: str, timeout_s: float = 60) -> float:
        begun = time.monotonic()
        places: Any = None
        while time.monotonic() - begun < timeout_s:
            places = self.places(asked)
            if holds(places):
                return time.monotonic() - begun
            time.sleep(0.05)
        groups = [self.get("/tidemill/group", name) for name, each in self.workers.items() if each.running]
        logs = [each.log.read_text()[-1_500:] for each in self.workers.values()]
        raise AssertionError("\n".join([f"it stayed {places}", *map(str, groups), *logs]))

    def spread(self, places: dict[str, tuple[str, str]]) -> bool:
        """Everything runs, two tasks on each worker."""
        on = [place for state, place in places.values() if state == "RUNNING"]
        return len(on) == CONNECTORS and all(on.count(self.url_of(name)) == 2 for name in self.workers)

    def calm(self) -> dict[str, tuple[str, str]]:
        for service in self.workers.values():
            if not service.running:
                service.start()
        for name in self.workers:
            self.until(self.spread, name, 90)
        return self.places("one")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, tidemill_broker_factory: Any) -> Iterator[Cluster]:
    bootstrap = tidemill_broker_factory().facts["address"]
    with three_workers(f"g{os.getpid()}", bootstrap, tmp_path_factory.mktemp("workers"), {}) as found:
        yield found


@contextmanager
def three_workers(group: str, bootstrap: str, folder: Path, more: Mapping[str, str]) -> Iterator[Cluster]:
    settings = {f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": group, "scheduled.rebalance.max.delay.ms": "120000", **more}
    (folder / "in.txt").write_text("one\n")
    workers = {
        name: services.connect_worker(
            name, bootstrap, rest=f"127.0.0.1:{port}", settings=settings, log=folder / f"{name}.log"
        )
        for name, port in zip(("one", "two", "three"), free_ports(3), strict=True)
    }
    found = Cluster(group=group, workers=workers, settings={**settings, "bootstrap.servers": bootstrap})
    try:
        for service in workers.values():
            service.start()
        leader = leader_of(found)
        for name in found.names():
            source = {"connector.class": "FileStreamSource", "file": str(folder / "in.txt"), "topic": f"{group}-t"}
            answer = httpx.put(f"{leader}/connectors/{name}/config", json=source, timeout=60)
            assert answer.status_code == 201, answer.text
        yield found
    finally:
        for service in workers.values():
            if service.running:
                service.stop()


def leader_of(cluster: Cluster, asked: str = "one") -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        told = cluster.get("/tidemill/group", asked)
        if told["leader"] and len(told["workers"]) == len(cluster.workers):
            return str(told["leader"])
        time.sleep(0.1)
    raise AssertionError(f"no leader of all: {told}")


def test_what_a_killed_worker_did_runs_elsewhere_and_nothing_else_is_touched(cluster: Cluster) -> None:
    before = cluster.calm()
    processes = task_processes(cluster.group)
    killed = cluster.url_of("two")
    with Watch(cluster.group):
        cluster.workers["two"].kill()
        took_s = cluster.until(
            lambda places: all(state == "RUNNING" and place != killed for state, place in places.values()), "three"
        )
    print(f"taken over after {took_s:.1f} s")
    assert took_s < TAKE_OVER_S
    now = task_processes(cluster.group)
    for task, (_, place) in before.items():
        if place != killed:
            assert now[task] == processes[task], f"{task} was touched"


def test_the_tasks_of_a_worker_that_stands_still_end_before_others_start_them(cluster: Cluster) -> None:
    before = cluster.calm()
    still = cluster.workers["three"]
    mine = {task for task, (_, place) in before.items() if place == cluster.url_of("three")}
    others = {task: pids for task, pids in task_processes(cluster.group).items() if task not in mine}
    with Watch(cluster.group):
        os.kill(still.pid, signal.SIGSTOP)
        try:
            took_s = cluster.until(
                lambda places: all(
                    state == "RUNNING" and place != cluster.url_of("three") for state, place in places.values()
                ),
                "one",
            )
        finally:
            os.kill(still.pid, signal.SIGCONT)
        assert took_s < TAKE_OVER_S
        assert {task: pids for task, pids in task_processes(cluster.group).items() if task not in mine} == others
        cluster.calm()  # it comes back, and gets its share


def test_what_is_asked_while_the_leader_stands_still_goes_to_the_next_one(cluster: Cluster) -> None:
    cluster.calm()
    leader = leader_of(cluster)
    still = next(each for each in cluster.workers.values() if each.facts["url"] == leader)
    asked = next(name for name, each in cluster.workers.items() if each is not still)
    url, name = cluster.workers[asked].facts["url"], cluster.names()[0]
    config = cluster.get(f"/connectors/{name}/config", asked) | {"name": f"{cluster.group}-another"}
    os.kill(still.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        another = {"name": f"{cluster.group}-another", "config": config, "initial_state": "STOPPED"}
        created = httpx.post(f"{url}/connectors", json=another, timeout=60)
        took_s = time.monotonic() - begun
        assert created.status_code == 201, created.text
        print(f"created by the next leader after {took_s:.1f} s")
        assert cluster.get("/tidemill/group", asked)["leader"] != leader
        assert took_s < TAKE_OVER_S
    finally:
        os.kill(still.pid, signal.SIGCONT)
    assert httpx.delete(f"{url}/connectors/{cluster.group}-another", timeout=60).status_code == 204
    cluster.calm()


def test_a_restart_in_order_moves_nothing(cluster: Cluster) -> None:
    before = cluster.calm()
    for name, service in cluster.workers.items():
        others = {
            task: pids
            for task, pids in task_processes(cluster.group).items()
            if before[task][1] != cluster.url_of(name)
        }
        with Watch(cluster.group):
            service.stop()
            service.start()
            cluster.until(lambda places: places == before, name)
        now = task_processes(cluster.group)
        assert {task: now[task] for task in others} == others


def test_every_worker_tells_of_everything_and_is_asked_for_anything(cluster: Cluster) -> None:
    cluster.calm()
    leader = leader_of(cluster)
    for name in cluster.workers:
        told = cluster.get("/tidemill/group", name)
        assert told["leader"] == leader and len(told["workers"]) == 3 and told["phase"] == "stable"
        assert set(cluster.get("/connectors", name)) == set(cluster.names())
    url = next(service.facts["url"] for service in cluster.workers.values() if service.facts["url"] != leader)
    name = cluster.names()[0]
    assert httpx.put(f"{url}/connectors/{name}/pause", timeout=30).status_code == 202
    cluster.until(lambda places: places[f"{name}-0"][0] == "PAUSED", "one")
    assert httpx.put(f"{leader}/connectors/{name}/resume", timeout=30).status_code == 202
    cluster.until(cluster.spread, "two")


def test_a_second_worker_with_an_address_of_the_group_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.calm()
    host, port = cluster.url_of("one").split(":")
    settings = {**cluster.settings, "rest.advertised.host.name": host, "rest.advertised.port": port}
    second = services.connect_worker(
        "second", settings.pop("bootstrap.servers"), settings=settings, log=tmp_path / "second.log"
    )
    with pytest.raises(services.ServiceError, match=rf"has the address {host}:{port}: process"):
        second.start()
    cluster.until(cluster.spread, "one")


def test_a_killed_worker_that_is_started_again_goes_on_at_once(tmp_path: Path, tidemill_broker_factory: Any) -> None:
    """However long its start takes, its session would take longer."""
    bootstrap = tidemill_broker_factory().facts["address"]
    with three_workers(f"k{os.getpid()}", bootstrap, tmp_path, {"session.timeout.ms": "60000"}) as cluster:
        before = cluster.calm()
        with Watch(cluster.group):
            cluster.workers["one"].kill()
            begun = time.monotonic()
            cluster.workers["one"].start()
            up_s = time.monotonic() - begun
            back_s = cluster.until(lambda places: places == before, "one")
        print(f"up after {up_s:.1f} s, its tasks run {back_s:.1f} s later")
        assert back_s < 5.0, "it waited for its own session, or for a grace"
