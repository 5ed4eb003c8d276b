"""Bad input to a running broker: the protocol's own error or a closed connection, and the broker lives on.

Raw frames over a real socket; after each, a well-behaved client still gets its answer.
"""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration

CORRUPT_MESSAGE, UNSUPPORTED_VERSION, STORAGE_ERROR = 2, 35, 56


@pytest.fixture
def address(tidemill_broker: "Service") -> Iterator[str]:
    """The broker's address; after the test it still serves."""
    yield tidemill_broker.facts["address"]
    assert tidemill_broker.running
    assert AdminClient({"bootstrap.servers": tidemill_broker.facts["address"]}).list_topics(timeout=10).brokers


def connection(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def receive(stream: socket.socket) -> bytes:
    """One frame without its size, or b"" when the broker closed the connection."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = stream.recv(count - len(data))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            data += more
        return data

    size = exactly(4)
    return exactly(struct.unpack(">i", size)[0]) if size else b""


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">i", 2**31 - 1), id="oversize"),
        pytest.param(struct.pack(">i", -5), id="negative size"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="no room for a header"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown API key"),
        pytest.param(struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1), id="unknown version"),
        pytest.param(
            struct.pack(">ihhih", 14, ApiKey.METADATA, 1, 1, -1) + b"\x7f\xff\xff\xff", id="absurd array length"
        ),
        pytest.param(struct.pack(">ihhih", 12, ApiKey.METADATA, 1, 1, 30_000) + b"xx", id="client id past the end"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
    ],
)
def test_a_malformed_frame_closes_that_connection_only(address: str, frame: bytes) -> None:
    with connection(address) as bystander, connection(address) as stream:
        stream.sendall(frame)
        assert receive(stream) == b""
        bystander.sendall(encode_request(ApiKey.API_VERSIONS, 0, 7, "test", ApiVersionsRequest()))
        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, receive(bystander))
        assert correlation_id == 7
        assert answer.error_code == 0


def test_an_unknown_version_of_api_versions_is_answered_with_the_known_ones(address: str) -> None:
    with connection(address) as stream:
        stream.sendall(struct.pack(">ihhihb", 11, ApiKey.API_VERSIONS, 77, 5, -1, 0))
        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, receive(stream))
    assert correlation_id == 5
    assert answer.error_code == UNSUPPORTED_VERSION
    assert any(entry.api_key == ApiKey.API_VERSIONS for entry in answer.api_keys)


def new_topic(address: str) -> str:
    name = f"bad-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def produce_raw(address: str, topic: str, batch: bytes) -> int:
    """Produce version 9; returns the partition's error code."""
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),))
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))
    with connection(address) as stream:
        stream.sendall(encode_request(ApiKey.PRODUCE, 9, 1, "test", request))
        _, answer = decode_response(ApiKey.PRODUCE, 9, receive(stream))
    return int(answer.responses[0].partition_responses[0].error_code)


def end_offset(address: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "end"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def test_a_batch_with_a_wrong_crc_is_refused_and_not_stored(address: str) -> None:
    topic = new_topic(address)
    good = build_batch([Record(0, 1_700_000_000_000, b"k", b"value", ())])
    for position in range(21, len(good)):
        broken = bytearray(good)
        broken[position] ^= 0x40
        assert produce_raw(address, topic, bytes(broken)) == CORRUPT_MESSAGE, f"byte {position}"
    assert end_offset(address, topic) == 0
    assert produce_raw(address, topic, good) == 0
    assert end_offset(address, topic) == 1


def test_garbage_of_every_length_is_refused(address: str) -> None:
    topic = new_topic(address)
    good = build_batch([Record(0, 1_700_000_000_000, b"k", b"value", ())])
    for length in range(1, len(good)):
        assert produce_raw(address, topic, good[:length]) != 0, f"{length} bytes"
    assert end_offset(address, topic) == 0


def start_broker(data: Path, *options: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to refuse to start."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "tidemill.cli",
        "broker",
        "start",
        "--data",
        str(data),
        "--listen",
        "127.0.0.1:0",
    ]
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=60, check=False, user=user, cwd="/"
    )


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    first = services.broker("first", tmp_path / "data", log=tmp_path / "first.log").start()
    try:
        second = start_broker(tmp_path / "data")
        assert second.returncode == 1
        assert "in use" in second.stderr or "lock" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        first.stop()


def test_settings_that_do_not_exist_are_refused_with_the_nearest(tmp_path: Path) -> None:
    done = start_broker(tmp_path / "data", "--set", "log.retention.hour=1")
    assert done.returncode != 0
    assert "log.retention.hours" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system of its own needs root")
class TestSmallDisk:
    """A data folder on a small file system."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        folder = tmp_path / "disk"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=False)
        if done.returncode != 0:
            pytest.skip("this machine does not let root mount a tmpfs")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)

    def test_a_full_disk_refuses_writes_serves_reads_and_recovers(self, disk: Path, tmp_path: Path) -> None:
        settings = {"log.segment.bytes": "4194304"}
        service = services.broker("small", disk / "data", settings=settings, log=tmp_path / "small.log").start()
        try:
            address = service.facts["address"]
            topic = new_topic(address)
            ballast = disk / "ballast"
            acknowledged = self.write_until_refused(address, topic, ballast)
            assert acknowledged > 0
            assert self.read(address, topic, acknowledged) == acknowledged
            ballast.unlink(missing_ok=True)
            deadline = time.monotonic() + 60
            while self.write(address, topic, timeout_s=5) is not None:
                assert time.monotonic() < deadline, "writes did not come back"
            assert service.running
            assert self.read(address, topic, acknowledged + 1) >= acknowledged + 1
        finally:
            service.stop()

    def test_a_read_only_folder_refuses_to_start(self, disk: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = start_broker(disk / "data")
        assert done.returncode == 1
        assert "read-only" in done.stderr.lower() or "not writable" in done.stderr.lower()
        assert "Traceback" not in done.stderr

    def write(self, address: str, topic: str, *, timeout_s: float) -> KafkaError | None:
        """Write one record of 64 KiB; the error or None once it is acknowledged."""
        outcome: list[KafkaError | None] = []
        config = {"bootstrap.servers": address, "acks": "all", "message.timeout.ms": int(timeout_s * 1000)}
        producer = Producer(config)

        def done(error: KafkaError | None, message: Message) -> None:
            outcome.append(error)

        producer.produce(topic, value=os.urandom(65_536), on_delivery=done)
        producer.flush(timeout_s + 10)
        return outcome[0]

    def write_until_refused(self, address: str, topic: str, ballast: Path) -> int:
        """Write a few records, fill the disk, write until the broker refuses; returns the number acknowledged."""
        acknowledged = 0
        while acknowledged < 20:
            assert self.write(address, topic, timeout_s=10) is None
            acknowledged += 1
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(16_384))
        for _ in range(400):
            if self.write(address, topic, timeout_s=2) is not None:
                return acknowledged
            acknowledged += 1
        raise AssertionError("the broker never refused")

    def read(self, address: str, topic: str, count: int) -> int:
        """Read from the beginning; the number of records served."""
        consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        deadline = time.monotonic() + 30
        while seen < count and time.monotonic() < deadline:
            seen += sum(1 for message in consumer.consume(100, timeout=1) if message.error() is None)
        consumer.close()
        return seen
