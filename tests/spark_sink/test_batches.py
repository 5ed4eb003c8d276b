"""Batches of one query: committed one by one, cut ones end it, late ones are refused"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.spark_sink.debezium_events import FIELDS, event, rows_of, value_schema
from tidemill.spark_sink.batch_size import BatchSize
from tidemill.spark_sink.batches import Batches, CommitCrashed
from tidemill.spark_sink.changes import Chunk, decoded_chunks
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.envelope import EnvelopeOptions
from tidemill.spark_sink.failures import failure_of
from tidemill.spark_sink.offsets import OffsetRange
from tidemill.spark_sink.tables.delta import DeltaTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P0 = TopicPartition("t", 0)
SIZE = BatchSize(offsets=1_000, offsets_max=1_000, bytes_max=1_000_000)
SMALL = value_schema(FIELDS[:2])


class Frame:
    """What Spark hands over: chunks, and the time that collecting them takes."""

    def __init__(self, start: int, end: int, wait: Callable[[], object] = lambda: None, cut: bool = False) -> None:
        messages = [event("c", {"id": key}, {"id": key, "Name": "a"}, schema=SMALL) for key in range(start, end)]
        wanted = OffsetRange(partition=P0, start=start, end=end)
        (chunk,) = decoded_chunks(wanted, [rows_of(messages, start)], options=EnvelopeOptions())
        self._rows = pa.Table.from_batches([chunk._replace(cut=cut).to_batch()])
        self._wait = wait

    def toArrow(self) -> pa.Table:
        self._wait()
        return self._rows


def take(batches: Batches, frame: Frame) -> None:
    batches.take(cast("DataFrame", frame), 0)


def test_a_batch_that_comes_after_the_end_of_its_query_is_refused_and_leaves_the_next_one_alone(tmp_path: Path) -> None:
    """The old query's thread does not end when told to, and delivers while the new one's first commit runs."""
    target = DeltaTarget(str(tmp_path / "t"), "wh")
    target.begin({P0: 0}, {})
    collected, comes, go = threading.Event(), threading.Event(), threading.Event()

    def full_disk(chunks: list[Chunk]) -> None:
        raise OSError("disk full")

    def commit(chunks: list[Chunk]) -> None:
        go.wait(30)
        target.commit(chunks, {})

    old = Batches(SIZE, full_disk)
    take(old, Frame(0, 5))
    assert isinstance(old.end(), OSError)
    late = Batches(SIZE, commit)

    def slowly() -> None:
        collected.set()
        comes.wait(30)

    errors: list[BaseException] = []

    def deliver() -> None:
        try:
            take(late, Frame(5, 10, slowly, cut=True))
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=deliver)
    thread.start()
    collected.wait(30)
    late.end()
    new = Batches(SIZE, commit)
    take(new, Frame(0, 5))
    comes.set()
    thread.join(30)
    assert len(errors) == 1
    assert (new.failure, new.resizes, new.taken) == (None, False, 5)
    go.set()
    assert new.end() is None
    new.check()
    assert sorted(DeltaTable(tmp_path / "t").to_pyarrow_table().column("id").to_pylist()) == list(range(5))


def test_nothing_is_committed_behind_a_commit_that_failed() -> None:
    tried: list[int] = []

    def fail(chunks: list[Chunk]) -> None:
        tried.append(chunks[0].start)
        raise OSError("disk full")

    batches = Batches(SIZE, fail)
    take(batches, Frame(0, 5))
    with pytest.raises(OSError, match="disk full"):
        take(batches, Frame(5, 10))
    with pytest.raises(OSError, match="disk full"):
        batches.check()
    assert (tried, str(batches.failure), str(batches.end())) == ([0], "disk full", "disk full")


def test_what_follows_a_cut_is_left_for_the_next_query_which_takes_fewer() -> None:
    done: list[int] = []
    batches = Batches(SIZE, lambda chunks: done.append(chunks[0].start))
    take(batches, Frame(0, 5, cut=True))
    take(batches, Frame(8, 10))
    assert batches.end() is None
    assert (done, batches.resizes, batches.size.offsets < SIZE.offsets) == ([0], True, True)


def test_what_waits_counts_the_batch_that_is_being_committed() -> None:
    go = threading.Event()
    batches = Batches(SIZE, lambda chunks: None if chunks[0].start else go.wait(30))  # type: ignore[arg-type, return-value]
    take(batches, Frame(0, 500))
    second = threading.Thread(target=take, args=(batches, Frame(500, 503)))
    second.start()
    second.join(0.2)
    assert (batches.is_busy, batches.taken) == (True, 500)
    go.set()
    second.join(30)
    assert batches.end() is None
    assert batches.taken == 3


def test_a_panic_of_the_tables_library_ends_the_program() -> None:
    class Panic(BaseException):
        """As Rust's come to Python."""

    def panic(chunks: list[Chunk]) -> None:
        raise Panic("index out of bounds")

    batches = Batches(SIZE, panic)
    take(batches, Frame(0, 1))
    error = batches.end()
    assert isinstance(error, CommitCrashed)
    assert failure_of(error).needs_new_jvm
    assert str(error) == "the commit crashed: Panic: index out of bounds"
