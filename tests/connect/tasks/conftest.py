"""Task loops on a thread of the test, against a real broker"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pydantic import BaseModel

from tests.connect.tasks.scripted_source import Script
from tidemill.connect.api import Plugin, PluginKind
from tidemill.connect.settings import parse_settings
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.control import News, TaskControl
from tidemill.connect.tasks.source import SourceRunner
from tidemill.core.runtime.clock import SystemClock

DEADLINE_S = 30.0


class AnySettings(BaseModel, extra="allow"):
    """Settings of test plugins: they look at what they like."""


def plugin(task: Callable[[], Any], kind: PluginKind = PluginKind.SOURCE) -> Plugin:
    """A plugin whose task objects come from `task`."""
    return Plugin(name="test", kind=kind, version="1", config=AnySettings, task=lambda settings: task())


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.01)


class Loop:
    """A runner on a thread of its own."""

    def __init__(self, runner: Any, subject: Plugin, spec: TaskSpec, paused: bool = False) -> None:
        self.news: list[News] = []
        self.error: Exception | None = None
        self.control = TaskControl(self.news.append, paused=paused)
        settings = parse_settings(subject, spec.config)
        self._runner = runner(subject, settings, spec, self.control, SystemClock())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._runner.run()
        except Exception as error:
            self.error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self, grace_ms: int = 10_000) -> None:
        self.control.request_stop(grace_ms)
        self._thread.join(DEADLINE_S)
        assert self.ended, "it did not stop"

    def fact(self, name: str) -> Any:
        return self.control.facts.get(name)


@pytest.fixture
def run() -> Iterator[Callable[..., Loop]]:
    """Start runners; those still running at the end are stopped."""
    loops: list[Loop] = []

    def start(runner: Any, subject: Plugin, spec: TaskSpec, **more: Any) -> Loop:
        loops.append(Loop(runner, subject, spec, **more))
        return loops[-1]

    yield start
    for loop in loops:
        if not loop.ended:
            loop.stop(0)


class Cluster:
    """What tests do to topics."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(30)
        until(lambda: len(self.partitions(topic)) == partitions, f"topic {topic}")
        return topic

    def partitions(self, topic: str) -> list[int]:
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=10).topics.get(topic)
        return [] if found is None else sorted(found.partitions)

    def produce(self, topic: str, *records: tuple[Any, Any], headers: Any = None, partition: int = -1) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value in records:
            producer.produce(topic, value, key, headers=headers, partition=partition)
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Message]:
        """All records of a topic, partition by partition."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "test-reader", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in self.partitions(topic)])
        waiting, found = set(self.partitions(topic)), []
        deadline = time.monotonic() + DEADLINE_S
        while waiting:
            assert time.monotonic() < deadline, f"the end of {topic} was not reached"
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
        consumer.close()
        return found

    def values(self, topic: str) -> list[bytes | None]:
        return [message.value() for message in self.read(topic)]

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        (place,) = consumer.committed([TopicPartition(topic, partition)], timeout=10)
        consumer.close()
        return place.offset


@pytest.fixture(scope="session")
def cluster(bootstrap: str) -> Cluster:
    """The cluster under the tests."""
    return Cluster(bootstrap)


@pytest.fixture
def play(
    run: Callable[..., Loop], spec: Callable[..., TaskSpec], cluster: Cluster, unique: Callable[[str], str]
) -> Callable[..., Loop]:
    """Run a script; returns its loop."""

    def start(script: Script, config: Mapping[str, str] | None = None, **more: Any) -> Loop:
        paused = more.pop("paused", False)
        more.setdefault("offsets_topic", unique("offsets"))
        given = spec("test", config, bootstrap=cluster.bootstrap, **more)
        loop: Loop = run(SourceRunner, plugin(script.make), given, paused=paused)
        return loop

    return start
