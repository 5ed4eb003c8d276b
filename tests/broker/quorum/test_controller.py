"""The controller: order, answers, listeners, what a failing disk means."""

import asyncio
import errno
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.sim.disk import SimulatedDisk, SimulatedFile
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quorum.metadata import (
    ClusterImage,
    ConfigChange,
    NewTopic,
    PartitionIncrease,
    ResourceChange,
    Rules,
    TopicRef,
)
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.store import MetadataStore
from tidemill.core.errors import InvalidTopicException, KafkaStorageError
from tidemill.core.runtime.clock import ManualClock

ENDPOINT = BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)


def numbered() -> Callable[[], uuid.UUID]:
    numbers = itertools.count(1)
    return lambda: uuid.UUID(int=next(numbers))


def make(disk: SimulatedDisk, new_uuid: Callable[[], uuid.UUID] | None = None) -> Controller:
    controller = Controller(
        MetadataStore(disk.root), clock=ManualClock(), rules=Rules(), node_id=1, new_uuid=new_uuid or numbered()
    )
    controller.load()
    return controller


@asynccontextmanager
async def running(disk: SimulatedDisk) -> AsyncIterator[Controller]:
    controller = make(disk)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(controller.run())
        await controller.register_broker([ENDPOINT], None)
        yield controller
        task.cancel()


async def test_what_was_answered_is_there_after_a_restart() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        (created,) = await controller.create_topics([NewTopic(name="a", partitions=2)])
        await controller.create_topics([NewTopic(name="b")])
        await controller.create_partitions([PartitionIncrease(name="a", count=3)])
        change = ConfigChange(name="retention.ms", op=0, value="7")
        await controller.alter_configs([ResourceChange(resource_type=2, resource_name="a", changes=(change,))])
        (deleted,) = await controller.delete_topics([TopicRef(name="b")])
        assert await controller.allocate_producer_ids() == range(1000)
        before = controller.image
    again = make(disk)
    assert again.image == before
    assert again.image.topics["a"].topic_id == created.topic_id
    assert dict(again.image.topics["a"].configs) == {"retention.ms": "7"}
    assert again.removed_topic_ids == {deleted.topic_id}


async def test_an_answer_means_the_disk_has_it() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        before = disk.syncs
        await controller.create_topics([NewTopic(name="a")])
        assert disk.syncs > before


async def test_listeners_have_seen_the_new_image_when_the_answer_comes() -> None:
    seen: list[tuple[list[str], list[str]]] = []

    async def listener(before: ClusterImage, after: ClusterImage) -> None:
        await asyncio.sleep(0)
        seen.append((sorted(before.topics), sorted(after.topics)))

    async with running(SimulatedDisk()) as controller:
        controller.subscribe(listener)
        await controller.create_topics([NewTopic(name="a")])
        assert seen == [([], ["a"])]
        await controller.create_topics([NewTopic(name="a")])
        await controller.create_topics([NewTopic(name="b")], validate_only=True)
        assert len(seen) == 1, "nothing was committed"


async def test_requests_made_together_see_one_another() -> None:
    async with running(SimulatedDisk()) as controller:
        results = await asyncio.gather(*(controller.create_topics([NewTopic(name="same")]) for _ in range(5)))
        assert sum(result.error is None for (result,) in results) == 1
        blocks = await asyncio.gather(*(controller.allocate_producer_ids() for _ in range(3)))
        assert len({number for block in blocks for number in block}) == 3000


async def test_ensuring_a_topic_makes_it_once() -> None:
    async with running(SimulatedDisk()) as controller:
        topics = await asyncio.gather(*(controller.ensure_topic(NewTopic(name="a")) for _ in range(3)))
        assert len({topic.topic_id for topic in topics}) == 1
        with pytest.raises(InvalidTopicException):
            await controller.ensure_topic(NewTopic(name="a/b"))


async def test_a_client_that_goes_away_does_not_undo_its_request() -> None:
    async with running(SimulatedDisk()) as controller:
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(controller.create_topics([NewTopic(name="a")]))
            await asyncio.sleep(0)
            request.cancel()
        await controller.create_topics([NewTopic(name="b")])
        assert sorted(controller.image.topics) == ["a", "b"]


async def test_a_topic_is_deleted_on_a_full_disk() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        await controller.create_topics([NewTopic(name="a")])
        disk.capacity_bytes = disk.used_bytes()
        (deleted,) = await controller.delete_topics([TopicRef(name="a")])
        assert deleted.error is None
        assert dict(controller.image.topics) == {}


async def test_a_full_disk_refuses_and_the_image_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFile, "set_aside", lambda *_: False)
    disk = SimulatedDisk()
    async with running(disk) as controller:
        before = controller.image
        disk.capacity_bytes = disk.used_bytes()
        with pytest.raises(KafkaStorageError, match="No space left"):
            await controller.create_topics([NewTopic(name="a")])
        assert controller.image is before
        disk.capacity_bytes = None
        (result,) = await controller.create_topics([NewTopic(name="a")])
        assert result.error is None


async def test_a_failed_sync_is_final() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        disk.fail_sync = OSError(errno.EIO, "Input/output error")
        with pytest.raises(KafkaStorageError):
            await controller.create_topics([NewTopic(name="a")])
        disk.fail_sync = None
        with pytest.raises(KafkaStorageError, match="start again"):
            await controller.create_topics([NewTopic(name="b")])
        assert dict(controller.image.topics) == {}


async def test_a_bug_in_one_request_is_that_requests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with running(SimulatedDisk()) as controller:
        with monkeypatch.context() as patched:
            patched.setattr("tidemill.broker.quorum.controller.decide", broken)
            with pytest.raises(ZeroDivisionError):
                await controller.create_topics([NewTopic(name="a")])
        (result,) = await controller.create_topics([NewTopic(name="a")])
        assert result.error is None


async def test_a_log_ahead_of_the_image_ends_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def serve(controller: Controller) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            await controller.register_broker([ENDPOINT], None)
            monkeypatch.setattr("tidemill.broker.quorum.controller.apply_batch", broken)
            await controller.create_topics([NewTopic(name="a")])

    disk = SimulatedDisk()
    with pytest.raises(ExceptionGroup) as failures:
        await serve(make(disk))
    assert failures.group_contains(ZeroDivisionError)
    monkeypatch.undo()
    assert "a" in make(disk).image.topics, "the next start replays it"


def test_topic_ids_never_look_like_an_option() -> None:
    dashed = uuid.UUID(bytes=b"\xf8" + bytes(15))  # base64 text "-AAAA…"
    plain = uuid.UUID(int=1)
    ids = iter([dashed, plain])
    controller = make(SimulatedDisk(), lambda: next(ids))
    assert controller._new_topic_id() == plain
