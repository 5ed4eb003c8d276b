"""Apache's Connect worker and ours in one group, on our broker: both do the work, and each goes on for the other

By Kafka's protocol `sessioned`. Every source follows a file of its own, and is asked for its offset before somebody is
killed: each line is in its topic once then, whoever has read it. A sink with two tasks writes the lines into a file.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from benchmarks import peers
from tidemill import services

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(600)]

GROUP = "peer-connect"
NAMES = [f"files-{number}" for number in range(4)]
DELAY_MS = "3000"
TEXT = {f"{part}.converter": "org.apache.kafka.connect.storage.StringConverter" for part in ("key", "value")}


def our_worker(name: str, bootstrap: str, folder: Path) -> services.Service:
    settings = {f"{role}.storage.topic": f"{GROUP}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": GROUP, "offset.flush.interval.ms": "500", "tidemill.group.protocol": "sessioned"}
    settings |= {"scheduled.rebalance.max.delay.ms": DELAY_MS}
    return services.connect_worker(name, bootstrap, settings=settings, log=folder / f"{name}.log")


def apaches_worker(folder: Path, bootstrap: str) -> Any:
    settings = {"scheduled.rebalance.max.delay.ms": DELAY_MS, "offset.flush.interval.ms": "500"}
    return peers.connect_worker(folder, bootstrap, settings=settings)


class Files:
    """The files that are followed, what was written into each, and what was made of it."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.lines: dict[str, list[str]] = {}  # of each connector
        self.sunk = folder / "out.txt"

    def config(self, name: str) -> dict[str, str]:
        if name not in self.lines:
            self.lines[name] = []
            self.path(name).touch()
        return TEXT | {"connector.class": "FileStreamSource", "file": str(self.path(name)), "topic": f"{name}-lines"}

    def sink_config(self) -> dict[str, str]:
        """Two tasks, each of which gets some of the topics: by Java's client and by librdkafka they agree on it."""
        strategy = {
            "consumer.override.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"
        }
        topics = ",".join(f"{name}-lines" for name in NAMES)
        own = {"connector.class": "FileStreamSink", "file": str(self.sunk), "topics": topics, "tasks.max": "2"}
        return TEXT | strategy | own

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def write(self, word: str) -> None:
        for name, lines in self.lines.items():
            lines.append(f"{name} {word}")
            with self.path(name).open("a") as file:
                file.write(f"{lines[-1]}\n")

    def until_read(self, url: str) -> None:
        """Every connector's offset is where its file ends, and its topic has each line once."""
        wanted = {name: self.path(name).stat().st_size for name in self.lines}

        def positions() -> dict[str, int]:
            return {
                name: offsets[0]["offset"]["position"]
                for name in self.lines
                if (offsets := get(url, f"/connectors/{name}/offsets").get("offsets"))
            }

        until(lambda: positions() == wanted, lambda: f"read {positions()} of {wanted}")
        assert {name: texts(self.bootstrap, f"{name}-lines") for name in self.lines} == self.lines

    def until_sunk(self) -> None:
        """The sink has written every line of the connectors that it follows, at least once, and no other."""
        wanted = {line for name in NAMES for line in self.lines[name]}
        until(
            lambda: self.sunk.exists() and wanted <= set(self.sunk.read_text().splitlines()),
            lambda: f"not sunk: {wanted - set(self.sunk.read_text().splitlines())}",
        )
        assert set(self.sunk.read_text().splitlines()) == wanted

    def go_through(self, text: str, url: str) -> None:
        """A line of each file is read into its topic, and from there by the sink."""
        self.write(text)
        self.until_read(url)
        self.until_sunk()


def texts(bootstrap: str, topic: str) -> list[str]:
    """The values of a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        found: list[str] = []
        while len(found) < end:
            message = consumer.poll(30)
            assert message is not None and message.error() is None, message
            found.append(cast(bytes, message.value()).decode())
        return found
    finally:
        consumer.close()


def get(url: str, path: str) -> Any:
    try:
        return httpx.get(url + path, timeout=30).json()
    except (httpx.TransportError, ValueError):
        return {}


def ask(method: str, url: str, path: str, json: Any = None) -> None:
    """As clients do, asks again while there is a rebalance."""
    for _ in range(100):
        answer = httpx.request(method, url + path, json=json, timeout=60)
        if answer.status_code != 409:
            break
        time.sleep(0.2)
    assert answer.is_success, answer.text


def put(url: str, path: str, json: Any = None) -> None:
    ask("PUT", url, path, json)


def restart_tasks(url: str, names: Iterable[str]) -> None:
    for name in names:
        ask("POST", url, f"/connectors/{name}/tasks/0/restart")


def until(holds: Callable[[], bool], told: Callable[[], object], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def places(url: str) -> dict[str, tuple[str, str]]:
    """State and worker of each connector and task, as one worker tells them."""
    found = {}
    for name, each in get(url, "/connectors?expand=status").items():
        status = each.get("status", {})
        if "connector" in status:
            found[name] = (status["connector"]["state"], status["connector"]["worker_id"])
        found |= {f"{name}/{task['id']}": (task["state"], task["worker_id"]) for task in status.get("tasks", [])}
    return found


def spread(url: str, connectors: int, tasks: int, *workers: str) -> None:
    """Wait until so many connectors and tasks run, each kind evenly on these workers and nowhere else."""
    ids = {worker.removeprefix("http://") for worker in workers}

    def is_even(on: Sequence[str], total: int) -> bool:
        counts = Counter(on)
        return (
            len(on) == total
            and counts.keys() <= ids
            and all(abs(counts[each] * len(ids) - total) < len(ids) for each in ids)
        )

    def holds() -> bool:
        found = places(url)
        on = {name: worker for name, (state, worker) in found.items() if state == "RUNNING"}
        of_tasks = [worker for name, worker in on.items() if "/" in name]
        of_connectors = [worker for name, worker in on.items() if "/" not in name]
        return len(on) == len(found) and is_even(of_connectors, connectors) and is_even(of_tasks, tasks)

    until(holds, lambda: (ids, places(url)))


def apaches_worker_leads(folder: Path, files: Files, ours: services.Service) -> str:
    """Apache's worker was there first; where ours answers."""
    with apaches_worker(folder / "first", files.bootstrap) as (apache, peer):
        for name in NAMES:
            put(apache, f"/connectors/{name}/config", files.config(name))
        spread(apache, 4, 4, apache)
        ours.start()
        url = ours.facts["url"]
        spread(url, 4, 4, apache, url)
        spread(apache, 4, 4, apache, url)
        files.write("one")
        files.until_read(url)
        files.until_read(apache)

        # Apache's worker leads: what ours is asked for goes there, and what each runs is restarted where it is.
        put(url, f"/connectors/{NAMES[0]}/pause")
        until(lambda: places(url)[f"{NAMES[0]}/0"][0] == "PAUSED", lambda: places(url))
        put(url, f"/connectors/{NAMES[0]}/resume")
        put(url, "/connectors/through-ours/config", files.config("through-ours"))
        put(url, "/connectors/sink/config", files.sink_config())
        spread(apache, 6, 7, apache, url)
        restart_tasks(url, files.lines)
        spread(url, 6, 7, apache, url)
        files.go_through("two", url)
        told = get(url, "/tidemill/connectors/sink/history")
        assert {each["url"].rstrip("/"): "problem" in each for each in told["workers"]} == {
            url: False,
            apache: True,
        }

        os.kill(peer.pid, signal.SIGKILL)
        peer.process.wait()
    spread(url, 6, 7, url)
    files.go_through("three", url)
    return url


def ours_leads(folder: Path, files: Files, url: str) -> None:
    """Another one of Apache's comes to ours, and dies."""
    with apaches_worker(folder / "second", files.bootstrap) as (apache, peer):
        spread(apache, 6, 7, apache, url)
        put(apache, "/connectors/through-apache/config", files.config("through-apache"))
        spread(url, 7, 8, apache, url)
        restart_tasks(apache, files.lines)
        spread(apache, 7, 8, apache, url)
        ask("DELETE", apache, "/connectors/through-ours")
        del files.lines["through-ours"]
        spread(url, 6, 7, apache, url)
        files.go_through("four", url)

        os.kill(peer.pid, signal.SIGKILL)
        peer.process.wait()
        spread(url, 6, 7, url)
        files.go_through("five", url)


def ours_follows(folder: Path, files: Files, ours: services.Service, url: str) -> None:
    """A third one of Apache's takes over when ours is killed, which comes back, is killed again, and is stopped."""
    with apaches_worker(folder / "third", files.bootstrap) as (apache, _):
        spread(apache, 6, 7, apache, url)
        ours.kill()
        spread(apache, 6, 7, apache)
        files.go_through("six", apache)

        # And back in a worker of ours that follows.
        url = ours.start().facts["url"]
        spread(url, 6, 7, apache, url)
        files.go_through("seven", apache)
        ours.kill()
        spread(apache, 6, 7, apache)
        files.go_through("eight", apache)

        url = ours.start().facts["url"]
        spread(apache, 6, 7, apache, url)
        assert ours.stop() == 0
        spread(apache, 6, 7, apache)
        files.go_through("nine", apache)


@pytest.mark.java
@pytest.mark.kafka_peer
def test_both_kinds_share_the_work_and_take_over_from_each_other(tmp_path: Path, tidemill_broker_factory: Any) -> None:
    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Connect cannot be started here: {reason}")
    bootstrap = tidemill_broker_factory().facts["address"]
    files = Files(tmp_path, bootstrap)
    ours = our_worker("ours", bootstrap, tmp_path)
    try:
        url = apaches_worker_leads(tmp_path, files, ours)
        ours_leads(tmp_path, files, url)
        ours_follows(tmp_path, files, ours, url)
    finally:
        ours.stop()


def test_workers_of_ours_share_by_kafkas_protocol(tmp_path: Path, tidemill_broker_factory: Any) -> None:
    bootstrap = tidemill_broker_factory().facts["address"]
    files = Files(tmp_path, bootstrap)
    workers = [our_worker(f"w{number}", bootstrap, tmp_path).start() for number in range(2)]
    try:
        urls = [worker.facts["url"] for worker in workers]
        for name in NAMES:
            put(urls[1], f"/connectors/{name}/config", files.config(name))
        spread(urls[0], 4, 4, *urls)
        files.write("one")
        files.until_read(urls[1])
        leaders = {get(url, "/tidemill/group")["leader"] for url in urls}
        assert len(leaders) == 1
        (leader,) = leaders
        place = urls.index(leader)
        workers[place].kill()
        follower = urls[1 - place]
        spread(follower, 4, 4, follower)
        files.write("two")
        files.until_read(follower)
    finally:
        for worker in workers:
            worker.stop()


def test_a_worker_of_another_protocol_is_told_so(tmp_path: Path, tidemill_broker_factory: Any) -> None:
    bootstrap = tidemill_broker_factory().facts["address"]
    first = our_worker("first", bootstrap, tmp_path).start()
    settings = {f"{role}.storage.topic": f"{GROUP}-{role}" for role in ("config", "offset", "status")}
    other = services.connect_worker(
        "other", bootstrap, settings=settings | {"group.id": GROUP}, log=tmp_path / "other.log"
    )
    try:
        other.begin()
        until(lambda: not other.running, other.tail)
        assert "members that are not Tidemill's workers" in other.output()
        assert first.running
    finally:
        other.stop()
        first.stop()
