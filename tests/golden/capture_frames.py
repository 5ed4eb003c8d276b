"""Takes down the request frames that real clients send, for the tests that spoil them

    python -m tests.golden.capture_frames

A broker of ours advertises a port on which a recorder listens that passes every byte on. Each client library does what
applications do with it; of every (client, API, version) the first few frames are kept, one line each of
`client_frames.txt`: client, API key, version and the frame without its size in base64.
"""

import asyncio
import base64
import contextlib
import struct
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers
from tidemill import services
from tidemill.free_ports import free_port

FRAMES_FILE = Path(__file__).with_name("client_frames.txt")
FRAMES_EACH = 2
FRAME_BYTES_MAX = 1500
TOPIC = "captured"


class Recorder:
    """Connections to `upstream`; requests are kept under the name of the client at work."""

    def __init__(self) -> None:
        self.client = ""
        self.upstream = 0
        self.lines: list[str] = []
        self._seen: Counter[tuple[str, int, int]] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._answers(up_reader, writer))
                while True:
                    size = await reader.readexactly(4)
                    frame = await reader.readexactly(struct.unpack(">i", size)[0])
                    self._keep(frame)
                    up_writer.write(size + frame)
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass  # one side has gone
        writer.close()
        up_writer.close()

    @staticmethod
    async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        raise ConnectionResetError

    def _keep(self, frame: bytes) -> None:
        key, version = struct.unpack_from(">hh", frame)
        what = (self.client, key, version)
        self._seen[what] += 1
        if self._seen[what] <= FRAMES_EACH and len(frame) <= FRAME_BYTES_MAX:
            self.lines.append(f"{self.client} {key} {version} {base64.b64encode(frame).decode()}")


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[tuple[Recorder, str]]:
    """A broker behind a recorder, and the address of the recorder."""
    recorder = Recorder()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    start = asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(start, loop).result()
    port = server.sockets[0].getsockname()[1]
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    recorder.upstream = free_port()
    listen = f"127.0.0.1:{recorder.upstream}"
    broker = services.broker("captured", folder / "data", listen=listen, settings=settings, log=folder / "log").start()
    try:
        yield recorder, f"127.0.0.1:{port}"
    finally:
        broker.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def confluent(address: str) -> None:
    """librdkafka: producer, idempotent producer, group consumer, admin."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic("gone", 1, 1, config={"retention.ms": "1000"})])
    for topic in (TOPIC, "gone"):
        while topic not in admin.list_topics(timeout=10).topics:
            pass
    for extra in ({}, {"enable.idempotence": True}, {"compression.type": "lz4"}, {"acks": 0}):
        producer = Producer({"bootstrap.servers": address, **extra})
        producer.produce(TOPIC, key="k", value="value", headers=[("h", b"v")])
        producer.flush(20)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g-confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    consumer.consume(2, timeout=20)
    consumer.commit(asynchronous=False)
    consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)
    consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], timeout=10)
    consumer.close()
    resource = ConfigResource(ResourceType.TOPIC, "gone")
    for futures in (
        admin.describe_configs([resource]).values(),
        admin.create_partitions([NewPartitions("gone", 2)]).values(),
        admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()}).values(),
        admin.delete_records([TopicPartition(TOPIC, 0, 1)]).values(),
        [admin.list_consumer_groups()],
        admin.describe_consumer_groups(["g-confluent"]).values(),
        [admin.describe_cluster()],
        admin.delete_consumer_groups(["g-confluent"]).values(),
        admin.delete_topics(["gone"]).values(),
    ):
        for future in futures:
            with contextlib.suppress(Exception):
                future.result(20)


def kafka_python(address: str) -> None:
    """kafka-python: producer with and without compression, group consumer, admin."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    for codec in (None, "gzip"):
        producer = KafkaProducer(bootstrap_servers=address, compression_type=codec)
        producer.send(TOPIC, key=b"k", value=b"value").get(20)
        producer.close(10)
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id="g-python", auto_offset_reset="earliest", consumer_timeout_ms=5000
    )
    next(consumer)
    consumer.commit()
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=address)
    with contextlib.suppress(Exception):
        admin.list_consumer_groups()
        admin.describe_cluster()
    admin.close()


def aiokafka(address: str) -> None:
    """aiokafka: producer and group consumer."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            await producer.send_and_wait(TOPIC, b"value", key=b"k")
        async with AIOKafkaConsumer(
            TOPIC, bootstrap_servers=address, group_id="g-aio", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.getone()
            await consumer.commit()

    asyncio.run(work())


def java(address: str) -> None:
    """Kafka's own tools."""
    tools = {
        "org.apache.kafka.tools.TopicCommand": ["--bootstrap-server", address, "--describe"],
        "org.apache.kafka.tools.ProducerPerformance": [
            *("--topic", TOPIC, "--num-records", "3", "--record-size", "10", "--throughput", "-1"),
            *("--command-property", f"bootstrap.servers={address}"),
        ],
        "org.apache.kafka.tools.consumer.ConsoleConsumer": [
            *("--bootstrap-server", address, "--topic", TOPIC, "--from-beginning", "--max-messages", "2"),
            *("--group", "g-java", "--timeout-ms", "8000"),
        ],
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": [
            *("--bootstrap-server", address, "--describe", "--group", "g-java"),
        ],
        "kafka.admin.ConfigCommand": [
            *("--bootstrap-server", address, "--entity-type", "topics", "--entity-name", TOPIC),
            *("--alter", "--add-config", "retention.ms=100000"),
        ],
        "org.apache.kafka.tools.GetOffsetShell": ["--bootstrap-server", address, "--topic", TOPIC],
    }
    for tool, arguments in tools.items():
        try:
            peers.run_tool(tool, arguments, timeout_s=60)
        except (peers.PeerError, subprocess.TimeoutExpired) as error:
            print(tool, str(error)[-300:])


def main() -> None:
    """Capture anew."""
    with tempfile.TemporaryDirectory() as folder, recorded(Path(folder)) as (recorder, address):
        for client in (confluent, kafka_python, aiokafka, java):
            recorder.client = client.__name__
            try:
                client(address)
            except Exception as error:
                print(client.__name__, repr(error))
        FRAMES_FILE.write_text("\n".join(recorder.lines) + "\n")
        print(len(recorder.lines), "frames")


if __name__ == "__main__":
    main()
