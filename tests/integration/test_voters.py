"""Nodes as processes whose controllers come and go: begun by one, grown under load, replaced one by one

The commands are those that one types; what a producer was told to be stored meanwhile is there afterwards, once.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from tests.integration.numbered_records import PARTITIONS, TOPIC, Writer, check, until
from tidemill.broker import cli as broker_cli
from tidemill.cluster.cli import app
from tidemill.free_ports import free_ports
from tidemill.services import ADDRESS, Service

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(240)]

BOTH = "broker,controller"


class Nodes:
    """Processes of one cluster by node id; `first` controllers are those that all the others know by address."""

    def __init__(self, folder: Path, count: int, *, first: int) -> None:
        self.folder = folder
        ports = free_ports(3 * count)
        self.clients, self.controllers = dict(enumerate(ports[:count], 1)), dict(enumerate(ports[count:], 1))
        self.watched = dict(enumerate(ports[2 * count :], 1))
        self.servers = ",".join(f"127.0.0.1:{self.controllers[each]}" for each in range(1, first + 1))
        self.running: dict[int, Service] = {}

    def settings(self, node_id: int, roles: str) -> list[str]:
        listeners = [f"PLAINTEXT://127.0.0.1:{self.clients[node_id]}"] if "broker" in roles else []
        listeners += [f"CONTROLLER://127.0.0.1:{self.controllers[node_id]}"] if "controller" in roles else []
        found = {
            "node.id": str(node_id),
            "process.roles": roles,
            "cluster.id": "Z3Jvd2luZy1jbHVzdGVyLQ",
            "controller.quorum.bootstrap.servers": self.servers,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "metrics.listener": f"127.0.0.1:{self.watched[node_id]}",
            "default.replication.factor": "2",
            "offsets.topic.replication.factor": "2",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        data = ["--data", str(self.folder / f"node-{node_id}")]
        return [*data, *(option for key, value in found.items() for option in ("--set", f"{key}={value}"))]

    def format(self, node_id: int, roles: str, *how: str) -> None:
        options = broker_cli.app.parse_args(["format", *self.settings(node_id, roles), *how])
        assert options.run(options) == 0

    def begin(self, node_id: int, roles: str) -> Service:
        role = "broker" if "broker" in roles else "controller"
        node = self.running[node_id] = Service(
            f"node {node_id}",
            ["broker", "start", *self.settings(node_id, roles)],
            ready=rf"tidemill {role} ready: listening on {ADDRESS}",
            log=self.folder / f"node-{node_id}.log",
        )
        node.begin()
        return node

    def start(self, **roles: str) -> None:
        for node in [self.begin(int(name[1:]), role) for name, role in roles.items()]:
            node.wait()

    def stop(self, node_id: int) -> None:
        assert self.running.pop(node_id).stop(30) == 0

    def bootstrap(self, *nodes: int) -> str:
        return ",".join(f"127.0.0.1:{self.clients[each]}" for each in nodes)

    def get(self, node_id: int, path: str) -> tuple[int, str]:
        """What the node tells those who watch it."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.watched[node_id]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def kill(self) -> None:
        for node in self.running.values():
            node.kill()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def done(*arguments: str) -> str:
    """What a command that works has printed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def quorum(bootstrap: str) -> dict[int, bool]:
    """Who takes part, and whether it leads; observers are left out."""
    found = json.loads(run("status", "-b", bootstrap, "--json").stdout)
    return {each["node_id"]: each["leads"] for each in found["controllers"] if each["voter"]}


@contextmanager
def written_meanwhile(bootstrap: str) -> Iterator[Writer]:
    """Records are written from enter to exit, on a thread of their own."""
    writer, enough = Writer(bootstrap), Event()

    def write() -> None:
        while not enough.is_set():
            writer.write(0.1)

    thread = Thread(target=write)
    thread.start()
    try:
        yield writer
    finally:
        enough.set()
        thread.join()


def make_topic(bootstrap: str, replicas: int) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas)])[TOPIC].result(30)

    def in_sync() -> bool:
        topics = admin.list_topics(timeout=10).topics
        return TOPIC in topics and all(len(each.isrs) == replicas for each in topics[TOPIC].partitions.values())

    until(in_sync, "all replicas in sync")
    return admin


def test_a_cluster_begins_with_one_node_and_grows_under_load(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 4, first=2)
    try:
        nodes.format(1, BOTH, "--standalone")
        nodes.start(n1=BOTH)
        nodes.start(n2=BOTH, n3=BOTH, n4=BOTH)
        everyone = nodes.bootstrap(1, 2, 3, 4)
        make_topic(everyone, 3)
        observed = done("status", "-b", everyone)
        assert (observed.count("observer"), observed.count("leader")) == (3, 1)
        with written_meanwhile(everyone) as writer:
            for node in (2, 3, 4):
                told = done("add-voter", f"{node}@127.0.0.1:{nodes.controllers[node]}", "-b", nodes.bootstrap(node))
                assert f"node {node} votes: the voters are " in told
            assert quorum(everyone) == {1: True, 2: False, 3: False, 4: False}
            assert "the voters are 2, 3, 4, of which 1 may be away" in done("remove-voter", "1", "-b", everyone)
            until(lambda: 1 not in quorum(everyone) and any(quorum(everyone).values()), "another leader")
            again = run("remove-voter", "1", "-b", everyone)
            assert (again.exit_code, "node 1 does not vote; the voters are 2, 3, 4" in again.stderr) == (1, True)
            nodes.stop(1)
            leader = next(node for node, leads in quorum(nodes.bootstrap(2, 3, 4)).items() if leads)
            nodes.running[leader].kill()
            left = nodes.bootstrap(*({2, 3, 4} - {leader}))
            until(lambda: any(leads and node != leader for node, leads in quorum(left).items()), "a third leader")
            nodes.running[leader].restart()
            nodes.start(n1=BOTH)
        until(lambda: run("status", "-b", everyone).exit_code == 0, "a cluster that is well")
        check(everyone, writer)
    finally:
        nodes.kill()


def test_controllers_of_their_own_are_replaced_one_by_one(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 8, first=3)
    try:
        listed = ",".join(f"{node}@127.0.0.1:{nodes.controllers[node]}:{'A' * 20}{node}g" for node in (1, 2, 3))
        for node in (1, 2, 3):
            nodes.format(node, "controller", "--initial-controllers", listed)
        for node in (1, 2, 3):
            nodes.begin(node, "controller")
        nodes.start(n7="broker", n8="broker")
        brokers = nodes.bootstrap(7, 8)
        make_topic(brokers, 2)
        assert nodes.get(1, "/health/ready")[0] == nodes.get(1, "/health/live")[0] == 200
        deciding = [nodes.get(node, "/metrics")[1] for node in (1, 2, 3)]
        assert sum("\nkafka_controller_kafkacontroller_activecontrollercount 1" in each for each in deciding) == 1
        assert "controller started" in nodes.running[1].output()
        with written_meanwhile(brokers) as writer:
            for old in (1, 2, 3):
                new = old + 3
                nodes.servers = ",".join(f"127.0.0.1:{nodes.controllers[each]}" for each in range(old, new))
                nodes.start(**{f"n{new}": "controller"})
                done("add-voter", f"{new}@127.0.0.1:{nodes.controllers[new]}", "-b", brokers)
                done("remove-voter", str(old), "-b", brokers)
                nodes.stop(old)
                until(lambda: any(quorum(brokers).values()), "somebody leads")
            assert set(quorum(brokers)) == {4, 5, 6}
        admin = AdminClient({"bootstrap.servers": brokers})
        admin.create_topics([NewTopic("after", 1, 2)])["after"].result(30)
        check(brokers, writer)
        until(lambda: run("status", "-b", brokers).exit_code == 0, "a cluster that is well")
        nodes.servers = ",".join(f"127.0.0.1:{nodes.controllers[each]}" for each in (4, 5, 6))
        nodes.stop(7)
        nodes.start(n7="broker")  # which finds the new ones
        for node in (7, 8, 4, 5, 6):
            nodes.stop(node)
    finally:
        nodes.kill()
