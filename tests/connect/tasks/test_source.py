"""The source loop against a real broker"""

import threading
import time
from collections.abc import Callable, Sequence

import pytest
from structlog.testing import capture_logs

from tests.connect.tasks.conftest import Cluster, Loop, until
from tests.connect.tasks.scripted_source import PARTITION, Script, encoded, numbers
from tidemill.connect.api import (
    ConverterSpec,
    EndOfInput,
    NotConnected,
    Record,
    RetryAfter,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    TaskContext,
)
from tidemill.connect.sdk import transform
from tidemill.connect.tasks import sessions, source
from tidemill.connect.tasks.backoff import Backoff
from tidemill.connect.tasks.control import News
from tidemill.connect.transforms import registry

pytestmark = pytest.mark.integration


def test_records_arrive_and_their_offset_is_stored(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic, offsets = unique("t"), unique("offsets")
    script = Script(numbers(topic, 0, 3), numbers(topic, 3, 5))
    loop = play(script, name="my-source", offsets_topic=offsets)
    until(lambda: script.committed_offsets[-1:] == [{"next": 5}], "the commit")
    loop.stop()
    assert loop.error is None
    assert loop.news == [News.STARTED]
    assert (script.started_at, script.stops, len(script.threads)) == ([None], 1, 1)
    messages = cluster.read(topic)
    assert [(each.key(), each.value()) for each in messages] == [(str(n).encode(), str(n).encode()) for n in range(5)]
    last = cluster.read(offsets)[-1]
    assert (last.key(), last.value()) == (b'["my-source",{"table":"t"}]', b'{"next":5}')
    assert loop.fact("source-record-poll-total") == loop.fact("source-record-write-total") == 5
    assert loop.fact("topics").keys() == {topic}


def test_a_stop_stores_the_last_offset_and_the_next_start_finds_it(
    play: Callable[..., Loop], unique: Callable[[str], str]
) -> None:
    topic, offsets = unique("t"), unique("offsets")
    first = Script(numbers(topic, 0, 100))
    loop = play(first, name="c", offsets_topic=offsets, flush_ms=3_600_000)
    until(lambda: not first.steps, "the poll")
    loop.stop()
    assert first.committed_offsets == [{"next": 100}]
    second = Script()
    play(second, name="c", offsets_topic=offsets)
    until(lambda: second.started_at, "the start")
    assert second.started_at == [{"next": 100}]


def test_a_rewritten_offset_keeps_the_bytes_of_its_key(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """Apache Connect may have stored the same partition with its members in another order."""
    offsets = cluster.create(unique("offsets"), 3)
    key = b'["c",{"b":1,"a":"x"}]'
    cluster.produce(offsets, (key, b'{"next":7}'))
    partition = {"a": "x", "b": 1}
    seen: list[SourceOffset | None] = []

    class Reordered(Script):
        def start(self, context: TaskContext) -> None:
            seen.append(context.offsets(partition))

        def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
            self.committed_offsets.append(offset)

    script = Reordered([Record(topic=unique("t"), value=1, partition=partition, offset={"next": 8})])
    loop = play(script, name="c", offsets_topic=offsets)
    until(lambda: script.committed_offsets, "the commit")
    loop.stop()
    assert seen == [{"next": 7}]
    assert {each.key() for each in cluster.read(offsets)} == {key}


def test_encoded_batches_go_through_untouched(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    script = Script(
        [
            encoded(topic, [b"1", None, b""], None, keys=[b"a", b"b", None]),
            encoded(topic, [b"2"], None, headers=[(("h", b"x"), ("h", None))], timestamps_ms=[1_600_000_000_000]),
            encoded(topic, [], 9),
        ]
    )
    loop = play(script)
    until(lambda: script.committed_offsets == [{"next": 9}], "the commit")
    loop.stop()
    messages = cluster.read(topic)
    assert [(each.key(), each.value()) for each in messages] == [(b"a", b"1"), (b"b", None), (None, b""), (b"k", b"2")]
    assert messages[3].headers() == [("h", b"x"), ("h", None)]
    assert messages[3].timestamp()[1] == 1_600_000_000_000
    assert messages[0].headers() is None


ROUTE = {"transforms.r.type": "RegexRouter", "transforms.r.regex": "(.*)-raw", "transforms.r.replacement": "$1"}
DROP = {
    "transforms.d.type": "Filter",
    "transforms.d.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "RecordIsTombstone",
}
ADD = {"transforms.a.type": "InsertField$Value", "transforms.a.static.field": "s", "transforms.a.static.value": "x"}


def test_encoded_batches_go_through_transforms(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    values = [b'{"n": 1.10}', None, b'{"n": 2}']
    script = Script([encoded(f"{topic}-raw", values, 3), encoded(f"{topic}-raw", [None], 4)])
    loop = play(script, {"transforms": "d,r", **ROUTE, **DROP})
    until(lambda: script.committed_offsets[-1:] == [{"next": 4}], "the commit, also of what was left out")
    loop.stop()
    assert loop.error is None and cluster.values(topic) == [values[0], values[2]]  # the same bytes
    assert loop.fact("source-record-write-total") == 2 and loop.fact("source-record-poll-total") == 4


def test_encoded_values_are_read_for_a_transform_that_uses_them(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    exact = ConverterSpec(kind="json", options={"schemas.enable": "false", "decimal.format": "NUMERIC"})
    script = Script([encoded(topic, [b'{"n": 1.10, "l": 123456789012345678901234567890}', None], 2)])
    loop = play(script, {"transforms": "a", **ADD}, value_converter=exact)
    until(lambda: script.committed_offsets[-1:] == [{"next": 2}], "the commit")
    loop.stop()
    assert cluster.values(topic) == [b'{"n":1.10,"l":123456789012345678901234567890,"s":"x"}', None]


def test_records_go_through_transforms_and_their_offsets_stand_for_what_was_left_out(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    gone = Record(topic=f"{topic}-raw", value=None, partition=PARTITION, offset={"next": 2})
    kept = Record(topic=f"{topic}-raw", value={"n": 1}, partition=PARTITION, offset={"next": 1})
    script = Script([kept, gone])
    loop = play(script, {"transforms": "r,a,d", **ROUTE, **ADD, **DROP})
    until(lambda: script.committed_offsets[-1:] == [{"next": 2}], "the commit")
    loop.stop()
    assert cluster.values(topic) == [b'{"n":1,"s":"x"}']


def test_a_record_a_transform_cannot_do_with_is_for_the_error_policy(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    batch = encoded(topic, [b'{"n":1}', b"[]", b"rubbish"], 3)
    loop = play(Script([batch]), {"transforms": "a", **ADD})
    until(lambda: loop.ended, "the end")
    name = "org.apache.kafka.connect.transforms.InsertField$Value"
    assert str(loop.error).startswith(f"TRANSFORMATION for topic {topic}: a ({name}): ")
    script = Script([batch])
    loop = play(script, {"transforms": "a", **ADD, "errors.tolerance": "all"})
    until(lambda: script.committed_offsets[-1:] == [{"next": 3}], "the commit")
    loop.stop()
    assert cluster.values(topic) == [b'{"n":1,"s":"x"}'] and loop.fact("total-records-skipped") == 2


def test_records_carry_headers_timestamps_and_partitions(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = cluster.create(unique("t"), 3)
    records = [
        Record(topic=topic, value=1, headers=(("h", b"x"),), timestamp_ms=1_600_000_000_000, kafka_partition=2),
        Record(topic=topic, value=None, key="k", kafka_partition=1),
    ]
    loop = play(Script(records))
    until(lambda: len(cluster.read(topic)) == 2, "the records")
    loop.stop()
    second, first = sorted(cluster.read(topic), key=lambda message: message.partition() or 0)
    assert (first.partition(), first.headers(), first.timestamp()[1]) == (2, [("h", b"x")], 1_600_000_000_000)
    assert (second.partition(), second.key(), second.value()) == (1, b"k", None)


def test_keys_go_where_java_producers_put_them(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """murmur2 of the key, known answers of Kafka's own partitioner for six partitions."""
    topic = cluster.create(unique("t"), 6)
    keys = [b"kafka", b"connect", b"21", b""]
    loop = play(Script([encoded(topic, [b"v"] * len(keys), 1, keys=keys)]))
    until(lambda: len(cluster.read(topic)) == len(keys), "the records")
    loop.stop()
    for message in cluster.read(topic):
        key = message.key()
        assert isinstance(key, bytes)
        assert message.partition() == (murmur2(key) & 0x7FFFFFFF) % 6


def test_the_end_of_the_input_completes_the_task(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    script = Script(numbers(topic, 0, 10), EndOfInput())
    loop = play(script, flush_ms=3_600_000)
    until(lambda: loop.ended, "the end")
    assert loop.error is None
    assert loop.news == [News.STARTED, News.COMPLETED]
    assert script.committed_offsets == [{"next": 10}]
    assert len(cluster.values(topic)) == 10


def test_absence_starts_a_new_session_from_the_stored_offsets(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "Backoff", lambda: Backoff(0.01, 0.01))
    topic = unique("t")
    script = Script(
        numbers(topic, 0, 5),
        NotConnected("the database went away"),
        numbers(topic, 5, 6),
        at_start=[NotConnected("not there yet")],
    )
    loop = play(script, flush_ms=3_600_000)
    until(lambda: len(cluster.partitions(topic)) and len(cluster.values(topic)) == 6, "the last record")
    loop.stop()
    assert loop.error is None
    assert script.started_at == [None, None, {"next": 5}]
    assert (script.lives, script.stops) == (3, 3)
    assert loop.news == [News.STARTED]
    assert loop.control.current_problem() is None


def change(after: str, operation: str = "c") -> bytes:
    return (
        b'{"before":null,"after":%b,"source":{"lsn":7},"transaction":null,"op":"%b","ts_ms":1,"ts_us":1,"ts_ns":1}'
        % (after.encode(), operation.encode())
    )


def test_changes_of_a_batch_are_unwrapped_and_its_offset_stands_for_all(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    batches = [
        encoded(topic, [change('{"n":1}'), None, change('{"n":2}')], 1),
        encoded(topic, [change("null", "t"), None], 2),
        encoded(topic, [change('{"n":3}'), b'{"before":null}'], 3),  # the second has to be read
    ]
    script = Script(*[[each] for each in batches])
    config = {
        "transforms": "u",
        "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.u.add.fields": "op",
        "value.converter.schemas.enable": "false",
    }
    loop = play(script, config)
    until(lambda: script.committed_offsets[-1:] == [{"next": 3}], "the commit")
    loop.stop()
    assert loop.error is None
    assert cluster.values(topic) == [
        b'{"n":1,"__op":"c"}',
        b'{"n":2,"__op":"c"}',
        b'{"n":3,"__op":"c"}',
        b'{"before":null}',
    ]
    assert loop.fact("source-record-poll-total") == 7


def test_absence_of_what_a_transform_needs_is_over_only_when_records_pass_it(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter(range(1, 100))

    @transform("look up", version="1.0")
    def look_up(record: Record) -> Record:
        if (attempt := next(tries)) < 4:
            raise NotConnected(f"the catalog is away, {attempt}")
        return record

    monkeypatch.setattr(registry, "installed_transforms", lambda: (look_up,))
    monkeypatch.setattr(sessions, "Backoff", lambda: Backoff(0.01, 0.01))
    topic = unique("t")
    script = Script(*[[], numbers(topic, 0, 1)] * 4)
    with capture_logs() as lines:
        loop = play(script, {"transforms": "l", "transforms.l.type": "look up"})
        until(lambda: script.committed_offsets[-1:] == [{"next": 1}], "the commit")
        loop.stop()
    assert loop.error is None and cluster.values(topic) == [b"0"] and script.lives == 4
    assert [line["event"] for line in lines].count("connected again") == 1


def test_retry_calls_again_on_the_same_object(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    script = Script(RetryAfter(0.01), numbers(topic, 0, 1), at_start=[RetryAfter(0.01)])
    loop = play(script)
    until(lambda: script.committed_offsets == [{"next": 1}], "the commit")
    loop.stop()
    assert (script.lives, len(script.started_at)) == (1, 2)


def test_a_paused_task_does_not_poll(play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("t")
    script = Script(numbers(topic, 0, 1))
    loop = play(script, paused=True)
    until(lambda: News.PAUSED in loop.news, "the pause")
    assert script.steps
    loop.control.request_resume()
    until(lambda: script.committed_offsets == [{"next": 1}], "the commit")
    loop.stop()
    assert loop.news == [News.STARTED, News.PAUSED, News.RESUMED]


def test_what_is_in_flight_is_bounded(
    play: Callable[..., Loop], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is acknowledged, a source is polled until its bound is reached and not once more."""
    monkeypatch.setattr(source, "IN_FLIGHT_RECORDS_MAX", 100)
    topic = unique("t")
    script = Script(*(numbers(topic, n, n + 10) for n in range(0, 1000, 10)))
    loop = play(script, producer_config={"linger.ms": "600000"})  # keeps records from being sent
    until(lambda: loop.fact("source-record-active-count") == 100, "the bound")
    threading.Event().wait(0.3)
    assert len(script.steps) == 90
    loop.stop(100)
    assert script.committed_offsets == []


def test_topics_are_created_as_the_rules_say(
    play: Callable[..., Loop], cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    rules = {
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.cleanup.policy": "compact",
    }
    loop = play(Script([encoded(topic, [b"x"], 1)]), rules)
    until(lambda: len(cluster.partitions(topic)) == 3, "the topic")
    loop.stop()
    assert loop.error is None
    loop = play(Script([encoded(topic, [b"x"], 1)]), rules)  # it exists now
    until(lambda: len(cluster.read(topic)) == 2, "the second record")
    loop.stop()


def murmur2(data: bytes) -> int:
    """Kafka's hash, written from its definition, to check the partitioner setting against."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ (word >> 24)) * multiplier & mask
        value = (value * multiplier & mask) ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ (value >> 13)) * multiplier & mask
    return value ^ (value >> 15)


class OneMap(Script):
    """Has one map for its offsets, in which it counts on; the second record is read and lost with its bug."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.offset: dict[str, int] = {"next": 0}

    def poll(self) -> Sequence[SourceOutput]:
        self.offset["next"] += 1
        if self.offset["next"] == 2:
            raise ZeroDivisionError("a bug")
        return [Record(topic=self.topic, value=1, partition=PARTITION, offset=self.offset)]


def test_an_offset_is_stored_as_it_was_when_its_record_came(
    play: Callable[..., Loop], unique: Callable[[str], str]
) -> None:
    offsets = unique("offsets")
    loop = play(OneMap(unique("t")), name="one-map", offsets_topic=offsets, flush_ms=60_000)
    until(lambda: loop.ended, "the end")
    script = Script()
    loop = play(script, name="one-map", offsets_topic=offsets)
    until(lambda: script.started_at, "the start")
    loop.stop()
    assert script.started_at == [{"next": 1}]


def test_a_source_that_brings_nothing_says_at_once_that_a_pause_is_over(play: Callable[..., Loop]) -> None:
    """However little it does between two polls, and however long the pause was."""
    script = Script()
    loop = play(script)
    until(lambda: script.threads, "the first poll")
    time.sleep(0.3)  # until it is known to bring nothing
    loop.control.request_pause()
    until(lambda: News.PAUSED in loop.news, "the pause")
    time.sleep(2.5)
    loop.control.request_resume()
    began = time.monotonic()
    until(lambda: News.RESUMED in loop.news, "the end of the pause")
    assert time.monotonic() - began < 5, "a source at rest reports each ten seconds"


@pytest.mark.parametrize("rest", ["pause", "retry"])
def test_what_is_acknowledged_while_nothing_is_polled_is_told(
    play: Callable[..., Loop], unique: Callable[[str], str], rest: str
) -> None:
    class Resting(Script):
        def poll(self) -> Sequence[SourceOutput]:
            if rest == "pause":
                loop.control.request_pause()
            return super().poll()

    script = Resting()
    loop = play(script, paused=True)
    until(lambda: News.PAUSED in loop.news, "the pause")
    script.steps.extend([numbers(unique("t"), 0, 5), RetryAfter(60)])
    loop.control.request_resume()
    until(lambda: script.committed_offsets, "the commit")
    until(lambda: loop.fact("source-record-write-total") == 5, "the report")
    assert loop.fact("source-record-active-count") == 0
