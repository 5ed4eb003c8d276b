"""A partition log on a simulated or real disk, with everything else as small as it can be"""

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.flusher import Flusher
from tidemill.broker.log.lookup import Found, Search, first_at_or_after
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.recovery import LoadedLog, load
from tidemill.core.records.batch import BatchView, iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

TOPIC_ID = uuid.UUID(int=7)
NOW_MS = 1_700_000_000_000


class InlineExecutor(Executor):
    """Runs everything at once, in the thread that asks: rounds of fsync become deterministic."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class LogWorld:
    """One partition, opened and reopened."""

    def __init__(self, directory: Directory, config: LogConfig | None = None, *, group_commit: bool = True) -> None:
        self.directory = directory
        self.config = config or LogConfig()
        self.group_commit = group_commit
        self.failures: list[OSError] = []
        self.now_ms = NOW_MS

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> PartitionLog:
        """Open the log as a start of the broker does."""
        self.flusher = Flusher(InlineExecutor(), self.failures.append)
        loaded = self.load(clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)
        return PartitionLog(
            topic_partition=TopicPartition("t", 0),
            topic_id=TOPIC_ID,
            directory=self.directory,
            config=self.config,
            flusher=self.flusher,
            held_when_durable=self.group_commit,
            segments=loaded.segments,
            epochs=loaded.epochs,
            producers=loaded.producers,
            log_start_offset=loaded.log_start_offset,
            on_failure=self.failures.append,
            epochs_written=loaded.epochs_written,
        )

    def load(self, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> LoadedLog:
        """Only the recovery."""
        return load(
            self.directory,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=self.now_ms,
        )


def look_up(log: PartitionLog, timestamp: int) -> Found:
    """What the search for a record with `timestamp` or later finds."""
    return run(first_at_or_after(log.view(), timestamp))


def run(search: Search) -> Found:
    """All steps of a search at once."""
    while True:
        try:
            next(search)
        except StopIteration as stop:
            found: Found = stop.value
            return found


def batch(
    values: Sequence[bytes] | int = 1,
    *,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: str = "none",
    value_bytes: int = 10,
) -> bytes:
    """A produced batch: the given values, or so many records; `producer` is (id, epoch, base sequence)."""
    if isinstance(values, int):
        values = [bytes([65 + number % 26]) * value_bytes for number in range(values)]
    records = [NewRecord(timestamp + number, None, value) for number, value in enumerate(values)]
    producer_id, epoch, sequence = producer
    return build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> list[BatchView]:
    """Every visible batch from the log start on, read as a consumer does."""
    batches: list[BatchView] = []
    offset = log.log_start_offset
    while True:
        data = bytes(log.read(offset, max_bytes))
        if not data:
            return batches
        views = list(iter_batches(data))
        assert sum(view.size_bytes for view in views) == len(data), "a response must hold whole batches"
        assert views[-1].last_offset >= offset, "a read must get on"
        batches += views
        offset = views[-1].next_offset


def payload(view: BatchView) -> bytes:
    """What a batch carries, without what the broker writes into it."""
    return bytes(view.batch_bytes()[21:])
