"""Topics belong to one group, or to one worker without one: the last to claim them"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from tidemill.connect.group.claim import GroupClaim
from tidemill.connect.group.seat import GroupRefused
from tidemill.connect.stores import WorkerClaim
from tidemill.connect.topic_log import TopicLogError

OTHER = WorkerClaim(worker_id="w:9", generation=7, life="77aa", group="g")


class Topic:
    """The last claim of a status topic; it takes none for as long as it is told not to."""

    def __init__(self) -> None:
        self.claim: WorkerClaim | None = None
        self.written = 0
        self.refusals = 0
        self.readers: list[GroupClaim] = []

    async def write(self, claim: WorkerClaim) -> None:
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise TopicLogError("no")
        self.claim, self.written = claim, self.written + 1
        for reader in self.readers:
            reader.look()

    def reader(self, leads: Callable[[], int | None], group: str = "g") -> GroupClaim:
        found = GroupClaim(group, "w:1", self, self.write, leads)
        self.readers.append(found)
        return found


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_leader_claims_what_is_not_its_groups_and_does_so_once() -> None:
    topic = Topic()
    topic.claim = OTHER
    leads: list[int | None] = [None]
    claim = topic.reader(lambda: leads[0])
    keeping = asyncio.ensure_future(claim.keep())
    await turns()
    assert topic.claim is OTHER and not keeping.done(), "it was there before, and this worker does not lead"
    leads[0], topic.refusals = 8, 1
    claim.look()
    await turns()
    assert topic.claim is OTHER
    claim.look()
    await turns()
    assert (topic.claim.worker_id, topic.claim.generation, topic.claim.group) == ("w:1", 8, "g")
    again = asyncio.ensure_future(topic.reader(lambda: 9).keep())
    await turns()
    assert topic.written == 1 and not again.done()
    for each in (keeping, again):
        each.cancel()
        with suppress(asyncio.CancelledError):
            await each


@pytest.mark.parametrize("leads", [8, None])
async def test_who_finds_another_claim_behind_its_groups_ends(leads: int | None) -> None:
    topic = Topic()
    first = asyncio.ensure_future(topic.reader(lambda: 8).keep())
    await turns()
    keeping = asyncio.ensure_future(topic.reader(lambda: leads).keep())
    await turns()
    await topic.write(OTHER)
    for each in (first, keeping):
        with pytest.raises(GroupRefused, match=r"another worker .w:9, generation 7. has taken over"):
            await asyncio.wait_for(each, 10)


async def test_of_two_groups_on_the_same_topics_the_later_one_stays() -> None:
    topic = Topic()
    first = asyncio.ensure_future(topic.reader(lambda: 3, "one").keep())
    await turns()
    second = asyncio.ensure_future(topic.reader(lambda: 1, "two").keep())
    with pytest.raises(GroupRefused, match="'one'"):
        await asyncio.wait_for(first, 10)
    assert not second.done() and topic.written == 2
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
