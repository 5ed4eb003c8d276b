"""Clients that want too much, all at once, against one broker: its memory stays in budget and others are served"""

import contextlib
import resource
import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

MIB = 2**20
QUEUED_BYTES_MAX = 32 * MIB
SLOW, LARGE, DEAF, IDLE = 1000, 40, 30, 60
LARGE_ONCE_BYTES = 15 * MIB // 8
PER_CONNECTION_BYTES = 8 * 1024
DEAF_BYTES = 3 * MIB // 2  # unsent in the transport, and what was answered behind it
MARGIN_BYTES = 24 * MIB  # the allocator's, and what serving anybody takes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[services.Service]:
    settings = {"queued.max.request.bytes": str(QUEUED_BYTES_MAX), "socket.request.max.bytes": str(16 * MIB)}
    service = services.broker("limits", tmp_path / "data", settings=settings, log=tmp_path / "broker.log").start()
    try:
        yield service
    finally:
        service.stop()


def own_memory(pid: int) -> int:
    """Bytes of memory that belong to the process alone; pages of files it looks at are the system's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    stream.connect((host, int(port)))
    return stream


def send_what_is_taken(stream: socket.socket, data: bytes) -> int:
    """Without waiting for a peer that does not read."""
    stream.settimeout(0.05)
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < len(data):
            sent += stream.send(data[sent : sent + 256 * 1024])
    return sent


def answered_once(stream: socket.socket) -> None:
    """Send one large request, take its answer and go silent."""
    frame = encode_request(ApiKey.METADATA, 9, 1, "idle", MetadataRequest(topics=(), allow_auto_topic_creation=False))
    padding = bytes(LARGE_ONCE_BYTES)  # bytes behind a request pass
    stream.settimeout(30)
    stream.sendall(struct.pack(">i", len(frame) - 4 + len(padding)) + frame[4:] + padding)
    (size,) = struct.unpack(">i", stream.recv(4, socket.MSG_WAITALL))
    assert len(stream.recv(size, socket.MSG_WAITALL)) == size


def greedy_fetches(topic: str) -> bytes:
    """Each asks for the same piece a thousand times."""
    piece = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=60 * 1024)
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 * MIB,
        topics=(FetchTopic(topic=topic, partitions=(piece,) * 1000),),
    )
    return b"".join(encode_request(ApiKey.FETCH, 11, number, "deaf", fetch) for number in range(20))


def metadata_of_nothing() -> bytes:
    topics = tuple(MetadataRequestTopic(name=f"none-{number}") for number in range(2000))
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return b"".join(encode_request(ApiKey.METADATA, 9, number, "deaf", request) for number in range(100))


def serve_honestly(address: str, topic: str, count: int) -> None:
    """Produce `count` small records and read them back."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 60_000})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(seen) < count and time.monotonic() < deadline:
        seen += [message.value() for message in consumer.consume(1000, timeout=1)]
    consumer.close()
    assert seen == [b"%d" % number for number in range(count)]


class Watch(threading.Thread):
    """The largest memory seen while the block runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self.most = 0

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, own_memory(self._pid))

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_memory_stays_in_budget_and_others_are_served(broker: services.Service) -> None:
    address = broker.facts["address"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    admin = AdminClient({"bootstrap.servers": address})
    created = admin.create_topics([NewTopic("bait", 1, 1), NewTopic("honest", 1, 1)])
    for future in created.values():
        future.result(30)
    producer = Producer({"bootstrap.servers": address, "batch.num.messages": 1})
    for _ in range(400):
        producer.produce("bait", bytes(50_000))
    assert producer.flush(60) == 0
    before = own_memory(broker.pid)
    streams: list[socket.socket] = []

    def another() -> socket.socket:
        streams.append(connect(address))
        return streams[-1]

    with contextlib.ExitStack() as stack, Watch(broker.pid) as watch:
        stack.callback(lambda: [stream.close() for stream in streams])
        for number in range(SLOW):  # half a frame each, and then nothing
            another().sendall(struct.pack(">i", 60_000) + bytes(number % 2000))
        for _ in range(IDLE):
            answered_once(another())
        large = 0
        for _ in range(LARGE):  # 16 MiB announced, as much of it sent as the broker takes
            large += send_what_is_taken(another(), struct.pack(">i", 16 * MIB) + bytes(12 * MIB))
        fetches, lookups = greedy_fetches("bait"), metadata_of_nothing()
        for number in range(DEAF):  # ask and never read
            send_what_is_taken(another(), fetches if number % 2 else lookups)
        serve_honestly(address, "honest", 2000)
    budget = QUEUED_BYTES_MAX + (SLOW + LARGE + IDLE) * PER_CONNECTION_BYTES + DEAF * DEAF_BYTES + MARGIN_BYTES
    print(f"memory {before / MIB:.0f} MiB before, {watch.most / MIB:.0f} at most, of {(before + budget) / MIB:.0f}")
    assert watch.most - before < budget
    assert large < LARGE * 12 * MIB, "not all of it was taken"
    assert broker.running
