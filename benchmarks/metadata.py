"""What a large cluster image costs, and a start with ten thousand topics

The image alone: 5,000 topics of 20 partitions with 3 replicas are built, written as a snapshot and read again; one
decision is timed for each kind, from the request to the next image and what changed in it. Then a broker with 10,000
topics, told of one ISR change: how many topics are looked up again by connections that write to all of them; and how
long the next start takes, after a stop in order and after a kill. Ours alone; seconds are of CPU unless they are called
wall.
"""

import asyncio
import gc
import statistics
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_seconds, emit, rss_mb
from tidemill import services
from tidemill.broker import admission
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import Peer
from tidemill.broker.handlers import produce_memo
from tidemill.broker.handlers.produce_memo import ENTRIES_MAX, ProduceMemo
from tidemill.broker.node import Broker, open_broker
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, Draft, apply_batch
from tidemill.broker.quorum.leadership import ElectLeaders
from tidemill.broker.quorum.metadata import CreateTopics, DeleteTopics, NewTopic, Request, Rules, TopicRef, decide
from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tidemill.broker.quorum.snapshot import check, decode, encode, records_of
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPICS, PARTITIONS, BROKERS = 5_000, 20, (1, 2, 3, 4, 5)
SMALL_TOPICS = 10_000
DECISIONS = 200
RULES = Rules(max_topics=10**6, max_partitions=10**7)
SETTINGS = {"flush.policy": "os", "log.retention.hours": "-1", "max.topics": str(2 * SMALL_TOPICS)}

PRODUCER = Peer(client_host="127.0.0.1", listener="PLAINTEXT", connection_id="1")


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure; prints one JSON object."""
    del with_peers
    emit("metadata", {"image": large_image(), "start": starts(folder, rounds)})


# --- the image alone


def large_image() -> dict[str, float]:
    """Seconds and bytes of an image of 100,000 partitions with 3 replicas."""
    records = list(_records())
    found: dict[str, float] = {"partitions": float(TOPICS * PARTITIONS)}
    with _timed(found, "build_s"):
        image = apply_batch(ClusterImage(), records)
    with _timed(found, "snapshot_s"):
        data = b"".join(encode(records_of(image, {}), epoch=1, now_ms=0))
    found["snapshot_mb"] = round(len(data) / 1e6, 1)
    with _timed(found, "load_s"):
        loaded = _loaded(data)
    assert loaded.topics == image.topics
    del loaded, records
    gc.collect()
    tracemalloc.start()
    image = _loaded(data)
    gc.collect()
    found["memory_mb"] = round(tracemalloc.get_traced_memory()[0] / 1e6, 1)
    tracemalloc.stop()
    topics = [f"topic-{number * 17 % TOPICS}" for number in range(DECISIONS)]
    ids = [image.topics[name].topic_id for name in topics]
    makes = [NewTopic(name=f"new-{n}", topic_id=uuid.UUID(int=10**6 + n), partitions=20) for n in range(DECISIONS)]
    found["create_topic_us"] = _decisions(image, [CreateTopics(topics=(topic,)) for topic in makes])
    found["delete_topic_us"] = _decisions(image, [DeleteTopics(topics=(TopicRef(name=name),)) for name in topics])
    found["election_us"] = _decisions(image, [ElectLeaders(partitions=((name, (1,)),)) for name in topics])
    changes = [PartitionChangeRecord(partition_id=3, topic_id=topic_id, isr=(1, 2)) for topic_id in ids]
    found["isr_change_us"] = _median_us(lambda change: _next(image, (change,)), changes)
    return found


def _loaded(data: bytes) -> ClusterImage:
    check(data)
    draft = Draft(ClusterImage())
    for batch in decode(data):
        draft.apply_all(batch)
    return draft.freeze()


def _records() -> Iterator[MetadataRecord]:
    for node in BROKERS:
        end_points = (BrokerEndpoint(name="PLAINTEXT", host=f"broker-{node}", port=9092),)
        yield RegisterBrokerRecord(
            broker_id=node, incarnation_id=uuid.UUID(int=node), broker_epoch=node, end_points=end_points
        )
    for number in range(TOPICS):
        topic_id = uuid.UUID(int=1000 + number)
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(PARTITIONS):
            nodes = tuple(BROKERS[(number + index + step) % len(BROKERS)] for step in range(3))
            # the second in line leads: a preferred election finds something to do
            yield PartitionRecord(partition_id=index, topic_id=topic_id, replicas=nodes, isr=nodes, leader=nodes[1])


def _decisions(image: ClusterImage, requests: list[Any]) -> float:
    return _median_us(lambda request: _decision(image, request), requests)


def _decision(image: ClusterImage, request: Request) -> None:
    records = decide(image, request, RULES).records
    assert records, request
    _next(image, records)


def _next(image: ClusterImage, records: tuple[MetadataRecord, ...]) -> None:
    delta = ImageDelta.between(image, apply_batch(image, records))
    assert len(delta.topics) == 1


def _median_us(call: Callable[[Any], None], each: list[Any]) -> float:
    took = []
    for item in each:
        begin = time.process_time()
        call(item)
        took.append(time.process_time() - begin)
    return round(statistics.median(took) * 1e6, 1)


@contextmanager
def _timed(found: dict[str, float], name: str) -> Iterator[None]:
    begin = time.process_time()
    yield
    found[name] = round(time.process_time() - begin, 3)


# --- a broker with many topics


def starts(folder: Path, rounds: int) -> dict[str, Any]:
    """A broker with 10,000 topics: an ISR change, and the starts afterwards."""
    data = folder / "data"
    found: dict[str, Any] = asyncio.run(_made(data))
    for name in ("after_stop", "after_kill"):
        took, spent, used = [], [], 0.0
        for _ in range(rounds):
            broker = services.broker("metadata", data, settings=SETTINGS, log=folder / "broker.log")
            begin = time.monotonic()
            broker.start()
            took.append(time.monotonic() - begin)
            spent.append(cpu_seconds(broker.pid))
            used = rss_mb(broker.pid)
            if name == "after_kill":
                broker.kill()
            else:
                broker.stop()
        found[f"{name}_wall_s"], found[f"{name}_s"] = (round(statistics.median(each), 2) for each in (took, spent))
        found["rss_mb"] = round(used, 1)
    return found


async def _made(data: Path) -> dict[str, Any]:
    config = BrokerConfig.parse({**SETTINGS, "log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0"})
    async with open_broker(config) as broker:
        begin = time.process_time()
        names = [f"topic-{number}" for number in range(SMALL_TOPICS)]
        for first in range(0, SMALL_TOPICS, 1000):
            wanted = [NewTopic(name=name, partitions=1) for name in names[first : first + 1000]]
            results = await broker.controller.create_topics(wanted)
            assert all(result.error is None for result in results)
        made_s = time.process_time() - begin
        return {"topics": SMALL_TOPICS, "create_s": round(made_s, 2), **_looked_up(broker, names)}


def _looked_up(broker: Broker, names: list[str]) -> dict[str, int]:
    """Connections that together write to every topic: how many look-ups before and after an ISR change of one."""
    looked_up: list[str | None] = []
    real = admission.find_place

    def find_place(of: Any, who: Any, name: str | None, topic_id: uuid.UUID, partition: int) -> Any:
        looked_up.append(name)
        return real(of, who, name, topic_id, partition)

    memos = [
        (ProduceMemo(broker, 9, PRODUCER), names[at : at + ENTRIES_MAX]) for at in range(0, len(names), ENTRIES_MAX)
    ]
    frames = {name: _frame(name) for name in names}

    def write() -> int:
        looked_up.clear()
        for memo, some in memos:
            for name in some:
                assert memo(memoryview(bytearray(frames[name]))) is not None
        return len(looked_up)

    produce_memo.find_place = find_place
    try:
        first, again = write(), write()
        image = broker.controller.image
        change = PartitionChangeRecord(partition_id=0, topic_id=image.topics[names[777]].topic_id, isr=(1,))
        broker.hear(ImageDelta.between(image, apply_batch(image, (change,))))
        return {"looked_up_first": first, "looked_up_again": again, "looked_up_after_isr_change": write()}
    finally:
        produce_memo.find_place = real


def _frame(name: str) -> bytes:
    batch = build_batch([NewRecord(0, None, b"x")], base_offset=0)
    rows = (PartitionProduceData(index=0, records=batch),)
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=(TopicProduceData(name=name, partition_data=rows),))
    return encode_request(ApiKey.PRODUCE, 9, 1, "c", request)[4:]
