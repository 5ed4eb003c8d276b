"""Whether the cluster answers, seen from a task"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.connect.tasks.conftest import Cluster, until
from tidemill.connect.problem import Problem
from tidemill.connect.tasks import kafka_watch
from tidemill.connect.tasks.control import TaskControl
from tidemill.connect.tasks.kafka_watch import TOPICS_PER_ROUND, AsksForTopics, KafkaWatch

pytestmark = pytest.mark.integration

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def watch() -> Iterator[Callable[..., TaskControl]]:
    """Watch with a client; returns where problems are said."""
    watches: list[KafkaWatch] = []

    def start(client: AsksForTopics, bootstrap: str, *topics: str) -> TaskControl:
        control = TaskControl(lambda news: None)
        watches.append(KafkaWatch(client, control, bootstrap, lambda: topics, reading=isinstance(client, Consumer)))
        watches[-1].start()
        return control

    yield start
    for each in watches:
        each.close()


def said(control: TaskControl) -> str:
    problem = control.current_problem()
    return "" if problem is None else problem.message


def consumer(bootstrap: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "watch", "log_level": 0})


def test_nobody_answers(watch: Callable[..., TaskControl]) -> None:
    control = watch(Producer({"bootstrap.servers": NOWHERE, "log_level": 0}), NOWHERE, "t")
    until(lambda: f"the Kafka cluster at {NOWHERE} does not answer" in said(control), "the problem")


def test_a_topic_comes_and_goes(
    watch: Callable[..., TaskControl], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    control = watch(consumer(cluster.bootstrap), cluster.bootstrap, topic)
    until(lambda: f"topic {topic}: " in said(control), "the problem")
    assert "create the topic, or correct its name" in said(control)  # a sink creates none
    cluster.create(topic)
    until(lambda: not said(control), "the end of it")


def test_all_topics_have_their_turn(
    watch: Callable[..., TaskControl], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topics = [cluster.create(unique("t")) for _ in range(7)]
    control = watch(consumer(cluster.bootstrap), cluster.bootstrap, *topics, unique("missing"))
    until(lambda: "topic missing" in said(control), "the problem")


def test_topics_have_their_turn_however_many_there_are() -> None:
    names = [f"t{number}" for number in range(TOPICS_PER_ROUND + 2)]
    subject = KafkaWatch(
        Producer({"bootstrap.servers": NOWHERE}), TaskControl(lambda news: None), NOWHERE, lambda: names
    )
    assert subject.chosen() == names[:TOPICS_PER_ROUND]
    assert subject.chosen() == [*names[TOPICS_PER_ROUND:], *names[: TOPICS_PER_ROUND - 2]]
    del names[3:]
    assert sorted(subject.chosen()) == names
    names.clear()
    assert subject.chosen() == []


class Counted:
    """A client that counts how often it is asked."""

    def __init__(self, client: AsksForTopics) -> None:
        self.asked = 0
        self._client = client

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        return self._client.list_topics(topic, timeout)

    def is_asked(self) -> bool:
        """Whether it is within some time in which it would be asked often."""
        asked, until_s = self.asked, time.monotonic() + 1.0
        while time.monotonic() < until_s and self.asked == asked:
            time.sleep(0.01)
        return self.asked > asked


def test_a_client_that_is_not_used_is_asked_seldom(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    for name in ("PAUSE_S", "ASK_S", "ASK_RARELY_S"):
        monkeypatch.setattr(kafka_watch, name, 0.05)
    topic = unique("t")
    client, control = Counted(consumer(cluster.bootstrap)), TaskControl(lambda news: None)
    subject = KafkaWatch(client, control, cluster.bootstrap, lambda: [topic])
    subject.unused()
    subject.start()
    until(lambda: said(control), "the problem")
    assert client.is_asked(), "the end of a problem is told, used or not"
    cluster.create(topic)
    until(lambda: subject.well, "the end of it")
    assert not client.is_asked()
    subject.heard(KafkaError(KafkaError._TRANSPORT))
    assert client.is_asked(), "the client complains"
    assert not client.is_asked()
    subject.used()
    assert client.is_asked()
    assert client.is_asked(), "again and again"
    subject.close()


def test_what_is_over_with_the_watch_is_no_problem(cluster: Cluster, unique: Callable[[str], str]) -> None:
    control = TaskControl(lambda news: None)
    control.problem("slot", "the slot is in use")
    subject = KafkaWatch(consumer(cluster.bootstrap), control, cluster.bootstrap, lambda: [unique("gone")])
    subject.start()
    until(lambda: "topic gone" in said(control), "the problem")
    subject.close()
    problem = control.current_problem()
    assert isinstance(problem, Problem) and problem.message == "the slot is in use"
