"""The active controller is found wherever it is, and asked once"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.transport import Serve, Unreachable
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import NotController
from tidemill.core.runtime.virtual_time import VirtualLoop
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

FIRST, SECOND = Address("first", 1), Address("second", 1)
REQUEST = BrokerHeartbeatRequest(broker_id=3)
GRANTED = BrokerHeartbeatResponse(is_caught_up=True)
REFUSED = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)


class Nodes:
    """A quorum and the way to its nodes, both; each node answers as the test says."""

    def __init__(self, leader: Address | None) -> None:
        self.leads = False
        self.leader_address = leader
        self.asked: list[str] = []
        self.answers: dict[Address, Message | Exception] = {}
        self.takes_s = 0.01
        self._changed = asyncio.Event()

    def elect(self, leader: Address | None, *, here: bool = False) -> None:
        self.leader_address, self.leads = leader, here
        self._changed.set()
        self._changed.clear()

    async def changed(self) -> None:
        await self._changed.wait()

    async def call(self, address: Address, request: Message, *, timeout_s: float) -> Message:
        assert request == REQUEST
        assert timeout_s > 0
        self.asked.append(address.host)
        await asyncio.sleep(self.takes_s)
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def here(self, request: Message) -> Message:
        assert request == REQUEST
        self.asked.append("here")
        return GRANTED

    async def serve(self, address: Address, serve: Serve) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def play(course: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await course()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(1))) as runner:
        runner.run(whole())


def channel(nodes: Nodes) -> ControllerChannel:
    return ControllerChannel(nodes, nodes, nodes.here)


def test_the_leader_is_asked() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: GRANTED}
        assert await channel(nodes).ask(REQUEST, timeout_s=5) == GRANTED
        nodes.elect(None, here=True)
        assert await channel(nodes).ask(REQUEST, timeout_s=5) == GRANTED
        assert nodes.asked == ["first", "here"]

    play(course)


def test_a_leader_is_waited_for() -> None:
    async def course() -> None:
        nodes = Nodes(None)
        nodes.answers = {SECOND: GRANTED}
        asyncio.get_running_loop().call_later(3, nodes.elect, SECOND)
        assert await channel(nodes).ask(REQUEST, timeout_s=5) == GRANTED
        assert asyncio.get_running_loop().time() < 3.1

    play(course)


def test_one_that_is_none_any_more_is_asked_again_until_another_is_known() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: REFUSED, SECOND: GRANTED}
        asyncio.get_running_loop().call_later(1, nodes.elect, SECOND)
        assert await channel(nodes).ask(REQUEST, timeout_s=5) == GRANTED
        assert 2 <= nodes.asked.count("first") <= 20
        assert nodes.asked[-1] == "second"

    play(course)


@pytest.mark.parametrize("leader", [None, FIRST])
def test_a_quorum_without_a_leader_is_not_waited_for_for_ever(leader: Address | None) -> None:
    async def course() -> None:
        nodes = Nodes(leader)
        nodes.answers = {FIRST: REFUSED}
        with pytest.raises(NotController, match="in time"):
            await channel(nodes).ask(REQUEST, timeout_s=5)
        assert 5 <= asyncio.get_running_loop().time() < 5.2

    play(course)


def test_what_may_have_been_carried_out_is_not_sent_again() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: Unreachable(FIRST, "no answer in time")}
        with pytest.raises(Unreachable):
            await channel(nodes).ask(REQUEST, timeout_s=5)
        assert nodes.asked == ["first"]

    play(course)


def test_an_active_controller_here_that_does_not_answer_is_waited_for_no_longer_than_another() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.elect(FIRST, here=True)

        async def never(_request: Message) -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        began_s = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable):
            async with asyncio.timeout(100):
                await ControllerChannel(nodes, nodes, never).ask(REQUEST, timeout_s=5)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(5)

    play(course)


def test_what_may_be_asked_again_is_while_an_answer_is_lost_and_there_is_time() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: Unreachable(FIRST, "connection reset"), SECOND: GRANTED}
        asyncio.get_running_loop().call_later(1, nodes.elect, None)
        asyncio.get_running_loop().call_later(2, nodes.elect, SECOND)
        assert await channel(nodes).ask(REQUEST, timeout_s=5, again=True) == GRANTED
        assert 2 <= nodes.asked.count("first") <= 20
        assert nodes.asked[-1] == "second"

    play(course)


@pytest.mark.parametrize("trouble", [Unreachable(FIRST, "too large", lasting=True), ValueError("a bug")])
def test_trouble_that_would_last_is_told_as_it_is_and_at_once(trouble: Exception) -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: trouble}
        with pytest.raises(type(trouble), match=str(trouble)):
            await channel(nodes).ask(REQUEST, timeout_s=5, again=True)
        assert nodes.asked == ["first"]

    play(course)


def test_what_may_be_asked_again_ends_in_time_with_what_is_known() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: Unreachable(FIRST, "connection reset")}
        with pytest.raises(Unreachable, match="reset"):
            await channel(nodes).ask(REQUEST, timeout_s=5, again=True)
        assert 5 <= asyncio.get_running_loop().time() < 5.2

    play(course)


@pytest.mark.parametrize("here", [False, True])
def test_a_node_that_hangs_is_not_waited_for_once_another_decides(here: bool) -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: GRANTED, SECOND: GRANTED}
        nodes.takes_s = 1000

        def elect() -> None:
            nodes.takes_s = 0.01
            nodes.elect(SECOND, here=here)

        loop = asyncio.get_running_loop()
        loop.call_later(2, elect)
        assert await channel(nodes).ask(REQUEST, timeout_s=30, again=True) == GRANTED
        assert nodes.asked == ["first", "here" if here else "second"]
        assert 3 <= loop.time() < 3.3

    play(course)


def test_the_last_word_of_a_node_that_does_not_decide_any_more_is_heard() -> None:
    async def course() -> None:
        nodes = Nodes(FIRST)
        nodes.answers = {FIRST: GRANTED}
        nodes.takes_s = 2.5
        asyncio.get_running_loop().call_later(2, nodes.elect, SECOND)
        assert await channel(nodes).ask(REQUEST, timeout_s=30, again=True) == GRANTED
        assert nodes.asked == ["first"]

    play(course)
