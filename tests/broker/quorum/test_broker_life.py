"""A broker's requests to the active controller, and what it makes of the answers"""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable

from tidemill.broker.quorum.broker_life import REQUEST_TIMEOUT_S, BrokerIdentity, BrokerLife
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.lifecycle import LifeSettings, Stage
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.transport import Serve, Unreachable
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.virtual_time import VirtualLoop
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

WHERE = Address("controller", 1)


class Controller:
    """An active controller that answers what the test says; satisfies Quorum and Transport."""

    leads = False
    leader_address: Address | None = WHERE

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self.registration: Message | Exception = BrokerRegistrationResponse(broker_epoch=7)
        self.heartbeat: Message | Exception = BrokerHeartbeatResponse(is_fenced=False, is_caught_up=True)

    async def changed(self) -> None:
        await asyncio.sleep(3600)

    async def call(self, address: Address, request: Message, *, timeout_s: float) -> Message:
        assert address == WHERE
        assert timeout_s <= REQUEST_TIMEOUT_S + 0.001
        await asyncio.sleep(0.01)
        self.asked.append(request)
        answer = self.registration if isinstance(request, BrokerRegistrationRequest) else self.heartbeat
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def here(self, request: Message) -> Message:
        raise NotImplementedError

    async def serve(self, address: Address, serve: Serve) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def play(course: Callable[[Controller, BrokerLife, list[Stage]], Awaitable[None]]) -> None:
    async def whole() -> None:
        controller, stages = Controller(), list[Stage]()
        identity = BrokerIdentity(
            broker_id=3, cluster_id="c", incarnation_id=uuid.UUID(int=5), end_points=(), loses_nothing=True
        )
        channel = ControllerChannel(controller, controller, controller.here)
        life = BrokerLife(channel, identity, clock=Clock(), settings=LifeSettings(), on_change=stages.append)
        await course(controller, life, stages)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(1))) as runner:
        runner.run(whole())


def test_it_says_who_it_is_beats_and_leaves_in_order() -> None:
    async def course(controller: Controller, life: BrokerLife, stages: list[Stage]) -> None:
        life.advertise([BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)])
        running = asyncio.ensure_future(life.run())
        life.metadata_taken(8)
        await asyncio.sleep(5)
        registration, *beats = controller.asked
        assert isinstance(registration, BrokerRegistrationRequest)
        assert (registration.broker_id, registration.cluster_id, registration.listeners[0].port) == (3, "c", 9092)
        assert {(beat.broker_epoch, beat.current_metadata_offset) for beat in beats} == {(7, 7)}  # type: ignore[attr-defined]
        assert 3 <= len(beats) <= 4
        controller.heartbeat = BrokerHeartbeatResponse(should_shut_down=True)
        life.stop()
        assert await running is None
        assert stages == [Stage.STARTING, Stage.RUNNING, Stage.STOPPING, Stage.STOPPED]
        assert isinstance(controller.asked[-1], BrokerHeartbeatRequest)
        assert controller.asked[-1].want_shut_down

    play(course)


def test_a_controller_that_cannot_be_reached_is_tried_again_and_named() -> None:
    async def course(controller: Controller, life: BrokerLife, stages: list[Stage]) -> None:
        controller.registration = Unreachable(WHERE, "not reachable")
        reason = await life.run()
        assert reason == "the active controller: controller:1: not reachable"
        assert 59 < asyncio.get_running_loop().time() < 61
        assert len(controller.asked) > 50

    play(course)


def test_a_bug_on_the_way_is_no_answer_and_stops_nothing() -> None:
    async def course(controller: Controller, life: BrokerLife, stages: list[Stage]) -> None:
        controller.heartbeat = ZeroDivisionError("a bug")
        running = asyncio.ensure_future(life.run())
        await asyncio.sleep(5)
        assert life.machine.trouble == "ZeroDivisionError: a bug"
        controller.heartbeat = BrokerHeartbeatResponse(is_fenced=False)
        await asyncio.sleep(5)
        assert life.machine.stage is Stage.RUNNING
        running.cancel()

    play(course)


def test_an_error_that_only_a_newer_controller_knows_stops_nothing() -> None:
    async def course(controller: Controller, life: BrokerLife, stages: list[Stage]) -> None:
        controller.heartbeat = BrokerHeartbeatResponse(error_code=12345)
        running = asyncio.ensure_future(life.run())
        await asyncio.sleep(5)
        assert "12345" in life.machine.trouble
        controller.heartbeat = BrokerHeartbeatResponse(is_fenced=False)
        await asyncio.sleep(5)
        assert life.machine.stage is Stage.RUNNING
        running.cancel()

    play(course)


def test_a_refusal_says_what_to_do() -> None:
    async def course(controller: Controller, life: BrokerLife, stages: list[Stage]) -> None:
        controller.registration = BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        reason = await life.run()
        assert reason is not None
        assert "give this broker an empty one" in reason

    play(course)


def test_a_cluster_without_a_controller_says_so() -> None:
    async def course(controller: Controller, life: BrokerLife, stages: list[Stage]) -> None:
        controller.leader_address = None
        reason = await life.run()
        assert reason is not None
        assert "start a majority of the controllers" in reason

    play(course)
