"""A barrage of spoiled requests over real sockets: the broker answers well-behaved clients before, during and after

The frames are those of real clients with bytes, lengths and ends spoiled, and noise that is no frame at all. The broker
must not die, must not keep what it was sent, and must not store anything that a consumer cannot read.
"""

import contextlib
import random
import socket
import struct
import uuid
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.request_fuzz import client_frames, spoil
from tidemill import services
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

CONNECTIONS = 600
GROWTH_BYTES_MAX = 150 * 2**20


def barrage(address: tuple[str, int], rng: random.Random) -> None:
    """One connection that sends a few bad things, and reads or does not."""
    frames = client_frames()
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as stream:
        stream.settimeout(0.02)
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.1:
                data = rng.randbytes(rng.randrange(1, 300))
            else:
                frame = spoil(rng.choice(frames).frame, rng, first=rng.choice((0, 8)))
                data = struct.pack(">i", len(frame)) + frame
            stream.sendall(data)
            if rng.random() < 0.5:
                with contextlib.suppress(TimeoutError):
                    stream.recv(65_536)


def answers(stream: socket.socket) -> bool:
    """Whether a connection that has been open all the time still gets its answer."""
    stream.sendall(encode_request(ApiKey.API_VERSIONS, 0, 7, "bystander", ApiVersionsRequest()))
    file = stream.makefile("rb")
    (size,) = struct.unpack(">i", file.read(4))
    correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, file.read(size))
    return correlation_id == 7 and answer.error_code == 0


def write_and_read(address: str) -> None:
    topic, values = f"after-{uuid.uuid4().hex[:8]}", {f"{number}".encode() for number in range(50)}
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = {message.value() for message in consumer.consume(len(values), timeout=30)}
    consumer.close()
    assert found == values


def test_a_broker_survives_a_barrage_and_serves_everybody_else(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    broker = services.broker("fuzzed", tmp_path / "data", log=log).start()
    try:
        address = broker.facts["address"]
        host, _, port = address.rpartition(":")
        place = (host, int(port))
        write_and_read(address)
        process = psutil.Process(broker.pid)
        before = process.memory_info().rss
        rng = random.Random(4)
        with socket.create_connection(place, timeout=20) as bystander:
            for number in range(CONNECTIONS):
                barrage(place, rng)
                if number % 50 == 0:
                    assert answers(bystander)
            assert answers(bystander)
        assert broker.running
        write_and_read(address)
        grown = process.memory_info().rss - before
        assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MiB more than before"
    finally:
        broker.stop()
    text = log.read_text(errors="replace")
    assert "Traceback" not in text
    assert "failed unexpectedly" not in text
