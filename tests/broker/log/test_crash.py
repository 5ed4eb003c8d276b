"""kill -9 of a process that writes a log: nothing that it said was durable is missing"""

import os
import random
import signal
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from tests.broker.log.log_world import read_all
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.store import LogStore
from tidemill.core.records.batch import BatchView
from tidemill.core.records.record import decode_records
from tidemill.core.runtime.clock import SystemClock

ROOT = Path(__file__).resolve().parents[3]

WRITER = textwrap.dedent(
    """
    import asyncio, sys, uuid
    from tidemill.broker.log.config import LogConfig
    from tidemill.broker.log.store import LogStore
    from tidemill.core.records.builder import build_batch
    from tidemill.core.records.record import NewRecord
    from tidemill.core.runtime.clock import SystemClock

    async def produce(log, writer):
        sequence = 0
        while True:
            values = [b"%d-%d-%d" % (writer, sequence, n) + b"x" * (sequence % 500) for n in range(sequence % 4 + 1)]
            now_ms = SystemClock().now_ms()
            batch = build_batch([NewRecord(now_ms, None, value) for value in values],
                                producer_id=writer, producer_epoch=0, base_sequence=sequence)
            result = log.append(batch, now_ms=now_ms)
            await log.durable(result.last_offset)
            print("acknowledged", writer, sequence, result.base_offset, flush=True)
            sequence += len(values)

    async def main(folder):
        store = LogStore.at(folder, clock=SystemClock(), node_id=1)
        store.open_all(lambda topic: LogConfig(segment_bytes=30_000))
        logs = [store.get("t", 0) or store.create("t", uuid.UUID(int=1), 0, LogConfig(segment_bytes=30_000))]
        async with asyncio.TaskGroup() as tasks:
            for writer in range(3):
                tasks.create_task(produce(logs[0], int(sys.argv[2]) * 10 + writer))
            while True:
                await asyncio.sleep(0.05)
                await store.checkpoint()

    asyncio.run(main(sys.argv[1]))
    """
)


@pytest.mark.integration
@pytest.mark.crash
async def test_nothing_that_was_durable_is_lost_by_kill_9(tmp_path: Path) -> None:
    rng = random.Random(11)
    acknowledged: dict[int, tuple[int, int]] = {}  # base offset -> (writer, first sequence number)
    for round_number in range(4):
        acknowledged |= _write_until_killed(tmp_path, round_number, rng.randint(100, 400))
        if round_number % 2:
            _tear_off_an_unfinished_write(tmp_path / "t-0", rng)

    store = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    store.open_all(lambda _topic: LogConfig(segment_bytes=30_000))
    log = store.get("t", 0)
    assert log is not None
    assert log.topic_id == uuid.UUID(int=1)
    found = {view.base_offset: view for view in read_all(log)}
    assert len(acknowledged) > 300
    for base_offset, (writer, sequence) in acknowledged.items():
        view = found[base_offset]
        assert (view.producer_id, view.base_sequence) == (writer, sequence)
        assert (decode_records(view)[0].value or b"").startswith(b"%d-%d-0" % (writer, sequence))
    last = found[max(found)]
    again = bytearray(last.batch_bytes())
    again[:8] = bytes(8)
    assert BatchView(again).verify_crc()
    assert log.append_own(again, now_ms=0).duplicate, "a retry after the crash is recognised"
    await store.close()


def _write_until_killed(folder: Path, round_number: int, wanted: int) -> dict[int, tuple[int, int]]:
    """Run the writer until it has acknowledged `wanted` batches; returns what it acknowledged."""
    acknowledged = {}
    command = [sys.executable, "-c", WRITER, str(folder), str(round_number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("acknowledged ") and line.endswith("\n"):
                writer, sequence, base_offset = map(int, line.split()[1:])
                acknowledged[base_offset] = (writer, sequence)
            if len(acknowledged) == wanted:
                os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return acknowledged


def _tear_off_an_unfinished_write(folder: Path, rng: random.Random) -> None:
    """What the kill itself seldom leaves behind: the first bytes of a batch that was being written."""
    newest = max(folder.glob("*.log"))
    with newest.open("ab") as file:
        file.write(newest.read_bytes()[: rng.randint(1, 60)])
