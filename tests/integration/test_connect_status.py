"""What a connector waits for is in its status soon, and out of it again: every way to be stuck, with the real parts

`TIDEMILL_TOLD_WITHIN_S=5` is what a machine with nothing else to do keeps.

The worker, its broker and the database are processes of their own. A source and a sink that do as a file says are
installed for the worker as any distribution would be.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.services import Service
from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

DEADLINE_S = 60.0  # for a loaded machine
TOLD_WITHIN_S = float(os.environ.get("TIDEMILL_TOLD_WITHIN_S", DEADLINE_S))

PLUGINS = '''
from pathlib import Path
import itertools
import time

from pydantic import BaseModel

from tidemill import NotConnected, PartialFailure, Pos, Record, RetryAfter, sink, source


class Settings(BaseModel):
    """Where the mood is."""

    mood: str
    topic: str = ""


@source("MoodySource", version="1.0")
def moody_source(settings: Settings, pos: Pos):
    """Yield small records for as long as the mood is good."""
    start = (pos.get({"of": "it"}) or {"n": 0})["n"]
    for n in itertools.count(start):
        mood = Path(settings.mood).read_text()
        if mood == "hang":
            time.sleep(600)
        if mood == "away":
            raise NotConnected("the other system is away")
        if mood == "retry":
            raise RetryAfter(0.3, "the other system is busy")
        if mood == "idle":
            time.sleep(0.1)
            continue
        yield Record(topic=settings.topic, value=str(n), partition={"of": "it"}, offset={"n": n + 1})
        time.sleep(0.02)


@sink("MoodySink", version="1.0")
def moody_sink(settings: Settings, batch: list[Record]) -> None:
    """Take a batch if the mood is good."""
    mood = Path(settings.mood).read_text()
    if mood == "away":
        raise NotConnected("the target is away")
    if mood == "retry":
        raise RetryAfter(0.3, "the target is busy")
    if mood == "partial":
        raise PartialFailure({0: RetryAfter(0.3, "row is locked")})
'''


class Platform:
    """A broker, a worker and what a test does to them."""

    def __init__(self, broker: Service, worker: Service, folder: Path) -> None:
        self.broker = broker
        self.worker = worker
        self.folder = folder
        self.mood = folder / "mood"
        self.set_mood("fine")

    @property
    def bootstrap(self) -> str:
        return self.broker.facts["address"]

    def set_mood(self, mood: str) -> None:
        """Replace the file in one step: a plugin that reads it never finds half of it."""
        new = self.folder / "mood.new"
        new.write_text(mood)
        new.rename(self.mood)

    def create_topic(self, topic: str) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        return topic

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(30)

    def produce(self, topic: str, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def connect(self, name: str, config: Mapping[str, str]) -> None:
        answer = httpx.put(f"{self.worker.facts['url']}/connectors/{name}/config", json=dict(config), timeout=60)
        assert answer.is_success, answer.text

    def source(self, name: str, **more: str) -> None:
        self.connect(
            name,
            {
                "connector.class": "MoodySource",
                "mood": str(self.mood),
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            }
            | {key.replace("_", "."): value for key, value in more.items()},
        )
        self.until(name, runs)

    def sink(self, name: str, topic: str, **more: str) -> None:
        self.connect(
            name,
            {
                "connector.class": "MoodySink",
                "mood": str(self.mood),
                "topics": topic,
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            }
            | {key.replace("_", "."): value for key, value in more.items()},
        )
        self.until(name, runs)

    def status(self, name: str) -> Any:
        answer = httpx.get(f"{self.worker.facts['url']}/connectors/{name}/status", timeout=30)
        return answer.json() if answer.status_code == 200 else None

    def told(self, name: str, wanted: Callable[[Any], bool]) -> Any:
        """The first status that names the problem, or says that it is over, which may not take long."""
        return self.until(name, wanted, within_s=TOLD_WITHIN_S)

    def until(self, name: str, wanted: Callable[[Any], bool], *, within_s: float = DEADLINE_S) -> Any:
        """The first status that is as wanted."""
        deadline = time.monotonic() + within_s
        while True:
            status = self.status(name)
            if status is not None and wanted(status):
                return status
            assert time.monotonic() < deadline, f"the status stayed {status}\n{self.worker.tail()}"
            time.sleep(0.05)

    def fact(self, name: str, fact: str) -> Callable[[Any], bool]:
        """A condition: the fact of the first task is beyond what it is now."""
        before = facts(self.status(name)).get(fact, 0)
        return lambda status: facts(status).get(fact, 0) > before


def facts(status: Any) -> Any:
    return status["tasks"][0].get("facts", {}) if status and status["tasks"] else {}


def runs(status: Any) -> bool:
    """Its task runs and nothing is in its way."""
    task = status["tasks"][0] if status["tasks"] else {}
    return task.get("state") == "RUNNING" and "problem" not in task and "problem" not in status


def waits(*words: str) -> Callable[[Any], bool]:
    """It runs, but waits for something that all these words are said of."""

    def look(status: Any) -> bool:
        task = status["tasks"][0] if status["tasks"] else {}
        problem = task.get("problem")
        if task.get("state") != "RUNNING" or problem is None:
            return False
        assert problem["since"].endswith("Z")
        assert problem["message"] in task["trace"]
        assert problem["message"] in status["problem"]["message"]
        assert all(isinstance(value, str) for value in status["connector"].values()), "Go programs read only strings"
        return all(word in problem["message"] for word in words)

    return look


def failed(*words: str) -> Callable[[Any], bool]:
    def look(status: Any) -> bool:
        task = status["tasks"][0] if status["tasks"] else {}
        return task.get("state") == "FAILED" and all(word in task["trace"] for word in words)

    return look


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH on which the plugins are installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "moody_plugins.py").write_text(PLUGINS)
    information = folder / "moody-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[tidemill.plugins]\nmoody_source = moody_plugins:moody_source\nmoody_sink = moody_plugins:moody_sink\n"
    )
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, installed: str) -> Iterator[tuple[Service, Service]]:
    """A broker and a worker for all tests of this file."""
    folder = tmp_path_factory.mktemp("platform")
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    broker = services.broker("broker", folder / "data", settings=settings, log=folder / "broker.log").start()
    try:
        worker = services.connect_worker(
            "worker",
            broker.facts["address"],
            settings={"offset.flush.interval.ms": "500"},
            log=folder / "worker.log",
            environ={"PYTHONPATH": installed},
        ).start()
        try:
            yield broker, worker
        finally:
            worker.stop()
    finally:
        broker.stop()


@pytest.fixture
def platform(parts: tuple[Service, Service], tmp_path: Path) -> Iterator[Platform]:
    """The platform, without the connectors of the test before."""
    platform = Platform(*parts, tmp_path)
    yield platform
    url = platform.worker.facts["url"]
    for name in httpx.get(f"{url}/connectors", timeout=30).json():
        httpx.delete(f"{url}/connectors/{name}", timeout=30).raise_for_status()


def test_the_other_system_of_a_source_is_away(platform: Platform) -> None:
    topic = platform.create_topic("away-source")
    platform.source("s", topic=topic)
    for mood, words in (("away", "the other system is away"), ("retry", "the other system is busy")):
        platform.set_mood(mood)
        problem = platform.told("s", waits(words))["tasks"][0]["problem"]
        assert problem["attempts"] >= 1 and problem["next_try"].endswith("Z")
        platform.set_mood("fine")
        platform.told("s", runs)


def test_the_target_of_a_sink_is_away(platform: Platform) -> None:
    topic = platform.create_topic("away-sink")
    platform.sink("k", topic)
    for mood, words in (("away", "the target is away"), ("retry", "the target is busy")):
        platform.set_mood(mood)
        platform.produce(topic, "one")
        problem = platform.told("k", waits(words))["tasks"][0]["problem"]
        assert problem["attempts"] >= 1 and problem["next_try"].endswith("Z")
        platform.set_mood("fine")
        platform.told("k", runs)


def test_the_topic_of_a_sink_is_gone(platform: Platform) -> None:
    topic = platform.create_topic("gone-sink")
    platform.produce(topic, "one")
    platform.sink("k", topic)
    platform.delete_topic(topic)
    platform.told("k", waits(f"topic {topic}", "Unknown topic", "create the topic"))
    platform.create_topic(topic)
    platform.told("k", runs)


def test_the_topic_of_a_source_is_gone(platform: Platform) -> None:
    topic = platform.create_topic("gone-source")
    platform.source("s", topic=topic)
    platform.until("s", platform.fact("s", "source-record-write-total"))
    platform.delete_topic(topic)
    platform.told("s", waits(f"topic {topic}", "create the topic"))
    platform.create_topic(topic)
    platform.told("s", runs)
    platform.until("s", platform.fact("s", "source-record-write-total"))


def test_the_kafka_cluster_is_away(platform: Platform) -> None:
    """Of idle connectors, too; the worker answers meanwhile."""
    topic = platform.create_topic("cluster")
    platform.set_mood("idle")
    platform.source("s", topic=topic)
    platform.sink("k", topic)
    address = platform.bootstrap
    platform.broker.stop()
    try:
        words = f"the Kafka cluster at {address} does not answer"
        platform.told("s", waits(words))
        platform.told("k", waits_for_either(words, PLACELESS))  # the worker's lease may be over by then
    finally:
        host, port = address.rsplit(":", 1)
        platform.broker.command[platform.broker.command.index("--listen") + 1] = f"{host}:{port}"
        platform.broker.restart()
    for name in ("s", "k"):
        platform.told(name, runs)


PLACELESS = "this worker has no place in group"


def waits_for_either(*words: str) -> Callable[[Any], bool]:
    """It waits, as one of them says."""
    return lambda status: any(waits(each)(status) for each in words)


def test_the_kafka_cluster_takes_no_records(platform: Platform) -> None:
    """A broker that is frozen keeps its connections: what is sent waits, and who has nothing to read hears nothing."""
    topic, address = platform.create_topic("frozen"), platform.bootstrap
    platform.sink("k", platform.create_topic("frozen-and-empty"))
    platform.source("s", topic=topic)
    platform.until("s", platform.fact("s", "source-record-write-total"))
    os.kill(platform.broker.pid, signal.SIGSTOP)
    try:
        platform.told("s", waits("wait to be acknowledged by the Kafka cluster"))
        platform.told("k", waits_for_either(f"the Kafka cluster at {address} does not answer", PLACELESS))
        for name in ("s", "k"):  # and so it stays, once the worker's lease is over and with it the tasks
            platform.until(name, waits(PLACELESS))
    finally:
        os.kill(platform.broker.pid, signal.SIGCONT)
    for name in ("s", "k"):
        platform.told(name, runs)


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with PostgresServer(password="secret") as server:
        yield server


def capture(server: PostgresServer, name: str, slot: str) -> dict[str, str]:
    return {
        "connector.class": "PostgresSource",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password or "",
        "database.dbname": server.dbname,
        "topic.prefix": name,
        "slot.name": slot,
        "slot.drop.on.stop": "true",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }


def test_the_database_is_away(platform: Platform, database: PostgresServer) -> None:
    platform.connect("pg", capture(database, "away", "away"))
    platform.until("pg", lambda status: runs(status) and "lsn" in facts(status))
    database.stop()
    try:
        problem = platform.told("pg", waits(str(database.port)))["tasks"][0]["problem"]
        again = platform.until("pg", lambda status: status["tasks"][0]["problem"]["attempts"] > problem["attempts"])
        assert again["tasks"][0]["problem"]["since"] == problem["since"]
    finally:
        database.start()
    platform.told("pg", runs)


def test_the_password_is_wrong(platform: Platform, database: PostgresServer) -> None:
    platform.connect("pg", capture(database, "password", "password"))
    platform.until("pg", lambda status: runs(status) and "lsn" in facts(status))
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres PASSWORD 'other'")
        try:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication").fetchall()
            platform.told("pg", failed("password authentication failed"))
        finally:
            connection.execute("ALTER ROLE postgres PASSWORD 'secret'")
    httpx.post(f"{platform.worker.facts['url']}/connectors/pg/tasks/0/restart", timeout=30).raise_for_status()
    platform.told("pg", runs)


def test_the_slot_is_in_use(platform: Platform, database: PostgresServer) -> None:
    kept = {"slot.drop.on.stop": "false"}
    platform.connect("first", capture(database, "first", "shared") | kept)
    platform.until("first", lambda status: runs(status) and "lsn" in facts(status))
    platform.connect("second", capture(database, "second", "shared") | kept)
    platform.told("second", waits("shared", "PID"))
    httpx.delete(f"{platform.worker.facts['url']}/connectors/first", timeout=30).raise_for_status()
    platform.told("second", runs)
