"""A producer that comes and goes, and what it sends"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.connect.tasks.conftest import Cluster, until
from tidemill.connect.tasks import kafka_watch
from tidemill.connect.tasks.control import TaskControl
from tidemill.connect.tasks.kafka_watch import KafkaWatch
from tidemill.connect.tasks.resting_producer import RestingProducer
from tidemill.core.runtime.clock import ManualClock, SystemClock

pytestmark = pytest.mark.integration

REST_AFTER_S = 0.5

Make = Callable[..., RestingProducer]


@pytest.fixture
def make() -> Iterator[Make]:
    """A producer that rests soon, at this address; `topics` are those that have to be there."""
    made: list[RestingProducer] = []

    def start(
        bootstrap: str,
        *topics: str,
        control: TaskControl | None = None,
        on_asking: Callable[[], object] = lambda: None,
        **more: Any,
    ) -> RestingProducer:
        said = control or TaskControl(lambda news: None)

        def named() -> tuple[str, ...]:
            on_asking()
            return topics

        producer = RestingProducer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0, "message.timeout.ms": 60_000},
            lambda client: KafkaWatch(client, said, bootstrap, named),
            lambda error: None,
            wait=said.wait,
            **{"clock": SystemClock(), "rest_after_s": REST_AFTER_S, **more},
        )
        producer.open()
        made.append(producer)
        return producer

    yield start
    for each in made:
        each.close()


def rested(producer: RestingProducer) -> bool:
    producer.poll(0)
    return producer.resting


def watches() -> int:
    return sum(each.name == "kafka watch" for each in threading.enumerate())


def test_it_goes_when_there_is_nothing_to_send_and_comes_with_the_next_record(
    make: Make, cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic, before = cluster.create(unique("t")), watches()
    producer = make(cluster.bootstrap, topic)
    told: list[Any] = []
    sent: list[bytes] = []

    def send(value: bytes) -> None:
        sent.append(value)
        producer.produce(topic, value, on_delivery=lambda error, message: told.append(error))

    def send_in_a_batch(value: bytes) -> None:
        sent.append(value)
        batch = [{"value": value}]
        assert producer.produce_batch(topic, batch, on_delivery=lambda error, message: told.append(error)) == 1

    for number, way in enumerate((send, send_in_a_batch, send)):
        way(b"%d" % number)
        assert not producer.resting
        until(lambda: rested(producer), "its rest")
        assert told == [None] * len(sent), "it rests when all is acknowledged"
        until(lambda: watches() == before, "the end of the watch")
    assert cluster.values(topic) == sent


def stays(producer: RestingProducer) -> bool:
    """Whether it is there for some time in which it would rest if it could."""
    until_s = time.monotonic() + 3 * REST_AFTER_S
    while time.monotonic() < until_s and not rested(producer):
        time.sleep(0.01)
    return not producer.resting


def test_it_does_not_rest_while_something_is_in_flight_or_the_cluster_is_in_trouble(make: Make) -> None:
    control = TaskControl(lambda news: None)
    producer = make("127.0.0.1:1", "t", control=control)
    assert stays(producer), "nobody answers"
    until(lambda: control.current_problem() is not None, "the problem")
    producer.produce("t", b"not sent")
    assert stays(producer)


def sends(producer: RestingProducer, topic: str) -> None:
    """Send a record that is acknowledged."""
    told: list[Any] = []
    producer.produce(topic, b"a record", on_delivery=lambda error, message: told.append(error))
    until(lambda: rested(producer) or told, "the acknowledgement")
    assert told == [None]


def test_the_cluster_is_asked_for_as_long_as_something_is_sent(
    make: Make, cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAUSE_S", "ASK_S", "ASK_RARELY_S"):
        monkeypatch.setattr(kafka_watch, name, 0.01)
    topic, clock, asked = cluster.create(unique("t")), ManualClock(), [0.0]
    producer = make(
        cluster.bootstrap,
        topic,
        clock=clock,
        rest_after_s=60.0,
        on_asking=lambda: asked.append(time.monotonic()),
    )

    def is_asked() -> bool:
        """Whether it is, again and again."""
        enough, until_s = len(asked) + 5, time.monotonic() + 1.0
        while len(asked) < enough and time.monotonic() < until_s:
            time.sleep(0.01)
        return len(asked) >= enough

    def later(ms: int) -> None:
        """A poll after so long."""
        clock.advance(ms)
        producer.poll(0)

    for _ in range(2):
        sends(producer, topic)
        assert is_asked()
        later(2_000)
        assert is_asked()
        later(2_000)
        until(lambda: not is_asked(), "the end of its questions")
    later(4_000)  # in a poll of the source: what the client complains of meanwhile is heard after it
    assert is_asked()
    later(4_000)
    assert is_asked()
    later(1_000)
    until(lambda: not is_asked(), "the end of its questions")
    assert not producer.resting


def test_time_passes_also_while_it_rests(make: Make, cluster: Cluster, unique: Callable[[str], str]) -> None:
    control = TaskControl(lambda news: None)
    producer = make(cluster.bootstrap, cluster.create(unique("t")), control=control)
    until(lambda: rested(producer), "its rest")
    clock = SystemClock()
    begin = clock.monotonic()
    producer.poll(0.2)
    assert clock.monotonic() - begin >= 0.2
    threading.Timer(0.1, lambda: control.request_stop(1000)).start()
    producer.poll(600)
    assert control.stopping and producer.resting
