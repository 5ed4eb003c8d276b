"""What the sender makes of records before a producer is involved (the rest is tested with the source loop)"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidemill.connect.api import EncodedBatch, Fatal, Poison, Record
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import source_sender
from tidemill.connect.tasks.kafka_clients import ClientLost
from tidemill.connect.tasks.meter import TaskMeter
from tidemill.connect.tasks.source_sender import Delivery, Outgoing, Sender, SourceCounters, check_columns, column_bytes
from tidemill.core.runtime.clock import ManualClock


class Producer:
    """Takes notes; `troubles` meet the first records."""

    def __init__(self, *troubles: Any) -> None:
        self.calls: list[tuple[str, int]] = []
        self.troubles = list(troubles)
        self.polls = 0

    def produce(self, topic: str, value: Any, key: Any, **more: Any) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        self.calls.append((topic, 1))
        more["on_delivery"](None, None)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], on_delivery: Any) -> int:
        taken = 0
        for message in messages:
            if self.troubles:
                message["_error"] = self.troubles.pop(0)
                continue
            taken += 1
            on_delivery(None, None)
        self.calls.append((topic, taken))
        return taken

    def poll(self, seconds: float) -> None:
        self.polls += 1


def sender(spec: Callable[..., TaskSpec], producer: Producer, **config: str) -> tuple[Sender, SourceCounters]:
    counters = SourceCounters(TaskMeter(ManualClock()))
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return Sender(producer, spec("p", settings), counters, lambda facts: None), counters  # type: ignore[arg-type]


def test_runs_of_plain_messages_go_as_batches_and_order_is_kept(spec: Callable[..., TaskSpec]) -> None:
    producer = Producer()
    subject, _ = sender(spec, producer)
    delivery = Delivery(1, [])
    messages = [
        Outgoing("a", None, b"1"),
        Outgoing("a", None, b"2"),
        Outgoing("b", None, b"3"),
        Outgoing("b", None, b"4", (("h", b"x"),)),
        Outgoing("b", None, b"5", timestamp_ms=1),
        Outgoing("b", None, b"6", partition=0),
        Outgoing("b", None, b"7"),
    ]
    subject.send(messages, delivery)
    assert producer.calls == [("a", 2), ("b", 1), ("b", 1), ("b", 1), ("b", 1), ("b", 1)]
    assert delivery.acknowledged == len(messages)


def test_topics_named_after_the_hour_do_not_pile_up(
    spec: Callable[..., TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_sender, "TOPICS_MAX", 3)
    subject, counters = sender(spec, Producer())
    for hour in range(9):
        subject.use_topic(f"hour-{hour}")
        subject.use_topic("steady")
    assert subject.topics == ("hour-7", "hour-8", "steady")
    assert counters.topics == {"hour-7": 1, "hour-8": 1, "steady": 9}


@pytest.mark.parametrize("headers", [(), (("h", b"x"),)])
def test_a_full_queue_is_waited_for(spec: Callable[..., TaskSpec], headers: Any) -> None:
    full: Any = BufferError() if headers else KafkaError(KafkaError._QUEUE_FULL)
    producer = Producer(full, full)
    subject, _ = sender(spec, producer)
    delivery = Delivery(1, [])
    subject.send([Outgoing("a", None, b"1", headers), Outgoing("a", None, b"2", headers)], delivery)
    assert delivery.acknowledged == 2
    assert producer.polls


@pytest.mark.parametrize("headers", [(), (("h", b"x"),)])
def test_a_lost_producer_is_told_from_a_bad_record(spec: Callable[..., TaskSpec], headers: Any) -> None:
    def trouble(code: int) -> Any:
        return KafkaException(KafkaError(code)) if headers else KafkaError(code)

    message = Outgoing("a", None, b"1", headers)
    with pytest.raises(ClientLost):
        sender(spec, Producer(trouble(KafkaError._FATAL)))[0].send([message], Delivery(1, []))
    with pytest.raises(Poison, match="cannot produce a record to topic a"):
        sender(spec, Producer(trouble(KafkaError.MSG_SIZE_TOO_LARGE)))[0].send([message], Delivery(1, []))
    subject, _ = sender(spec, Producer(trouble(KafkaError._INVALID_ARG)), errors_tolerance="all")
    with pytest.raises(Fatal) as caught:
        subject.send([message], Delivery(1, []))
    assert not isinstance(caught.value, Poison)
    subject, counters = sender(spec, Producer(trouble(KafkaError.MSG_SIZE_TOO_LARGE)), errors_tolerance="all")
    delivery = Delivery(1, [])
    subject.send([message, message], delivery)
    assert (delivery.acknowledged, delivery.left_out, counters.skipped) == (1, 1, 1)


def test_records_pass_through_the_converters(spec: Callable[..., TaskSpec]) -> None:
    subject, _ = sender(spec, Producer())
    record = Record(topic="t", key="k", value={"a": 1}, headers=(("h", None),), timestamp_ms=5, kafka_partition=2)
    assert subject.encode([record]) == [Outgoing("t", b"k", b'{"a":1}', (("h", None),), 5, 2)]


def test_an_inbox_holds_a_delivery_once() -> None:
    inbox: list[Delivery] = []
    delivery = Delivery(7, inbox)
    for error in (None, None, KafkaError(1), None):
        delivery(error, Delivered("t"))
    delivery.leave_out()
    assert inbox == [delivery]
    assert (delivery.acknowledged, delivery.left_out, delivery.refused) == (3, 1, [(KafkaError(1), "t")])


class Delivered:
    """A message as a callback gets it."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic


@pytest.mark.parametrize(
    "columns",
    [{"keys": [b"k"]}, {"keys": [None, None], "headers": [()]}, {"keys": [None, None], "timestamps_ms": [1]}],
)
def test_columns_have_one_length(columns: Any) -> None:
    with pytest.raises(ValueError, match="an EncodedBatch with 2 values and 1 "):
        check_columns(EncodedBatch(topic="t", values=[b"1", b"2"], **columns))
    assert check_columns(EncodedBatch(topic="t", keys=[], values=[])) == 0


def test_bytes_of_a_column_are_counted_where_there_are_any() -> None:
    assert column_bytes([b"12", None, b"", b"345"]) == 5
    assert column_bytes([]) == 0
