"""A sink that is another process: what it is given, what it refuses, and every way in which it can go wrong"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connect.plugins.process.conftest import Surroundings
from tidemill.connect.api import Fatal, NotConnected, PartialFailure, Record, RetryAfter
from tidemill.connect.plugins.process.settings import ProcessSettings
from tidemill.connect.plugins.process.sink import ProcessSink


@pytest.fixture
def start(
    around: Surroundings, config: Callable[..., dict[str, str]], request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[..., ProcessSink]:
    """A task that has been started, and is stopped at the end of the test."""

    def make(*behaviours: str, **more: str) -> ProcessSink:
        made = config(*behaviours, file=tmp_path / "taken", **more)
        task = ProcessSink(ProcessSettings.model_validate(made))
        request.addfinalizer(task.stop)
        task.start(around.context(made))
        return task

    return make


def records(*values: Any) -> list[Record]:
    return [
        Record(topic="t", kafka_partition=1, kafka_offset=10 + n, key=f"k{n}", value=value, timestamp_ms=5)
        for n, value in enumerate(values)
    ]


def taken(folder: Path) -> list[dict[str, Any]]:
    file = folder / "taken"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_it_takes_records_in_and_makes_them_durable(start: Callable[..., ProcessSink], tmp_path: Path) -> None:
    task = start()
    assert task.open([("t", 1)]) == {}
    task.put(records("a", None, {"n": 1}))
    assert taken(tmp_path) == []
    task.flush()
    assert taken(tmp_path) == [
        {"at": ["t", 1, 10], "key": "k0", "value": "a", "headers": [], "timestamp_ms": 5},
        {"at": ["t", 1, 11], "key": "k1", "value": None, "headers": [], "timestamp_ms": 5},
        {"at": ["t", 1, 12], "key": "k2", "value": '{"n":1}', "headers": [], "timestamp_ms": 5},
    ]
    task.close([("t", 1)])
    task.put([])
    task.stop()
    with pytest.raises(NotConnected, match="does not run"):
        task.flush()


def test_it_may_know_better_where_to_begin(start: Callable[..., ProcessSink]) -> None:
    assert start(begin_at="70").open([("t", 1), ("u", 0)]) == {("t", 1): 70, ("u", 0): 70}
    with pytest.raises(Fatal, match="wants to read t-1 from -2 on"):
        start(begin_at="-2").open([("t", 1)])


def test_records_that_it_refuses_are_named_across_requests(start: Callable[..., ProcessSink], tmp_path: Path) -> None:
    task = start()
    large = "x" * (8 << 20)
    with pytest.raises(PartialFailure) as failure:
        task.put(records("a", "bad", large, "busy", "b"))
    errors = failure.value.errors
    assert {index: type(error) for index, error in errors.items()} == {1: ValueError, 3: RetryAfter}
    assert str(errors[1]) == "b'bad' is refused"
    task.flush()
    assert [each["at"][2] for each in taken(tmp_path)] == [10, 12, 14]


def test_a_refusal_of_what_was_not_offered(start: Callable[..., ProcessSink]) -> None:
    with pytest.raises(Fatal, match="refused record 10000 of a batch of 1"):
        start().put(records("nowhere"))


def test_one_that_asks_for_patience_is_asked_for_the_rest(start: Callable[..., ProcessSink], tmp_path: Path) -> None:
    """What it has taken in and refused of a batch that needs several requests is not offered once more."""
    task = start(wait_at="wait")
    large = "x" * (8 << 20)
    batch = records("a", "bad", large, "wait", "b")
    for _ in range(2):
        with pytest.raises(RetryAfter):
            task.put(batch)
    (tmp_path / "wait").touch()
    with pytest.raises(PartialFailure) as failure:
        task.put(batch)
    assert list(failure.value.errors) == [1]
    task.put(records("c"))
    task.flush()
    assert [each["at"][2] for each in taken(tmp_path)] == [10, 12, 13, 14, 10]


@pytest.mark.parametrize("request_name", ["open", "close"])
def test_partitions_come_and_go_only_once(start: Callable[..., ProcessSink], request_name: str) -> None:
    """In the midst of a rebalance nothing can be asked again later: a new process is asked instead."""
    task = start(f"{request_name}=retry")
    with pytest.raises(NotConnected, match="as it was told to"):
        getattr(task, request_name)([("t", 1)])


def put_and_flush(task: ProcessSink) -> None:
    task.put(records("a"))
    task.flush()


@pytest.mark.parametrize(
    ("behaviour", "raised", "said"),
    [
        ("put=bug", Fatal, "the plugin failed to put: as it was told to\nat line 7"),
        ("put=retry", RetryAfter, "as it was told to"),
        ("put=away", NotConnected, "as it was told to"),
        ("put=exit", NotConnected, "exit status 3 while it was to put"),
        ("put=kill", NotConnected, "killed by SIGKILL while it was to put"),
        ("put=garbage", Fatal, "does not speak the record protocol"),
        ("put=other", Fatal, "it answers 'put' with 'described'"),
        ("flush=retry", RetryAfter, "as it was told to"),
        ("flush=exit", NotConnected, "exit status 3 while it was to flush"),
        ("flush=late", Fatal, "it answers request 3; 'flush' was request 4"),
    ],
)
def test_nothing_counts_as_taken_when_it_fails(
    start: Callable[..., ProcessSink], around: Surroundings, behaviour: str, raised: type[Exception], said: str
) -> None:
    """The runtime commits what a flush that returns has covered: so one that did not work never returns."""
    task = start(behaviour)
    with pytest.raises(raised) as failure:
        put_and_flush(task)
    assert said in str(failure.value)
    task.stop()
    assert not os.path.exists(f"/proc/{around.facts['plugin-pid']}")


def test_one_that_hangs_is_killed(start: Callable[..., ProcessSink], around: Surroundings) -> None:
    task = start("put=hang", process_answer_timeout_ms="3000")
    with pytest.raises(NotConnected, match=r"has not answered 'put' within 3 s"):
        task.put(records("a"))
    task.close([("t", 1)])  # which it need not hear
    began = time.monotonic()
    task.stop()
    assert time.monotonic() - began < 30


def test_one_that_reads_nothing_holds_no_large_batch_up(start: Callable[..., ProcessSink]) -> None:
    task = start("flush=hang", process_answer_timeout_ms="3000")
    with pytest.raises(NotConnected, match="'flush' within"):
        task.flush()
    other = start("put=hang", process_answer_timeout_ms="3000")
    with pytest.raises(NotConnected, match="'put' within"):
        other.put(records("x" * (7 << 20)))


def test_a_record_that_is_too_large_for_a_message(start: Callable[..., ProcessSink]) -> None:
    with pytest.raises(Fatal, match="cannot put: a message of 7"):
        start().put(records("x" * (70 << 20)))
