"""Numbered records, written while something happens to the brokers, and read again

What a client was told to be stored is there afterwards, once, at the offset that it was told.
"""

import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOPIC = "t"
PARTITIONS = 3


class Writer:
    """Writes numbered records, and knows what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: list[KafkaError] = []
        self._number = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000}
        )

    def _told(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            assert error is not None
            self.refused.append(error)
        else:
            self.acknowledged[value] = (message.partition() or 0, message.offset() or 0)

    def write(self, seconds: float) -> None:
        """Go on for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self._producer.produce(
                    TOPIC, b"%d" % self._number, partition=self._number % PARTITIONS, on_delivery=self._told
                )
                self._number += 1
            self._producer.poll(0.01)

    def finish(self) -> None:
        """Wait until all are answered."""
        assert self._producer.flush(120) == 0
        assert self.refused == []


def read_all(bootstrap: str, count: int) -> dict[bytes, list[tuple[int, int]]]:
    """Every record by its value; ends when `count` were read and nothing more comes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[bytes, list[tuple[int, int]]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    try:
        while len(ended) < PARTITIONS or sum(map(len, found.values())) < count:
            assert time.monotonic() < deadline, f"{sum(map(len, found.values()))} of {count} records after a minute"
            for message in consumer.consume(1000, 1.0):
                error, value = message.error(), message.value()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
                elif value is not None:
                    ended.discard(message.partition() or 0)
                    found.setdefault(value, []).append((message.partition() or 0, message.offset() or 0))
    finally:
        consumer.close()
    return found


def check(bootstrap: str, writer: Writer) -> None:
    """All that was acknowledged is there, once, where it was said to be."""
    writer.finish()
    found = read_all(bootstrap, len(writer.acknowledged))
    assert {value: places[0] for value, places in found.items()} == writer.acknowledged
    assert Counter(len(places) for places in found.values()) == {1: len(writer.acknowledged)}


def until(true: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until that is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)
