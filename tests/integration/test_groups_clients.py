"""confluent-kafka, aiokafka, kafka-python and kcat as members of one group: they share a topic and take over.

Each runs in a thread of its own and reports what it owns and what it read. Any of the three libraries may lead the
group and assign for the others.
"""

import asyncio
import itertools
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.free_ports import free_port

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS = 6
SETTLE_S = 60


class Member(threading.Thread):
    """One consumer; `owned` and `read` are what it says of itself: what it has read once that is committed."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.topic = topic
        self.group = group
        self.owned: frozenset[int] = frozenset()
        self.read: list[tuple[int, int]] = []
        self.leave = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError  # every library has its own

    def stop(self) -> None:
        """Leave the group in order."""
        self.leave.set()
        self.join(30)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class Confluent(Member):
    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
            }
        )
        consumer.subscribe([self.topic])
        while not self.leave.is_set():
            message = consumer.poll(0.1)
            if message is not None:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                consumer.commit(message, asynchronous=False)
                self.read.append((message.partition() or 0, message.offset() or 0))
            self.owned = frozenset(position.partition for position in consumer.assignment())
        self.owned = frozenset()
        consumer.close()


class KafkaPython(Member):
    def work(self) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = KafkaConsumer(
            bootstrap_servers=self.address,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )
        consumer.subscribe([self.topic])
        while not self.leave.is_set():
            # A leader joins again at once when the topic's metadata comes. When kafka-python 3.0.12 gives that up
            # between its JoinGroup and SyncGroup because the poll's time is over, it never takes the assignment nor
            # sends a heartbeat again (with Apache Kafka too), so the polls until the first assignment are long.
            timeout_ms = 100 if consumer.assignment() else 5_000
            for position, records in consumer.poll(timeout_ms=timeout_ms).items():
                consumer.commit()
                self.read += [(position.partition, record.offset) for record in records]
            self.owned = frozenset(position.partition for position in consumer.assignment())
        self.owned = frozenset()
        consumer.close()


class Aiokafka(Member):
    def work(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.address,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        try:
            while not self.leave.is_set():
                for position, records in (await consumer.getmany(timeout_ms=100)).items():
                    await consumer.commit()
                    self.read += [(position.partition, record.offset) for record in records]
                self.owned = frozenset(position.partition for position in consumer.assignment())
            self.owned = frozenset()
        finally:
            await consumer.stop()


class Kcat(Member):
    """The command, which tells of its assignments on standard error."""

    def work(self) -> None:
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "100",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": "10000",
            "heartbeat.interval.ms": "500",
        }
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        command = ["kcat", "-G", self.group, "-b", self.address, "-u", "-f", "%p %o\n", *options, self.topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stderr is not None
            hearing = threading.Thread(target=self._hear, args=(process.stderr,))
            reading = threading.Thread(target=self._read, args=(process.stdout,))
            hearing.start()
            reading.start()
            self.leave.wait()
            process.terminate()  # it commits and leaves
            hearing.join()
            reading.join()
        self.owned = frozenset()

    def _hear(self, lines: Iterable[str]) -> None:
        for line in lines:
            if ": assigned: " in line:
                self.owned |= partitions_in(line)
            elif ": revoked: " in line:
                self.owned -= partitions_in(line)

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            partition, offset = map(int, line.split())
            self.read.append((partition, offset))


def partitions_in(line: str) -> frozenset[int]:
    """The numbers in `topic [0], topic [1]`."""
    return frozenset(int(number) for number in re.findall(r"\[(\d+)\]", line))


LIBRARIES: tuple[type[Member], ...] = (Confluent, KafkaPython, Aiokafka)


@pytest.fixture
def address(tidemill_broker: "Service") -> str:
    return tidemill_broker.facts["address"]


@pytest.fixture
def topic(address: str) -> str:
    name = f"groups-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)])[name].result(30)
    return name


@pytest.fixture
def start(address: str, topic: str) -> Iterator[Callable[[type[Member]], Member]]:
    group = f"group-{topic}"
    members: list[Member] = []

    def starter(library: type[Member]) -> Member:
        member = library(address, topic, group)
        members.append(member)
        member.start()
        return member

    yield starter
    for member in members:
        member.leave.set()
    for member in members:
        member.join(30)


def settle(members: list[Member]) -> None:
    """Wait until the members share all partitions, each having at least one."""
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        fail_with(members)
        owned = [member.owned for member in members]
        if all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS)):
            return
        time.sleep(0.05)
    pytest.fail(f"not settled: {[(type(member).__name__, sorted(member.owned)) for member in members]}")


def write(address: str, topic: str, per_partition: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number, partition in itertools.product(range(per_partition), range(PARTITIONS)):
        producer.produce(topic, value=str(number), partition=partition)
    assert producer.flush(30) == 0


def fail_with(members: list[Member]) -> None:
    """Raise what has ended one of these."""
    for member in members:
        if member.failure is not None:
            raise member.failure


def read_by(members: list[Member]) -> list[tuple[int, int]]:
    """What all of these have read."""
    fail_with(members)
    return list(itertools.chain(*(member.read for member in members)))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SETTLE_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def first_alone(address: str, topic: str, member: Member) -> list[Member]:
    """The group's first member, after it has read the first record of each partition.

    So no other one has to ask where a partition begins. Such an answer that comes when the partition was revoked makes
    librdkafka 2.16 ask again half a second later, and go back to the beginning whatever was committed since.
    """
    settle([member])
    write(address, topic, 1)
    wait_for(lambda: len(read_by([member])) == PARTITIONS, "not everything was read")
    return [member]


@pytest.mark.parametrize("order", list(itertools.permutations(LIBRARIES)), ids=lambda order: order[0].__name__)
def test_three_libraries_share_a_topic(
    address: str, topic: str, start: Callable[[type[Member]], Member], order: tuple[type[Member], ...]
) -> None:
    members = first_alone(address, topic, start(order[0]))
    for library in order[1:]:  # the first one leads
        members.append(start(library))
        settle(members)
    write(address, topic, 19)
    expected = {(partition, offset) for partition in range(PARTITIONS) for offset in range(20)}
    wait_for(lambda: len(read_by(members)) >= len(expected), "not everything was read")
    found = read_by(members)
    assert sorted(found) == sorted(expected), "every record once"
    assert all(member.read for member in members)

    leaver, *stay = members
    leaver.stop()
    settle(stay)
    write(address, topic, 10)

    def distinct() -> int:
        """Who is slow to learn of the rebalance reads some again."""
        return len(set(read_by(members)))

    wait_for(lambda: distinct() == PARTITIONS * 30, "not everything was read")

    for member in stay:
        member.stop()
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_consumer_groups([f"group-{topic}"])[f"group-{topic}"].result(30)
    assert described.state.name == "EMPTY"
    reader = Consumer({"bootstrap.servers": address, "group.id": f"group-{topic}"})
    positions = reader.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    reader.close()
    assert [position.offset for position in positions] == [30] * PARTITIONS


def test_kcat_shares_a_topic_and_hands_it_over(
    address: str, topic: str, kcat: Path, start: Callable[[type[Member]], Member]
) -> None:
    members = first_alone(address, topic, start(Kcat))
    members.append(start(Confluent))
    settle(members)
    write(address, topic, 19)
    wait_for(lambda: len(read_by(members)) >= 120, "not everything was read")
    leaver, stays = members
    assert any(offset for _, offset in leaver.read), "it has its share"
    leaver.stop()
    settle([stays])
    write(address, topic, 10)
    wait_for(lambda: len(read_by(members)) >= 180, "not everything was read")
    read = sorted(leaver.read + stays.read)
    assert read == [(partition, offset) for partition in range(PARTITIONS) for offset in range(30)], "every record once"


def test_a_static_member_comes_back_without_a_rebalance(address: str, topic: str) -> None:
    group = f"static-{topic}"
    settings = {
        "bootstrap.servers": address,
        "group.id": group,
        "group.instance.id": "one",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 30_000,
    }
    admin = AdminClient({"bootstrap.servers": address})

    def member_id() -> str:
        described = admin.describe_consumer_groups([group])[group].result(30)
        assert described.state.name == "STABLE"
        (member,) = described.members
        return str(member.member_id)

    def consume_once() -> None:
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        until = time.monotonic() + SETTLE_S
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < until
        assert len(consumer.assignment()) == PARTITIONS
        consumer.close()  # a static member does not leave when it closes

    consume_once()
    first = member_id()
    consume_once()
    assert member_id() != first, "a new life has a new id"
    (answer,) = admin.delete_consumer_groups([group]).values()
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        answer.result(30)


@pytest.mark.crash
def test_a_group_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"  # the same after the restart
    broker = services.broker("killed", tmp_path / "data", listen=address, log=tmp_path / "broker.log").start()
    topic = f"killed-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
    members: list[Member] = [library(address, topic, "g") for library in LIBRARIES]
    try:
        for member in members:
            member.start()
        settle(members)
        write(address, topic, 5)
        wait_for(lambda: len(set(read_by(members))) >= 30, "not everything was read")
        before = [member.owned for member in members]
        broker.kill()
        broker.start()
        write(address, topic, 5)
        wait_for(lambda: len(set(read_by(members))) >= 60, "not everything was read")
        settle(members)
        assert [member.owned for member in members] == before, "the group went on in the generation it was in"
        for member in members:
            member.stop()
    finally:
        for member in members:
            member.leave.set()
        broker.stop()
