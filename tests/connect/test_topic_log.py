"""A compacted topic read to its end, then followed, on a real cluster"""

import asyncio
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.broker.broker_world import running_broker
from tidemill import services
from tidemill.broker.partitions import permitted_topic
from tidemill.connect.topic_log import (
    LETTING_GO,
    LogRecord,
    RecordTooLarge,
    TopicLog,
    TopicLogError,
    TopicSpec,
    ask,
    copies,
    ensure_topics,
)
from tidemill.core.errors import KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition

pytestmark = pytest.mark.integration

Make = Callable[[str], str]


def spec(name: str, partitions: int = 1, copies: int = 1, at_most: bool = False, **config: str) -> TopicSpec:
    return TopicSpec(name=name, partitions=partitions, replication_factor=copies, at_most=at_most, config=config)


def client(bootstrap: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap}


def follow(
    bootstrap: str, topic: str, on_records: Callable[[Sequence[LogRecord]], None], append_timeout_s: float = 20
) -> TopicLog:
    return TopicLog(topic, client(bootstrap), on_records, start_timeout_s=30, append_timeout_s=append_timeout_s)


@pytest.fixture
def topic(bootstrap: str, unique: Make) -> str:
    """A topic of three partitions."""
    name = unique("log")
    ensure_topics(client(bootstrap), spec(name, partitions=3), timeout_s=20)
    return name


def test_a_missing_topic_is_created_compacted(bootstrap: str, unique: Make) -> None:
    name = unique("log")
    # More copies than the cluster has brokers, by default: it gets what there is.
    wanted = spec(name, partitions=2, copies=3, at_most=True, **{"segment.bytes": "1048576"})
    ensure_topics(client(bootstrap), wanted, timeout_s=20)
    ensure_topics(client(bootstrap), spec(name, partitions=5), timeout_s=20)  # there already: left alone
    admin = AdminClient(client(bootstrap))
    assert len(admin.list_topics(name, timeout=20).topics[name].partitions) == 2
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = admin.describe_configs([resource])[resource].result(20)
    assert entries["cleanup.policy"].value == "compact"
    assert entries["segment.bytes"].value == "1048576"


def test_a_number_of_copies_that_was_asked_for_is_kept_to(bootstrap: str, unique: Make) -> None:
    name = unique("log")
    with pytest.raises(TopicLogError, match=r"has \d broker\(s\): lower its replication.factor, or leave it out"):
        ensure_topics(client(bootstrap), spec(name, copies=9), timeout_s=20)
    assert name not in AdminClient(client(bootstrap)).list_topics(timeout=20).topics


@pytest.mark.parametrize(
    ("wanted", "brokers", "at_most", "gets"),
    [(3, 1, True, 1), (3, 5, True, 3), (-1, 1, True, -1), (3, 0, True, 3), (3, 1, False, 3)],
)
def test_copies(wanted: int, brokers: int, at_most: bool, gets: int) -> None:
    assert copies(wanted, brokers, at_most=at_most) == gets


UNUSABLE = [{"security.protocol": "SASL_SSL"}, {"no.such.setting": "1"}, {"socket.timeout.ms": "soon"}]


@pytest.mark.parametrize("settings", UNUSABLE)
async def test_settings_no_client_can_use_are_said(settings: dict[str, str]) -> None:
    bad = {"bootstrap.servers": "127.0.0.1:1", **settings}
    with pytest.raises(TopicLogError, match="client settings cannot be used"):
        ensure_topics(bad, spec("t"), timeout_s=1)
    with pytest.raises(TopicLogError, match="client settings cannot be used"):
        async with TopicLog("t", bad, print, start_timeout_s=5, append_timeout_s=1):
            pass


def test_a_cluster_that_is_not_there_is_said() -> None:
    with pytest.raises(TopicLogError, match="cannot ask the Kafka cluster for topics 't'"):
        ensure_topics(client("127.0.0.1:1"), spec("t"), timeout_s=0.5)


def test_the_config_topic_must_have_one_partition(bootstrap: str, topic: str) -> None:
    with pytest.raises(TopicLogError, match="has 3 partitions but must have 1"):
        ensure_topics(client(bootstrap), spec(topic, partitions=1), timeout_s=20)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused(bootstrap: str, unique: Make, policy: str) -> None:
    name, admin = unique("log"), AdminClient(client(bootstrap))
    with pytest.raises(TopicLogError, match=r"must have cleanup\.policy=compact"):
        ensure_topics(client(bootstrap), spec(name, **{"cleanup.policy": policy}), timeout_s=20)
    assert name not in admin.list_topics(timeout=20).topics
    admin.create_topics([NewTopic(name, num_partitions=1, config={"cleanup.policy": policy})])[name].result(20)
    with pytest.raises(TopicLogError, match=rf"has cleanup\.policy={policy} but must have cleanup\.policy=compact"):
        ensure_topics(client(bootstrap), spec(name), timeout_s=20)


async def test_everything_is_there_when_it_opens(bootstrap: str, topic: str) -> None:
    producer = Producer(client(bootstrap))
    for number in range(2_500):
        producer.produce(topic, key=f"k{number}", value=f"v{number}", partition=number % 3)
    producer.produce(topic, key="gone", value=None, partition=0)
    producer.flush(20)
    seen: list[LogRecord] = []
    async with follow(bootstrap, topic, seen.extend):
        assert {record.key for record in seen} == {b"gone", *(f"k{number}".encode() for number in range(2_500))}
        for partition in range(3):
            offsets = [record.offset for record in seen if record.partition == partition]
            assert offsets == list(range(len(offsets)))
        assert [record.value for record in seen if record.key == b"gone"] == [None]


@pytest.mark.skipif(sys.platform != "linux", reason="how often a thread has slept is told by Linux")
async def test_who_follows_a_topic_sleeps_while_nothing_comes(bootstrap: str, topic: str) -> None:
    def sleeps(thread: threading.Thread) -> int:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt"))

    async with follow(bootstrap, topic, lambda records: None):
        follower = next(each for each in threading.enumerate() if each.name == f"follow {topic}")
        before = sleeps(follower)
        await asyncio.sleep(3)
        assert 0 < sleeps(follower) - before <= 10


async def test_what_was_appended_has_been_seen(bootstrap: str, topic: str) -> None:
    mine: list[LogRecord] = []
    others: list[LogRecord] = []
    async with follow(bootstrap, topic, mine.extend) as log, follow(bootstrap, topic, others.extend) as other:
        for number in range(20):
            await log.append([(f"k{number}".encode(), b"1"), (f"k{number}".encode(), None)])
            assert len(mine) == 2 * (number + 1)
        await other.append([(b"last", b"2")])
        assert len(others) == 41
        by_key = {record.key: record.partition for record in mine}
        for record in mine:
            assert record.partition == by_key[record.key]  # a key keeps its partition
        await log.append([])


async def test_appends_side_by_side(bootstrap: str, topic: str) -> None:
    seen: list[LogRecord] = []
    async with follow(bootstrap, topic, seen.extend) as log:
        await asyncio.gather(*(log.append([(f"k{number}".encode(), b"")]) for number in range(30)))
        assert len(seen) == 30


async def test_a_record_too_large_for_the_client_keeps_nothing_else_out(bootstrap: str, topic: str) -> None:
    seen: list[LogRecord] = []
    async with follow(bootstrap, topic, seen.extend) as log:
        with pytest.raises(RecordTooLarge) as refused:
            await log.append([(b"before", b"1"), (b"large", b"x" * 1_500_000), (b"after", b"2")])
        assert refused.value.key == b"large"
        assert seen == []
        await log.append([(b"after", b"2")])
        assert [record.key for record in seen] == [b"after"]


async def test_a_batch_too_large_for_the_topic_gets_in_record_by_record(bootstrap: str, unique: Make) -> None:
    name = unique("log")
    await asyncio.to_thread(ensure_topics, client(bootstrap), spec(name, **{"max.message.bytes": "2000"}), timeout_s=20)
    seen: list[LogRecord] = []
    async with follow(bootstrap, name, seen.extend) as log:
        records = [(f"k{number}".encode(), b"x" * 500) for number in range(20)]
        await log.append(records)
        # In order, and the last word on every key is the one that was written last.
        assert list(dict.fromkeys(record.key for record in seen)) == [key for key, _ in records]
        with pytest.raises(RecordTooLarge) as refused:
            await log.append([(b"small", b"1"), (b"large", b"x" * 3_000)])
        assert refused.value.key == b"large" and seen[-1].key == b"small"


async def test_more_records_than_the_client_queues(bootstrap: str, topic: str) -> None:
    seen: list[LogRecord] = []
    settings = {**client(bootstrap), "queue.buffering.max.messages": "10"}
    async with TopicLog(topic, settings, seen.extend, start_timeout_s=30, append_timeout_s=20) as log:
        await log.append([(f"k{number}".encode(), b"") for number in range(200)])
        assert len(seen) == 200


@pytest.mark.parametrize("error", [UnknownTopicOrPartition, TopicAuthorizationFailed])
async def test_a_leader_that_has_not_heard_of_the_topic_yet_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[KafkaError]
) -> None:
    answers = iter([error("not yet")] * 4)

    def find_later(*arguments: Any) -> Any:
        for each in answers:
            raise each
        return permitted_topic(*arguments)

    monkeypatch.setattr("tidemill.broker.handlers.list_offsets.permitted_topic", find_later)
    async with running_broker(tmp_path) as broker:
        address, seen = f"127.0.0.1:{broker.port}", list[LogRecord]()
        await asyncio.to_thread(ensure_topics, client(address), spec("t", partitions=3), timeout_s=20)
        async with follow(address, "t", seen.extend) as log:
            await log.append([(b"k", b"v")])
    assert [record.key for record in seen] == [b"k"]


async def test_a_missing_topic_is_an_error(bootstrap: str, unique: Make) -> None:
    log = TopicLog(unique("nowhere"), client(bootstrap), print, start_timeout_s=3, append_timeout_s=1)
    with pytest.raises(TopicLogError):
        async with log:
            pass


async def test_a_record_that_cannot_be_applied_ends_the_following(bootstrap: str, topic: str) -> None:
    def refuse(records: Sequence[LogRecord]) -> None:
        raise ValueError("not this one")

    async with follow(bootstrap, topic, refuse) as log:
        with pytest.raises(TopicLogError, match="not this one"):
            await log.append([(b"k", b"v")])
        failure = await asyncio.wait_for(log.failure(), 10)
        assert topic in str(failure)
        with pytest.raises(TopicLogError, match="not this one"):
            await log.append([(b"k", b"v")])


async def test_a_closed_log_takes_nothing(bootstrap: str, topic: str) -> None:
    async with follow(bootstrap, topic, print) as log:
        pass
    with pytest.raises(TopicLogError, match="closed"):
        await log.append([(b"k", b"v")])


async def made_anew(bootstrap: str, topic: str) -> None:
    """Delete the topic and create it again, empty."""
    admin = AdminClient(client(bootstrap))

    def anew() -> None:
        admin.delete_topics([topic])[topic].result(20)
        deadline = time.monotonic() + 20
        while True:
            try:
                admin.create_topics([NewTopic(topic, num_partitions=3)])[topic].result(20)
                return
            except KafkaException:  # the old one has not gone everywhere yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    await asyncio.to_thread(anew)


async def test_a_topic_that_ends_before_what_was_read_ends_the_following(bootstrap: str, topic: str) -> None:
    async with follow(bootstrap, topic, print) as log:
        for number in range(10):
            await log.append([(f"k{number}".encode(), b"v")])
        await made_anew(bootstrap, topic)
        failure = await asyncio.wait_for(log.failure(), 30)
        assert f"topic '{topic}' is another one than this worker has read" in str(failure)


async def test_nothing_is_written_into_another_topic_as_if_it_had_been_read(bootstrap: str, topic: str) -> None:
    seen: list[LogRecord] = []
    async with follow(bootstrap, topic, seen.extend) as log:
        for number in range(10):
            await log.append([(f"k{number}".encode(), b"v")])
        await made_anew(bootstrap, topic)
        with pytest.raises(TopicLogError, match="is another one"):
            await log.append([(b"k1", b"w")])
        assert all(record.value == b"v" for record in seen)
        assert "is another one" in str(await asyncio.wait_for(log.failure(), 10))


async def test_where_it_may_another_topic_is_read_on(bootstrap: str, topic: str) -> None:
    seen: list[LogRecord] = []
    log = TopicLog(topic, client(bootstrap), seen.extend, start_timeout_s=30, append_timeout_s=20, may_begin_anew=True)
    async with log:
        for number in range(10):
            await log.append([(f"k{number}".encode(), b"v")])
        await made_anew(bootstrap, topic)
        await log.append([(b"k1", b"w")])
        async with asyncio.timeout(30):
            while seen[-1].value != b"w":  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_who_is_told_to_gives_up(bootstrap: str, topic: str) -> None:
    async with follow(bootstrap, topic, print) as log:
        log.give_up(TopicLogError("this one"))
        log.give_up(TopicLogError("another one"))
        assert str(await log.failure()) == "this one"
        with pytest.raises(TopicLogError, match="this one"):
            await log.append([(b"k", b"v")])


@pytest.mark.crash
async def test_a_broker_that_dies_is_waited_for(tmp_path: Path, unique: Make) -> None:
    broker = services.broker("b", tmp_path / "data", log=tmp_path / "broker.log").start()
    try:
        address, topic = broker.facts["address"], unique("log")
        await asyncio.to_thread(ensure_topics, client(address), spec(topic), timeout_s=20)
        seen: list[LogRecord] = []
        async with follow(address, topic, seen.extend, append_timeout_s=2) as log:
            await log.append([(b"k1", b"v")])
            broker.kill()
            with pytest.raises(TopicLogError, match="cannot write to topic"):
                await log.append([(b"lost", b"v")])
            again = services.broker("b", tmp_path / "data", listen=address, log=tmp_path / "broker.log")
            await asyncio.to_thread(again.start)
            try:
                async with asyncio.timeout(30):
                    while True:
                        try:
                            await log.append([(b"k2", b"v")])
                            break
                        except TopicLogError:
                            await asyncio.sleep(0.1)
                assert [record.key for record in seen][:1] == [b"k1"]
                assert [record.key for record in seen][-1:] == [b"k2"]
                assert [record.offset for record in seen] == list(range(len(seen)))
            finally:
                again.stop()
    finally:
        broker.stop()


async def test_headers_are_read_as_they_were_written(bootstrap: str, topic: str) -> None:
    seen: list[LogRecord] = []
    async with follow(bootstrap, topic, seen.extend) as log:
        await log.append([(b"k", b"v")])
        offsets = await log.append([(b"k", b"1"), (b"k", b"2")], [("a", b"1"), ("empty", b""), ("a", b"2")])
        (partition,) = {record.partition for record in seen}
        assert offsets == {partition: 2} and log.applied == {partition: 2}
    plain, first, second = seen
    assert plain.headers == () and plain.header("a") is None
    assert first.headers == second.headers == (("a", b"1"), ("empty", b""), ("a", b"2"))
    assert second.header("a") == b"2" and second.header("empty") == b"" and second.header("b") is None


async def test_what_another_one_writes_can_be_waited_for(bootstrap: str, topic: str) -> None:
    async with follow(bootstrap, topic, lambda records: None) as reader, follow(bootstrap, topic, print) as writer:
        await reader.reached({})
        offsets = await writer.append([(b"k", b"v")])
        async with asyncio.timeout(20):
            await reader.reached(offsets)
        assert reader.applied == offsets
        (partition,) = offsets
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await reader.reached({partition: 1_000})


async def test_all_that_others_have_written_can_be_waited_for(bootstrap: str, topic: str) -> None:
    told: list[LogRecord] = []
    async with follow(bootstrap, topic, told.extend) as log:
        await log.catch_up(20)
        for count in (20, 40, 60):
            other = Producer(client(bootstrap))
            for number in range(20):
                other.produce(topic, key=b"%d" % number, value=b"v")
            other.flush()
            await log.catch_up(20)
            assert len(told) == count


def make_three_of_it(bootstrap: str, name: str) -> None:
    admin = AdminClient(client(bootstrap))
    admin.create_partitions([NewPartitions(name, 3)])[name].result(20)


async def test_partitions_that_come_later_are_followed_too(bootstrap: str, unique: Make) -> None:
    name = unique("log")
    ensure_topics(client(bootstrap), spec(name), timeout_s=20)
    early: list[LogRecord] = []
    keys = [b"%d" % number for number in range(20)]
    async with follow(bootstrap, name, early.extend) as first:
        make_three_of_it(bootstrap, name)
        other = Producer(client(bootstrap))
        for key in keys:
            other.produce(name, b"v", key)
        other.flush()
        await first.catch_up(20)
        assert sorted(each.key or b"" for each in early) == sorted(keys)
        assert {each.partition for each in early} == {0, 1, 2}


async def test_what_is_appended_to_partitions_that_come_later_is_seen(bootstrap: str, unique: Make) -> None:
    name = unique("log")
    ensure_topics(client(bootstrap), spec(name), timeout_s=20)
    seen: list[LogRecord] = []
    soon = {**client(bootstrap), "topic.metadata.refresh.interval.ms": "100"}
    async with TopicLog(name, soon, seen.extend, start_timeout_s=30, append_timeout_s=20) as log, asyncio.timeout(20):
        await log.append([(b"k", b"v")])
        make_three_of_it(bootstrap, name)
        written = 1
        while len(await log.append([(b"%d" % number, b"v") for number in range(20)])) < 3:
            written += 20
        assert len(seen) == written + 20


async def test_what_cannot_be_read_to_its_end_is_told(tmp_path: Path) -> None:
    broker = services.broker("b", tmp_path / "data", log=tmp_path / "broker.log").start()
    try:
        address = broker.facts["address"]
        ensure_topics(client(address), spec("t"), timeout_s=20)
        async with follow(address, "t", lambda records: None) as log:
            await log.catch_up(20)
            broker.kill()
            with pytest.raises(TopicLogError, match=r"read to its end within 4 s: (Failed to get metadata|no answer)"):
                await log.catch_up(4)
    finally:
        broker.stop()


async def test_a_topic_that_is_gone_is_not_made_by_asking_for_its_end(bootstrap: str, topic: str) -> None:
    admin = AdminClient(client(bootstrap))
    async with follow(bootstrap, topic, lambda records: None) as log:
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result, 20)
        with pytest.raises(TopicLogError, match="no such topic"):
            await log.catch_up(4)
        assert topic not in (await asyncio.to_thread(admin.list_topics, timeout=20)).topics


async def test_what_stands_in_a_topic_that_was_made_anew_is_waited_for(bootstrap: str, topic: str) -> None:
    told: list[LogRecord] = []
    log = TopicLog(topic, client(bootstrap), told.extend, start_timeout_s=30, append_timeout_s=30, may_begin_anew=True)
    async with log:
        for number in range(10):
            await log.append([(b"%d" % number, b"old")])
        await made_anew(bootstrap, topic)
        other = Producer(client(bootstrap) | {"partitioner": "murmur2_random"})
        other.produce(topic, b"new", b"1")
        other.flush()
        await log.catch_up(20)
        assert told[-1].value == b"new"


class Client:
    """Tells of the thread that it goes in."""

    def __init__(self, goes: list[str], gone: threading.Event) -> None:
        self._goes, self._gone = goes, gone

    def __del__(self) -> None:
        self._goes.append(threading.current_thread().name)
        self._gone.set()


@pytest.mark.parametrize("failure", [None, KafkaException("an answer"), ValueError("an answer")])
def test_a_client_goes_in_a_thread_of_its_own(failure: Exception | None) -> None:
    """Also while the error is there that its question was answered with."""
    goes: list[str] = []
    gone = threading.Event()

    def question(client: Client) -> str:
        if failure is not None:
            raise failure
        return f"an answer of {client}"

    told: object
    try:
        told = ask(lambda: Client(goes, gone), question)
    except Exception as error:
        told = error
    assert gone.wait(20)
    assert goes == [LETTING_GO]
    assert "an answer" in str(told)


class Offsets(dict[int, int]):
    """Offsets by partition that tell, by a weak reference, whether anybody still holds them."""


@pytest.mark.parametrize("gives_up", ["timed out", "cancelled"])
async def test_whoever_gives_up_waiting_is_not_kept(bootstrap: str, topic: str, gives_up: str) -> None:
    kept: list[weakref.ref[Offsets]] = []

    async def wait(log: TopicLog) -> None:
        offsets = Offsets({0: 1_000_000})  # nobody writes that far
        kept.append(weakref.ref(offsets))
        limit_s = 0.01 if gives_up == "timed out" else None
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(limit_s):
                await log.reached(offsets)

    async with follow(bootstrap, topic, print) as log:
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(wait(log)) for _ in range(10)]
            await asyncio.sleep(0.05)
            for each in waiting:
                each.cancel()
        gc.collect()
        assert len(kept) == 10 and [each() for each in kept] == [None] * 10
