"""Logs on the real disk to be damaged: small, in several segments, with indexes, epochs and snapshots"""

import asyncio
from pathlib import Path

from tests.broker.log.log_world import NOW_MS, LogWorld, batch
from tidemill.broker.log.config import LogConfig
from tidemill.core.records.batch import iter_batches
from tidemill.core.runtime.disk import OsDirectory

SMALL = LogConfig(segment_bytes=250, index_interval_bytes=100)


def write_log(folder: Path, batches: int = 8, *, config: LogConfig = SMALL) -> int:
    """A log of batches with two records each, closed in order; returns its end offset."""
    return asyncio.run(_write(folder, batches, config))


async def _write(folder: Path, batches: int, config: LogConfig) -> int:
    log = LogWorld(OsDirectory(folder), config).open()
    for number in range(batches):
        values = [b"%d-a" % number, b"%d-b" % number]
        data = bytearray(batch(values, timestamp=NOW_MS + number, producer=(7, 0, 2 * number)))
        result = log.append(data, now_ms=NOW_MS, leader_epoch=number // 3)
        await log.durable(result.last_offset)
    log.detach()
    log.finish()
    log.close_files()
    return log.log_end_offset


def log_files(folder: Path) -> list[Path]:
    """The segments, oldest first."""
    return sorted(folder.glob("*.log"))


def whole_offsets(folder: Path) -> list[int]:
    """Base offsets of the batches that have records, of a log without damage."""
    return [
        view.base_offset for path in log_files(folder) for view in iter_batches(path.read_bytes()) if view.record_count
    ]
