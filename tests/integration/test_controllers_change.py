"""Controllers that die, pause and leave while a client changes topics by a broker that is none of them

Whoever asks for a topic meanwhile is told that it is made, or that it is there already: it may have been made by the
controller whose answer was lost. No other error reaches the application.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.integration.test_voters import quorum
from tidemill.free_ports import free_ports
from tidemill.services import ADDRESS, Service

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(240)]

CONTROLLERS = (1, 2, 3)
BROKER = 4
AT_ONCE = 5


class Nodes:
    """Three controllers and a broker, a process each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(enumerate(free_ports(4), 1))
        self.bootstrap = f"127.0.0.1:{self._ports[BROKER]}"
        self.nodes = {each: self._node(each) for each in (*CONTROLLERS, BROKER)}

    def _node(self, node_id: int) -> Service:
        role, listener = ("broker", "PLAINTEXT") if node_id == BROKER else ("controller", "CONTROLLER")
        settings = {
            "node.id": str(node_id),
            "process.roles": role,
            "cluster.id": "Z3Jvd2luZy1jbHVzdGVyLQ",
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{self._ports[each]}" for each in CONTROLLERS),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://127.0.0.1:{self._ports[node_id]}",
        }
        options = [option for key, value in settings.items() for option in ("--set", f"{key}={value}")]
        return Service(
            f"node {node_id}",
            ["broker", "start", "--data", str(self._folder / f"node-{node_id}"), *options],
            ready=rf"tidemill {role} ready: listening on {ADDRESS}",
            log=self._folder / f"node-{node_id}.log",
        )

    def active(self) -> Service:
        """The controller that leads."""
        return self.nodes[next(each for each, leads in quorum(self.bootstrap).items() if leads)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """All of them, ready."""
    found = Nodes(tmp_path)
    try:
        for each in found.nodes.values():
            each.begin()
        for each in found.nodes.values():
            each.wait()
        yield found
    finally:
        for each in found.nodes.values():
            each.kill()


class Administrator:
    """Makes topics and changes them, several at once, until it is told to stop; remembers what it was told."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._name = name
        self._number = 0
        self._enough = Event()
        self._thread = Thread(target=self._work)
        self.made: set[str] = set()
        self.repeated = 0
        self.errors: list[str] = []

    def __enter__(self) -> "Administrator":
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._enough.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._enough.is_set():
            names = [f"{self._name}-{self._number + each}" for each in range(AT_ONCE)]
            self._number += AT_ONCE
            for name in names:
                self._told("create", [self._admin.create_topics([NewTopic(name, 1, 1)])[name]], "TOPIC_ALREADY_EXISTS")
            self.made.update(names)
            more = self._admin.create_partitions([NewPartitions(names[0], 2)])
            self._told("grow", more.values(), "INVALID_PARTITIONS")
            entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, names[1], incremental_configs=[entry])
            self._told("alter", self._admin.incremental_alter_configs([resource]).values())
            self._told("delete", self._admin.delete_topics([names[2]]).values(), "UNKNOWN_TOPIC_OR_PART")
            self.made.discard(names[2])

    def _told(self, what: str, answers: Iterable[Future[Any]], *documented: str) -> None:
        for answer in answers:
            try:
                answer.result(60)
            except KafkaException as error:
                told: KafkaError = error.args[0]
                if told.name() in documented:
                    self.repeated += 1
                else:
                    self.errors.append(f"{what}: {told}")


def kill(node: Service) -> Callable[[], object]:
    node.kill()
    return node.restart


def leave(node: Service) -> Callable[[], object]:
    assert node.stop(30) == 0
    return node.restart


def pause(node: Service) -> Callable[[], object]:
    os.kill(node.pid, signal.SIGSTOP)
    return lambda: os.kill(node.pid, signal.SIGCONT)


def topics_of(admin: AdminClient) -> set[str]:
    return {name for name in admin.list_topics(timeout=10).topics if name.startswith("topic")}


@pytest.mark.parametrize("harm", [kill, leave, pause])
def test_no_error_reaches_the_application_but_that_it_was_done_before(
    nodes: Nodes, harm: Callable[[Service], Callable[[], object]]
) -> None:
    admins = [Administrator(nodes.bootstrap, f"topic{each}") for each in range(3)]
    with admins[0], admins[1], admins[2]:
        time.sleep(1)
        mend = harm(nodes.active())
        time.sleep(4)
        mend()
        time.sleep(1)
    assert [error for each in admins for error in each.errors] == []
    made = {name for each in admins for name in each.made}
    assert made
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    deadline = time.monotonic() + 10
    while (topics := topics_of(admin)) != made and time.monotonic() < deadline:
        time.sleep(0.1)  # what the controller has answered reaches a broker a moment later
    assert topics == made
