"""The controller: order, answers, listeners, what a failing disk means."""

import asyncio
import errno
import itertools
import random
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.sim.disk import SimulatedDisk, SimulatedFile
from tidemill.broker.quorum.controller import PENDING_REQUESTS_MAX, Controller, SnapshotRules
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, Draft
from tidemill.broker.quorum.member import QuorumState
from tidemill.broker.quorum.metadata import (
    ConfigChange,
    NewTopic,
    PartitionIncrease,
    ResourceChange,
    Rules,
    TopicRef,
)
from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    MetadataRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, check, decode
from tidemill.broker.quorum.store import FILE, FOLDER, MetadataStore
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    NotController,
    UnknownTopicOrPartition,
)
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


def is_whole(snapshot: bytes) -> bool:
    try:
        check(snapshot)
    except SnapshotDamaged:
        return False
    return True


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

    async def listener(delta: ImageDelta) -> None:
        await asyncio.sleep(0)
        seen.append((sorted(delta.before.topics), sorted(delta.after.topics)))

    async with running(SimulatedDisk()) as controller:
        controller.subscribe(listener)
        await controller.create_topics([NewTopic(name="a")])
        assert seen == [([], ["a"])]
        await controller.create_topics([NewTopic(name="a")])
        await controller.create_topics([NewTopic(name="b")], validate_only=True)
        assert len(seen) == 1, "nothing was committed"


# --- decisions on their way


class HeldDisk(ThreadPoolExecutor):
    """A thread that waits for the disk, and for the test."""

    def __init__(self) -> None:
        super().__init__(1)
        self.free = threading.Event()
        self.free.set()
        self.works = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> "Future[Any]":
        self.works += 1

        def held() -> Any:
            self.free.wait(20)
            return call(*args, **more)

        return super().submit(held)


async def created(controller: Controller, *names: str) -> "list[asyncio.Future[Any]]":
    """One request for each, all decided."""
    asked = [asyncio.ensure_future(controller.create_topics([NewTopic(name=name)])) for name in names]
    await asyncio.sleep(0.01)
    return asked


async def test_what_is_decided_while_the_disk_is_busy_shares_one_fsync_and_one_batch() -> None:
    disk, threads = SimulatedDisk(), HeldDisk()
    async with running(disk, executor=threads) as controller:
        threads.free.clear()
        before, image = threads.works, controller.image
        asked = await created(controller, "a")
        asked += await created(controller, "b", "c", "b")
        assert controller.image is image, "nothing of it is durable"
        assert not any(each.done() for each in asked), "not even what is refused because of it"
        assert controller.log_end_offset > image.offset
        threads.free.set()
        results = [result for (result,) in await asyncio.gather(*asked)]
        assert [result.error.code if result.error else 0 for result in results] == [0, 0, 0, 36]
        assert threads.works - before == 2, "the first, and all that came meanwhile"
        raw = disk.root.subdirectory(FOLDER).read(FILE)
        assert [view.record_count for view in iter_batches(raw)] == [1, 2, 4]
        image = controller.image
    assert make(disk).image == image


async def test_a_failed_sync_refuses_what_was_decided_on_it_too() -> None:
    disk, threads = SimulatedDisk(), HeldDisk()
    async with running(disk, executor=threads) as controller:
        before = controller.image
        threads.free.clear()
        asked = await created(controller, "a", "b", "a")
        disk.fail_sync = OSError(errno.EIO, "Input/output error")
        threads.free.set()
        for each in asked:
            with pytest.raises(KafkaStorageError):
                await each
        assert controller.image is before
        disk.fail_sync = None
    disk.kill()
    assert make(disk).image == before


async def test_what_does_not_fit_together_is_tried_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFile, "set_aside", lambda *_: False)
    disk, threads = SimulatedDisk(), HeldDisk()
    async with running(disk, executor=threads) as controller:
        await controller.create_topics([NewTopic(name="old")])
        threads.free.clear()
        asked = await created(controller, "first")
        more = asyncio.ensure_future(controller.create_topics([NewTopic(name="large", partitions=1000)]))
        again = asyncio.ensure_future(controller.create_topics([NewTopic(name="large", partitions=1)]))
        less = asyncio.ensure_future(controller.delete_topics([TopicRef(name="old")]))
        await asyncio.sleep(0.01)
        disk.capacity_bytes = disk.used_bytes() + 400
        threads.free.set()
        ((first,),) = await asyncio.gather(*asked)
        assert first.error is None
        with pytest.raises(KafkaStorageError, match="No space left"):
            await more
        assert [result.error for result in (*await again, *await less)] == [None, None]
        assert sorted(controller.image.topics) == ["first", "large"]
        assert len(controller.image.topics["large"].partitions) == 1, "the one that was refused left nothing behind"
        image = controller.image
    assert make(disk).image == image


async def test_many_who_ask_wait_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, threads = SimulatedDisk(), HeldDisk()
    async with running(disk, executor=threads) as controller:
        threads.free.clear()
        asked = await created(controller, *(f"t{number}" for number in range(PENDING_REQUESTS_MAX + 50)))
        threads.free.set()
        results = await asyncio.gather(*asked)
        assert all(result.error is None for (result,) in results)
        assert threads.works <= 5


async def test_a_slow_listener_holds_up_answers_and_no_decisions() -> None:
    heard: list[tuple[str, ...]] = []
    go_on = asyncio.Event()

    async def listener(delta: ImageDelta) -> None:
        heard.append(delta.topics)
        await go_on.wait()

    async with running(SimulatedDisk()) as controller:
        controller.subscribe(listener)
        asked = await created(controller, "a")
        await until(lambda: "a" in controller.image.topics)
        asked += await created(controller, "b")
        await until(lambda: "b" in controller.image.topics)
        asked += await created(controller, "c")
        await until(lambda: "c" in controller.image.topics)
        assert not any(each.done() for each in asked)
        go_on.set()
        await asyncio.gather(*asked)
        assert heard == [("a",), ("b", "c")], "one delta covers what was committed meanwhile"


async def test_watchers_hear_of_a_commit_before_anybody_can_see_it() -> None:
    heard: list[tuple[tuple[str, ...], bool]] = []
    async with running(SimulatedDisk()) as controller:
        controller.watch(lambda delta: heard.append((delta.topics, delta.after is controller.image)))
        await controller.create_topics([NewTopic(name="a")])
        await controller.allocate_producer_ids()
        assert heard == [(("a",), True), ((), True)]


async def test_whoever_fails_to_hear_of_a_change_is_told_of_the_next() -> None:
    heard: list[tuple[str, ...]] = []

    async def listener(delta: ImageDelta) -> None:
        heard.append(delta.topics)
        if len(heard) == 1:
            raise ZeroDivisionError

    def watcher(_delta: ImageDelta) -> None:
        raise ZeroDivisionError

    async with running(SimulatedDisk()) as controller:
        controller.watch(watcher)
        controller.subscribe(listener)
        (first,) = await controller.create_topics([NewTopic(name="a")])
        (result,) = await controller.create_topics([NewTopic(name="b")])
        assert (first.error, result.error) == (None, None), "what is committed is answered as what it is"
        assert heard == [("a",), ("b",)]


async def test_what_cannot_be_written_down_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwritable(record: MetadataRecord) -> bytes:
        if getattr(record, "name", None) == "b":
            raise ZeroDivisionError("a bug")
        return encode_record(record)

    monkeypatch.setattr("tidemill.broker.quorum.store.encode_record", unwritable)
    heard: list[tuple[str, ...]] = []

    async def listener(delta: ImageDelta) -> None:
        heard.append(delta.topics)

    disk, threads = SimulatedDisk(), HeldDisk()
    async with running(disk, executor=threads) as controller:
        controller.subscribe(listener)
        threads.free.clear()
        asked = await created(controller, "a")
        asked += await created(controller, "b", "b", "c")
        threads.free.set()
        first, *refused, last = await asyncio.gather(*asked, return_exceptions=True)
        for error in refused:
            assert isinstance(error, KafkaError)
            assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR, "it is not the disk"
        assert [result.error for (result,) in (first, last)] == [None, None]
        assert heard == [("a",), ("c",)], "nobody hears of what was refused"
        image = controller.image
        assert sorted(image.topics) == ["a", "c"]
    assert make(disk).image == image


async def test_a_topic_that_is_deleted_right_after_it_was_ensured_is_not_there() -> None:
    threads = HeldDisk()
    async with running(SimulatedDisk(), executor=threads) as controller:
        threads.free.clear()
        waiting = asyncio.ensure_future(controller.allocate_producer_ids())
        await asyncio.sleep(0.01)
        ensured = asyncio.ensure_future(controller.ensure_topic(NewTopic(name="a")))
        await asyncio.sleep(0.01)
        deleted = asyncio.ensure_future(controller.delete_topics([TopicRef(name="a")]))
        await asyncio.sleep(0.01)
        threads.free.set()
        with pytest.raises(UnknownTopicOrPartition):
            await ensured
        await asyncio.gather(waiting, deleted)


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


async def test_a_snapshot_holds_what_it_says_though_another_node_decides_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, roll = SimulatedDisk(), MetadataStore.roll
    rolling, go_on = threading.Event(), threading.Event()

    def slow(store: MetadataStore, end: int) -> SnapshotId:
        rolling.set()
        go_on.wait(20)
        return roll(store, end)

    monkeypatch.setattr(MetadataStore, "roll", slow)
    async with running(disk, snapshots=SnapshotRules(max_bytes=1)) as controller:
        await until(rolling.is_set)
        before = controller.image
        controller.follow([(TopicRecord(name="a", topic_id=uuid.UUID(int=7)),)], before.offset + 1)
        go_on.set()
        await until(lambda: snapshots(disk))
        (name,) = snapshots(disk)
        draft = Draft(ClusterImage())
        for records in decode(disk.root.subdirectory(FOLDER).read(name)):
            draft.apply_all(records)
        assert SnapshotId.parse(name) == SnapshotId(before.offset, 1)
        assert draft.freeze(before.offset) == before


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
        await until(lambda: is_whole(folder.read(snapshots(disk)[-1])))
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


async def test_what_cannot_be_applied_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    disk = SimulatedDisk()
    async with running(disk) as controller:
        before = controller.log_end_offset
        with monkeypatch.context() as patched:
            patched.setattr("tidemill.broker.quorum.controller.Draft", broken)
            with pytest.raises(ZeroDivisionError):
                await controller.create_topics([NewTopic(name="a")])
        assert controller.log_end_offset == before
        (result,) = await controller.create_topics([NewTopic(name="a")])
        assert result.error is None
        image = controller.image
    assert make(disk).image == image


def test_topic_ids_never_look_like_an_option() -> None:
    dashed = uuid.UUID(bytes=b"\xf8" + bytes(15))  # base64 text "-AAAA…"
    plain = uuid.UUID(int=1)
    ids = iter([dashed, plain])
    controller = make(SimulatedDisk(), lambda: next(ids))
    assert controller._new_topic_id() == plain


class Several:
    """A quorum in which this node leads when it is told to; what it is given is committed when the test says so."""

    def __init__(self) -> None:
        self.leads = True
        self.leader_id = 1
        self.given: list[list[MetadataRecord]] = []
        self.outcome: asyncio.Future[None] | None = None

        self.end = 2
        self._turn = asyncio.Lock()

    async def commit(self, records: Sequence[MetadataRecord]) -> int:
        self.given.append(list(records))
        self.outcome = asyncio.get_running_loop().create_future()
        await self.outcome
        self.end += len(records)
        return self.end

    def still(self) -> asyncio.Lock:
        return self._turn

    def state(self) -> QuorumState:
        return QuorumState(leader_id=self.leader_id, leader_epoch=4, high_watermark=0, voters=())

    def resign(self) -> None:
        self.leads, self.leader_id = False, 2
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_exception(NotController("another leads"))


@asynccontextmanager
async def among_several(member: Several) -> AsyncIterator[Controller]:
    controller = make(SimulatedDisk(), uuid.uuid4, join=lambda _controller: member)
    register = RegisterBrokerRecord(
        broker_id=1, incarnation_id=uuid.UUID(int=1), broker_epoch=0, end_points=(ENDPOINT,)
    )  # fmt: skip
    controller.follow([[register]], 2)  # behind the record with which the leadership began
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(controller.run())
        yield controller
        work.cancel()


async def test_among_several_an_answer_waits_until_the_quorum_has_committed() -> None:
    member = Several()
    async with among_several(member) as controller:
        asked = asyncio.ensure_future(controller.create_topics([NewTopic(name="a")]))
        await until(lambda: member.given)
        assert "a" not in controller.image.topics
        assert member.outcome is not None
        member.outcome.set_result(None)
        (result,) = await asked
        assert result.error is None
        assert controller.image.topics["a"].topic_id == result.topic_id
        assert controller.image.offset == 2 + len(member.given[0])
        assert controller.quorum().leader_epoch == 4


async def test_who_loses_the_leadership_answers_nothing_as_if_it_had_decided() -> None:
    member = Several()
    async with among_several(member) as controller:
        first = asyncio.ensure_future(controller.create_topics([NewTopic(name="a")]))
        await until(lambda: member.given)
        second = asyncio.ensure_future(controller.create_topics([NewTopic(name="b")]))
        await asyncio.sleep(0)
        member.resign()
        for asked in (first, second):
            with pytest.raises(NotController):
                await asked
        with pytest.raises(NotController, match="node 2 is the active controller"):
            await controller.create_topics([NewTopic(name="c")])
        assert not controller.image.topics


async def test_what_another_decides_is_followed_and_told() -> None:
    """Also what this node decided itself, and lost its leadership over."""
    member = Several()
    told: list[ImageDelta] = []
    async with among_several(member) as controller:
        controller.watch(told.append)
        asked = asyncio.ensure_future(controller.create_topics([NewTopic(name="a")]))
        await until(lambda: member.given)
        member.resign()
        with pytest.raises(NotController):
            await asked
        end = 2 + len(member.given[0])
        controller.follow([member.given[0]], end + 1)
        assert [sorted(delta.topics) for delta in told] == [["a"]]
        assert (list(controller.image.topics), controller.image.offset) == (["a"], end + 1)
        member.leads, member.leader_id = True, 1
        (again,) = await controller.create_topics([NewTopic(name="a")])
        assert again.error is not None
        assert again.error.code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_what_the_quorum_writes_itself_has_a_turn_among_decisions_that_count_on_their_offsets() -> None:
    member = Several()
    async with among_several(member) as controller:

        async def commit_next() -> None:
            outcome = member.outcome
            assert outcome is not None
            outcome.set_result(None)
            await until(lambda: member.outcome is not outcome)

        async def write() -> int:
            member.given.append([])
            member.outcome = asyncio.get_running_loop().create_future()
            await member.outcome
            member.end += 2
            return member.end

        first = asyncio.ensure_future(controller.create_topics([NewTopic(name="a")]))
        await until(lambda: member.given)
        before = asyncio.ensure_future(controller.register_broker([ENDPOINT], None))
        await asyncio.sleep(0)
        interposed = asyncio.ensure_future(controller.interpose(2, write))
        await asyncio.sleep(0)
        behind = asyncio.ensure_future(controller.register_broker([ENDPOINT], None))
        await asyncio.sleep(0)
        start = 2 + len(member.given[0])
        await commit_next()
        await commit_next()
        assert await before == start
        await commit_next()
        await interposed
        assert controller.image.offset == start + 1 + 2
        assert member.outcome is not None
        member.outcome.set_result(None)
        assert await behind == start + 1 + 2, "where its registration is in the log"
        assert [len(each) for each in member.given[1:]] == [1, 0, 1]
        assert (await first)[0].error is None


async def test_what_was_decided_and_not_written_is_nothing_once_another_has_decided() -> None:
    member = Several()
    async with among_several(member) as controller:
        first = asyncio.ensure_future(controller.create_topics([NewTopic(name="a")]))
        await until(lambda: member.given)
        second = asyncio.ensure_future(controller.create_topics([NewTopic(name="b")]))
        turn = asyncio.ensure_future(controller.interpose(1, lambda: asyncio.sleep(0, 1)))
        await asyncio.sleep(0)
        controller.follow([], 9)
        for asked in (second, turn):
            with pytest.raises(NotController):
                await asked
        member.resign()
        with pytest.raises(NotController):
            await first
        with pytest.raises(NotController):
            await controller.interpose(1, lambda: asyncio.sleep(0, 1))
