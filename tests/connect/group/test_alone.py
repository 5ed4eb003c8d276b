"""A worker without a group: it has everything until another claims it"""

import asyncio
from collections.abc import Callable

import pytest

from tidemill.connect.group.alone import Alone
from tidemill.connect.group.machine import Allow
from tidemill.connect.group.seat import GroupRefused, GroupSettings
from tidemill.connect.herder.placement import Instance
from tidemill.connect.stores import WorkerClaim
from tidemill.core.client.cluster import ClusterClient

ONE, TWO = Instance("c", 0), Instance("c", 1)


class Topic:
    """The claims of a status topic, and a herder that reads it."""

    def __init__(self) -> None:
        self.claims: list[WorkerClaim] = []
        self.seats: list[Alone] = []

    async def write(self, claim: WorkerClaim) -> None:
        await asyncio.sleep(0)
        self.claims.append(claim)
        for seat in self.seats:
            seat.look()


class Herder:
    """Does what it is told at once."""

    config_offset = 0

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.allowed: list[Allow] = []
        self.wants = frozenset({ONE})

    @property
    def generation_heard(self) -> int:
        return max((claim.generation for claim in self.topic.claims), default=4)

    def wanted(self) -> frozenset[Instance]:
        return self.wants

    def running(self) -> frozenset[Instance]:
        return self.allowed[-1].instances if self.allowed else frozenset()

    def said_to_run(self) -> frozenset[Instance]:
        return frozenset()

    def allow(self, allowed: Allow) -> None:
        self.allowed.append(allowed)

    def lease(self, until_s: float) -> None:
        raise AssertionError("there is none")


def client() -> ClusterClient:
    raise AssertionError("it is not asked for")


@pytest.fixture
def seat() -> Callable[[Topic, str], tuple[Alone, Herder]]:
    def make(topic: Topic, worker_id: str) -> tuple[Alone, Herder]:
        settings = GroupSettings(
            group="g",
            worker_id=worker_id,
            client=client,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            rebalance_timeout_ms=60_000,
            return_ms=10_000,
            alone_because="SASL is not available yet",
        )
        herder = Herder(topic)
        alone = Alone(settings, herder, topic.write, lambda: topic.claims[-1] if topic.claims else None, "SASL")
        topic.seats.append(alone)
        return alone, herder

    return make


async def test_it_has_everything_that_is_wanted(seat: Callable[[Topic, str], tuple[Alone, Herder]]) -> None:
    topic = Topic()
    alone, herder = seat(topic, "w:1")
    running = asyncio.ensure_future(alone.run())
    await alone.seated.wait()
    assert herder.allowed == [Allow(generation=5, instances=frozenset({ONE}), leads=True)]
    assert alone.is_leader and alone.leader_url == alone.url == "http://w:1" == alone.holder_url("c", 0)
    herder.wants = frozenset({ONE, TWO})
    alone.look()
    assert herder.allowed[-1].instances == {ONE, TWO}
    alone.stop()
    await asyncio.wait_for(running, 10)
    assert not herder.allowed[-1].instances and alone.left.is_set()


async def test_the_one_that_starts_later_stays(seat: Callable[[Topic, str], tuple[Alone, Herder]]) -> None:
    topic = Topic()
    first, _ = seat(topic, "w:1")
    running = asyncio.ensure_future(first.run())
    await first.seated.wait()
    second, herder = seat(topic, "w:2")
    later = asyncio.ensure_future(second.run())
    await second.seated.wait()
    assert herder.allowed[-1].generation == 6
    with pytest.raises(GroupRefused, match=r"another worker .w:2, generation 6. has taken over"):
        await asyncio.wait_for(running, 10)
    second.stop()
    await asyncio.wait_for(later, 10)
