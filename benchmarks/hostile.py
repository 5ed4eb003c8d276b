"""An ordinary client beside one that asks for costly things in small requests

Each attack is a request, or a state of the broker's, that is cheap to cause and makes a naive broker work for seconds:
look-ups by time in large compressed batches, the largest timestamp of a segment of many batches, a batch of a million
records that has to be looked at or compressed anew, retention over thousands of segments. Beside it an ordinary client
writes a record, waits, and writes the next; what it waited is the result.

`tests/integration/test_stalls.py` runs the same attacks against a broker whose event loop is watched.
"""

import functools
import json
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import small_requests
from benchmarks.broker import Target, kafka, ours
from benchmarks.measure import emit
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

BIG_RECORDS = 1_000_000
NEAR_RECORDS = 70_000
PARTITIONS = 100
BATCHES = 100_000
SEGMENTS = 4_000
ROOM = {"max.message.bytes": "33554432"}  # a million of the smallest records are 3.4 MB under zstd
SECONDS = 6.0
FIRST_MS = 1_700_000_000_000  # the time of the first record of a large batch; a thousand records have the same
PAUSE_S = 0.005  # between two requests of the ordinary client
LIST_OFFSETS_VERSION, PRODUCE_VERSION = 7, 9
MAX_TIMESTAMP = -3
NOT_YET = (3, 6)  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER
LEADER_WAIT_S = 30.0

BROKER_SETTINGS = {"log.retention.check.interval.ms": "1000", "log.retention.ms": "-1"}


class Wire:
    """One connection that sends a request and waits for its answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self.answer = b""

    def ask(self, *frames: bytes) -> None:
        """Send requests in one write and take their answers."""
        self._socket.sendall(b"".join(frames))
        for _ in frames:
            (size,) = struct.unpack(">i", self._file.read(4))
            self.answer = self._file.read(size)

    def produce(self, topic: str, partition: int, batch: bytes) -> int:
        """Write one batch; returns the error code."""
        self.ask(produce_frame(topic, partition, batch))
        _, answer = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, self.answer)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    def produce_to_new(self, topic: str, partition: int, batch: bytes) -> int:
        """The same into a topic that was just made: Kafka answers that it is before the leader knows of it."""
        deadline = time.monotonic() + LEADER_WAIT_S
        while (code := self.produce(topic, partition, batch)) in NOT_YET and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        return code


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    """A request to write one batch."""
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=batch),))
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=(data,))
    return encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "hostile", request)


def list_offsets_frame(topic: str, partitions: Sequence[int], timestamp: int) -> bytes:
    """A request for the offsets behind a timestamp."""
    rows = tuple(ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in partitions)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=rows),))
    return encode_request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, 1, "hostile", request)


@functools.cache
def large_batch(count: int) -> bytes:
    """The smallest records that a compacted topic takes: the most work for the fewest bytes."""
    return build_batch([NewRecord(FIRST_MS + i // 1000, b"k", b"") for i in range(count)], codec="zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is there before it, and what is done over and over."""

    topic: str
    partitions: int = 1
    settings: dict[str, str]
    fill: Callable[[str, Wire], None]
    strike: Callable[[Wire], None]
    kafka_too: bool = True


def fill_with(topic: str, partitions: int, batches: int, records: int) -> Callable[[str, Wire], None]:
    """So many large batches into every partition."""

    def fill(_address: str, wire: Wire) -> None:
        for partition in range(partitions):
            for _ in range(batches):
                if code := wire.produce_to_new(topic, partition, large_batch(records)):
                    raise RuntimeError(f"the batch was refused with error code {code}")

    return fill


def fill_small(topic: str, batches: int) -> Callable[[str, Wire], None]:
    """So many batches of one record into partition 0."""

    def fill(address: str, _wire: Wire) -> None:
        small_requests.drive(address, topic, 1, 5, batches)

    return fill


def nothing(_address: str, _wire: Wire) -> None:
    """An attack that needs no records to be there."""


def last_ms(records: int) -> int:
    """The time of the last records of a large batch, for which all of it has to be looked at."""
    return FIRST_MS + (records - 1) // 1000


def newest_not_durable(wire: Wire) -> None:
    """The largest timestamp, while the newest batch, an old one, is hardly written."""
    old = build_batch([NewRecord(1, None, b"x")])
    both = (produce_frame("batches", 0, old), list_offsets_frame("batches", [0], MAX_TIMESTAMP))
    wire.ask(*(both * 5))


ATTACKS = {
    "one partition, named 100 times": Attack(
        topic="deep",
        settings=ROOM,
        fill=fill_with("deep", 1, 2, BIG_RECORDS),
        strike=lambda wire: wire.ask(list_offsets_frame("deep", [0] * 100, last_ms(BIG_RECORDS))),
    ),
    "100 partitions by time": Attack(
        topic="wide",
        partitions=PARTITIONS,
        settings={},
        fill=fill_with("wide", PARTITIONS, 1, NEAR_RECORDS),
        strike=lambda wire: wire.ask(list_offsets_frame("wide", range(PARTITIONS), last_ms(NEAR_RECORDS))),
    ),
    "largest timestamp": Attack(
        topic="batches", settings={}, fill=fill_small("batches", BATCHES), strike=newest_not_durable
    ),
    "a million records into a compacted topic": Attack(
        topic="compacted",
        settings={"cleanup.policy": "compact", **ROOM},
        fill=nothing,
        strike=lambda wire: wire.produce("compacted", 0, large_batch(BIG_RECORDS)),
    ),
    "a million records to be compressed anew": Attack(
        topic="recoded",
        settings={"compression.type": "gzip", **ROOM},
        fill=nothing,
        strike=lambda wire: wire.produce("recoded", 0, large_batch(BIG_RECORDS)),
    ),
    "retention over thousands of segments": Attack(
        topic="segments",
        settings={"segment.bytes": "150", "retention.ms": "3600000"},
        fill=fill_small("segments", SEGMENTS),
        strike=lambda _wire: time.sleep(0.1),  # it comes by itself, every second
        kafka_too=False,  # segments are no smaller than 1 MiB there
    ),
}
"""By what is asked for."""

NOTHING = "nothing"
"""As an attack: a process that does nothing, so that the ordinary client is measured alone."""


def prepare(address: str, name: str) -> None:
    """The topics of an attack and of the ordinary client, and what the attack wants to be there."""
    attack = ATTACKS[name]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("ordinary", 1, 1)])["ordinary"].exception(30)  # there is one for all attacks
    topic = NewTopic(attack.topic, attack.partitions, 1, config=attack.settings)
    admin.create_topics([topic])[attack.topic].result(30)
    attack.fill(address, Wire(address))


def strike(address: str, name: str, seconds: float) -> int:
    """Attack again and again; returns how often."""
    if name == NOTHING:
        time.sleep(seconds)
        return 0
    wire, until, count = Wire(address), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        ATTACKS[name].strike(wire)
        count += 1
    return count


@contextmanager
def under_attack(address: str, name: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that attacks, and has ended when this ends."""
    command = [sys.executable, "-m", "benchmarks.hostile", address, name, str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it is connected and has made what it sends
        yield process
        if process.wait(120) != 0:
            raise RuntimeError(f"the attack {name!r} failed")
    finally:
        process.kill()
        process.wait()


def ordinary(address: str, process: subprocess.Popen[bytes]) -> list[float]:
    """Write a record, wait for the answer, pause, as long as `process` attacks; returns the waits in seconds."""
    wire, waits = Wire(address), []
    batch = build_batch([NewRecord(time.time_ns() // 1_000_000, b"key", bytes(100))])
    while process.poll() is None:
        begin = time.monotonic()
        code = wire.produce("ordinary", 0, batch)
        waits.append(time.monotonic() - begin)
        if code:
            raise RuntimeError(f"the ordinary client was refused with error code {code}")
        time.sleep(PAUSE_S)
    return waits


def summary(waits: list[float]) -> dict[str, float]:
    """Milliseconds."""
    cuts = statistics.quantiles(waits, n=100) if len(waits) > 1 else waits * 99
    return {
        "requests": len(waits),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
        "max_ms": round(max(waits) * 1e3, 2),
    }


def run(home: Path, *, with_peers: bool, rounds: int) -> None:
    """Every attack against ours and, where there is one, Kafka; one round is enough."""
    del rounds
    results: dict[str, dict[str, dict[str, float]]] = {}
    starters = {"tidemill": functools.partial(ours, settings=BROKER_SETTINGS)}
    if with_peers:
        starters["kafka"] = functools.partial(kafka, settings=BROKER_SETTINGS)
    for broker, starter in starters.items():
        with starter(home / broker) as target:
            for name, attack in ATTACKS.items():
                if broker == "tidemill" or attack.kafka_too:
                    results.setdefault(name, {})[broker] = one_attack(target, name)
    emit("hostile", {"seconds": SECONDS, "attacks": results})


def one_attack(target: Target, name: str) -> dict[str, float]:
    """What the ordinary client waited."""
    prepare(target.address, name)
    with under_attack(target.address, name, SECONDS) as process:
        return summary(ordinary(target.address, process))


def main() -> None:
    """`python -m benchmarks.hostile ADDRESS NAME SECONDS`: attack."""
    address, name, seconds = sys.argv[1:]
    if name != NOTHING:
        large_batch(BIG_RECORDS)  # once, before the clock runs
    print("ready", flush=True)
    print(json.dumps({"strikes": strike(address, name, float(seconds))}), flush=True)


if __name__ == "__main__":
    main()
