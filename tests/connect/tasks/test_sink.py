"""The sink loop against a real broker"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.connect.tasks.conftest import Cluster, Loop, plugin, until
from tidemill.connect.api import (
    ConverterSpec,
    NotConnected,
    PartialFailure,
    PluginKind,
    Poison,
    Record,
    RetryAfter,
    SinkTask,
    TaskContext,
)
from tidemill.connect.failure import Failure, classify
from tidemill.connect.sdk import transform
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import dead_letters, sessions, sink
from tidemill.connect.tasks.backoff import Backoff
from tidemill.connect.tasks.control import News
from tidemill.connect.tasks.sink import SinkRunner
from tidemill.connect.transforms import registry

pytestmark = pytest.mark.integration

Place = tuple[str, int]


class Target(SinkTask):
    """A target in memory: what `put` took is safe after `flush`. `troubles` are raised by one call after the other."""

    def __init__(self, **troubles: Sequence[Exception | None]) -> None:
        self.troubles = {name: list(each) for name, each in troubles.items()}
        self.calls: list[str] = []
        self.buffer: list[Record] = []
        self.stored: list[Record] = []
        self.places: set[Place] = set()
        self.positions: dict[Place, int] = {}
        self.batches: list[int] = []
        self.threads: set[int] = set()

    def make(self) -> "Target":
        """Serve as the plugin's factory: a new life has an empty buffer and the same target."""
        self.buffer.clear()
        return self

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        waiting = self.troubles.get(name)
        trouble = waiting.pop(0) if waiting else None
        if trouble is not None:
            raise trouble

    def start(self, context: TaskContext) -> None:
        self._call("start")

    def put(self, records: Sequence[Record]) -> None:
        refused: Mapping[int, Exception] = {}
        self.batches.append(len(records))
        try:
            self._call("put")
        except PartialFailure as failure:
            refused = failure.errors
            self.buffer += [each for index, each in enumerate(records) if index not in refused]
            raise
        self.buffer += records

    def flush(self) -> None:
        self._call("flush")
        self.stored += self.buffer
        self.buffer.clear()

    def open(self, partitions: Sequence[Place]) -> Mapping[Place, int]:
        self._call("open")
        self.places.update(partitions)
        return {place: self.positions[place] for place in partitions if place in self.positions}

    def close(self, partitions: Sequence[Place]) -> None:
        self._call("close")
        self.places.difference_update(partitions)

    def stop(self) -> None:
        self._call("stop")

    @property
    def values(self) -> list[Any]:
        return [record.value for record in self.stored]


@pytest.fixture
def fill(
    run: Callable[..., Loop], spec: Callable[..., TaskSpec], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Loop]:
    """Run a sink into a target; returns its loop."""
    monkeypatch.setattr(sessions, "Backoff", lambda: Backoff(0.01, 0.01))

    def start(target: Target, topics: str, config: Mapping[str, str] | None = None, **more: Any) -> Loop:
        paused = more.pop("paused", False)
        key = "topics.regex" if topics.startswith("^") else "topics"
        given = spec("test", {key: topics, **(config or {})}, bootstrap=cluster.bootstrap, kind=PluginKind.SINK, **more)
        loop: Loop = run(SinkRunner, plugin(target.make, PluginKind.SINK), given, paused=paused)
        return loop

    return start


@pytest.fixture
def topic(cluster: Cluster, unique: Callable[[str], str]) -> str:
    """A topic of one partition."""
    return cluster.create(unique("t"))


def test_records_arrive_and_offsets_follow(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, ("k", b'{"a":1}'), (None, None), headers=[("h", b"x"), ("h", None)])
    target = Target()
    loop = fill(target, topic, name=f"sink-{topic}")
    until(lambda: len(target.stored) == 2, "the records")
    first, second = target.stored
    assert (first.topic, first.kafka_partition, first.kafka_offset) == (topic, 0, 0)
    assert (first.key, first.value, first.headers) == ("k", {"a": 1}, (("h", b"x"), ("h", None)))
    assert first.timestamp_ms is not None
    assert (second.key, second.value) == (None, None)
    loop.stop()
    assert loop.error is None
    assert cluster.committed(f"connect-sink-{topic}", topic) == 2
    assert loop.news == [News.STARTED]
    assert target.calls[:2] == ["start", "open"]
    assert target.calls[-2:] == ["close", "stop"]
    assert len(target.threads) == 1
    assert loop.fact("sink-record-read-total") == loop.fact("sink-record-send-total") == 2
    assert loop.fact("topics").keys() == {topic}


def test_a_stop_commits_what_was_taken_in(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, *((None, str(n)) for n in range(10)))
    target = Target()
    loop = fill(target, topic, name=f"s-{topic}", flush_ms=3_600_000)
    until(lambda: len(target.buffer) == 10, "the records")
    loop.stop()
    assert target.values == list(range(10))
    again = Target()
    loop = fill(again, topic, name=f"s-{topic}")
    until(lambda: again.places, "the assignment")
    cluster.produce(topic, (None, "10"))
    until(lambda: again.stored, "the record")
    loop.stop()
    assert again.values == [10]


def test_topics_by_pattern(
    fill: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "TOPICS_REFRESH_S", 0.2)
    stem = unique("r")
    target = Target()
    loop = fill(target, f"^(?!other).*{stem}\\..*")
    until(lambda: loop.news, "the start")
    for name in (f"{stem}.a", f"{stem}.b", f"other-{stem}.a"):
        cluster.produce(cluster.create(name), (None, "1"))
    until(lambda: len(target.stored) == 2, "the records")
    loop.stop()
    assert {record.topic for record in target.stored} == {f"{stem}.a", f"{stem}.b"}


def test_refused_records_are_offered_again_while_the_rest_is_in(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    """`errors.retry.timeout` is for them; without it they are left out at once."""
    cluster.produce(topic, *((None, str(n)) for n in range(5)))
    locked = PartialFailure({1: RetryAfter(0.01, "row is locked"), 3: RetryAfter(0.01, "row is locked")})
    target = Target(put=[locked, PartialFailure({0: RetryAfter(0.01, "row is locked")})])
    loop = fill(target, topic, {"errors.retry.timeout": "60000", "errors.retry.delay.max.ms": "10"})
    until(lambda: len(target.stored) == 5, "the records")
    loop.stop()
    assert loop.error is None
    assert target.batches[1:3] == [2, 1]
    assert target.values[-2:] == [3, 1]
    assert loop.fact("sink-record-send-total") == 5
    assert loop.control.current_problem() is None


def test_a_refusal_that_lasts_is_for_the_tolerance(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, *((None, str(n)) for n in range(3)))
    target = Target(put=[PartialFailure({0: RetryAfter(0.01, "row is locked")})] * 1000)
    loop = fill(target, topic, {"errors.retry.timeout": "300", "errors.retry.delay.max.ms": "10"})
    until(lambda: loop.ended, "the end")
    assert loop.error is not None and classify(loop.error) is Failure.TRANSIENT, "it may pass"
    assert "record 0 of" in str(loop.error) and "row is locked" in str(loop.error)
    assert len(target.batches) > 5


def test_a_record_that_is_refused_for_good_is_told_before_one_that_is_refused_for_now(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    """Waiting would not help the batch."""
    target = Target(put=[PartialFailure({0: RetryAfter(0.01, "row is locked"), 1: ValueError("no such column")})])
    cluster.produce(topic, (None, "1"), (None, "2"))
    loop = fill(target, topic)
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, Poison)
    assert "record 1 of" in str(loop.error) and "no such column" in str(loop.error)


def test_an_idle_sink_is_well_again(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    """Nothing is written that could show it: that it has its partitions and nothing to do must be enough."""
    target = Target(start=[NotConnected("away")])
    loop = fill(target, topic)
    until(lambda: target.places, "the assignment")
    until(lambda: loop.control.current_problem() is None, "the end of the problem")


def test_a_start_that_worked_in_the_end_is_no_problem(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    target = Target(start=[RetryAfter(0.01, "the target starts up")])
    loop = fill(target, topic)
    until(lambda: target.places, "the assignment")
    assert loop.control.current_problem() is None


def test_a_batch_that_went_to_another_task_is_no_problem_of_this_one(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, (None, "1"))
    stuck, name = Target(put=[RetryAfter(3_600, "the table is locked")], flush=[RetryAfter(3_600)]), f"s-{topic}"
    loop = fill(stuck, topic, name=name)
    until(lambda: loop.control.current_problem() is not None, "the problem")
    for task in (1, 2, 3):
        fill(Target(), topic, name=name, task=task)
    until(lambda: loop.control.current_problem() is None, "the end of the problem")


def test_a_paused_sink_rests_although_it_holds_a_batch(
    fill: Callable[..., Loop], cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[float] = []

    class Counted(sink.Consumer):
        def poll(self, timeout: float = -1) -> Any:
            polls.append(timeout)
            return super().poll(timeout)

    monkeypatch.setattr(sink, "Consumer", Counted)
    cluster.produce(topic, (None, "1"))
    target = Target(put=[RetryAfter(0.5, "the table is locked")])
    loop = fill(target, topic)
    until(lambda: loop.control.current_problem() is not None, "the refusal")
    loop.control.request_pause()
    until(lambda: News.PAUSED in loop.news, "the pause")
    polls.clear()
    threading.Event().wait(2)
    assert 0 < len(polls) < 50
    loop.control.request_resume()
    until(lambda: target.values == [1], "the record")


def test_a_target_that_fails_to_flush_is_not_well_because_it_buffers(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, *((None, str(n)) for n in range(3)))
    target = Target(flush=[NotConnected("away")] * 5)
    loop = fill(target, topic)
    seen: list[int] = []

    def attempts() -> int:
        problem = loop.control.current_problem()
        seen.append(0 if problem is None else problem.attempts)
        return seen[-1]

    until(lambda: attempts() >= 4, "the fourth attempt")
    assert seen[seen.index(1) :] == sorted(seen[seen.index(1) :]), "the problem stood all the time"
    until(lambda: len(target.stored) == 3 and not attempts(), "the end of the problem")


def test_retry_offers_the_same_batch_again(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, *((None, str(n)) for n in range(5)))
    retry = RetryAfter(0.05)
    target = Target(start=[retry], put=[retry, retry], flush=[RetryAfter(0)])
    loop = fill(target, topic)
    until(lambda: len(target.stored) == 5, "the records")
    loop.stop()
    assert target.values == list(range(5))
    assert target.batches[:3] == [target.batches[0]] * 3
    assert target.calls.count("open") == 1, "it stayed in its group"


def test_absence_rewinds_to_what_was_committed(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    """What the lost task object had buffered is delivered again."""
    cluster.produce(topic, *((None, str(n)) for n in range(3)))
    target = Target(start=[NotConnected("not yet")], flush=[NotConnected("away")], put=[None, NotConnected("away")])
    loop = fill(target, topic)
    until(lambda: len(target.stored) == 3, "the records")
    loop.stop()
    assert loop.error is None
    assert sorted(target.values) == [0, 1, 2]
    assert target.calls.count("stop") >= 3
    assert loop.control.current_problem() is None


def test_a_bug_fails_the_task_and_commits_nothing(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, (None, "1"))
    target = Target(put=[ZeroDivisionError("a bug")])
    loop = fill(target, topic, name=f"s-{topic}")
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, ZeroDivisionError)
    assert target.calls[-1] == "stop"
    assert cluster.committed(f"connect-s-{topic}", topic) < 0


@pytest.mark.parametrize("call", ["open", "flush"])
def test_a_bug_in_any_call_fails_the_task(fill: Callable[..., Loop], cluster: Cluster, topic: str, call: str) -> None:
    cluster.produce(topic, (None, "1"))
    loop = fill(Target(**{call: [ZeroDivisionError("a bug")]}), topic)
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, ZeroDivisionError)


def test_pause_flushes_and_resume_goes_on(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, (None, "1"))
    target = Target()
    loop = fill(target, topic, flush_ms=3_600_000)
    until(lambda: target.buffer, "the record")
    loop.control.request_pause()
    until(lambda: target.values == [1], "the flush")
    cluster.produce(topic, (None, "2"))
    threading.Event().wait(0.5)
    assert target.buffer == []
    loop.control.request_resume()
    until(lambda: len(target.buffer) == 1, "the second record")
    loop.stop()
    assert target.values == [1, 2]
    assert loop.news == [News.STARTED, News.PAUSED, News.RESUMED]


def test_a_task_that_starts_paused_reads_nothing(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, (None, "1"))
    target = Target()
    loop = fill(target, topic, paused=True)
    until(lambda: target.places, "the assignment")
    threading.Event().wait(0.5)
    assert target.batches == []
    loop.control.request_resume()
    until(lambda: target.values == [1], "the record")
    loop.stop()


def test_what_a_lost_session_had_read_is_not_counted_as_under_way(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, (None, "1"), (None, "2"))
    target = Target(put=[NotConnected("the target is away")])
    loop = fill(target, topic)
    until(lambda: target.values == [1, 2], "the records")
    loop.stop()
    assert loop.fact("sink-record-read-total") == 4 and loop.fact("sink-record-send-total") == 2
    assert loop.fact("sink-record-active-count") == 0


def test_the_target_knows_better_where_to_start(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, *((None, str(n)) for n in range(5)))
    target = Target()
    target.positions[topic, 0] = 3
    loop = fill(target, topic)
    until(lambda: len(target.stored) == 2, "the records")
    loop.stop()
    assert target.values == [3, 4]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_tasks_share_the_partitions(
    fill: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], strategy: str
) -> None:
    topic, name = cluster.create(unique("t"), 4), unique("s")
    sharing = {"partition.assignment.strategy": strategy}
    first, second = Target(), Target()
    loop = fill(first, topic, name=name, consumer_config=sharing)
    until(lambda: len(first.places) == 4, "the first assignment")
    for partition in range(4):
        cluster.produce(topic, *((None, str(n)) for n in range(10)), partition=partition)
    other = fill(second, topic, name=name, task=1, consumer_config=sharing)
    until(lambda: len(first.places) == len(second.places) == 2, "the sharing")
    for partition in range(4):
        cluster.produce(topic, *((None, str(n)) for n in range(10, 20)), partition=partition)
    until(lambda: len(first.stored) + len(second.stored) == 80, "all records")
    loop.stop()
    until(lambda: len(second.places) == 4, "the inheritance")
    other.stop()
    places = [(record.kafka_partition, record.value) for record in first.stored + second.stored]
    assert sorted(places) == [(partition, n) for partition in range(4) for n in range(20)]


# ---------------------------------------------------------------- bad records

DEAD = "errors.deadletterqueue."

CHAIN = {
    "transforms": "d,r,c",
    "transforms.d.type": "Filter",
    "transforms.d.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "RecordIsTombstone",
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "(.*)",
    "transforms.r.replacement": "to-$1",
    "transforms.c.type": "Cast$Value",
    "transforms.c.spec": "n:int8",
}


def test_records_pass_through_transforms_and_offsets_stand_for_all(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, ("a", b'{"n":"1"}'), ("b", b'{"n":"x"}'), ("c", None), ("d", b'{"n":2.5}'))
    target = Target()
    errors = {"errors.tolerance": "all", f"{DEAD}topic.name": f"dlq-{topic}", f"{DEAD}context.headers.enable": "true"}
    loop = fill(target, topic, {**CHAIN, **errors}, name=f"s-{topic}")
    until(lambda: len(target.stored) == 2, "the records")
    loop.stop()
    assert [(each.topic, each.key, each.value) for each in target.stored] == [
        (f"to-{topic}", "a", {"n": 1}),
        (f"to-{topic}", "d", {"n": 2}),
    ]
    assert cluster.committed(f"connect-s-{topic}", topic) == 4
    assert loop.fact("sink-record-active-count") == 0 and loop.fact("total-records-skipped") == 1
    [dead] = cluster.read(f"dlq-{topic}")
    story = dict(dead.headers() or ())
    assert (dead.key(), dead.value()) == (b"b", b'{"n":"x"}')
    assert story["__connect.errors.stage"] == b"TRANSFORMATION"
    assert story["__connect.errors.class.name"] == b"org.apache.kafka.connect.transforms.Cast$Value"
    assert story["__connect.errors.topic"] == topic.encode()


@pytest.mark.parametrize("away", ["transform", "target"])
def test_a_record_is_left_out_once_however_often_its_batch_comes(
    fill: Callable[..., Loop], cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    absences = [NotConnected("away")] * 3
    tries = iter([*absences, *[None] * 100] if away == "transform" else [None] * 100)

    @transform("look up", version="1.0")
    def look_up(records: list[Record]) -> list[Record]:
        if (absence := next(tries)) is not None:
            raise absence
        return records

    monkeypatch.setattr(registry, "installed_transforms", lambda: (look_up,))
    cluster.produce(topic, ("a", b"1"), ("b", b"no json"), ("c", b"3"))
    target = Target() if away == "transform" else Target(put=absences)
    errors = {"errors.tolerance": "all", f"{DEAD}topic.name": f"dlq-{topic}"}
    config = {"transforms": "l", "transforms.l.type": "look up", **errors}
    loop = fill(target, topic, config, name=f"s-{topic}")
    until(lambda: target.values == [1, 3], "the records")
    loop.stop()
    assert [each.value() for each in cluster.read(f"dlq-{topic}")] == [b"no json"]
    assert cluster.committed(f"connect-s-{topic}", topic) == 3
    assert loop.fact("total-records-skipped") == 1


def test_without_tolerance_a_transform_fails_the_task(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, ("b", b'{"n":"x"}'))
    loop = fill(Target(), topic, CHAIN)
    until(lambda: loop.ended, "the end")
    assert f"TRANSFORMATION: record 0 of {topic}-0 cannot be processed" in str(loop.error)


def test_a_bad_record_fails_the_task_by_default(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, (None, "1"), (None, "no json"))
    loop = fill(Target(), topic)
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, Poison)
    assert str(loop.error).startswith(f"VALUE_CONVERTER: record 1 of {topic}-0 cannot be processed: not JSON")


def test_tolerance_leaves_bad_records_out(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, (None, "1"), (None, "no json"), (None, "3"))
    target = Target()
    config = {"errors.tolerance": "all", "errors.log.enable": "true", "errors.log.include.messages": "true"}
    loop = fill(target, topic, config, name=f"s-{topic}")
    until(lambda: target.values == [1, 3], "the good records")
    loop.stop()
    assert loop.fact("total-records-skipped") == 1
    assert cluster.committed(f"connect-s-{topic}", topic) == 3


def test_dead_letters_tell_their_story(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, ("bad", "no json"), ("good", "1"), ("refused", "2"), headers=[("own", b"x")])
    target = Target(put=[PartialFailure({1: ValueError("the target says no")})])
    config = {
        "errors.tolerance": "all",
        f"{DEAD}topic.name": f"dlq-{topic}",  # with as many copies as there are brokers, as nothing else is said
        f"{DEAD}context.headers.enable": "true",
    }
    loop = fill(target, topic, config, name=f"s-{topic}")
    until(lambda: target.values == [1], "the good record")
    loop.stop()
    assert loop.error is None
    bad, refused = cluster.read(f"dlq-{topic}")
    assert (bad.key(), bad.value()) == (b"bad", b"no json")
    assert (refused.key(), refused.value()) == (b"refused", b"2")
    story = dict(refused.headers() or ())
    assert story.pop("own") == b"x"
    assert b"ValueError: the target says no" in (story.pop("__connect.errors.exception.stacktrace") or b"")
    assert story == {
        "__connect.errors.topic": topic.encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"2",
        "__connect.errors.connector.name": f"s-{topic}".encode(),
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"TASK_PUT",
        "__connect.errors.class.name": b"Target",
        "__connect.errors.exception.class.name": b"builtins.ValueError",
        "__connect.errors.exception.message": b"the target says no",
    }
    assert dict(bad.headers() or ())["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert cluster.committed(f"connect-s-{topic}", topic) == 3


def test_a_dead_letter_topic_has_no_more_copies_than_there_are_brokers(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, (None, "no json"))
    loop = fill(Target(), topic, {"errors.tolerance": "all", f"{DEAD}topic.name": f"dlq-{topic}"}, name=f"s-{topic}")
    until(lambda: loop.fact("deadletterqueue-produce-requests") == 1, "the dead letter")
    loop.stop()
    assert loop.error is None
    assert cluster.values(f"dlq-{topic}") == [b"no json"]


def test_a_dead_letter_topic_that_exists_need_not_be_made(
    fill: Callable[..., Loop], cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task may write to it, but perhaps not create topics."""

    def forbidden(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("it was asked to create a topic")

    cluster.produce(topic, (None, "no json"))
    dead = cluster.create(f"dlq-{topic}")
    monkeypatch.setattr(dead_letters.AdminClient, "create_topics", forbidden)
    loop = fill(Target(), topic, {"errors.tolerance": "all", f"{DEAD}topic.name": dead}, name=f"s-{topic}")
    until(lambda: loop.ended or loop.fact("deadletterqueue-produce-requests") == 1, "the dead letter")
    loop.stop()
    assert loop.error is None
    assert cluster.values(dead) == [b"no json"]


def test_a_dead_letter_topic_that_cannot_be_made_fails_the_task(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, (None, "no json"))
    loop = fill(Target(), topic, {"errors.tolerance": "all", f"{DEAD}topic.name": "not/a/name"}, name=f"s-{topic}")
    until(lambda: loop.ended, "the end")
    assert "cannot create the dead-letter topic not/a/name" in str(loop.error)


def test_a_number_of_copies_of_dead_letters_that_was_asked_for_is_kept_to(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, (None, "no json"))
    asked_for = {f"{DEAD}topic.name": f"dlq-{topic}", f"{DEAD}topic.replication.factor": "7"}
    loop = fill(Target(), topic, {"errors.tolerance": "all", **asked_for}, name=f"s-{topic}")
    until(lambda: loop.ended, "the end")
    assert "set errors.deadletterqueue.topic.replication.factor" in str(loop.error)
    assert cluster.committed(f"connect-s-{topic}", topic) < 0


def test_refusing_records_that_were_not_offered_is_a_bug(
    fill: Callable[..., Loop], cluster: Cluster, topic: str
) -> None:
    cluster.produce(topic, (None, "1"))
    target = Target(put=[PartialFailure({9: ValueError("which?")})])
    loop = fill(target, topic, {"errors.tolerance": "all"})
    until(lambda: loop.ended, "the end")
    assert "refused record 9" in str(loop.error)


def test_records_with_schemas(fill: Callable[..., Loop], cluster: Cluster, topic: str) -> None:
    cluster.produce(topic, (None, json.dumps({"schema": {"type": "bytes", "optional": False}, "payload": "AAE="})))
    target = Target()
    loop = fill(target, topic, value_converter=ConverterSpec(kind="json"))
    until(lambda: target.values == [b"\x00\x01"], "the record")
    loop.stop()
    (record,) = target.stored
    assert record.value_schema is not None


def test_no_topics_is_a_mistake(fill: Callable[..., Loop]) -> None:
    loop = fill(Target(), "")
    until(lambda: loop.ended, "the end")
    assert "topics or topics.regex" in str(loop.error)


def test_a_topic_that_comes_later_is_waited_for(
    fill: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("later")
    target = Target()
    loop = fill(target, topic, consumer_config={"topic.metadata.refresh.interval.ms": "200"})
    threading.Event().wait(0.5)
    assert loop.error is None
    cluster.create(topic)
    cluster.produce(topic, (None, "1"))
    until(lambda: target.values == [1], "the record")
    loop.stop()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "the broker refuses to serve this sink"),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "the broker refuses to serve this sink"),
    ],
)
def test_a_refusal_by_the_broker_fails_the_task(
    fill: Callable[..., Loop], topic: str, monkeypatch: pytest.MonkeyPatch, error: KafkaError, kind: str
) -> None:
    """Permissions are the broker's; here its answer is handed to the loop the way librdkafka does."""
    target = Target()
    original = sink._Session._turn

    def turn(self: Any) -> None:
        self._client_error(error)
        original(self)

    monkeypatch.setattr(sink._Session, "_turn", turn)
    loop = fill(target, topic)
    until(lambda: loop.ended, "the end")
    assert kind in str(loop.error)


def test_partitions_that_are_not_taken_up_in_time_are_told(
    fill: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic, let_go = cluster.create(unique("t")), threading.Event()

    class Stuck(Target):
        def open(self, partitions: Sequence[Place]) -> Mapping[Place, int]:
            let_go.wait(60)
            return super().open(partitions)

    loop = fill(Stuck(), topic)
    try:
        until(lambda: loop.control.overdue(3) is not None, "the call")
        problem = loop.control.current_problem()
        assert problem is not None
        assert "open() of the plugin has not returned" in problem.message
    finally:
        let_go.set()
