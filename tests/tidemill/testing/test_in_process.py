"""Plugins run without a broker"""

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tidemill import Fatal, PartialFailure, Pos, Record, sink, source
from tidemill.testing import feed_sink, run_source


class Settings(BaseModel):
    """Settings as a user writes them."""

    count: int = Field(default=3, alias="row.count")


@source("rows", version="1.0")
def rows(settings: Settings, pos: Pos) -> Iterator[Record]:
    """Count on from where it was."""
    start = (pos.get({"table": "t"}) or {"n": 0})["n"]
    for n in range(start, settings.count):
        yield Record(topic="t", value=n, partition={"table": "t"}, offset={"n": n + 1})


def test_a_source_runs_to_its_end_and_resumes() -> None:
    first = run_source(rows, {"row.count": "3"})
    assert first.values == [0, 1, 2] and first.completed
    assert first.offsets == [({"table": "t"}, {"n": 3})]
    assert run_source(rows, {"row.count": "5"}, offsets=first.offsets).values == [3, 4]


def test_a_source_without_end_is_left_when_there_is_enough() -> None:
    left = threading.Event()

    @source("ticks", version="1.0")
    async def ticks() -> AsyncIterator[Record]:
        n = 0
        try:
            while True:
                yield Record(topic="t", value=n)
                n += 1
        finally:
            left.set()

    run = run_source(ticks, {}, count=10)
    assert run.values[:10] == list(range(10)) and not run.completed
    assert left.wait(20)


def test_a_source_that_says_nothing_times_out() -> None:
    @source("silence", version="1.0")
    def silence() -> Iterator[Record]:
        threading.Event().wait(20)
        yield from ()

    with pytest.raises(TimeoutError, match="silence yielded 0 outputs"):
        run_source(silence, {}, timeout_s=0.1)


def test_errors_come_through() -> None:
    @source("broken", version="1.0")
    def broken() -> Iterator[Record]:
        yield Record(topic="t", value=1)
        raise Fatal("no such table")

    with pytest.raises(Fatal, match="no such table"):
        run_source(broken, {})


def test_a_sink_takes_batches_and_refuses_records() -> None:
    taken: list[Any] = []

    @sink("positive", version="1.0")
    def positive(batch: list[Record]) -> None:
        taken.extend((each.topic, each.kafka_partition, each.kafka_offset, each.value) for each in batch)
        bad = {index: ValueError("negative") for index, each in enumerate(batch) if each.value < 0}
        if bad:
            raise PartialFailure(bad)

    run = feed_sink(positive, {}, [Record(value=1), Record(value=-1)], [Record(topic="u", value=-2)])
    assert [value for *_, value in taken] == [1, -1, -2]
    assert taken[0][:3] == ("test", 0, 0) and taken[2][:3] == ("u", 0, 2)
    assert sorted(run.refused) == [1, 2] and str(run.refused[2]) == "negative"


def test_the_wrong_kind_is_told() -> None:
    with pytest.raises(TypeError, match="rows is not a sink"):
        feed_sink(rows, {})

    @sink("nothing", version="1.0")
    def nothing(batch: list[Record]) -> None:
        """Take all."""

    with pytest.raises(TypeError, match="nothing is not a source"):
        run_source(nothing, {})
