"""Mirroring: MB per CPU-second from one cluster to another, beside MirrorMaker 2

Both mirror between two Tidemill brokers, so that only the mirror differs. The source topic is filled first; the clock
runs from the mirror's start of copying to the last record at the target.
"""

import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import peers
from benchmarks.measure import emit, measured, ratio
from tidemill import services
from tidemill.demo.pipeline import topic_records

PARTITIONS = 4
CASES = {"1KiB": (1024, 2_000_000), "100B": (100, 8_000_000)}
"""name: (record bytes, records). So many that each takes seconds: CPU is counted in hundredths of one."""
TIMEOUT_S = 300

PROPERTIES = """\
clusters = a, b
a.bootstrap.servers = {a}
b.bootstrap.servers = {b}
a->b.enabled = true
a->b.topics = {topic}
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
a.offset.storage.replication.factor = 1
a.config.storage.replication.factor = 1
a.status.storage.replication.factor = 1
b.offset.storage.replication.factor = 1
b.config.storage.replication.factor = 1
b.status.storage.replication.factor = 1
b.producer.batch.size = 1048576
b.producer.linger.ms = 5
emit.heartbeats.enabled = false
sync.topic.acls.enabled = false
"""


def fill(address: str, topic: str, size: int, count: int) -> None:
    """Create the topic and write `count` records in batches of up to 1 MiB."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": address, "batch.size": 1_048_576, "linger.ms": 50})
    block = [{"value": bytes([65 + number % 26]) * size} for number in range(5_000)]
    for _ in range(count // len(block)):
        while len(producer) > 60_000:
            producer.poll(0.01)
        producer.produce_batch(topic, block)
    producer.flush(120)


def wait_for(address: str, topic: str, count: int) -> None:
    """Return once the target holds `count` records."""
    deadline = time.monotonic() + TIMEOUT_S
    while (seen := topic_records(address, topic)) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} has {seen} of {count} records after {TIMEOUT_S} s")
        time.sleep(0.1)


def one(folder: Path, a: str, b: str, kind: str, size: int, count: int) -> dict[str, float]:
    """Mirror one filled topic with one of the two programs."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    fill(a, topic, size, count)
    folder.mkdir(parents=True, exist_ok=True)
    text = PROPERTIES.format(a=a, b=b, topic=topic)
    if kind == "tidemill":
        properties = folder / "mm2.properties"
        properties.write_text(text)
        service = services.mirror("mirror", properties, log=folder / "mirror.log").start()
        try:
            with measured(service.pid) as usage:
                wait_for(b, f"a.{topic}", count)
        finally:
            service.stop()
    else:
        with peers.mirror_maker(folder, text) as peer, measured(peer.pid) as usage:
            wait_for(b, f"a.{topic}", count)
    megabytes = size * count / 1e6
    return {
        "mb_s": round(megabytes / usage.wall_s, 1),
        "mb_per_cpu_s": round(megabytes / max(usage.cpu_s, 0.01), 1),
        "rss_mb": round(usage.rss_mb),
    }


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure both cases, the programs one after the other."""
    settings = {"flush.policy": "os"}
    a = services.broker("a", folder / "a", settings=settings, log=folder / "a.log").start()
    b = services.broker("b", folder / "b", settings=settings, log=folder / "b.log").start()
    kinds = ("tidemill", "mirror_maker_2") if with_peers else ("tidemill",)
    cases: dict[str, Any] = {}
    try:
        for case, (size, count) in CASES.items():
            by = {
                kind: one(folder / f"{kind}-{case}", a.facts["address"], b.facts["address"], kind, size, count)
                for kind in kinds
            }
            peer = by.get("mirror_maker_2", {})
            cases[case] = {**by, "ratios": {key: ratio(value, peer.get(key)) for key, value in by["tidemill"].items()}}
    finally:
        a.stop()
        b.stop()
    emit("mirror", {"cases": cases})
