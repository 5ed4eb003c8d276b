"""Brokers that copy from one another, over sockets"""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from tests.broker.handlers.data_path import records
from tests.broker.replication.cluster_world import PATIENCE_S, Cluster, Member, cluster_of, until
from tidemill.broker.replication import fetcher
from tidemill.broker.replication.actions import ProposeIsr
from tidemill.broker.replication.fetching import Action, LeaderFetches
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import CorruptMessage, KafkaStorageError
from tidemill.core.records.batch import stamp
from tidemill.core.wire.messages.fetch import FetchResponse


def same(*members: Member, held: int | None = None) -> bool:
    """Whether their logs are the same, ends and high watermarks too."""
    first = members[0].replica.log
    if held is not None and first.log_end_offset != held:
        return False
    return all(
        (each.replica.log.log_end_offset, each.replica.high_watermark) == (first.log_end_offset,) * 2
        and each.values == members[0].values
        for each in members
    )


async def in_step(cluster: Cluster, *nodes: int, held: int | None = None) -> None:
    members = [cluster.members[node_id] for node_id in nodes or cluster.members]
    await until(lambda: same(*members, held=held), f"the same log on {nodes}")


async def test_followers_copy_and_acks_of_all_wait_for_them(tmp_path: Path) -> None:
    async with cluster_of(tmp_path) as cluster:
        leader = cluster.members[1]
        for number in range(5):
            await leader.produce(b"%d" % number)
        assert all(member.replica.log.held_offset == 5 for member in cluster.members.values())
        await in_step(cluster, held=5)
        progress = leader.replica.machine.progress(2)
        assert progress is not None
        assert progress.broker_epoch == cluster.epochs[2]


async def test_a_leader_that_is_not_heard_of_any_more_is_known_to_be_away_until_it_answers(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        two.broker.replicas.lag_max_ms = 1_000
        await asyncio.sleep(1.5)
        assert not two.broker.replicas.is_cut_off(two.replica), "a leader without news answers all the same"
        assert not one.broker.replicas.is_cut_off(one.replica)
        await one.stop()
        await until(lambda: two.broker.replicas.is_cut_off(two.replica), "nothing heard for long")
        await one.start()
        cluster.tell(one)
        await until(lambda: not two.broker.replicas.is_cut_off(two.replica), "heard again")


@pytest.mark.parametrize("sessions", [0, 100])
async def test_who_has_everything_waits_at_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    answers: list[int] = []
    answered = LeaderFetches.answered

    def counted(machine: LeaderFetches, response: FetchResponse, now_ms: int) -> list[Action]:
        answers.append(now_ms)
        return answered(machine, response, now_ms)

    monkeypatch.setattr(LeaderFetches, "answered", counted)
    async with cluster_of(tmp_path, 2, sessions=sessions) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        await until(lambda: two.replica.high_watermark == 1, "told what is committed")
        begun_ms, count = two.fetchers.now_ms(), len(answers)
        await asyncio.sleep(0.5)
        assert len(answers) - count <= 3 + (two.fetchers.now_ms() - begun_ms) / 100, (
            "each waits for a tenth of a second"
        )


async def test_a_leader_that_dies_is_followed_by_another_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    async with cluster_of(tmp_path) as cluster:
        one, two, _ = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        await one.stop()
        cluster.decide(leader=2, isr=(2, 3))
        await two.produce(b"b")
        await in_step(cluster, 2, 3, held=2)
        await one.start()
        cluster.tell(one)
        await until(lambda: 1 in cluster.partition.isr, "asked in again")
        await two.produce(b"c")
        await in_step(cluster, held=3)
        assert one.values == [b"a", b"b", b"c"]


async def test_logs_that_part_are_cut_where_their_epochs_do(tmp_path: Path) -> None:
    async with cluster_of(tmp_path) as cluster:
        one, two, three = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        cluster.decide(isr=(1, 2))
        await three.stop()
        await two.stop()
        await one.produce(b"lost", b"too", acks=1)
        await one.stop()
        await two.start()
        cluster.decide(leader=2, isr=(2,))
        await two.produce(b"b")
        await one.start()
        cluster.tell(one)
        await until(lambda: set(cluster.partition.isr) == {1, 2}, "asked in again")
        await three.start()
        cluster.tell(three)
        await until(lambda: set(cluster.partition.isr) == {1, 2, 3}, "asked in again")
        await two.produce(b"c")
        await in_step(cluster, held=3)
        assert one.values == [b"a", b"b", b"c"]
        assert one.replica.log.epochs.entries() == two.replica.log.epochs.entries()


async def test_what_the_leader_has_deleted_is_not_copied_any_more(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        await two.stop()
        cluster.decide(isr=(1,))
        for value in (b"b", b"c", b"d"):
            await one.produce(value)
        await one.broker.logs.delete_records(one.replica.log, 3)
        await two.start()
        cluster.tell(two)
        await until(lambda: 2 in cluster.partition.isr, "asked in again")
        assert (two.values, two.replica.log.log_start_offset) == ([b"d"], 3)
        await one.produce(b"e")
        await in_step(cluster, held=5)
        await one.broker.logs.delete_records(one.replica.log, 4)
        await one.produce(b"f")
        await until(lambda: two.replica.log.log_start_offset == 4, "the log start is followed")
        await two.stop()
        await two.start()
        assert two.replica.log.log_end_offset == 6


@pytest.mark.parametrize("sessions", [0, 100])
async def test_a_leader_knows_where_its_followers_logs_begin_also_when_nothing_is_written(
    tmp_path: Path, sessions: int
) -> None:
    async with cluster_of(tmp_path, 2, sessions=sessions) as cluster:
        one, two = cluster.members.values()

        def known() -> int:
            progress = one.replica.machine.progress(2)
            return -1 if progress is None else progress.log_start

        for value in (b"a", b"b", b"c", b"d"):
            await one.produce(value)
        await in_step(cluster)
        await until(lambda: two.replica.high_watermark == 4, "told what is committed")
        await one.broker.logs.delete_records(one.replica.log, 2)
        await until(lambda: known() == 2, "the leader's log start, followed and told")
        assert two.log_start == 2, "as it is after a crash"
        await two.broker.logs.delete_records(two.replica.log, 3)  # as by retention, which each does by itself
        await until(lambda: known() == 3, "the follower's own log start")


async def test_a_log_start_is_told_when_it_could_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "AGAIN_S", 0.01)
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        real, tries = two.broker.logs.checkpoint, list[int]()

        async def checkpoint() -> None:
            tries.append(known())
            if len(tries) > 3:  # until then there is no room for it
                await real()

        def known() -> int:
            progress = one.replica.machine.progress(2)
            return -1 if progress is None else progress.log_start

        monkeypatch.setattr(two.broker.logs, "checkpoint", checkpoint)
        await one.broker.logs.delete_records(one.replica.log, 1)
        await until(lambda: known() == 1, "told at last")
        assert tries[:4] == [0, 0, 0, 0]


async def test_who_was_away_is_in_sync_when_its_log_begins_where_the_leaders_does(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a", b"b")
        await in_step(cluster)
        await two.stop()
        cluster.decide(isr=(1,))
        await one.broker.logs.delete_records(one.replica.log, 1)
        await two.start()
        cluster.tell(two)
        await until(lambda: 2 in cluster.partition.isr, "asked in again")
        assert two.log_start == 1, "though it had all the records from the start"


@pytest.mark.parametrize("there_is_room", [True, False])
async def test_log_starts_are_written_once_however_much_is_copied_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_is_room: bool
) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        await until(lambda: two.replica.high_watermark == 1, "told what is committed")
        real, tries, is_over = two.broker.logs.checkpoint, list[int](), asyncio.Event()

        async def checkpoint() -> None:
            tries.append(two.log_start)
            if len(tries) == 1:
                await one.produce(b"b")  # acknowledged by both
            if there_is_room:
                await real()
            is_over.set()

        monkeypatch.setattr(two.broker.logs, "checkpoint", checkpoint)
        monkeypatch.setattr(fetcher, "AGAIN_S", PATIENCE_S)
        await one.broker.logs.delete_records(one.replica.log, 1)
        await is_over.wait()
        for _ in range(3):
            await one.produce(b"c")
        assert tries == [0], "what is written needs no more writing, and what cannot be is tried a little later"
        assert two.log_start == there_is_room


async def test_a_follower_that_does_not_keep_up_is_asked_out_and_in_again(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await two.stop()
        await one.produce(b"b")
        assert cluster.partition.isr == (1,)
        cluster.refusing = True
        await two.start()
        cluster.tell(two)
        await until(lambda: two.replica.log.held_offset == 2, "copied")
        await asyncio.sleep(0.05)
        assert cluster.partition.isr == (1,)
        cluster.refusing = False
        await one.produce(b"c")
        await until(lambda: cluster.partition.isr == (1, 2), "asked in")


async def test_damaged_batches_are_not_stored_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        log, stores, failures = two.replica.log, two.replica.log.append_at, list[str]()

        def damaged(offset: int, data: memoryview, *, now_ms: int) -> None:
            if len(failures) < 2:
                data = memoryview(bytes(data[:-1]) + b"?")
            try:
                stores(offset, data, now_ms=now_ms)
            except CorruptMessage as error:
                failures.append(str(error))
                raise

        monkeypatch.setattr(log, "append_at", damaged)
        await one.produce(b"b")
        assert len(failures) == 2
        await in_step(cluster, held=2)


def damage(folder: Path) -> None:
    """Let the first of four batches of a broker that is down be another, which is found out at its start."""
    (path,) = (folder / "t-0").glob("*.log")
    whole = path.read_bytes()
    path.write_bytes(whole[:80] + b"????" + whole[84:])
    (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (folder / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    for index in (folder / "t-0").glob("*index"):
        index.unlink()


async def test_a_damaged_copy_is_fetched_anew_when_nobody_counts_on_it(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2, segment_bytes="1048576") as cluster:
        one, two = cluster.members.values()
        for number in range(4):
            await one.produce(b"%d" % number)
        await in_step(cluster)
        await two.stop()
        cluster.refusing = True  # who is away
        cluster.decide(isr=(1,))
        damage(tmp_path / "2")
        await two.start()
        cluster.refusing = False
        damaged = two.replica
        assert any(segment.damaged for segment in damaged.log.segments)
        cluster.tell(two)
        await until(lambda: 2 in cluster.partition.isr, "asked in again")
        assert damaged.closed and two.values == [b"0", b"1", b"2", b"3"]
        await one.produce(b"4")
        await in_step(cluster, held=5)


async def test_a_damaged_copy_is_kept_by_who_may_be_elected_for_what_it_holds(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2, segment_bytes="1048576") as cluster:
        one, two = cluster.members.values()
        for number in range(4):
            await one.produce(b"%d" % number)
        await in_step(cluster)
        await two.stop()
        cluster.decide(isr=(1,), eligible_leader_replicas=(2,))
        damage(tmp_path / "2")
        await two.start()
        damaged = two.replica
        assert any(segment.damaged for segment in damaged.log.segments)
        cluster.tell(two)
        await until(lambda: 2 in cluster.partition.isr, "asked in again")
        assert two.replica is damaged and damaged.log.log_end_offset == 4


async def test_a_follower_of_a_silent_partition_that_is_gone_is_not_asked_in_for_ever(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        await two.stop()
        cluster.refusing = True
        cluster.decide(isr=(1,))
        await asyncio.sleep(0.6)  # longer than replica.lag.time.max.ms: nobody counts as there any more
        before = cluster.partition
        await asyncio.sleep(0.6)
        assert cluster.partition is before, "what is refused ends in another record of the metadata each time"


async def test_a_follower_that_hears_its_leader_and_cannot_copy_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise KafkaStorageError("no space left")

    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        replicas = two.broker.replicas
        await one.produce(b"a")
        await in_step(cluster)
        cluster.refusing = True  # it stays in the ISR, as far as it knows
        with monkeypatch.context() as patched:
            patched.setattr(two.replica.log, "append_at", full)
            writing = asyncio.ensure_future(one.produce(b"b"))
            await until(lambda: replicas.is_cut_off(two.replica), "cut off")
            assert two.fetchers.now_ms() - replicas.heard_ms[1] < replicas.lag_max_ms
        await until(lambda: not replicas.is_cut_off(two.replica), "copied again")
        await writing


async def test_a_deleted_topic_is_followed_no_more(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        assert list(two.fetchers.followed.values()) == [1]
        await one.broker.logs.delete("t")
        one.broker.replicas.forget("t")
        await two.broker.logs.delete("t")
        two.broker.replicas.forget("t")
        await until(lambda: two.fetchers.followed == {}, "given up")


class Slow:
    """Nothing may be copied until it is allowed."""

    def __init__(self) -> None:
        self.allowed = False
        self.noted = 0

    @property
    def owes(self) -> bool:
        return not self.allowed

    def pause_ms(self, topic: str, number: int, _now_ms: int) -> int:
        assert (topic, number) == ("t", 0)
        return 0 if self.allowed else 20

    def note(self, _topic: str, _number: int, size_bytes: int, _now_ms: int) -> None:
        self.noted += size_bytes


async def test_what_is_throttled_waits(tmp_path: Path) -> None:
    slow = Slow()
    async with cluster_of(tmp_path, 2, isr=(1,), throttle=slow) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await asyncio.sleep(0.1)
        assert two.replica.log.log_end_offset == 0
        slow.allowed = True
        await until(lambda: two.replica.log.held_offset == 1, "copied")
        assert slow.noted > 0


async def test_an_elected_follower_goes_on_where_it_is(tmp_path: Path) -> None:
    async with cluster_of(tmp_path) as cluster:
        one, two, three = cluster.members.values()
        for leader in (two, three, one, two):
            cluster.decide(leader=leader.node_id)
            await leader.produce(b"by %d" % leader.node_id)
        await in_step(cluster, held=4)
        assert one.values == [b"by 2", b"by 3", b"by 1", b"by 2"]
        assert [epoch for epoch, _ in one.replica.log.epochs.entries()] == [2, 3, 4, 5]


async def test_a_batch_without_an_epoch_of_its_own_is_no_reason_to_stop(tmp_path: Path) -> None:
    """What this broker appended as a leader in an epoch nobody else knows goes, whatever the disk has of it."""
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        await two.stop()
        await two.start()
        alone = bytearray(records(b"x"))
        stamp(alone, 0, 1, 5)
        two.replica.log.append_at(1, bytes(alone), now_ms=0)
        cluster.topic = dataclasses.replace(
            cluster.topic,
            partitions=(dataclasses.replace(cluster.partition, leader_epoch=8, partition_epoch=50, isr=(1,)),),
        )
        cluster.tell(one)
        cluster.tell(two)
        await one.produce(b"b")
        await in_step(cluster, held=2)
        assert two.values == [b"a", b"b"]


async def test_a_bug_on_the_way_to_the_controller_is_no_answer_and_stops_no_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(tmp_path, 2, isr=(1,)) as cluster:
        one, _ = cluster.members.values()
        ask, asked = cluster.alter_partition, list[ProposeIsr]()

        async def alter_partition(replica: Replica, wish: ProposeIsr) -> bool:
            asked.append(wish)
            if len(asked) == 1:
                raise ZeroDivisionError("a bug")
            return await ask(replica, wish)

        fetchers = one.fetchers
        fetchers.around = dataclasses.replace(fetchers.around, alter_partition=alter_partition)
        await until(lambda: cluster.partition.isr == (1, 2), "asked in")
        await one.produce(b"a")
        await in_step(cluster, held=1)


async def test_an_empty_copy_of_what_an_unclean_leader_never_had_is_begun_anew(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a")
        await in_step(cluster)
        cluster.decide(isr=(1,))
        await two.stop()
        for value in (b"b", b"c", b"d"):
            await one.produce(value)
        await one.stop()
        await two.start()
        cluster.decide(leader=2, isr=(2,))
        await two.produce(b"lost")
        two.replica.log.advance_log_start(2)  # by retention
        await one.start()
        cluster.decide(leader=1, isr=(1,))
        await until(lambda: cluster.partition.isr == (1, 2), "asked in")
        await in_step(cluster, held=4)
        assert two.values == [b"a", b"b", b"c", b"d"]
