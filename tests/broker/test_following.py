"""A node follows the image: logs come, go and obey as it says, whatever goes wrong about one topic"""

import asyncio
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.broker.broker_world import running_broker
from tidemill.broker.log import turns
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.new_logs import NewLogs
from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.quorum.metadata import ConfigChange, NewTopic, ResourceChange, TopicRef, apply_batch
from tidemill.broker.quorum.records import PartitionRecord, TopicRecord
from tidemill.core.errors import KafkaStorageError


async def test_a_log_that_cannot_be_made_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker:

        async def full(*_: object) -> None:
            raise KafkaStorageError("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(broker.logs, "create_many", full)
            await broker.controller.create_topics([NewTopic(name="t")])
        assert broker.logs.get("t", 0) is None
        await broker.following.make_missing_logs()
        assert broker.logs.get("t", 0) is not None


async def test_topics_that_come_together_share_the_syncs_of_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, rounds = LogStore.create_many, list[int]()

    async def counted(store: LogStore, wanted: Sequence[NewLogs]) -> None:
        rounds.append(sum(len(each.partitions) for each in wanted))
        await real(store, wanted)

    def full(_store: LogStore, wanted: Sequence[NewLogs]) -> Awaitable[None]:
        if len(wanted) > 1:
            raise KafkaStorageError("no space left")
        return real(_store, wanted)

    async with running_broker(tmp_path) as broker:
        with monkeypatch.context() as patched:
            patched.setattr(LogStore, "create_many", counted)
            await broker.controller.create_topics([NewTopic(name=f"a{number}", partitions=3) for number in range(100)])
        assert rounds == [201, 99]  # rounds end with a topic
        assert len(broker.logs.partitions()) == 300
        assert broker.replicas.get("a99", 2) is not None
        with monkeypatch.context() as patched:
            patched.setattr(LogStore, "create_many", full)
            await broker.controller.create_topics([NewTopic(name=f"b{number}") for number in range(10)])
        assert len(broker.logs.partitions()) == 310


async def test_a_topic_that_cannot_be_followed_keeps_no_other_from_it_and_is_followed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(topic: TopicImage) -> LogConfig:
        if topic.name == "b":
            raise LookupError("a bug")
        return broker.log_config(topic)

    def segment_bytes(value: str) -> list[ResourceChange]:
        change = ConfigChange(name="segment.bytes", op=0, value=value)
        return [ResourceChange(resource_type=2, resource_name=name, changes=(change,)) for name in ("a", "b", "c")]

    async with running_broker(tmp_path) as broker:
        with monkeypatch.context() as patched:
            patched.setattr(broker.following, "settings", broken)
            results = await broker.controller.create_topics([NewTopic(name=name) for name in "abc"])
            assert [each.error for each in results] == [None] * 3
            assert [log is not None for log in (broker.logs.get(name, 0) for name in "abc")] == [True, False, True]
        await broker.following.make_missing_logs()
        assert broker.logs.get("b", 0) is not None
        with monkeypatch.context() as patched:
            patched.setattr(broker.following, "settings", broken)
            altered = await broker.controller.alter_configs(segment_bytes("50000"))
            assert [each.error for each in altered] == [None] * 3
            sizes = {log.topic_partition.topic: log.config.segment_bytes for log in broker.logs}
            assert (sizes["a"], sizes["c"]) == (50_000, 50_000)
            assert sizes["b"] != 50_000
            await broker.following.make_missing_logs()
        await broker.following.make_missing_logs()
        assert {log.config.segment_bytes for log in broker.logs} == {50_000}


async def test_a_topic_that_is_made_anew_while_the_old_one_is_removed_begins_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on = asyncio.Event(), asyncio.Event()
    real = LogStore.delete

    async def slowly(store: LogStore, topic: str) -> None:
        removing.set()
        await go_on.wait()
        await real(store, topic)

    async with running_broker(tmp_path) as broker:
        await broker.controller.create_topics([NewTopic(name="t", partitions=1)])
        old = next(iter(broker.logs))
        monkeypatch.setattr(LogStore, "delete", slowly)
        deleted = asyncio.ensure_future(broker.controller.delete_topics([TopicRef(name="t")]))
        await removing.wait()
        created = asyncio.ensure_future(broker.controller.create_topics([NewTopic(name="t", partitions=2)]))
        while "t" not in broker.controller.image.topics:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await broker.following.make_missing_logs()
        assert list(broker.replicas) == [], "nothing is served out of what is about to go"
        assert [entry.topic_id for entry in broker.logs] == [old.topic_id]
        assert not deleted.done() and not created.done()
        go_on.set()
        await asyncio.gather(deleted, created)
        topic_id = broker.controller.image.topics["t"].topic_id
        assert [entry.topic_id for entry in broker.logs] == [topic_id] * 2 != [old.topic_id] * 2
        assert len(list(broker.replicas)) == 2


async def test_all_topics_are_followed_in_short_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker:
        nothing = before = broker.controller.image
        for number in range(50):
            topic_id = uuid.UUID(int=number)
            partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=(9,), isr=(9,), leader=9)
            before = apply_batch(before, (TopicRecord(name=f"t{number}", topic_id=topic_id), partition))
        after = replace(before, broker_configs=MappingProxyType({"": {"log.retention.ms": "77"}}))
        monkeypatch.setattr(turns, "TURN_S", 0)  # every step is too long

        async def turns_of_others(delta: ImageDelta) -> int:
            following = asyncio.ensure_future(broker.following.follow(delta))
            others = 0
            while not following.done():
                others += 1
                await asyncio.sleep(0)
            await following
            return others

        assert await turns_of_others(ImageDelta.between(before, after)) > 50  # a setting that is about all of them
        assert await turns_of_others(ImageDelta.between(nothing, before)) > 100  # looked at for logs, then followed
