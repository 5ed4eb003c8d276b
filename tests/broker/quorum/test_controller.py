"""The controller: order, answers, listeners, what a failing disk means."""

import asyncio
import errno
import itertools
import random
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.sim.disk import SimulatedDisk, SimulatedFile
from tidemill.broker.quorum.controller import Controller, SnapshotRules
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
from tidemill.broker.quorum.store import FILE, FOLDER, MetadataStore
from tidemill.core.errors import InvalidTopicException, KafkaStorageError
from tidemill.core.records.batch import iter_batches
from tidemill.core.runtime.clock import ManualClock

ENDPOINT = BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)


def numbered() -> Callable[[], uuid.UUID]:
    numbers = itertools.count(1)
    return lambda: uuid.UUID(int=next(numbers))


def make(disk: SimulatedDisk, new_uuid: Callable[[], uuid.UUID] | None = None, **more: Any) -> Controller:
    controller = Controller(
        MetadataStore(disk.root),
        rules=Rules(),
        node_id=1,
        new_uuid=new_uuid or numbered(),
        **{"clock": ManualClock(), **more},
    )
    controller.load()
    return controller


@asynccontextmanager
async def running(disk: SimulatedDisk, **more: Any) -> AsyncIterator[Controller]:
    controller = make(disk, uuid.uuid4, **more)
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(controller.run()), tasks.create_task(controller.keep_snapshots())]
        await controller.register_broker([ENDPOINT], None)
        yield controller
        for task in work:
            task.cancel()


def names(disk: SimulatedDisk) -> list[str]:
    return disk.root.subdirectory(FOLDER).list()


def snapshots(disk: SimulatedDisk) -> list[str]:
    return [name for name in names(disk) if name.endswith(".checkpoint")]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


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
    assert set(again.removed_topic_ids) == {deleted.topic_id}


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


async def test_a_failed_sync_is_reported_and_nothing_of_it_is_there_afterwards() -> None:
    disk = SimulatedDisk()
    failures: list[OSError] = []
    async with running(disk, on_failure=failures.append) as controller:
        await controller.create_topics([NewTopic(name="a")])
        before = controller.image
        disk.fail_sync = OSError(errno.EIO, "Input/output error")
        with pytest.raises(KafkaStorageError):
            await controller.create_topics([NewTopic(name="b")])
        assert [error.errno for error in failures] == [errno.EIO]
        assert controller.image is before
        disk.fail_sync = None
    disk.kill()
    assert make(disk).image == before


async def test_a_full_disk_is_not_reported_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFile, "set_aside", lambda *_: False)
    disk = SimulatedDisk()
    failures: list[OSError] = []
    async with running(disk, on_failure=failures.append) as controller:
        disk.capacity_bytes = disk.used_bytes()
        with pytest.raises(KafkaStorageError, match="No space left"):
            await controller.create_topics([NewTopic(name="a")])
        assert failures == []


# --- new leaderships


async def test_new_leaderships_raise_every_epoch_and_are_there_after_a_restart() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        await controller.create_topics([NewTopic(name="a", partitions=3), NewTopic(name="b")])
    controller = make(disk)
    assert controller.begin_leaderships() == 4
    image = controller.image
    epochs = [each.leader_epoch for topic in image.topics.values() for each in topic.partitions]
    assert epochs == [1, 1, 1, 1]
    again = make(disk)
    assert again.image == image
    assert again.begin_leaderships() == 4
    assert again.image.topics["a"].partitions[2].leader_epoch == 2


async def test_partitions_that_others_lead_keep_their_epochs() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        await controller.create_topics([NewTopic(name="a", partitions=3)])
    store = MetadataStore(disk.root)
    other = Controller(store, clock=ManualClock(), rules=Rules(), node_id=2, new_uuid=numbered())
    other.load()
    before = store.offset_end
    assert other.begin_leaderships() == 0
    assert store.offset_end == before


async def test_many_new_leaderships_are_written_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.broker.quorum.controller.LEADERSHIPS_PER_BATCH", 7)
    disk = SimulatedDisk()
    async with running(disk) as controller:
        await controller.create_topics([NewTopic(name="a", partitions=20)])
    assert make(disk).begin_leaderships() == 20
    raw = disk.root.subdirectory(FOLDER).read(FILE)
    assert [view.record_count for view in iter_batches(raw)][-3:] == [7, 7, 6]


async def test_a_full_disk_has_room_for_new_leaderships_of_every_partition() -> None:
    disk = SimulatedDisk()
    async with running(disk) as controller:
        for number in range(20):
            await controller.create_topics([NewTopic(name=f"t{number}", partitions=1000)])
    disk.capacity_bytes = disk.used_bytes()
    disk.crash(random.Random(1))
    controller = make(disk)
    assert controller.begin_leaderships() == 20_000
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(controller.run())
        (deleted,) = await controller.delete_topics([TopicRef(name="t3")])
        task.cancel()
    assert deleted.error is None


# --- snapshots


async def test_a_snapshot_is_written_when_the_log_has_grown_by_so_much() -> None:
    disk = SimulatedDisk()
    async with running(disk, snapshots=SnapshotRules(max_bytes=2000)) as controller:
        for number in range(5):
            await controller.create_topics([NewTopic(name=f"t{number}")])
        assert snapshots(disk) == []
        for number in range(5, 60):
            await controller.create_topics([NewTopic(name=f"t{number}")])
            if number >= 20:
                await until(lambda: snapshots(disk))
        await until(lambda: len(snapshots(disk)) == 2 and FILE not in names(disk))
        image = controller.image
    assert make(disk).image == image


async def test_a_snapshot_is_written_after_so_long_if_anything_has_changed() -> None:
    disk = SimulatedDisk()
    clock = ManualClock()
    async with running(disk, clock=clock, snapshots=SnapshotRules(max_interval_ms=60_000)) as controller:
        controller.want_snapshot_when_due()
        clock.advance(59_000)
        await controller.create_topics([NewTopic(name="a")])
        assert snapshots(disk) == []
        clock.advance(1000)
        controller.want_snapshot_when_due()
        await until(lambda: len(snapshots(disk)) == 1)
        await until(lambda: controller.image.offset)
        clock.advance(600_000)
        controller.want_snapshot_when_due()
        await asyncio.sleep(0.02)
        assert len(snapshots(disk)) == 1, "nothing has changed"
        image = controller.image
    assert make(disk).image == image


async def test_decisions_go_on_while_a_snapshot_is_written() -> None:
    disk = SimulatedDisk()
    writing, go_on = threading.Event(), threading.Event()

    def still_there(removed: Mapping[uuid.UUID, str]) -> Collection[uuid.UUID]:
        writing.set()
        go_on.wait(20)
        return removed

    async with running(disk, snapshots=SnapshotRules(max_bytes=1), still_there=still_there) as controller:
        await until(writing.is_set)
        for number in range(5):
            await controller.create_topics([NewTopic(name=f"t{number}")])
        assert snapshots(disk) == []
        go_on.set()
        await until(lambda: snapshots(disk))
        image = controller.image
    assert make(disk).image == image


async def test_a_snapshot_that_is_wanted_twice_is_written_once() -> None:
    disk = SimulatedDisk()
    calls = 0
    writing, go_on = threading.Event(), threading.Event()

    def still_there(removed: Mapping[uuid.UUID, str]) -> Collection[uuid.UUID]:
        nonlocal calls
        calls += 1
        writing.set()
        go_on.wait(20)
        return removed

    async with running(disk, snapshots=SnapshotRules(max_bytes=1), still_there=still_there) as controller:
        await until(writing.is_set)
        controller.want_snapshot_when_due()
        go_on.set()
        await until(lambda: snapshots(disk))
        await asyncio.sleep(0.05)
        assert calls == 1
        await controller.create_topics([NewTopic(name="a")])
        await until(lambda: len(snapshots(disk)) == 2)


async def test_topics_that_are_gone_are_known_for_as_long_as_they_have_files() -> None:
    disk = SimulatedDisk()
    with_files: set[uuid.UUID] = set()
    rules = SnapshotRules(max_bytes=3000)
    async with running(disk, snapshots=rules, still_there=lambda removed: with_files & removed.keys()) as controller:
        gone = []
        for _ in range(3):
            (result,) = await controller.create_topics([NewTopic(name="t")])
            await controller.delete_topics([TopicRef(name="t")])
            gone.append(result.topic_id)
        with_files.add(gone[1])
        assert set(make(disk).removed_topic_ids) == set(gone)
        while not snapshots(disk):
            await controller.allocate_producer_ids()
            await asyncio.sleep(0.001)
        await until(lambda: set(controller.removed_topic_ids) == {gone[1]})
        assert set(make(disk).removed_topic_ids) == {gone[1]}
        before = snapshots(disk)
        with_files.clear()
        while snapshots(disk)[-1] == before[-1]:
            await controller.allocate_producer_ids()
            await asyncio.sleep(0.001)
        await until(lambda: not controller.removed_topic_ids)
    assert set(make(disk).removed_topic_ids) == set()


async def test_a_snapshot_for_which_there_is_no_room_is_tried_again_later() -> None:
    disk = SimulatedDisk()
    clock = ManualClock()
    async with running(disk, clock=clock, snapshots=SnapshotRules(max_bytes=1000)) as controller:
        disk.capacity_bytes = disk.used_bytes()
        for _ in range(30):
            await controller.allocate_producer_ids()
            await asyncio.sleep(0.001)
        assert snapshots(disk) == []
        disk.capacity_bytes = None
        controller.want_snapshot_when_due()
        await asyncio.sleep(0.02)
        assert snapshots(disk) == [], "not at every decision"
        clock.advance(61_000)
        controller.want_snapshot_when_due()
        await until(lambda: snapshots(disk))
        image = controller.image
    assert make(disk).image == image


async def test_a_stop_does_not_wait_for_a_snapshot_and_leaves_nothing_of_it() -> None:
    disk = SimulatedDisk()
    writing, go_on = threading.Event(), threading.Event()

    def still_there(removed: Mapping[uuid.UUID, str]) -> Collection[uuid.UUID]:
        writing.set()
        go_on.wait(20)
        return removed

    async with running(disk, snapshots=SnapshotRules(max_bytes=1), still_there=still_there) as controller:
        await until(writing.is_set)
        image = controller.image
        asyncio.get_running_loop().call_later(0.02, go_on.set)
    assert [name for name in names(disk) if "checkpoint" in name] == []
    assert make(disk).image == image


async def test_a_damaged_snapshot_is_replaced_soon_after_the_start() -> None:
    disk = SimulatedDisk()
    async with running(disk, snapshots=SnapshotRules(max_bytes=1)) as controller:
        await until(lambda: snapshots(disk))
        await controller.create_topics([NewTopic(name="a")])
        await until(lambda: len(snapshots(disk)) == 2)
    folder = disk.root.subdirectory(FOLDER)
    damaged = snapshots(disk)[-1]
    folder.replace(damaged, folder.read(damaged)[:-1])
    async with running(disk) as controller:
        assert "a" in controller.image.topics
        await until(lambda: damaged not in names(disk))
        image = controller.image
    assert make(disk).image == image


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
            monkeypatch.setattr("tidemill.broker.quorum.controller.Draft", broken)
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
