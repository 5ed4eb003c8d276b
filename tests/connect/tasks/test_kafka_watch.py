"""Whether the cluster answers, seen from a task"""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.connect.tasks.conftest import Cluster, until
from tidemill.connect.problem import Problem
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


def test_what_is_over_with_the_watch_is_no_problem(cluster: Cluster, unique: Callable[[str], str]) -> None:
    control = TaskControl(lambda news: None)
    control.problem("slot", "the slot is in use")
    subject = KafkaWatch(consumer(cluster.bootstrap), control, cluster.bootstrap, lambda: [unique("gone")])
    subject.start()
    until(lambda: "topic gone" in said(control), "the problem")
    subject.close()
    problem = control.current_problem()
    assert isinstance(problem, Problem) and problem.message == "the slot is in use"
