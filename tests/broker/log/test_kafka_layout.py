"""Apache Kafka's own DumpLogSegments reads our files without complaint"""

import random
import uuid
from pathlib import Path

import pytest

from tests.broker.log.log_world import NOW_MS
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.store import LogStore
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock

SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def write_partition(folder: Path) -> int:
    """A partition of several segments with every codec, timestamps out of order and a producer id; returns its end."""
    store = LogStore.at(str(folder), clock=ManualClock(NOW_MS), node_id=1)
    store.open_all()
    log = store.create("orders", uuid.uuid4(), 0, LogConfig(segment_bytes=60_000))
    rng = random.Random(1)
    sequence = 0
    for number in range(300):
        records = [
            NewRecord(NOW_MS - 100_000 + 10 * number + rng.randint(-30, 30), b"key", rng.randbytes(rng.randint(0, 300)))
            for _ in range(rng.randint(1, 8))
        ]
        batch = build_batch(records, codec=CODECS[number % 5], producer_id=9, producer_epoch=0, base_sequence=sequence)
        sequence += len(records)
        result = log.append(batch, now_ms=NOW_MS)
        if number % 20 == 0:
            await log.durable(result.last_offset)
    await store.close()
    return log.log_end_offset


@pytest.mark.integration
@pytest.mark.java
@pytest.mark.kafka_peer
async def test_kafka_reads_logs_and_indexes(tmp_path: Path) -> None:
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Kafka's tools cannot be had here: {reason}")
    end = await write_partition(tmp_path)
    folder = tmp_path / "orders-0"
    files = sorted(str(path) for path in folder.iterdir() if path.suffix in SUFFIXES)
    assert len(files) > 6
    output = peers.run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", ",".join(files)]).splitlines()
    batches = [line for line in output if line.startswith("baseOffset:")]
    assert len(batches) == 300
    assert all("isvalid: true" in line for line in batches)
    assert f"lastOffset: {end - 1} " in batches[-1]
    producers = [line for line in output if line.startswith("producerId: 9 ")]
    assert len(producers) == len(list(folder.glob("*.snapshot"))) > 3
    assert f"lastOffset: {end - 1} " in producers[-1]
    complaints = [line for line in output if "ismatch" in line or "out of order" in line or "not found" in line]
    assert complaints == []
