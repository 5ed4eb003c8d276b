"""Real clients at a TLS listener: what gets through, and what both sides say of what does not

One broker with three listeners: PLAINTEXT, SSL for everybody, and MTLS for those who show a certificate. librdkafka,
aiokafka, kafka-python, kcat, Apache Kafka's console tools and our own commands write and read there.
"""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from benchmarks import peers
from tests.certificates import Authority, Identity
from tidemill import services
from tidemill.free_ports import free_ports
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

COUNT = 50
LARGE = b"x" * 300_000


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A broker and what is needed to get in."""

    broker: Service
    ports: dict[str, int]
    authority: Authority
    alice: Identity

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def settings(self, listener: str) -> dict[str, str]:
        """A client's, in librdkafka's words."""
        found = {"bootstrap.servers": self.address(listener), "security.protocol": "SSL"}
        found["ssl.ca.location"] = str(self.authority.certificate)
        if listener == "MTLS":
            found |= {"ssl.certificate.location": str(self.alice.certificate), "ssl.key.location": str(self.alice.key)}
        return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("tls-broker")
    authority = Authority(home / "authority")
    ports = dict(zip(("PLAINTEXT", "SSL", "MTLS"), free_ports(3), strict=True))
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners.replace("127.0.0.1", "localhost"),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MTLS:SSL",
        "ssl.keystore.location": str(authority.signed().both),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.truststore.location": str(authority.certificate),
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Acme$/$1/L",
        "log.dirs": str(home / "data"),
    }
    file = home / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    broker = Service(
        "broker", ["broker", "start", "--config", str(file)], ready="tidemill broker ready", log=home / "broker.log"
    )
    broker.start()
    alice = authority.signed("/O=Acme/CN=Alice", "")
    yield Stage(broker=broker, ports=ports, authority=authority, alice=alice)
    assert broker.stop() == 0


@pytest.fixture(params=["SSL", "MTLS"])
def listener(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic() -> str:
    return f"tls-{uuid.uuid4().hex[:8]}"


def values() -> list[bytes]:
    return [b"value-%d" % number for number in range(COUNT)] + [LARGE]


def test_librdkafka(stage: Stage, listener: str, topic: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**stage.settings(listener), "error_cb": errors.append})
    for value in values():
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**stage.settings(listener), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < COUNT + 1:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == values()
    assert not errors


def test_the_cluster_is_told_by_the_addresses_of_the_listener_that_was_asked(stage: Stage, listener: str) -> None:
    brokers = AdminClient(stage.settings(listener)).list_topics(timeout=20).brokers  # type: ignore[no-untyped-call]
    assert [(each.host, each.port) for each in brokers.values()] == [("localhost", stage.ports[listener])]


async def test_aiokafka(stage: Stage, listener: str, topic: str) -> None:
    context = ssl.create_default_context(cafile=stage.authority.certificate)
    if listener == "MTLS":
        context.load_cert_chain(stage.alice.both)
    way = {"bootstrap_servers": stage.address(listener), "security_protocol": "SSL", "ssl_context": context}
    producer = aiokafka.AIOKafkaProducer(**way)
    await producer.start()
    for value in values():
        await producer.send_and_wait(topic, value)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **way)
    await consumer.start()
    async with asyncio.timeout(60):
        found = [(await consumer.getone()).value for _ in range(COUNT + 1)]
    await consumer.stop()
    assert found == values()


def test_kafka_python(stage: Stage, listener: str, topic: str) -> None:
    way = {
        "bootstrap_servers": stage.address(listener),
        "security_protocol": "SSL",
        "ssl_cafile": str(stage.authority.certificate),
    }
    if listener == "MTLS":
        way |= {"ssl_certfile": str(stage.alice.certificate), "ssl_keyfile": str(stage.alice.key)}
    producer = kafka.KafkaProducer(**way)
    for value in values():
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **way)
    found = [record.value for _, record in zip(range(COUNT + 1), consumer, strict=False)]
    consumer.close()
    assert found == values()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
def test_kcat(stage: Stage, listener: str, topic: str) -> None:
    options = [part for name, value in stage.settings(listener).items() for part in ("-X", f"{name}={value}")]
    lines = "".join(f"line {number}\n" for number in range(COUNT))
    subprocess.run(["kcat", *options, "-P", "-t", topic], input=lines, text=True, check=True, timeout=60)
    command = ["kcat", *options, "-C", "-t", topic, "-e", "-q", "-o", "beginning"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == lines


@pytest.mark.java
@pytest.mark.kafka_peer
def test_the_tools_of_apache_kafka(stage: Stage, listener: str, topic: str, tmp_path: Path) -> None:
    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")
    settings = tmp_path / "client.properties"
    settings.write_text(java_settings(stage, listener))
    producer = [
        "java", "-Xmx256M", "-cp", f"{peers.libraries('kafka', peers.KAFKA)}/*",
        "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", stage.address(listener), "--topic", topic,
        "--command-config", str(settings),
    ]  # fmt: skip
    lines = "".join(f"line {number}\n" for number in range(COUNT))
    done = subprocess.run(producer, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = peers.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ["--bootstrap-server", stage.address(listener), "--topic", topic, "--from-beginning", "--max-messages",
         str(COUNT), "--timeout-ms", "60000", "--command-config", str(settings)],
    )  # fmt: skip
    assert found == lines


def java_settings(stage: Stage, listener: str) -> str:
    """A client's file in Kafka's words, as `--command-config` takes it there and here."""
    rows = [
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={stage.authority.certificate}",
    ]
    if listener == "MTLS":
        rows += ["ssl.keystore.type=PEM", f"ssl.keystore.location={stage.alice.both}"]
    return "\n".join(rows) + "\n"


def run(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "tidemill.cli", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def test_our_own_commands(stage: Stage, listener: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(java_settings(stage, listener))
    way = ("--bootstrap-server", stage.address(listener), "--command-config", str(file))
    made = run("produce", topic, "--create", *way, text="one\ntwo\n")
    assert made.returncode == 0, made.stderr
    read = run("consume", topic, "--from-beginning", "--max-messages", "2", *way)
    assert read.stdout == "one\ntwo\n", read.stderr
    assert topic in run("topic", "list", *way).stdout
    found = [json.loads(line) for line in run("doctor", "--json", *way).stdout.splitlines()]
    ours = [each for each in found if each["check"] in ("bootstrap", "advertised")]
    assert ours
    assert {each["level"] for each in ours} == {"ok"}


def test_a_mirror_reads_where_certificates_are_asked_for(
    stage: Stage, topic: str, tidemill_broker: Service, tmp_path: Path
) -> None:
    producer = Producer(stage.settings("SSL"))
    for value in values():
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    file = tmp_path / "mm2.properties"
    ours = "".join(f"east.{line}\n" for line in java_settings(stage, "MTLS").splitlines())
    file.write_text(
        f"clusters = east, west\neast.bootstrap.servers = {stage.address('MTLS')}\n{ours}"
        f"west.bootstrap.servers = {tidemill_broker.facts['address']}\n"
        f"east->west.enabled = true\neast->west.topics = {topic}\nrefresh.topics.interval.seconds = 1\n"
    )
    mirror = services.mirror("mirror", file, log=tmp_path / "mirror.log").start()
    try:
        way = {"bootstrap.servers": tidemill_broker.facts["address"], "group.id": topic}
        assert read(way, f"east.{topic}") == values()
    finally:
        mirror.stop()


def test_a_connect_worker_and_its_tasks_show_their_certificate(stage: Stage, topic: str, tmp_path: Path) -> None:
    settings = dict(line.split("=", 1) for line in java_settings(stage, "MTLS").splitlines())
    worker = services.connect_worker(
        "worker", stage.address("MTLS"), settings=settings, log=tmp_path / "worker.log"
    ).start()
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(COUNT)))
    config = {"connector.class": "FileStreamSource", "file": str(lines), "topic": topic, "tasks.max": "1",
              "value.converter": "org.apache.kafka.connect.storage.StringConverter"}  # fmt: skip
    try:
        request = urllib.request.Request(
            f"{worker.facts['url']}/connectors/lines/config", json.dumps(config).encode(),
            {"Content-Type": "application/json"}, method="PUT",
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
        way = {**stage.settings("SSL"), "group.id": topic}
        assert read(way, topic, COUNT) == lines.read_bytes().splitlines()
    finally:
        worker.stop()


def read(way: dict[str, str], topic: str, count: int = COUNT + 1) -> list[bytes | None]:
    """The first values of a topic that may not be there yet."""
    consumer = Consumer({**way, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 90
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def test_whoever_comes_in_the_wrong_way_is_told_and_so_is_the_log(stage: Stage, topic: str) -> None:
    plain = run("topic", "list", "--bootstrap-server", stage.address("SSL"))
    assert plain.returncode != 0
    assert "security.protocol=SSL" in plain.stderr
    for settings, says in (
        ({"bootstrap.servers": stage.address("SSL"), "security.protocol": "SSL"}, "certificate verify failed"),
        ({**stage.settings("SSL"), "bootstrap.servers": stage.address("MTLS")}, "certificate required"),
        ({**stage.settings("SSL"), "bootstrap.servers": stage.address("PLAINTEXT")}, "SSL"),
    ):
        assert says in complaint(settings).lower() or says in complaint(settings)
    log = stage.broker.output()
    for sentence in (
        "the client does not speak TLS: set security.protocol=SSL there",
        "the client does not accept this broker's certificate",
        "the client shows no certificate and ssl.client.auth=required",
        "the client speaks TLS and this listener does not",
    ):
        assert 1 <= log.count(sentence) <= 3, log[-3000:]


def complaint(settings: dict[str, str]) -> str:
    """What librdkafka says first."""
    errors: list[str] = []
    admin = AdminClient({**settings, "error_cb": lambda error: errors.append(error.str()), "log_level": 0})
    with contextlib.suppress(Exception):
        admin.list_topics(timeout=5)
    admin.poll(1)
    return " | ".join(errors)


@pytest.fixture(autouse=True)
def _alive(stage: Stage) -> Iterator[None]:
    yield
    assert stage.broker.running
