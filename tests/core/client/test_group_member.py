"""Group members on a real broker: they share rounds, take over, outlive cut connections and leave"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.group_member import GroupMember, News
from tidemill.core.client.membership import (
    Assign,
    Assigned,
    Decide,
    Describe,
    Leave,
    Left,
    Lost,
    MemberSettings,
    Refused,
    Rejoin,
)
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class Owner:
    """What a member's owner hears; as a leader it gives everybody the list of all members' words."""

    def __init__(self, client: ClusterClient, settings: MemberSettings, name: str) -> None:
        self.member = GroupMember(client, settings, self.hear)
        self.heard: list[News] = []
        self.assigned: Assigned | None = None
        self.client = client
        self.member.tell(Describe(metadata=name.encode()))

    def hear(self, news: News) -> None:
        self.heard.append(news)
        match news:
            case Decide():
                words = b" ".join(sorted(row.metadata for row in news.members))
                assignments = {row.member_id: words for row in news.members}
                self.member.tell(Assign(generation=news.generation, assignments=assignments))
            case Assigned():
                self.assigned = news
            case Lost():
                self.assigned = None

    def knows(self, words: bytes) -> bool:
        return self.assigned is not None and self.assigned.assignment == words


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def owner(address: str, settings: MemberSettings, name: str) -> AsyncIterator[Owner]:
    """A member that is killed, not stopped, at the end."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ClusterClient(address))
        found = Owner(client, settings, name)
        running = asyncio.ensure_future(found.member.run())
        try:
            yield found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def group() -> MemberSettings:
    return MemberSettings(
        group=f"g-{uuid.uuid4().hex[:8]}",
        protocol_type="connect",
        protocol="tidemill",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        rebalance_timeout_ms=20_000,
    )


async def rounds(address: str) -> None:
    """A group's life."""
    settings = group()
    async with owner(address, settings, "a") as first, owner(address, settings, "b") as second:
        await until(lambda: first.knows(b"a b") and second.knows(b"a b"))
        async with owner(address, settings, "c") as third:
            await until(lambda: first.knows(b"a b c") and third.knows(b"a b c"))
        await until(lambda: first.knows(b"a b") and second.knows(b"a b"))  # the third fell silent
        second.member.tell(Describe(metadata=b"B"))
        second.member.tell(Rejoin())
        await until(lambda: first.knows(b"B a"))
        second.member.tell(Leave())
        await until(lambda: first.knows(b"a"))
        assert isinstance(second.heard[-1], Left)
        assert not [news for news in (*first.heard, *second.heard) if isinstance(news, Lost | Refused)]


async def test_members_share_rounds(tidemill_broker: Service) -> None:
    await rounds(tidemill_broker.facts["address"])


async def test_members_share_rounds_of_apache_kafka(kafka_peer: tuple[str, object]) -> None:
    await rounds(kafka_peer[0])


async def test_a_cut_connection_costs_no_work(tidemill_broker: Service) -> None:
    async with owner(tidemill_broker.facts["address"], group(), "a") as only:
        await until(lambda: only.knows(b"a"))
        only.client.close()
        only.member.tell(Describe(metadata=b"A"))
        only.member.tell(Rejoin())
        await until(lambda: only.knows(b"A"))
        assert not [news for news in only.heard if isinstance(news, Lost | Refused)]
