"""The source loop where a record is refused, a call does not return or the plugin fails"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from tests.connect.tasks.conftest import AnySettings, Cluster, Loop, plugin, until
from tests.connect.tasks.scripted_source import PARTITION, Script, Step, encoded, numbers
from tidemill.connect.api import (
    EncodedBatch,
    EndOfInput,
    InvalidConfig,
    NotConnected,
    Poison,
    Record,
    RetryAfter,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    TaskContext,
)
from tidemill.connect.sdk import transform
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import kafka_watch, sessions, source
from tidemill.connect.tasks.backoff import Backoff
from tidemill.connect.tasks.control import News
from tidemill.connect.tasks.source import SourceRunner
from tidemill.connect.transforms import registry

pytestmark = pytest.mark.integration

AGAIN = "records are sent in batches again"


class Counting(Script):
    """A source that counts to ten from where it was, all in one batch; some of its values are given."""

    def __init__(self, topic: str, special: Mapping[int, bytes]) -> None:
        super().__init__()
        self._topic, self._special = topic, special

    def make(self) -> "Counting":
        self.lives += 1
        self.steps = []
        return self

    def start(self, context: TaskContext) -> None:
        super().start(context)
        start = (self.started_at[-1] or {"next": 0})["next"]
        self.steps = [
            [encoded(self._topic, [self._special.get(n, str(n).encode()) for n in range(start, 10)], 10)]
            if start < 10
            else []
        ]


def test_a_bug_in_the_plugin_fails_the_task(play: Callable[..., Loop]) -> None:
    script = Script(ZeroDivisionError("a bug"))
    loop = play(script)
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, ZeroDivisionError)
    assert script.stops == 1


def test_a_cluster_that_does_not_answer_is_told_though_the_transforms_took_long_to_make(
    run: Callable[..., Loop], spec: Callable[..., TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(settings: AnySettings) -> Any:
        threading.Event().wait(2 * kafka_watch.PAUSE_S)
        return drop.task(settings)

    @transform("drop", version="1.0")
    def drop(record: Record) -> None:
        return None

    monkeypatch.setattr(registry, "installed_transforms", lambda: (replace(drop, task=make),))
    config = {"transforms": "d", "transforms.d.type": "drop"}
    loop = run(SourceRunner, plugin(Script().make), spec("test", config, bootstrap="127.0.0.1:1"))
    until(lambda: "does not answer" in _told(loop), "the problem")
    loop.stop()


def test_transforms_that_cannot_be_made_leave_no_client_behind(play: Callable[..., Loop]) -> None:
    before = threading.active_count()
    loop = play(Script(), {"transforms": "d", "transforms.d.type": "nothing of that name"})
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, InvalidConfig)
    time.sleep(2 * kafka_watch.PAUSE_S)
    assert threading.active_count() <= before


def test_a_transform_that_does_not_return_is_told(
    play: Callable[..., Loop], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    @transform("stuck", version="1.0")
    def stuck(record: Record) -> Record:
        over.wait(30)
        return record

    monkeypatch.setattr(registry, "installed_transforms", lambda: (stuck,))
    monkeypatch.setattr(source, "TRANSFORMING_PATIENCE_S", 0.1)
    loop = play(Script(numbers(unique("t"), 0, 1)), {"transforms": "s", "transforms.s.type": "stuck"})
    try:
        until(lambda: "apply() of a transform has not returned" in _told(loop), "the problem")
        assert "in stuck" in _told(loop)
    finally:
        over.set()
    until(lambda: not _told(loop), "its end")
    loop.stop()
    assert loop.error is None


def _told(loop: Loop) -> str:
    problem = loop.control.current_problem()
    return "" if problem is None else problem.message


def test_a_value_the_converter_refuses_fails_the_task(play: Callable[..., Loop], unique: Callable[[str], str]) -> None:
    loop = play(Script([Record(topic=unique("t"), value=object())]))
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, Poison)
    assert str(loop.error).startswith("VALUE_CONVERTER for topic t")


def test_a_tolerant_task_leaves_it_out(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    bad = Record(topic=topic, value=object(), partition=PARTITION, offset={"next": 2})
    script = Script([*numbers(topic, 0, 1), bad], [bad])
    loop = play(script, {"errors.tolerance": "all", "errors.log.enable": "true"})
    until(lambda: script.committed_offsets[-1:] == [{"next": 2}], "the commit")
    loop.stop()
    assert cluster.values(topic) == [b"0"]
    assert loop.fact("total-records-skipped") == 2


def test_a_record_that_is_too_large_says_what_to_do(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    large = b"x" * 2_000_000
    loop = play(Script([encoded(unique("t"), [large], 1)]))
    until(lambda: loop.ended, "the end")
    assert "producer.override.message.max.bytes" in str(loop.error)
    topic = unique("t")
    script = Script([encoded(topic, [b"a", large, b"b"], 3)], [Record(topic=topic, value="y" * 2_000_000)])
    loop = play(script, {"errors.tolerance": "all"})
    until(lambda: script.committed_offsets == [{"next": 3}], "the commit")
    until(lambda: loop.fact("total-records-skipped") == 2, "the second")
    loop.stop()
    assert cluster.values(topic) == [b"a", b"b"]


def test_a_batch_the_broker_refuses_fails_the_task(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = cluster.create(unique("t"), config={"max.message.bytes": "1000"})
    source = Counting(topic, {2: b"x" * 5000})
    loop = play(source)
    until(lambda: loop.ended, "the end")
    assert f"the broker refused a record for topic {topic}" in str(loop.error)
    assert "max.message.bytes" in str(loop.error)
    assert cluster.values(topic)[:2] == [b"0", b"1"]
    assert source.committed_offsets == []


@pytest.mark.parametrize(
    ("settings", "special", "missing"),
    [
        ({"max.message.bytes": "1000"}, {2: b"x" * 5000, 7: b"y" * 5000}, {2, 7}),
        ({"max.message.bytes": "200"}, {}, set()),
    ],
    ids=["two too large", "only the batch too large"],
)
def test_a_tolerant_task_leaves_out_the_record_that_is_to_blame_and_no_other(
    play: Callable[..., Loop],
    cluster: Cluster,
    unique: Callable[[str], str],
    settings: dict[str, str],
    special: dict[int, bytes],
    missing: set[int],
) -> None:
    topic = cluster.create(unique("t"), config=settings)
    source = Counting(topic, special)
    loop = play(source, {"errors.tolerance": "all"})
    until(lambda: source.committed_offsets[-1:] == [{"next": 10}] or loop.ended, "the end")
    loop.stop()
    assert loop.error is None
    assert cluster.values(topic)[-(10 - len(missing)) :] == [str(n).encode() for n in range(10) if n not in missing]
    assert loop.fact("total-records-skipped") == len(missing)


def test_refusals_with_a_quiet_time_between_them_are_tolerated_alike(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SINGLY_S", 0.1)
    topic = cluster.create(unique("t"), config={"max.message.bytes": "1000"})
    large, there = b"x" * 5000, [b"0", b"1"]

    class Growing(Script):
        """Reads what is there, from where it was."""

        def start(self, context: TaskContext) -> None:
            super().start(context)
            self.read = (self.started_at[-1] or {"next": 0})["next"]

        def poll(self) -> Sequence[SourceOutput]:
            values = there[self.read :]
            self.read += len(values)
            return [encoded(topic, values, self.read)] if values else super().poll()

    subject = Growing()
    with capture_logs() as lines:
        loop = play(subject, {"errors.tolerance": "all"})
        for times in (1, 2):
            there += [b"a", large, b"b"]
            end = len(there)
            until(lambda end=end: subject.committed_offsets[-1:] == [{"next": end}] or loop.ended, "the commit")
            assert loop.error is None
            until(lambda times=times: [line["event"] for line in lines].count(AGAIN) == times, "the quiet time")
    loop.stop()
    assert loop.error is None
    values = cluster.values(topic)
    assert values[-2:] == [b"a", b"b"] and large not in values
    assert loop.fact("total-records-skipped") == 2


def test_what_was_acknowledged_beside_a_refusal_is_kept(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """The refusal is heard while the last records are waited for."""
    good, bad = unique("t"), cluster.create(unique("t"), config={"max.message.bytes": "1000"})
    large = encoded(bad, [b"x" * 5000], None)

    class Again(Script):
        def make(self) -> "Script":
            first = [] if self.lives else numbers(good, 0, 5)
            self.steps = [[*first, large], EndOfInput()]
            return super().make()

    subject = Again()
    loop = play(subject, flush_ms=3_600_000)
    until(lambda: loop.ended, "the end")
    assert f"the broker refused a record for topic {bad}" in str(loop.error)
    assert subject.started_at == [None, {"next": 5}]


def test_a_record_to_blame_that_comes_late_is_met_in_the_end(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot has no safe point in between; every time it is read from the beginning, and slowly at that."""
    monkeypatch.setattr(source, "SINGLY_S", 0.05)
    topic = cluster.create(unique("t"), config={"max.message.bytes": "1000"})

    class Snapshot(Script):
        def make(self) -> "Script":
            values = [[b"1"], [b"2"], [b"3"], [b"4"], [b"a", b"x" * 5000, b"b"]]
            self.steps = [[encoded(topic, each, None)] for each in values] + [[encoded(topic, [], 5)]]
            return super().make()

        def start(self, context: TaskContext) -> None:
            threading.Event().wait(0.1)
            super().start(context)

        def poll(self) -> Sequence[SourceOutput]:
            threading.Event().wait(0.1)
            return super().poll()

    subject = Snapshot()
    loop = play(subject, {"errors.tolerance": "all"})
    until(lambda: subject.committed_offsets or loop.ended, "the commit")
    loop.stop()
    assert loop.error is None
    assert cluster.values(topic)[-6:] == [b"1", b"2", b"3", b"4", b"a", b"b"]
    assert 3 < subject.lives < 8, "more patience each time"


def test_a_start_that_worked_in_the_end_is_no_problem_of_a_paused_task(play: Callable[..., Loop]) -> None:
    script = Script(at_start=[RetryAfter(0.01, "the database starts up")])
    loop = play(script, paused=True)
    until(lambda: News.PAUSED in loop.news, "the pause")
    assert loop.control.current_problem() is None


def test_a_pause_is_heard_while_the_other_system_is_away(play: Callable[..., Loop]) -> None:
    script = Script(at_start=[RetryAfter(3_600, "the database starts up"), NotConnected("it is away")])
    loop = play(script)
    for times in (1, 2):
        until(lambda: loop.control.current_problem() is not None, "the problem")
        loop.control.request_pause()
        until(lambda times=times: loop.news.count(News.PAUSED) == times, "the pause")
        assert loop.control.current_problem() is None
        loop.control.request_resume()
    until(lambda: len(script.started_at) == 3, "the start that works")
    assert loop.news == [News.STARTED, News.PAUSED, News.RESUMED] + [News.PAUSED, News.RESUMED]


def test_a_failed_task_keeps_what_was_acknowledged(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic, offsets = unique("t"), unique("offsets")
    loop = play(
        Script(numbers(topic, 0, 5), ZeroDivisionError("a bug")), name="c", offsets_topic=offsets, flush_ms=3_600_000
    )
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, ZeroDivisionError)
    after = Script()
    play(after, name="c", offsets_topic=offsets)
    until(lambda: after.started_at, "the start")
    assert after.started_at == [{"next": 5}]


def test_writing_to_the_offsets_topic_is_refused(play: Callable[..., Loop], unique: Callable[[str], str]) -> None:
    topic = unique("offsets")
    loop = play(Script([encoded(topic, [b"x"], 1)]), offsets_topic=topic)
    until(lambda: loop.ended, "the end")
    assert "must not write to the topic of its own offsets" in str(loop.error)


@pytest.mark.parametrize(
    "output",
    [
        Record(value=1),
        EncodedBatch(topic="t", keys=[b"k"], values=[b"v", b"w"]),
        EncodedBatch(topic="t", keys=[b"k"], values=[b"v"], timestamps_ms=[1, 2]),
    ],
)
def test_outputs_that_make_no_sense_fail_the_task(play: Callable[..., Loop], output: SourceOutput) -> None:
    loop = play(Script([output]))
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, ValueError)


def test_a_lost_producer_starts_a_new_session(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "Backoff", lambda: Backoff(0.01, 0.01))
    topic = unique("t")
    lost = iter([KafkaError(KafkaError._FATAL, "fenced", fatal=True)])

    class Unlucky(Script):
        def poll(self) -> Sequence[SourceOutput]:
            if self.lives == 1 and not self.steps:
                session.append(next(lost))
            return super().poll()

    session: list[KafkaError] = []
    original = source._Session._serve

    def serve(self: Any, seconds: float) -> None:
        if session:
            self._client_failed(session.pop())
        original(self, seconds)

    monkeypatch.setattr(source._Session, "_serve", serve)
    script = Unlucky(numbers(topic, 0, 5))
    loop = play(script, flush_ms=3_600_000)
    until(lambda: script.lives == 2 and script.started_at[1:], "the second life")
    loop.stop()
    assert loop.error is None


def test_a_producer_that_is_lost_while_the_source_brings_nothing_starts_a_new_session(
    play: Callable[..., Loop], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "Backoff", lambda: Backoff(0.01, 0.01))
    lost: list[KafkaError] = []

    class Doomed(source.RestingProducer):
        def __init__(self, config: Any, watch: Any, failed: Callable[[KafkaError], None], **more: Any) -> None:
            super().__init__(config, watch, failed, **more)
            self._fails = failed

        def poll(self, seconds: float) -> None:
            if lost:
                self._fails(lost.pop())
            super().poll(seconds)

    monkeypatch.setattr(source, "RestingProducer", Doomed)
    topic = unique("t")
    script = Script(numbers(topic, 0, 5))
    loop = play(script, flush_ms=10)
    until(lambda: script.committed_offsets, "the commit")
    script.steps.extend([[]] * 10)
    until(lambda: not script.steps, "turns that bring nothing")
    lost.append(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
    until(lambda: script.started_at[1:], "the second life")
    assert script.started_at[1] == {"next": 5}
    script.steps.append(numbers(topic, 5, 7))
    until(lambda: script.committed_offsets[-1] == {"next": 7}, "the commit of what came then")
    loop.stop()
    assert loop.error is None


def test_a_topic_that_cannot_be_created_fails_the_task(play: Callable[..., Loop], unique: Callable[[str], str]) -> None:
    topic = unique("t")
    rules = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "7"}
    loop = play(Script([encoded(topic, [b"x"], 1)]), rules)
    until(lambda: loop.ended, "the end")
    assert f"cannot create topic {topic}" in str(loop.error)


class Stuck(Script):
    """One of its calls does not return before it is let go."""

    def __init__(self, call: str, *steps: Step) -> None:
        super().__init__(*steps)
        self.call = call
        self.let_go = threading.Event()

    def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
        super().committed(partition, offset)
        self._wait("committed")

    def stop(self) -> None:
        super().stop()
        self._wait("stop")

    def _wait(self, call: str) -> None:
        if call == self.call:
            self.let_go.wait(60)


@pytest.mark.parametrize("call", ["committed", "stop"])
def test_whatever_call_does_not_return_is_told(
    play: Callable[..., Loop], unique: Callable[[str], str], call: str
) -> None:
    script = Stuck(call, numbers(unique("t"), 0, 3), NotConnected("away") if call == "stop" else [])
    loop = play(script)
    try:
        until(lambda: loop.control.overdue(3) is not None, "the call")
        problem = loop.control.current_problem()
        assert problem is not None
        assert f"{call}() of the plugin has not returned" in problem.message
    finally:
        script.let_go.set()
