"""The coordinator shell on real partition logs: answers wait for the disk, a restart finds everything."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.groups.group_world import image_of
from tests.broker.handlers.data_path import instead_of_a_sync
from tidemill.broker.coordination.runtime import partition_of
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC, REFUSED_PAUSE_MS, GroupCoordinator
from tidemill.broker.groups.events import (
    CommitOffsets,
    DeleteGroup,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    OffsetToCommit,
    Protocol,
    SyncGroup,
)
from tidemill.broker.groups.machine import GroupMachine
from tidemill.broker.groups.records import OffsetRecord, decode_record
from tidemill.broker.groups.rounds import Rounds
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.log import turns
from tidemill.broker.log.cleaner import CleanerSettings, LogCleaner
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.broker.replication.replicas import Replicas
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorNotAvailable, NotCoordinator
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.clock import Clock, ManualClock, SystemClock

PARTITIONS = 3
LIMITS = GroupLimits(initial_rebalance_delay_ms=0)
IMPATIENT = GroupLimits(initial_rebalance_delay_ms=0, min_session_timeout_ms=1)


def cluster(topics: dict[str, uuid.UUID], partitions: int = PARTITIONS) -> ClusterImage:
    """A cluster with `topics`, and with the offsets topic if it has partitions."""
    image = image_of(topics)
    offsets = image_of({OFFSETS_TOPIC: uuid.UUID(int=5)}, partitions).topics if partitions else {}
    return replace(image, topics=SharedMap({**image.topics, **offsets}))


@asynccontextmanager
async def opened(
    folder: Path,
    clock: Clock | None = None,
    partitions: int = PARTITIONS,
    limits: GroupLimits = LIMITS,
) -> AsyncIterator[tuple[GroupCoordinator, LogStore]]:
    clock = clock or SystemClock()
    image = cluster({"t": uuid.UUID(int=1)}, partitions)
    logs = LogStore.at(str(folder), clock=clock, node_id=1)
    logs.open_all()
    for partition in range(partitions):
        if logs.get(OFFSETS_TOPIC, partition) is None:
            logs.create(OFFSETS_TOPIC, uuid.UUID(int=5), partition, LogConfig(cleanup_policy=("compact",)))
    replicas = Replicas(1, logs, clock.monotonic)
    for topic in image.topics.values():
        replicas.assign(topic, logs.high_watermarks)
    numbers = itertools.count()
    coordinator = GroupCoordinator(
        node_id=1,
        limits=limits,
        logs=replicas,
        clock=clock,
        new_id=lambda: str(next(numbers)),
    )
    coordinator.replay(image)
    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(coordinator.run())
        yield coordinator, logs
        ticking.cancel()
    await logs.close()


def join(coordinator: GroupCoordinator, member_id: str = "", **terms: Any) -> JoinGroup:
    given: dict[str, Any] = {
        "request_id": coordinator.request_id(),
        "group_id": "g",
        "member_id": member_id,
        "new_member_id": coordinator.new_member_id("m"),
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": (Protocol("range", b""),),
        "member_id_required": False,
        "skip_assignment": False,
    }
    return JoinGroup(**given | terms)


def commit(coordinator: GroupCoordinator, offset: int, group: str = "g", **terms: Any) -> CommitOffsets:
    given: dict[str, Any] = {
        "request_id": coordinator.request_id(),
        "group_id": group,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_ms": -1,
        "offsets": (OffsetToCommit("t", 0, offset, -1, ""),),
    }
    return CommitOffsets(**given | terms)


def sync(coordinator: GroupCoordinator, member_id: str, generation: int) -> SyncGroup:
    return SyncGroup(
        request_id=coordinator.request_id(),
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type=None,
        protocol_name=None,
        assignments=((member_id, b"mine"),),
    )


def heartbeat(coordinator: GroupCoordinator, member_id: str, generation: int) -> Heartbeat:
    return Heartbeat(
        request_id=coordinator.request_id(),
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
    )


async def test_groups_are_found_in_a_log_that_was_compacted_even_to_its_last_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, logs):
        for offset in range(30):
            await coordinator.commit(commit(coordinator, offset))
        partition_log = logs.get(OFFSETS_TOPIC, partition_of("g", PARTITIONS))
        assert partition_log is not None
        nobodys = build_batch([NewRecord(0, None, b"the cleaner drops records without a key")])
        partition_log.append_own(nobodys, now_ms=0)
        end = partition_log.log_end_offset
        partition_log.roll()
        await asyncio.shield(logs.flusher.next_round())
        await logs.checkpoint()
        cleaner = LogCleaner(logs, SystemClock(), CleanerSettings())
        assert await cleaner.clean_dirtiest()
        cleaner.close()
        assert [view.last_offset for view in iter_batches(partition_log.read(0, 10_000))] == [29]
        assert partition_log.read(30, 10_000) == b"", "nothing is left before the high watermark"
    async with opened(tmp_path) as (coordinator, logs):
        assert (await coordinator.committed_offsets("g"))["t", 0].offset == 29
        await coordinator.commit(commit(coordinator, 77))
        again = logs.get(OFFSETS_TOPIC, partition_of("g", PARTITIONS))
        assert again is not None and again.log_end_offset == end + 1


async def test_a_committed_offset_is_in_the_log_when_the_answer_comes(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, logs):
        result = await coordinator.commit(commit(coordinator, 41))
        assert result.errors == (ErrorCode.NONE,)
        partition_log = logs.get(OFFSETS_TOPIC, partition_of("g", PARTITIONS))
        assert partition_log is not None
        assert partition_log.recovery_point == partition_log.log_end_offset == 1, "it is on the disk"
        (view,) = iter_batches(partition_log.read(0, 10_000))
        (record,) = decode_records(view)
        decoded = decode_record(record.key, record.value)
        assert isinstance(decoded, OffsetRecord)
        assert decoded.offset == 41
        assert (await coordinator.committed_offsets("g"))["t", 0].offset == 41


async def test_members_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, _):
        joined = await coordinator.join(join(coordinator))
        synced = await coordinator.sync(sync(coordinator, joined.member_id, 1))
        assert synced.assignment == b"mine"
        await coordinator.commit(commit(coordinator, 5, generation_id=1, member_id=joined.member_id))
        await coordinator.commit(commit(coordinator, 6, "other"))
    async with opened(tmp_path) as (coordinator, _):
        assert await coordinator.heartbeat(heartbeat(coordinator, joined.member_id, 1)) is ErrorCode.NONE
        assert (await coordinator.committed_offsets("g"))["t", 0].offset == 5
        assert (await coordinator.committed_offsets("other"))["t", 0].offset == 6
        assert {group.group_id for group in coordinator.list_groups()} == {"g", "other"}
        assert (await coordinator.delete(DeleteGroup(request_id=coordinator.request_id(), group_id="other"))) == 0
    async with opened(tmp_path) as (coordinator, _):
        assert coordinator.describe("other") is None
        assert await coordinator.committed_offsets("other") == {}


async def test_many_commits_at_once_share_rounds_of_fsync(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, logs):
        before = logs.flusher.rounds
        await asyncio.gather(*(coordinator.commit(commit(coordinator, n, f"g{n}")) for n in range(200)))
        assert logs.flusher.rounds - before <= 5
        assert len(coordinator.list_groups()) == 200


async def test_a_silent_member_is_removed_by_the_clock(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=IMPATIENT) as (coordinator, _):
        terms = {"session_timeout_ms": 50}
        joined = await coordinator.join(join(coordinator, **terms))
        await coordinator.sync(sync(coordinator, joined.member_id, 1))
        async with asyncio.timeout(10):
            while coordinator.list_groups()[0].state != "Empty":  # noqa: ASYNC110 - what a client would do too
                await asyncio.sleep(0.01)


async def test_a_bug_about_one_group_does_not_stop_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, limits=IMPATIENT) as (coordinator, _):
        joined = await coordinator.join(join(coordinator, session_timeout_ms=50))
        await coordinator.sync(sync(coordinator, joined.member_id, 1))
        broken = asyncio.Event()
        time_is_up = Rounds.time_is_up

        def fails_once(*arguments: Any) -> None:
            if not broken.is_set():
                broken.set()
                raise ZeroDivisionError
            time_is_up(*arguments)

        monkeypatch.setattr(Rounds, "time_is_up", fails_once)
        async with asyncio.timeout(10):
            await broken.wait()
            other = await coordinator.join(join(coordinator, group_id="h", session_timeout_ms=50))
            while coordinator.describe("h").state != "Empty":  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert other.error is ErrorCode.NONE


async def test_a_client_that_goes_away_while_it_waits_does_no_harm(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, _):
        first = await coordinator.join(join(coordinator))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(coordinator.join(join(coordinator)))
            await asyncio.sleep(0)
            waiting.cancel()
        again = await coordinator.join(join(coordinator, first.member_id))
        assert (again.error, len(again.members)) == (ErrorCode.NONE, 2)


async def test_without_the_topic_members_may_come_but_nothing_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path, partitions=0) as (coordinator, _):
        result = await coordinator.commit(commit(coordinator, 1))
        assert result.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        assert await coordinator.committed_offsets("g") == {}


async def test_a_log_that_refuses_is_left_alone_for_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as (coordinator, logs):
        assert coordinator.trouble("g") is None
        for partition_log in logs:
            partition_log.closed = True
        await coordinator.commit(commit(coordinator, 1))
        assert "is closed" in (coordinator.trouble("g") or "")
        clock.advance(REFUSED_PAUSE_MS)
        for partition_log in logs:
            partition_log.closed = False
        assert coordinator.trouble("g") is None
    async with opened(tmp_path / "without", partitions=0) as (coordinator, _):
        assert "not there yet" in (coordinator.trouble("g") or "")


async def test_a_record_too_large_for_the_topic_is_the_clients_to_make_smaller(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, logs):
        await logs.apply_config(OFFSETS_TOPIC, LogConfig(max_message_bytes=80))
        result = await coordinator.commit(commit(coordinator, 1))
        assert result.errors == (ErrorCode.INVALID_COMMIT_OFFSET_SIZE,)
        assert coordinator.trouble("g") is None, "other requests are fine"


async def test_after_a_failed_sync_no_offset_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    async with opened(tmp_path) as (coordinator, _):
        await coordinator.commit(commit(coordinator, 1))
        with monkeypatch.context() as patched:
            instead_of_a_sync(patched, broken)
            with pytest.raises(CoordinatorNotAvailable):
                await coordinator.commit(commit(coordinator, 2))
        with pytest.raises(NotCoordinator):
            await coordinator.committed_offsets("g")
        later = await coordinator.commit(commit(coordinator, 3))
        assert later.errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)


async def test_whoever_waits_for_a_log_that_closes_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, logs), asyncio.timeout(10):
        joined = await coordinator.join(join(coordinator))
        waiting: list[Coroutine[Any, Any, object]] = [
            coordinator.sync(sync(coordinator, joined.member_id, 1)),
            coordinator.commit(commit(coordinator, 1, "other")),
            coordinator.commit(commit(coordinator, 1, "third")),
        ]
        tasks = [asyncio.ensure_future(each) for each in waiting]
        await asyncio.sleep(0)  # all is appended, nothing is on the disk
        for partition_log in logs:
            partition_log.closed = True
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [CoordinatorNotAvailable] * 3
        with pytest.raises(NotCoordinator):
            await coordinator.committed_offsets("other")


def after_append(monkeypatch: pytest.MonkeyPatch, happens: Callable[[PartitionLog], None]) -> None:
    """Let something happen right after each append."""
    real = PartitionLog.append_own

    def append_own(partition_log: PartitionLog, *arguments: Any, **named: Any) -> Any:
        result = real(partition_log, *arguments, **named)
        happens(partition_log)
        return result

    monkeypatch.setattr(PartitionLog, "append_own", append_own)


async def test_a_log_that_closes_between_append_and_answer_answers_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(partition_log: PartitionLog) -> None:
        partition_log.closed = True

    async with opened(tmp_path) as (coordinator, _), asyncio.timeout(10):
        joined = await coordinator.join(join(coordinator))
        after_append(monkeypatch, close)
        with pytest.raises(CoordinatorNotAvailable):
            await coordinator.sync(sync(coordinator, joined.member_id, 1))


async def test_an_append_that_fails_in_an_unknown_way_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_partition_log: PartitionLog) -> None:
        raise ZeroDivisionError

    async with opened(tmp_path) as (coordinator, _), asyncio.timeout(10):
        with monkeypatch.context() as patched:
            after_append(patched, fail)
            result = await coordinator.commit(commit(coordinator, 1))
        assert result.errors == (ErrorCode.UNKNOWN_SERVER_ERROR,)
        assert coordinator.list_groups() == []
        assert (await coordinator.commit(commit(coordinator, 2))).errors == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
        while coordinator.trouble("g") is not None:  # noqa: ASYNC110 - what a client would do too
            await asyncio.sleep(0.01)
        assert (await coordinator.committed_offsets("g"))["t", 0].offset == 1, "the log says so"
        assert (await coordinator.commit(commit(coordinator, 2))).errors == (ErrorCode.NONE,)


async def test_a_topic_that_goes_while_its_offsets_are_read_takes_them_along(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, _):
        committing = asyncio.ensure_future(coordinator.commit(commit(coordinator, 1000)))
        await asyncio.sleep(0)
        reading = asyncio.ensure_future(coordinator.committed_offsets("g"))
        await asyncio.sleep(0)
        assert not reading.done()
        coordinator.image_changed(cluster({}), frozenset({"t"}))
        coordinator.image_changed(cluster({"t": uuid.UUID(int=7)}), frozenset())
        assert await reading == {}
        await committing


async def test_records_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as (coordinator, logs):
        partition_log = logs.get(OFFSETS_TOPIC, partition_of("g", PARTITIONS))
        assert partition_log is not None
        for key, value in ((b"\0\x01bad", b"x"), (b"\0\x63", b"a later kind"), (None, b"x")):
            data = build_batch([NewRecord(timestamp=0, key=key, value=value)])
            partition_log.append_own(data, now_ms=0)
        await coordinator.commit(commit(coordinator, 9))
    async with opened(tmp_path) as (coordinator, _):
        assert (await coordinator.committed_offsets("g"))["t", 0].offset == 9


async def test_records_get_the_leader_epoch_that_the_cluster_says(tmp_path: Path) -> None:
    image = cluster({"t": uuid.UUID(int=1)})
    topic = image.topics[OFFSETS_TOPIC]
    led = tuple(replace(partition, leader_epoch=1) for partition in topic.partitions)
    raised = replace(image, topics=SharedMap({**image.topics, OFFSETS_TOPIC: replace(topic, partitions=led)}))
    async with opened(tmp_path) as (coordinator, logs):
        coordinator.image_changed(raised, frozenset())
        partition_log = logs.get(OFFSETS_TOPIC, partition_of("g", PARTITIONS))
        assert partition_log is not None
        await coordinator.commit(commit(coordinator, 1))
        assert [view.leader_epoch for view in iter_batches(partition_log.read(0, 10_000))] == [1]


async def test_epochs_of_the_log_do_not_go_back(tmp_path: Path) -> None:
    """Kafka may have led the partition before us, under later epochs than our first."""
    async with opened(tmp_path) as (coordinator, logs):
        partition_log = logs.get(OFFSETS_TOPIC, partition_of("g", PARTITIONS))
        assert partition_log is not None
        await coordinator.commit(commit(coordinator, 1))
        later = build_batch([NewRecord(timestamp=0, key=b"\0\x63", value=b"")])
        partition_log.append_own(later, now_ms=0, leader_epoch=6)
        await coordinator.commit(commit(coordinator, 2))
        epochs = [view.leader_epoch for view in iter_batches(partition_log.read(0, 10_000))]
        assert epochs == [0, 6, 6]


async def test_expiry_lets_others_have_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0)  # every step is too long
    clock = ManualClock()
    async with opened(tmp_path, clock) as (coordinator, _):
        for group in range(20):
            await coordinator.commit(commit(coordinator, 1, f"g{group}"))
        clock.advance(8 * 86_400_000)
        expiring = asyncio.ensure_future(coordinator.expire_offsets())
        left = set()
        while not expiring.done():
            await asyncio.sleep(0)
            left.add(len(coordinator.list_groups()))
        assert left == set(range(20))


async def test_expiry_that_stumbles_over_one_group_goes_on_with_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as (coordinator, _):
        groups = [next(f"g{n}" for n in range(99) if partition_of(f"g{n}", PARTITIONS) == each) for each in range(2)]
        for group in groups:
            await coordinator.commit(commit(coordinator, 1, group))
        clock.advance(8 * 86_400_000)
        real = GroupMachine.step

        def step(machine: GroupMachine, event: Any, now: Any) -> Any:
            if isinstance(event, ExpireOffsets) and groups[0] in event.group_ids:
                raise ZeroDivisionError("a bug")
            return real(machine, event, now)

        monkeypatch.setattr(GroupMachine, "step", step)
        await coordinator.expire_offsets()
        assert coordinator.list_groups() == [], "one has expired, the partition of the other is to be taken up anew"
        await coordinator.load()
        assert [view.group_id for view in coordinator.list_groups()] == groups[:1]


async def test_expiry_and_topic_deletion_write_tombstones(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as (coordinator, _):
        await coordinator.commit(commit(coordinator, 1, "old"))
        clock.advance(8 * 86_400_000)
        await coordinator.commit(commit(coordinator, 1, "new"))
        await coordinator.expire_offsets()
        assert [group.group_id for group in coordinator.list_groups()] == ["new"]
        coordinator.image_changed(cluster({}), frozenset({"t"}))
        assert coordinator.list_groups() == []
    async with opened(tmp_path, clock) as (coordinator, _):
        assert coordinator.list_groups() == []
