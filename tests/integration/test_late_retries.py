"""Clients that ask again for what is stored, after more of it than the broker keeps: they take the answer for stored

The broker here keeps two batches of a producer instead of five, so that four under way are too many for it: their
answers are lost, and all of them come again. aiokafka and kafka-python have one batch of a partition under way.
"""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from benchmarks import peers
from tests.broker.broker_world import running_broker
from tests.broker.handlers.data_path import make_topic
from tidemill.broker.log import partition, producers
from tidemill.broker.log.appended import AppendResult, StoredBefore
from tidemill.broker.replication.replica import Replica

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

COUNT, BEFORE = 20, 4
STILL_S = 1.5  # in which a client that waits for no answer would have sent far more than the five it has under way


class Door:
    """Before the broker: everything passes, except its answers once `enough` is stored, until all are hung up on."""

    def __init__(self) -> None:
        self.enough: Callable[[], bool] = lambda: False
        self.port = 0
        self._broker = 0
        self._clients: set[asyncio.StreamWriter] = set()

    async def open(self) -> asyncio.Server:
        """On a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def lead_to(self, port: int) -> None:
        """Where the broker is."""
        self._broker = port

    def cut(self) -> None:
        """Hang up on everybody, and answer again from now on."""
        for client in self._clients:
            client.transport.abort()
        self.enough = lambda: False

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        answers, broker = await asyncio.open_connection("127.0.0.1", self._broker)
        self._clients.add(client)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(answers, client))
                both.create_task(self._pass_on(reader, broker))
        except* OSError:
            pass  # it was hung up on
        finally:
            self._clients.discard(client)
            client.close()
            broker.close()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(2**16):
            if not (target in self._clients and self.enough()):
                target.write(data)
        target.close()


def librdkafka(address: str) -> int:
    told: list[bool] = []

    def hear(error: object, message: Message) -> None:
        told.append(error is None)

    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
    )
    for number in range(COUNT):
        producer.produce("t", b"%d" % number, on_delivery=hear)
        if number == 0:
            producer.flush(30)  # now it is connected, and every record goes by itself
    assert producer.flush(60) == 0
    return sum(told)


def java(address: str, folder: Path) -> int:
    settings = folder / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=100\nbatch.size=1\nlinger.ms=0\n")
    arguments = ["--bootstrap-server", address, "--topic", "t", "--max-messages", str(COUNT)]
    arguments += ["--command-config", str(settings)]
    classes = f"{peers.libraries('kafka', peers.KAFKA)}/*"
    command = ["java", "-Xmx256M", "-cp", classes, "org.apache.kafka.tools.VerifiableProducer", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line)["name"] for line in done.stdout.splitlines()]
    return lines.count("producer_send_success")


async def reaches(replica: Replica, end: int) -> None:
    """Wait until so many records are in the log, for half a minute."""
    until = time.monotonic() + 30
    while replica.log.log_end_offset < end:
        assert time.monotonic() < until, f"{replica.log.log_end_offset} of {end}"
        await asyncio.sleep(0.005)


async def stands(replica: Replica) -> None:
    """Wait until the client sends no more, having as many under way as it may, answered or not before that began."""
    end, since = -1, 0.0
    while end != replica.log.log_end_offset or time.monotonic() - since < STILL_S:
        if end != replica.log.log_end_offset:
            end, since = replica.log.log_end_offset, time.monotonic()
        await asyncio.sleep(0.005)
    assert end < COUNT, "nobody waits"


async def served(monkeypatch: pytest.MonkeyPatch, folder: Path, client: Callable[[str], int]) -> None:
    """Let `client` send COUNT records, some of whose answers are lost: each is stored once, and told to be."""
    late: list[AppendResult] = []
    stored_already = partition.stored_already

    def noted(*arguments: object, **more: object) -> AppendResult:
        late.append(stored_already(*arguments, **more))  # type: ignore[arg-type]
        return late[-1]

    monkeypatch.setattr(producers, "BATCHES_KEPT", 2)
    monkeypatch.setattr(partition, "stored_already", noted)
    door = Door()
    async with await door.open():
        address = f"127.0.0.1:{door.port}"
        async with running_broker(folder, advertised_listeners=f"PLAINTEXT://{address}") as broker:
            door.lead_to(broker.servers[0].port)
            await make_topic(broker)
            replica = broker.replicas.get("t", 0)
            assert replica is not None
            door.enough = lambda: replica.log.log_end_offset >= BEFORE
            sending = asyncio.create_task(asyncio.to_thread(client, address))
            await reaches(replica, BEFORE)
            await stands(replica)
            door.cut()
            assert await sending == COUNT
            assert replica.log.log_end_offset == COUNT
    assert [type(each) for each in late].count(StoredBefore) >= 1


async def test_librdkafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await served(monkeypatch, tmp_path, librdkafka)


@pytest.mark.java
@pytest.mark.kafka_peer
async def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := peers.available():
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")
    settings = tmp_path / "client"
    settings.mkdir()
    await served(monkeypatch, tmp_path / "log", lambda address: java(address, settings))
