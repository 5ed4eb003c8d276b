"""Brokers and the active controller of a cluster: all that they say to each other goes through Kafka's bytes"""

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker.quorum.quorum_stage import CLUSTER, Clock, Member, Stage
from tidemill.broker.forwarding import Forwarder
from tidemill.broker.principals import ANONYMOUS
from tidemill.broker.quorum.active import ActiveController
from tidemill.broker.quorum.brokers import Mended, MendPartitions
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.grpc_transport import GrpcTransport
from tidemill.broker.quorum.image import ClusterImage, PartitionImage
from tidemill.broker.quorum.lifecycle import Stage as LifeStage
from tidemill.broker.quorum.metadata import NewTopic, Request, Response
from tidemill.broker.quorum.vigil import Vigil
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import UnknownServerError
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.net import TcpDialer
from tidemill.core.runtime.virtual_time import VirtualLoop
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.broker_registration import BrokerRegistrationRequest
from tidemill.core.wire.messages.create_topics import CreateTopicsRequest
from tidemill.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

SEEDS = range(3)


async def until(true: Callable[[], object], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def image(stage: Stage) -> ClusterImage:
    """As the active controller has it."""
    return next(node.controller.image for node in stage.nodes.values() if node.controller.leads)


def partition(stage: Stage, name: str = "t") -> PartitionImage:
    return image(stage).topics[name].partitions[0]


async def everyone(stage: Stage) -> list[Member]:
    """All nodes with their brokers, active."""
    await stage.start()
    members = [await stage.join(node) for node in stage.nodes.values()]
    await until(lambda: all(each.life.machine.stage is LifeStage.RUNNING for each in members))
    return members


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_register_and_lead_when_they_have_caught_up(seed: int) -> None:
    async def course(stage: Stage) -> None:
        members = await everyone(stage)
        assert sorted(image(stage).brokers) == [1, 2, 3]
        assert not any(broker.fenced for broker in image(stage).brokers.values())
        epochs = {member.life.broker_epoch for member in members}
        assert len(epochs) == 3
        leader = await stage.leader()
        (created,) = await leader.controller.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])
        assert created.error is None
        assert {each.leader for each in image(stage).topics["t"].partitions} == {1, 2, 3}

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_not_heard_of_is_fenced_and_others_lead(seed: int) -> None:
    async def course(stage: Stage) -> None:
        members = await everyone(stage)
        leader = await stage.leader()
        await leader.controller.create_topics([NewTopic(name="t", partitions=1, replication_factor=3)])
        before = partition(stage)
        lost = members[before.leader - 1]
        await lost.end()
        began_s = stage.loop.time()
        await until(lambda: any(node.controller.leads for node in stage.nodes.values() if node is not lost.node))
        await until(lambda: partition(stage).leader not in (before.leader, -1))
        assert stage.loop.time() - began_s < 20
        after = partition(stage)
        assert before.leader not in after.isr
        assert after.leader_epoch > before.leader_epoch
        await lost.node.start()
        again = await stage.join(lost.node)
        await until(lambda: again.life.machine.stage is LifeStage.RUNNING)
        assert again.life.broker_epoch > lost.life.broker_epoch

    Stage(seed).run(course)


def test_one_that_stops_in_order_leads_nothing_before_it_goes() -> None:
    async def course(stage: Stage) -> None:
        members = await everyone(stage)
        leader = await stage.leader()
        await leader.controller.create_topics([NewTopic(name="t", partitions=6, replication_factor=3)])
        gone = next(member for member in members if member.node is not leader)
        began_s = stage.loop.time()
        gone.life.stop()
        assert await gone.running is None
        assert stage.loop.time() - began_s < 10
        assert all(each.leader != gone.node.node_id for each in image(stage).topics["t"].partitions)

    Stage(2).run(course)


def test_a_second_broker_with_an_id_that_is_taken_is_told_what_to_do() -> None:
    async def course(stage: Stage) -> None:
        members = await everyone(stage)
        twin = await stage.join(members[0].node, like=members[1].node.node_id)
        reason = await twin.running
        assert reason is not None
        assert "give each broker an id of its own" in reason
        assert members[1].life.machine.stage is LifeStage.RUNNING

    Stage(1).run(course)


def test_of_two_processes_of_one_node_that_register_at_once_one_is_turned_away() -> None:
    """What the one before asked may arrive beside what the next one asks, when it is gone: it drives nobody out."""

    async def course(stage: Stage) -> None:
        await everyone(stage)
        leader = await stage.leader()
        asked = [
            BrokerRegistrationRequest(broker_id=9, cluster_id=CLUSTER, incarnation_id=uuid.UUID(int=each))
            for each in (1, 2)
        ]
        answers: list[Any] = await asyncio.gather(*(leader.active.serve(each) for each in asked))
        assert [answer.error_code for answer in answers] == [0, ErrorCode.DUPLICATE_BROKER_REGISTRATION]
        assert image(stage).brokers[9].incarnation_id == uuid.UUID(int=1)

    Stage(1).run(course)


def test_a_broker_of_another_cluster_is_told_so_at_once() -> None:
    async def course(stage: Stage) -> None:
        await everyone(stage)
        stranger = await stage.join(stage.nodes[1], like=9, cluster_id=f"not-{CLUSTER}")
        began_s = stage.loop.time()
        reason = await stranger.running
        assert reason is not None
        assert "of another cluster" in reason
        assert stage.loop.time() - began_s < 5

    Stage(1).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_outlive_their_controllers_for_a_while(seed: int) -> None:
    """While nobody decides nobody is fenced, and who decides next gives everybody a session first."""

    async def course(stage: Stage) -> None:
        members = await everyone(stage)
        leader = await stage.leader()
        epochs = {member.node.node_id: member.life.broker_epoch for member in members}
        await leader.end(power=True)
        await stage.leader(stage.others(leader))
        await leader.start()
        await asyncio.sleep(5)
        for member in members:
            if member.node is not leader:
                assert member.life.broker_epoch == epochs[member.node.node_id]
                assert not image(stage).brokers[member.node.node_id].fenced

    Stage(seed).run(course)


def test_nobody_is_fenced_for_what_the_broker_of_the_active_node_has_to_do() -> None:
    """Answers to its own clients wait until it follows the image; who asks from elsewhere has nothing to do with it."""

    async def course(stage: Stage) -> None:
        await everyone(stage)
        leader = await stage.leader()
        await asyncio.sleep(5)  # it has looked after what the one before may have left

        async def follow(_delta: ImageDelta) -> None:
            await asyncio.sleep(25)

        leader.controller.subscribe(follow)
        await leader.controller.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])
        assert leader.controller.leads
        await asyncio.sleep(3)
        assert {each.leader_epoch for each in image(stage).topics["t"].partitions} == {0}

    Stage(1).run(course)


def test_who_is_gone_is_fenced_whatever_the_broker_of_the_active_node_has_to_do() -> None:
    async def course(stage: Stage) -> None:
        members = await everyone(stage)
        leader = await stage.leader()
        lost = next(member for member in members if member.node is not leader)

        async def follow(_delta: ImageDelta) -> None:
            await asyncio.sleep(60)

        leader.controller.subscribe(follow)
        creating = asyncio.ensure_future(
            leader.controller.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])
        )
        await lost.end()
        await asyncio.sleep(20)
        assert not creating.done()
        assert image(stage).brokers[lost.node.node_id].fenced
        await creating

    Stage(1).run(course)


class Stumbling:
    """A controller that has a bug, for a while."""

    leads = True
    image = ClusterImage()

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def decide(self, request: Request) -> Response:
        self.asked.append(request)
        if len(self.asked) < 3:
            raise ZeroDivisionError("a bug")
        return Mended()


def test_a_bug_in_a_decision_ends_no_looking_after_brokers() -> None:
    async def whole() -> None:
        controller = Stumbling()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        async def of_quorum(message: Message) -> Message:
            raise AssertionError(message)

        running = asyncio.ensure_future(ActiveController(controller, of_quorum, clock=Clock(loop)).run())
        await asyncio.sleep(5)
        assert not running.done()
        assert controller.asked == [MendPartitions()] * 3, "until it is done"
        running.cancel()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(1))) as runner:
        runner.run(whole())


class Nobody:
    """A controller that does not decide."""

    leads = False
    image = ClusterImage()

    async def decide(self, request: Request) -> Response:
        raise AssertionError(request)


async def test_who_does_not_decide_rests_though_somebody_is_gone() -> None:
    async def refuse(message: Message) -> Message:
        raise AssertionError(message)

    vigil = Vigil(1, TcpDialer(), lambda _node: None)
    active = ActiveController(Nobody(), refuse, clock=SystemClock(), vigil=vigil)
    task = asyncio.get_running_loop().create_task(active.run())
    vigil.news.set()
    await asyncio.sleep(0.05)  # the loop goes on
    assert not vigil.news.is_set()
    task.cancel()
    await asyncio.wait([task])


class Broken(Nobody):
    """One that decides, and has a bug."""

    leads = True

    async def decide(self, request: Request) -> Response:
        raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b""), EnvelopeResponse),
        (BrokerHeartbeatRequest(broker_id=1), BrokerHeartbeatResponse),
        (AlterPartitionRequest(broker_id=1), AlterPartitionResponse),
    ],
)
async def test_a_bug_is_told_to_whoever_has_asked_and_its_log_has_all_of_it(request_: Message, answer: Any) -> None:
    async def stumble(message: Message) -> Message:
        raise ZeroDivisionError("a bug")

    active = ActiveController(Broken(), stumble, clock=SystemClock())
    active.of_clients = stumble
    with capture_logs() as lines:
        assert await active.serve(request_) == answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [(each["log_level"], each["exc_info"], each["asked"]) for each in lines] == [
        ("error", True, type(request_).__name__)
    ]


async def test_a_client_hears_once_of_a_bug_in_the_controller_that_its_request_was_forwarded_to() -> None:
    asked: list[Message] = []

    async def stumble(message: Message) -> Message:
        asked.append(message)
        raise ZeroDivisionError("a bug")

    active = ActiveController(Broken(), stumble, clock=SystemClock())
    active.of_clients = stumble
    here, there = GrpcTransport(), GrpcTransport()
    try:
        quorum = Followed(Address("127.0.0.1", await there.serve(Address("127.0.0.1", 0), active.serve)))
        forwarder = Forwarder(ControllerChannel(quorum, here, stumble))
        with pytest.raises(UnknownServerError, match="see its log"):
            await forwarder.ask(
                ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(), client_id="c", principal=ANONYMOUS, host="127.0.0.1"
            )
    finally:
        await here.close()
        await there.close()
    assert len(asked) == 1


class Followed:
    """A quorum that another node leads."""

    leads = False

    def __init__(self, leader_address: Address) -> None:
        self.leader_address: Address | None = leader_address

    async def changed(self) -> None:
        await asyncio.Event().wait()
