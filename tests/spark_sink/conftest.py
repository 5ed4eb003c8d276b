"""A Spark session, a cluster and topics for the tests of the Spark part

One session serves the whole run, since a JVM takes seconds to start; it is small on purpose. The cluster is a broker of
ours, or the one that TIDEMILL_TEST_BOOTSTRAP names.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark_sink.debezium_events import Message
from tidemill.spark_sink.jvm import JavaMissing, prepare_environment, session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark_sink.running_job import Job

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Address of a cluster."""
    given = os.environ.get("TIDEMILL_TEST_BOOTSTRAP")
    return given or request.getfixturevalue("tidemill_broker").facts["address"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The session; skips where there is no Java."""
    pytest.importorskip("pyspark")
    folder = tmp_path_factory.mktemp("spark")
    saved = dict(os.environ)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        prepare_environment(os.environ, folder)
    except JavaMissing as error:
        pytest.skip(str(error))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    for name, value in {**session_settings("local[2]", folder), **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture
def jobs() -> "Iterator[list[Job]]":
    """Jobs to end after the test, whatever happens in it."""
    started: list[Job] = []
    yield started
    for job in started:
        job.end()


class Topics:
    """Makes topics and fills them."""

    def __init__(self, bootstrap: str, **client: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **client})

    def create(self, partitions: int = 1, name: str | None = None) -> str:
        """A new topic, with a name of its own unless one is given."""
        name = name or f"topic-{os.getpid()}-{time.time_ns() // 1000}-{next(_numbers)}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        return name

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([name])[name].result()
        poll(lambda: name not in self.admin.list_topics(timeout=10).topics, "the topic to go")

    def fill(self, name: str, logs: Sequence[Sequence[Message]], **settings: str | int) -> None:
        """Append messages to partitions 0, 1, …; returns when all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **settings})
        failures: list[object] = []
        for partition, messages in enumerate(logs):
            for message in messages:
                producer.produce(
                    name,
                    key=message.key,
                    value=message.value,
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    """Topics of the cluster."""
    return Topics(bootstrap)


def poll(condition: Callable[[], object], what: str, timeout_s: float = 60, pause_s: float = 0.05) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(pause_s)


def python_paths_below(pid: int) -> list[str]:
    """The `PYTHONPATH` of each Python process that the JVM below `pid` has started; raises where there is none."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if any(word.startswith("pyspark.") for word in process.cmdline()):
                found.append(process.environ().get("PYTHONPATH", ""))
    assert found
    return found


def planners_below(pid: int) -> list[int]:
    """The Python processes in which the JVM below `pid` asks streaming sources for their offsets."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if any("python_streaming_source_runner" in word for word in process.cmdline()):
                found.append(process.pid)
    assert found
    return found
