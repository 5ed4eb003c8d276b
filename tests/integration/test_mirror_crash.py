"""kill -9 of the mirror and of both brokers under load: the copy has every record once, in order.

Idempotent producers with every compression codec write into A while the parts die in turn, the mirror also while its
batches lie unread before a target that stands still and reads them after the mirror is gone. Afterwards the copy on B
is compared record by record: key, value, headers, timestamp, order within the partition.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.free_ports import free_ports
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(300)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
CATCH_UP_S = 90

PROPERTIES = """\
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}
A->B.enabled = true
A->B.topics = orders
refresh.topics.interval.seconds = 1
"""

Row = tuple[bytes | None, bytes | None, tuple[int, int], tuple[tuple[str, bytes], ...]]


def read_all(address: str, topic: str) -> list[list[Row]]:
    """Every record of every partition, in order."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "compare", "enable.auto.commit": False})
    result: list[list[Row]] = []
    try:
        for number in range(PARTITIONS):
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            consumer.assign([TopicPartition(topic, number, start)])
            rows: list[Row] = []
            deadline = time.monotonic() + 60
            while len(rows) < end - start and time.monotonic() < deadline:
                for message in consumer.consume(5000, timeout=1):
                    assert message.error() is None, message.error()
                    headers = tuple(message.headers() or ())
                    rows.append((message.key(), message.value(), message.timestamp(), headers))
            result.append(rows)
    finally:
        consumer.close()
    return result


def ends(address: str, topic: str) -> list[int]:
    """Log end of every partition; zeros while the topic does not exist."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1] for number in range(PARTITIONS)
        ]
    except Exception:
        return [0] * PARTITIONS
    finally:
        consumer.close()


class Load:
    """Producers of all codecs; keeps what it has sent so that nothing is forgotten."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self._rng = rng
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": address,
                    "compression.type": codec,
                    "enable.idempotence": True,
                    "linger.ms": 3,
                    "message.timeout.ms": 240_000,
                }
            )
            for codec in CODECS
        ]
        self.sent = 0
        self.acknowledged = 0

    def run(self, seconds: float) -> None:
        """Produce for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for producer in self._producers:
                for _ in range(20):
                    self.sent += 1
                    producer.produce(
                        "orders",
                        key=b"%d" % (self.sent % 100),
                        value=b"%d " % self.sent + b"x" * self._rng.randint(0, 200),
                        headers=[("n", b"%d" % self.sent)],
                        on_delivery=self._delivered,
                    )
                producer.poll(0.002)

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.acknowledged += 1

    def flush(self) -> None:
        """Until everything is acknowledged."""
        for producer in self._producers:
            assert producer.flush(120) == 0

    def finish(self) -> None:
        """The same, and nothing was refused."""
        self.flush()
        assert self.acknowledged == self.sent


def wait_started(b: str) -> None:
    """Until there is a copy."""
    deadline = time.monotonic() + CATCH_UP_S
    while not sum(ends(b, "A.orders")):
        assert time.monotonic() < deadline, "the mirror does not begin"
        time.sleep(0.1)


def wait_caught_up(a: str, b: str) -> None:
    """Until the copy is as long as the original."""
    deadline = time.monotonic() + CATCH_UP_S
    while (there := ends(b, "A.orders")) != (here := ends(a, "orders")):
        assert time.monotonic() < deadline, f"the mirror does not catch up: {there} of {here}"
        time.sleep(0.2)


def kill_behind(mirror: Service, a: Service, b: Service, load: Load) -> None:
    """Kill the mirror with a part of A not on B, and requests on their way there that B reads only afterwards."""
    on_b = sum(ends(b.facts["address"], "A.orders"))
    os.kill(b.pid, signal.SIGSTOP)
    try:
        load.run(0.4)
        load.flush()
        behind = sum(ends(a.facts["address"], "orders")) - on_b
        mirror.kill()
    finally:
        os.kill(b.pid, signal.SIGCONT)
    assert behind > 0, "the kill has to find the mirror behind"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_copy_is_exact_whatever_dies(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    ports = free_ports(2)
    a, b = (
        services.broker(
            name,
            tmp_path / name,
            listen=f"127.0.0.1:{port}",
            settings={"log.segment.bytes": "1048576"},
            log=tmp_path / f"{name}.log",
        ).start()
        for name, port in zip(("a", "b"), ports, strict=True)
    )
    file = tmp_path / "mm2.properties"
    file.write_text(PROPERTIES.format(a=a.facts["address"], b=b.facts["address"]))
    mirror = services.mirror("mirror", file, log=tmp_path / "mirror.log")
    try:
        admin = AdminClient({"bootstrap.servers": a.facts["address"]})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
        mirror.start()
        load = Load(a.facts["address"], rng)
        for victim in (mirror, b, mirror, a, b, mirror):
            load.run(rng.uniform(0.3, 1.0))
            if victim is mirror:
                wait_started(b.facts["address"])
                kill_behind(mirror, a, b, load)
            else:
                victim.kill()
            load.run(rng.uniform(0.0, 0.4))
            victim.restart()
        load.run(0.5)
        load.finish()
        wait_caught_up(a.facts["address"], b.facts["address"])
        original, copy = read_all(a.facts["address"], "orders"), read_all(b.facts["address"], "A.orders")
        assert sum(map(len, original)) == load.sent
        assert [len(rows) for rows in copy] == [len(rows) for rows in original]
        assert copy == original
    finally:
        for service in (mirror, a, b):
            service.stop()
