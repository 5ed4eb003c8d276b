"""Seats on a real broker: work is shared, moves with who leaves, and is taken up again by the next life at once"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tidemill.connect.group.lives import LifeFacts
from tidemill.connect.group.machine import Allow
from tidemill.connect.group.seat import GroupRefused, GroupSettings, Seat
from tidemill.connect.herder.placement import CONNECTOR, Instance
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.group_member import GroupMember
from tidemill.core.client.membership import Describe, MemberSettings
from tidemill.core.runtime.clock import BootClock
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WORK = frozenset({Instance("c", CONNECTOR), Instance("c", 0), Instance("c", 1)})


class Herder:
    """Does at once what it may, and has read what there is."""

    def __init__(self, said: dict[Instance, str]) -> None:
        self.said = said  # the status topic: who runs what
        self.config_offset = 1
        self.generation_heard = 0
        self.allowed = Allow(generation=0, instances=frozenset())
        self.leases: list[float] = []
        self.over: set[str] = set()
        self.life = LifeFacts(worker_id="", process=1)

    def wanted(self) -> frozenset[Instance]:
        return WORK

    def running(self) -> frozenset[Instance]:
        return frozenset(each for each in self.allowed.instances if each.task != CONNECTOR)

    def said_to_run(self) -> frozenset[Instance]:
        return frozenset(each for each, who in self.said.items() if who not in self.over)

    def allow(self, allowed: Allow) -> None:
        self.allowed = allowed

    def lease(self, until_s: float) -> None:
        self.leases.append(until_s)

    def joined(self, member_id: str, generation: int, alone_in: int) -> None:
        self.life = replace(self.life, member_id=member_id, generation=generation, alone_in=alone_in)


def settings(address: str, group: str, worker_id: str) -> GroupSettings:
    return GroupSettings(
        group=group,
        worker_id=worker_id,
        client=lambda: ClusterClient(address),
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        rebalance_timeout_ms=20_000,
        return_ms=5_000,
    )


@asynccontextmanager
async def seated(
    address: str, group: str, worker_id: str, said: dict[Instance, str], over: tuple[LifeFacts, ...] = ()
) -> AsyncIterator[tuple[Seat, Herder]]:
    """A seat that is given up as by a kill, unless it was left before."""
    herder = Herder(said)
    herder.over = {life.worker_id for life in over}
    herder.life = replace(herder.life, worker_id=worker_id)
    seat = Seat(settings(address, group, worker_id), herder, over=over, joined=herder.joined)
    running = asyncio.ensure_future(seat.run())
    try:
        async with asyncio.timeout(60):
            await seat.seated.wait()
        yield seat, herder
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


async def test_workers_share_and_one_that_leaves_is_waited_for(tidemill_broker: Service) -> None:
    address, group = tidemill_broker.facts["address"], new_group()
    async with seated(address, group, "w:1", {}) as (first, one):
        await until(lambda: one.allowed.instances == WORK)
        assert first.is_leader and first.leader_url == first.url == first.holder_url("c") and first.phase == "stable"
        async with seated(address, group, "w:2", {}) as (second, two):
            await until(lambda: len(one.running()) == len(two.running()) == 1)
            assert one.allowed.instances | two.allowed.instances == WORK
            assert second.leader_url == first.url and not second.is_leader
            await until(lambda: set(first.workers.values()) == {first.url, second.url} and first.phase == "stable")
            (task,) = two.running()
            await until(lambda: first.holder_url("c", task.task) == second.url)
            assert first.others_hold("c") and second.others_hold("c")
            second.stop()
            await asyncio.wait_for(second.left.wait(), 20)
            assert not two.allowed.instances and task not in one.allowed.instances
        await until(lambda: one.allowed.instances == WORK)
        assert one.leases and one.leases[-1] > BootClock().monotonic()


async def test_a_worker_behind_the_config_topic_says_so(
    tidemill_broker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.connect.group.seat.BEHIND_TOLD_MS", 200)
    address, group = tidemill_broker.facts["address"], new_group()
    with capture_logs() as lines:
        async with seated(address, group, "w:1", {}) as (first, one):
            await until(lambda: one.allowed.instances == WORK)
            async with seated(address, group, "w:2", {}) as (second, two):
                two.config_offset = 0
                await until(lambda: len(second.workers) == 2 and second.behind[1] > 300)
                second.look()
                assert "read the config topic up to 0 of 1" in second.behind[0] and first.behind == ("", 0)
                two.config_offset = 1
                second.look()
                assert second.behind == ("", 0)
    told = [line["event"] for line in lines if "config topic" in line["event"]]
    assert told == ["behind the config topic", "the config topic is read"]


async def test_who_came_and_who_went_is_a_line_of_the_log(tidemill_broker: Service) -> None:
    address, group = tidemill_broker.facts["address"], new_group()
    with capture_logs() as lines:
        async with seated(address, group, "w:1", {}) as (first, _):
            async with seated(address, group, "w:2", {}) as (second, _):
                await until(lambda: len(first.workers) == 2 and first.phase == "stable")
                second.stop()
                await asyncio.wait_for(second.left.wait(), 20)
            await until(lambda: len(first.workers) == 1 and first.phase == "stable")
    told = [(line["leader"], line["came"], line["went"]) for line in lines if line["event"] == "group changed"]
    assert told == [("http://w:1", ["http://w:2"], []), ("http://w:1", [], ["http://w:2"])]


async def test_the_next_life_on_the_machine_goes_on_at_once(tidemill_broker: Service) -> None:
    address, group, said = tidemill_broker.facts["address"], new_group(), dict.fromkeys(WORK, "w:1")
    async with seated(address, group, "w:1", {}) as (_, killed):
        await until(lambda: killed.allowed.instances == WORK)
    began = BootClock().monotonic()
    async with seated(address, group, "w:1", said, over=(killed.life,)) as (_, herder):
        await until(lambda: herder.allowed.instances == WORK)
    assert BootClock().monotonic() - began < 4.0, "its session alone is longer"


async def test_whose_end_is_not_known_is_waited_for(tidemill_broker: Service) -> None:
    address, group = tidemill_broker.facts["address"], new_group()
    async with seated(address, group, "w:1", {}) as (_, herder):
        await until(lambda: herder.allowed.instances == WORK)
    began = BootClock().monotonic()
    async with seated(address, group, "w:2", dict.fromkeys(WORK, "w:1")) as (_, herder):
        await until(lambda: herder.allowed.instances == WORK)
    assert BootClock().monotonic() - began > 9.0, "the rest of a session, and the grace"


async def test_whoever_is_missing_is_waited_for_though_the_status_topic_says_nothing(tidemill_broker: Service) -> None:
    """It may have been given everything a moment before it was killed."""
    address, group = tidemill_broker.facts["address"], new_group()
    async with seated(address, group, "w:1", {}) as (_, herder):
        await until(lambda: herder.allowed.instances == WORK)
    began = BootClock().monotonic()
    async with seated(address, group, "w:2", {}) as (_, herder):
        await until(lambda: herder.allowed.instances == WORK)
    assert BootClock().monotonic() - began > 9.0, "the rest of a session, and the grace"


async def test_a_group_that_its_last_worker_has_left_is_begun_again_at_once(tidemill_broker: Service) -> None:
    address, group = tidemill_broker.facts["address"], new_group()
    over: tuple[LifeFacts, ...] = ()
    for _ in range(3):
        began = BootClock().monotonic()
        async with seated(address, group, "w:1", {}, over=over) as (seat, herder):
            await until(lambda herder=herder: herder.allowed.instances == WORK)  # type: ignore[misc]
            assert BootClock().monotonic() - began < 4.0, "its session alone is longer"
            seat.stop()
            await asyncio.wait_for(seat.left.wait(), 20)
        over = (herder.life,)


async def test_who_finds_an_empty_group_waits_for_whoever_was_removed_before(tidemill_broker: Service) -> None:
    """On another machine nobody can tell how long ago that was."""
    address, group = tidemill_broker.facts["address"], new_group()
    async with seated(address, group, "w:1", {}) as (seat, herder):
        await until(lambda: herder.allowed.instances == WORK)
        seat.stop()
        await asyncio.wait_for(seat.left.wait(), 20)
    began = BootClock().monotonic()
    async with seated(address, group, "w:2", {}) as (_, herder):
        await until(lambda: herder.allowed.instances == WORK)
    assert BootClock().monotonic() - began > 4.9, "the grace"


async def test_only_who_is_alone_says_so(tidemill_broker: Service) -> None:
    address, group = tidemill_broker.facts["address"], new_group()
    async with seated(address, group, "w:1", {}) as (first, one):
        await until(lambda: one.allowed.instances == WORK)
        assert one.life.alone_in == first.generation
        async with seated(address, group, "w:2", {}) as (second, two):
            await until(lambda: len(one.running()) == len(two.running()) == 1)
            assert one.life.alone_in == two.life.alone_in == -1
            second.stop()
            await asyncio.wait_for(second.left.wait(), 20)
        await until(lambda: one.life.alone_in == first.generation)
        assert two.life.alone_in == -1


async def test_a_group_of_another_kind_of_workers_is_refused(
    tidemill_broker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.connect.group.seat.FOREIGN_LIMIT_S", 2.0)
    address, group = tidemill_broker.facts["address"], new_group()
    foreign = MemberSettings(group=group, protocol_type="connect", protocol="sessioned")
    async with ClusterClient(address) as client:
        member = GroupMember(client, foreign, lambda news: None)
        member.tell(Describe(metadata=b""))
        running = asyncio.ensure_future(member.run())
        async with asyncio.timeout(20):
            while member.phase.value in ("out", "joining"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        seat = Seat(settings(address, group, "w:1"), Herder({}))
        with pytest.raises(GroupRefused, match=r"not Tidemill's workers"):
            await asyncio.wait_for(seat.run(), 30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
