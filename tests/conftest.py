"""Fixtures for parts that only this repository's tests need: Apache Kafka as a peer, programs of the system."""

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from benchmarks.peers import Peer

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")

# A JVM of a test lives for a minute: what the second compiler and parallel collectors cost, it never earns back.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", SHORT_LIVED)

# A shell without job control starts programs beside it with ^C ignored, and those under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, "Peer"]]:
    """A node of Apache Kafka; yields its bootstrap address and process. Skips where it cannot be had, and says why."""
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Kafka cannot be started here: {reason}")
    keep = {"log.retention.ms": "-1"}  # as in BROKER_SETTINGS of our own brokers in tests
    with peers.kafka_node(tmp_path_factory.mktemp("kafka"), heap="400M", settings=keep) as node:
        yield node


@pytest.fixture
def threaded_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs on a thread of its own."""
    found = asyncio.new_event_loop()
    thread = threading.Thread(target=found.run_forever)
    thread.start()
    yield found
    found.call_soon_threadsafe(found.stop)
    thread.join()
    found.close()


@pytest.fixture(scope="session")
def kcat() -> Path:
    """The kcat program; skips where it is not installed (Debian: apt-get install kcat)."""
    found = shutil.which("kcat")
    if found is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    return Path(found)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a name that is another in each process: pytest-xdist would run nothing at all."""
    if " at 0x" in item.nodeid:
        raise pytest.UsageError(f"{item.nodeid}: the parameters need `ids` that do not change")
