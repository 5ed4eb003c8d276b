"""A source that is another process: its records, its offsets, and every way in which it can go wrong"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connect.plugins.process.conftest import Surroundings
from tidemill.connect.api import EncodedBatch, EndOfInput, Fatal, InvalidConfig, NotConnected, RetryAfter
from tidemill.connect.plugins.process.settings import ProcessSettings
from tidemill.connect.plugins.process.source import ProcessSource, process_source

Config = Callable[..., dict[str, str]]


@pytest.fixture
def start(around: Surroundings, config: Config, request: pytest.FixtureRequest) -> Callable[..., ProcessSource]:
    """A task that has been started and is stopped at the end of the test."""

    def make(*behaviours: str, **more: str) -> ProcessSource:
        made = config(*behaviours, **more)
        task = ProcessSource(ProcessSettings.model_validate(made))
        request.addfinalizer(task.stop)
        task.start(around.context(made))
        return task

    return make


def values(task: ProcessSource) -> list[bytes | None]:
    return [value for batch in task.poll() if isinstance(batch, EncodedBatch) for value in batch.values]


def gone(pid: object) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_it_counts(start: Callable[..., ProcessSource], around: Surroundings) -> None:
    task = start()
    (batch,) = task.poll()
    assert batch == EncodedBatch(
        topic="t",
        keys=[None, None, None],
        values=[b"1", b"2", b"3"],
        headers=[],
        timestamps_ms=[],
        partition={"counter": "c"},
        offset={"n": 3},
    )
    assert values(task) == [b"4", b"5", b"6"]
    assert around.facts["plugin"] == "Program"
    task.stop()
    assert gone(around.facts["plugin-pid"])


def test_it_goes_on_from_the_stored_offset(start: Callable[..., ProcessSource], around: Surroundings) -> None:
    around.stored["c"] = {"n": 41}
    assert values(start(size="1")) == [b"42"]


def test_it_is_told_of_partitions_that_it_finds_later(
    start: Callable[..., ProcessSource], around: Surroundings
) -> None:
    around.stored["d"] = {"n": 100}
    task = start(finds="d")
    assert values(task) == [b"1", b"2", b"3"]
    assert values(task) == [b"101", b"102", b"103"]


def test_it_hears_what_is_stored(start: Callable[..., ProcessSource], tmp_path: Path) -> None:
    file = tmp_path / "stored"
    task = start(file=str(file), process_stop_timeout_ms="30000")
    task.poll()
    task.committed({"counter": "c"}, {"n": 2})
    task.committed({"counter": "c"}, {"n": 3})
    task.poll()
    assert file.read_text() == '{"n":3}'
    task.committed({"counter": "c"}, {"n": 6})
    task.stop()
    assert file.read_text() == '{"n":3}\n{"n":6}'


@pytest.mark.parametrize(
    ("behaviour", "raised", "said"),
    [
        ("bug", Fatal, "the plugin failed to poll: as it was told to\nat line 7 of its own"),
        ("away", NotConnected, "as it was told to"),
        ("wrong", InvalidConfig, "colour: as it was told to"),
        ("fatal", Fatal, "as it was told to"),
        ("end", EndOfInput, "as it was told to"),
        (
            "exit",
            NotConnected,
            "has ended with exit status 3 while it was to poll; the last it printed: cannot go on | for",
        ),
        ("leave", NotConnected, "has ended with exit status 0 while it was to poll"),
        ("kill", NotConnected, "was killed by SIGKILL while it was to poll"),
        ("close", NotConnected, "has closed its standard output and runs on while it was to poll"),
        ("torn", NotConnected, "exit status 0 while it was to poll, in the middle of an answer"),
        (
            "garbage",
            Fatal,
            "does not speak the record protocol: what should be a message of 76 bytes is none: it begins with 'ist",
        ),
        ("oversized", Fatal, "a message of 268435455 bytes, of 67108864 at most"),
        ("endless", Fatal, "a length of more than 4 bytes"),
        ("empty", Fatal, "a message of 0 bytes says nothing"),
        ("other", Fatal, "it answers 'poll' with 'described', not with 'polled'"),
        ("late", Fatal, "it answers 'poll' with 'done', not with 'polled'"),
    ],
)
def test_what_is_told_when_a_poll_fails(
    start: Callable[..., ProcessSource], around: Surroundings, behaviour: str, raised: type[Exception], said: str
) -> None:
    task = start(f"poll={behaviour}")
    with pytest.raises(raised) as failure:
        task.poll()
    assert said in str(failure.value)
    task.stop()
    assert gone(around.facts["plugin-pid"])


def test_it_asks_for_patience_and_may_be_asked_again(start: Callable[..., ProcessSource]) -> None:
    task = start("poll=retry")
    for _ in range(2):
        with pytest.raises(RetryAfter) as failure:
            task.poll()
        assert failure.value.seconds == 1.5


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [("hang", "has not answered 'poll' within 3 s"), ("half", "of an answer only a part has come, it begins with")],
)
def test_one_that_hangs_is_killed(
    start: Callable[..., ProcessSource], around: Surroundings, behaviour: str, said: str
) -> None:
    task = start(f"poll={behaviour}", process_answer_timeout_ms="3000", process_start_timeout_ms="60000")
    with pytest.raises(NotConnected, match=said):
        task.poll()
    with pytest.raises(NotConnected, match="runs no more"):
        task.poll()
    began = time.monotonic()
    task.stop()
    assert time.monotonic() - began < 30
    assert gone(around.facts["plugin-pid"])


def test_one_that_hangs_holds_no_stop_up(start: Callable[..., ProcessSource], around: Surroundings) -> None:
    task = start("poll=hang")
    around.stopping = True
    began = time.monotonic()
    with pytest.raises(NotConnected, match="within 1 s, in which the task was to stop"):
        task.poll()
    task.stop()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("behaviour", ["stop=hang", "stop=stubborn", "stop=garbage", "stop=exit", "commit=hang"])
def test_one_that_ignores_its_stop_is_killed(
    start: Callable[..., ProcessSource], around: Surroundings, behaviour: str
) -> None:
    task = start(behaviour)
    task.poll()
    task.committed({"counter": "c"}, {"n": 3})
    began = time.monotonic()
    try:
        task.stop()
    except NotConnected:
        assert behaviour == "commit=hang"  # which the runtime logs
    assert time.monotonic() - began < 30
    assert gone(around.facts["plugin-pid"])


def test_megabytes_of_prints_hold_nothing_up(start: Callable[..., ProcessSource]) -> None:
    task = start("poll=print")
    assert values(task) == [b"1", b"2", b"3"]
    assert values(task) == [b"4", b"5", b"6"]


def test_notes_go_before_an_answer(start: Callable[..., ProcessSource], around: Surroundings) -> None:
    task = start("poll=log")
    assert values(task) == [b"1", b"2", b"3"]
    assert around.problems == ["the far end is away"]
    task.stop()
    assert around.problems[-1] is None


def test_one_that_dies_between_two_polls_is_missed_by_the_second(
    start: Callable[..., ProcessSource], around: Surroundings
) -> None:
    task = start()
    task.poll()
    os.kill(int(str(around.facts["plugin-pid"])), signal.SIGKILL)
    with pytest.raises(NotConnected, match="killed by SIGKILL"):
        task.poll()


@pytest.mark.parametrize("request_", ["describe", "start", "position", "poll", "commit", "stop"])
@pytest.mark.parametrize("way", ["kill", "torn", "hang"])
def test_no_number_is_missed_whatever_it_is_at_when_it_dies(
    around: Surroundings, config: Config, request_: str, way: str
) -> None:
    """Three lives, the second of which ends so; each goes on from what was stored, as the runtime does."""
    produced: list[int] = []

    def live(made: dict[str, str]) -> None:
        task = ProcessSource(ProcessSettings.model_validate(made))
        try:
            task.start(around.context(made))
            for _ in range(3):
                for batch in task.poll():
                    assert isinstance(batch, EncodedBatch)
                    assert batch.partition is not None and batch.offset is not None
                    produced.extend(int(value or 0) for value in batch.values)
                    around.stored["c"] = batch.offset
                    task.committed(batch.partition, batch.offset)
        finally:
            with contextlib.suppress(NotConnected):
                task.stop()

    more = {"process.answer.timeout.ms": "700", "process.stop.timeout.ms": "300"}
    live(config())
    with contextlib.suppress(NotConnected, Fatal):
        live({**config(f"{request_}={way}"), **more, "process.start.timeout.ms": "700" if way == "hang" else "60000"})
    live(config())
    assert produced == list(range(1, len(produced) + 1))
    assert len(produced) >= 18


def test_a_new_start_is_a_new_process(
    start: Callable[..., ProcessSource], around: Surroundings, config: Config
) -> None:
    task = start()
    first = around.facts["plugin-pid"]
    task.start(around.context(config()))
    assert values(task) == [b"1", b"2", b"3"]
    assert around.facts["plugin-pid"] != first
    assert gone(first)


def test_a_command_that_is_not_there_any_more_fails_the_task(around: Surroundings, config: Config) -> None:
    made = {**config(), "process.command": "no-such-program --at all"}
    task = ProcessSource(ProcessSettings.model_validate(made))
    with pytest.raises(Fatal, match=r"process.command: there is no program 'no-such-program' on this worker: install"):
        task.start(around.context(made))
    task.stop()


def test_batches_that_cannot_be_are_refused_whole(start: Callable[..., ProcessSource]) -> None:
    with pytest.raises(Fatal, match="the plugin 'Program' returned what cannot be taken: a batch without a topic"):
        start(topic="").poll()


def test_the_plugin_divides_its_work(settings: Callable[..., ProcessSettings]) -> None:
    assert process_source.split is not None
    assert process_source.split(settings(), 2) == [{"share": "0"}, {"share": "1"}]
    with pytest.raises(Fatal, match="as it was told to"):
        process_source.split(settings("split=fatal"), 2)


def test_work_is_not_divided_by_what_this_worker_may_not_run(
    settings: Callable[..., ProcessSettings], worker_allows: Callable[[str], None], tmp_path: Path
) -> None:
    mark = tmp_path / "it ran"
    worker_allows("true")
    assert process_source.split is not None
    with pytest.raises(InvalidConfig, match="may not run") as refused:
        process_source.split(settings(process_command=f"touch '{mark}'"), 2)
    assert refused.value.field_name == "process.command"
    assert not mark.exists()
