"""Replicas moved by `tidemill cluster balance`, at real nodes with a writer that does not stop"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner, Result

from tidemill.cluster import balance_cli
from tidemill.cluster.balance_cli import Unfinished, look
from tidemill.cluster.cli import app
from tidemill.cluster.moving import Situation
from tidemill.core.client.balance import Holdings, Move, Place
from tidemill.free_ports import free_port, free_ports
from tidemill.services import Cluster

TOPIC, PARTITIONS = "t", 8
MOVE = Move(topic=TOPIC, partition=0, before=(1,), after=(2,))
VALUE = b"x" * 4000
OWN_RATE = ConfigEntry("leader.replication.throttled.rate", "777", incremental_operation=AlterConfigOpType.SET)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["balance", *arguments])


def test_a_plan_as_json_is_only_a_plan() -> None:
    done = run("--json")
    assert done.exit_code == 2
    assert "give --dry-run too" in done.stderr


@pytest.mark.parametrize("more", [("--dry-run",), ("--drain", "4"), ("--throttle", "1")])
def test_taking_back_is_not_mixed_with_anything_else(more: tuple[str, ...]) -> None:
    done = run("--cancel", *more)
    assert done.exit_code == 2
    assert "give it alone" in done.stderr


@pytest.mark.parametrize(
    ("unfinished", "told"),
    [
        (Unfinished(), "nothing was moved"),
        (Unfinished(throttled=True), "a throttle may be left"),
        (Unfinished(moving=True), "what moves goes on: "),
        (Unfinished(moving=True, throttled=True), "what moves goes on, held back as it was: "),
    ],
)
def test_whoever_is_interrupted_is_told_what_is_left(unfinished: Unfinished, told: str) -> None:
    assert told in unfinished.told()


def test_nobody_there_is_a_sentence() -> None:
    port = free_port()
    done = run("-b", f"127.0.0.1:{port}", "--dry-run")
    assert done.exit_code == 1
    assert f"no broker answers at 127.0.0.1:{port}" in done.stderr


class Writer:
    """Writes without a stop, and knows what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: list[KafkaError] = []
        self._over = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged[message.key() or b""] = (message.partition() or 0, message.offset() or 0)

    def _write(self) -> None:
        number = 0
        while not self._over.is_set():
            self._producer.produce(
                TOPIC, VALUE, key=b"%d" % number, partition=number % PARTITIONS, on_delivery=self._told
            )
            number += 1
            self._producer.poll(0.005)


def read(bootstrap: str, count: int) -> dict[bytes, list[tuple[int, int]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[bytes, list[tuple[int, int]]] = {}
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        for each in consumer.consume(1000, 1.0):
            assert each.error() is None, each.error()
            found.setdefault(each.key() or b"", []).append((each.partition() or 0, each.offset() or 0))
    consumer.close()
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"broker.heartbeat.interval.ms": "500"}
    found = Cluster("balanced", tmp_path, free_ports(6), settings=settings)
    try:
        found.start()
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        found.add_broker(*free_ports(1))
        found.start()
        yield found
    finally:
        found.kill()


def holders(cluster: Cluster) -> Counter[int]:
    found = AdminClient({"bootstrap.servers": cluster.addresses[1]}).list_topics(TOPIC, 10).topics[TOPIC]
    return Counter(node for each in found.partitions.values() for node in each.replicas)


def throttle_of(cluster: Cluster) -> list[str]:
    """The values of all settings that hold copies back."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = [ConfigResource(ResourceType.TOPIC, TOPIC)]
    wanted += [ConfigResource(ResourceType.BROKER, str(node)) for node in (1, 2, 3, 4)]
    return [
        entry.value
        for resource in wanted
        for name, entry in admin.describe_configs([resource])[resource].result(10).items()
        if "replication.throttled" in name and not entry.is_default
    ]


def unthrottled(cluster: Cluster) -> None:
    """Nothing holds copies back any more; each broker hears a moment later of what the controller has decided."""
    deadline = time.monotonic() + 30
    while left := throttle_of(cluster):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def told_as_fenced(node: int, *here: str) -> None:
    """The broker that is asked hears a moment later that another has gone."""
    deadline = time.monotonic() + 30
    while f"fenced, so nothing is moved there: broker {node}" not in (said := run(*here, "--dry-run").stderr):
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


class Slow:
    """Of a reassigner what is looked at: a partition that is copied in three looks, ten bytes each."""

    def __init__(self) -> None:
        self.looks = 0

    async def ongoing(self) -> tuple[Move, ...]:
        """It is on its way until the fourth look."""
        self.looks += 1
        return (MOVE,) if self.looks < 4 else ()

    async def sizes_at(self, _nodes: object, _places: object) -> tuple[dict[tuple[Place, int], int], dict[int, int]]:
        """What has come."""
        return {(Place(TOPIC, 0), 2): 10 * self.looks}, {}

    async def who_runs(self) -> tuple[int, ...]:
        """Everybody."""
        return (1, 2)


def test_the_rate_is_told_from_the_second_line_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(balance_cli, "TELL_S", 0.0)
    monkeypatch.setattr(balance_cli, "LOOK_S", 0.01)
    situation = Situation(holdings=Holdings(racks={}, replicas={}), sizes={Place(TOPIC, 0): 30})
    asyncio.run(look(Slow(), situation, (MOVE,)))
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == "moved 0 of 1 partitions, 10 B of 30 B copied"
    assert [line.rpartition(", ")[2].endswith("/s") for line in lines] == [True, True]
    assert last == "moved 1 of 1 partitions, 30 B of 30 B copied"


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_a_fourth_broker_gets_its_share_and_is_emptied_again(cluster: Cluster) -> None:
    here = ("-b", cluster.addresses[1])
    with Writer(cluster.bootstrap) as writer:
        planned = run(*here, "--dry-run", "--json")
        shown = json.loads(planned.stdout)
        assert not planned.stderr
        assert {row["node_id"]: row["replicas"] for row in shown["brokers"]} == {
            1: [8, 6], 2: [8, 6], 3: [8, 6], 4: [0, 6]
        }  # fmt: skip
        assert holders(cluster) == {1: 8, 2: 8, 3: 8}
        own = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[OWN_RATE])
        admin = AdminClient({"bootstrap.servers": cluster.addresses[1]})
        admin.incremental_alter_configs([own])[own].result(30)
        done = run(*here, "--yes", "--throttle", "20000000")
        assert done.exit_code == 0, done.output
        assert f"{len(shown['moves'])} partitions, 6 replicas to copy" in done.stdout
        assert "throttle removed: 4 brokers, 1 topics" in done.stdout
        assert holders(cluster) == {1: 6, 2: 6, 3: 6, 4: 6}
        assert "leader.replication.throttled.rate=777 was set before" in done.stderr
        assert throttle_of(cluster) == ["777"], "it was not for these moves"
        assert "nothing to move" in run(*here, "--dry-run").stdout

        early = CliRunner().invoke(app, ["unregister", "4", *here])
        assert (early.exit_code, "broker 4 is running" in early.stderr) == (1, True)
        emptied = run(*here, "--yes", "--drain", "4")
        assert emptied.exit_code == 0, emptied.output
        assert "broker 4 holds nothing any more" in emptied.stdout
        assert holders(cluster) == {1: 8, 2: 8, 3: 8}
        cluster.nodes[4].stop()
        told_as_fenced(4, *here)
        assert CliRunner().invoke(app, ["unregister", "4", *here]).exit_code == 0
        gone = CliRunner().invoke(app, ["unregister", "4", *here])
        assert (gone.exit_code, "no broker has the id 4" in gone.stderr) == (1, True)
        refused = run(*here, "--yes", "--drain", "3")
        assert (refused.exit_code, "too few other brokers that run" in refused.stderr) == (1, True)
    assert writer.refused == []
    found = read(cluster.addresses[1], len(writer.acknowledged))
    assert {key: places for key, places in found.items() if len(places) > 1} == {}
    assert {key: places[0] for key, places in found.items()} == writer.acknowledged


def begun(command: list[str]) -> subprocess.Popen[str]:
    """The command, once something moves; little may have, for the first piece of each copy is let through."""
    looking = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert looking.stdout is not None
    assert any(line.startswith("moved ") for line in looking.stdout)
    return looking


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_who_stops_looking_stops_nothing_and_moves_are_taken_back_or_looked_on_at(cluster: Cluster) -> None:
    here = ("-b", cluster.addresses[1])
    with Writer(cluster.bootstrap) as writer:
        while len(writer.acknowledged) < 2000:
            time.sleep(0.05)
    command = [sys.executable, "-m", "tidemill.cli", "cluster", "balance", *here, "--yes", "--throttle", "1000"]
    looking = begun(command)
    os.kill(looking.pid, signal.SIGINT)
    assert looking.wait(30) == 130
    assert len(throttle_of(cluster)) == 2 + 2 * 4
    assert holders(cluster)[4] > 0, "they move on"

    taken_back = run(*here, "--cancel")
    assert taken_back.exit_code == 0, taken_back.output
    assert "partitions stay where they were" in taken_back.stdout
    assert "throttle removed: 4 brokers, 1 topics" in taken_back.stdout
    unthrottled(cluster)
    assert "nothing is on the move" in run(*here, "--cancel").stdout

    again = begun(command)
    again.kill()
    again.wait()
    resumed = run(*here, "--yes", "--throttle", "50000000")
    assert resumed.exit_code == 0, resumed.output
    assert "on the move already" in resumed.stdout
    assert holders(cluster) == {1: 6, 2: 6, 3: 6, 4: 6}
    unthrottled(cluster)
