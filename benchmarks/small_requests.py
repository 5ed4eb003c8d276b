"""Produce requests of one small record over raw sockets: CPU of the broker per request, and latency

A library batches records, and what a request costs disappears in its own work. Here the frames are made beforehand and
sent as they are, so many at a time on so many connections, and nothing is left but the broker. Each broker is measured
alone, in alternating rounds.
"""

import itertools
import selectors
import socket
import statistics
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker import Target, kafka, median, ours
from benchmarks.measure import emit, measured
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request, encode_response
from tidemill.core.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VALUE_BYTES = 100
PARTITIONS = 4
CASES = {"1x1": (1, 1, 10_000), "50x1": (50, 1, 50_000), "50x5": (50, 5, 100_000)}
"""name: (connections, requests in flight on each, requests)."""

VERSION = 9
_SIZE = struct.Struct(">i")
_CORRELATION_ID_AT = 8


class Connection:
    """One socket that repeats a request and keeps a number of them in flight."""

    def __init__(self, address: str, topic: str, partition: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = bytearray(frame(topic, partition))
        self._received = b""
        self._sent: deque[tuple[int, float]] = deque()
        self._numbers = itertools.count()
        self._answer_bytes = len(answer(topic, partition)) - 4

    def send(self, count: int) -> None:
        """So many more requests, in one write."""
        now, out = time.perf_counter(), bytearray()
        for number in itertools.islice(self._numbers, count):
            _SIZE.pack_into(self._frame, _CORRELATION_ID_AT, number)
            out += self._frame
            self._sent.append((number, now))
        self.socket.sendall(out)

    def receive(self) -> list[float]:
        """Seconds that each request took that is answered now; raises RuntimeError for an error or a wrong order."""
        data, at, took = self._received + self.socket.recv(65_536), 0, []
        now = time.perf_counter()
        while len(data) - at >= 4 and len(data) - at >= 4 + (size := _SIZE.unpack_from(data, at)[0]):
            number, sent = self._sent.popleft()
            if _SIZE.unpack_from(data, at + 4)[0] != number:
                raise RuntimeError("a response out of order")
            if size != self._answer_bytes:
                raise RuntimeError("a request was refused")  # only an error has a message in its answer
            took.append(now - sent)
            at += 4 + size
        self._received = data[at:]
        return took


def frame(topic: str, partition: int) -> bytes:
    """A produce request with one record, as librdkafka sends it."""
    batch = build_batch([NewRecord(time.time_ns() // 1_000_000, None, bytes(VALUE_BYTES))])
    data = PartitionProduceData(index=partition, records=batch)
    topics = (TopicProduceData(name=topic, partition_data=(data,)),)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    return encode_request(ApiKey.PRODUCE, VERSION, 0, "bench", request)


def answer(topic: str, partition: int) -> bytes:
    """A response that says that all is well."""
    partitions = (PartitionProduceResponse(index=partition),)
    response = ProduceResponse(responses=(TopicProduceResponse(name=topic, partition_responses=partitions),))
    return b"".join(encode_response(ApiKey.PRODUCE, VERSION, 0, response))


def drive(address: str, topic: str, connections: int, in_flight: int, count: int) -> list[float]:
    """Send `count` requests; returns the seconds that each took."""
    opened = [Connection(address, topic, number % PARTITIONS) for number in range(connections)]
    took: list[float] = []
    with selectors.DefaultSelector() as selector:
        for connection in opened:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(in_flight)
        started = connections * in_flight
        while len(took) < started:
            for key, _ in selector.select():
                answered = key.data.receive()
                took += answered
                more = min(len(answered), count - started)
                if more > 0:
                    key.data.send(more)
                    started += more
    for connection in opened:
        connection.socket.close()
    return took


def one_case(target: Target, connections: int, in_flight: int, count: int) -> dict[str, float]:
    """A topic of its own, a warm-up, a measurement."""
    topic = f"small-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": target.address})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
    drive(target.address, topic, connections, in_flight, count // 10)
    with measured(target.pid) as usage:
        took = drive(target.address, topic, connections, in_flight, count)
    admin.delete_topics([topic])[topic].result(30)
    centiles = statistics.quantiles(took, n=1000)
    return {
        "cpu_us_per_request": usage.cpu_s * 1e6 / len(took),
        "requests_per_s": len(took) / usage.wall_s,
        "p50_us": centiles[499] * 1e6,
        "p99_us": centiles[989] * 1e6,
        "p999_us": centiles[998] * 1e6,
    }


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure, alternating the brokers, each alone on the machine."""
    starters: dict[str, Callable[[Path], Any]] = {
        "tidemill": lambda home: ours(home, {"flush.policy": "os"}),
        "tidemill_fsync": lambda home: ours(home, {"flush.policy": "group"}),
    }
    if with_peers:
        starters["kafka"] = kafka
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    for number in range(rounds):
        for name, starter in starters.items():
            with starter(folder / f"{name}-{number}") as target:
                for case, (connections, in_flight, count) in CASES.items():
                    row = one_case(target, connections, in_flight, count)
                    results.setdefault(case, {}).setdefault(name, []).append(row)
    cases = {case: {name: median(rows) for name, rows in by.items()} for case, by in results.items()}
    emit("small_requests", {"rounds": rounds, "cases": cases})
