"""The active controller as brokers meet it

On every controller, at work on the one that leads: brokers register with it, are heard of, ask for other replicas in
sync and for producer ids. Who is not heard of for a session is fenced, which moves what it leads to others; a
controller that has just become active gives everybody a session first, and goes on with what the one before had begun.

Requests of the quorum itself come by the same way and are passed on to it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import structlog

from tidemill.broker.quorum.balance import BalanceResult, ElectPreferred
from tidemill.broker.quorum.brokers import FenceBrokers, HeartbeatResult, Mended, MendPartitions
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.in_sync import IsrResults
from tidemill.broker.quorum.metadata import AllocateProducerIds, ProducerIdBlock, Registration, Request, Response
from tidemill.broker.quorum.node_wire import (
    heartbeat_from_wire,
    heartbeat_to_wire,
    isr_answer_to_wire,
    isr_from_wire,
    registration_from_wire,
)
from tidemill.broker.quorum.raft.wire import REQUESTS
from tidemill.broker.quorum.sessions import LOOK_INTERVAL_MS, SESSION_TIMEOUT_MS, Sessions
from tidemill.broker.quorum.vigil import Vigil
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, UnsupportedVersion
from tidemill.core.runtime.clock import Clock
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidemill.core.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tidemill.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

log = structlog.get_logger("tidemill.broker.quorum")

BALANCE_INTERVAL_MS: Final = 300_000
"""Kafka's leader.imbalance.check.interval.seconds."""


OfClients = Callable[[EnvelopeRequest], Awaitable[Message]]
"""Answers what another broker's client has asked."""


class Decider(Protocol):
    """What decides; the controller of this node."""

    @property
    def leads(self) -> bool:
        """Whether this node is the active controller."""

    @property
    def image(self) -> ClusterImage:
        """What is committed."""

    async def decide(self, request: Request) -> Response:
        """The response once it is committed; raises KafkaError, NotController where another decides."""


class ActiveController:
    """Answers nodes; `run` is the owner's to call. `of_quorum` answers what is the quorum's own."""

    def __init__(
        self,
        controller: Decider,
        of_quorum: Callable[[Message], Awaitable[Message]],
        *,
        clock: Clock,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        balance_interval_ms: int = BALANCE_INTERVAL_MS,
        vigil: Vigil | None = None,
    ) -> None:
        self._controller = controller
        self._of_quorum = of_quorum
        self._clock = clock
        self._sessions = Sessions(timeout_ms=session_timeout_ms)
        self._balance_interval_ms = balance_interval_ms
        self._vigil = vigil
        self._led = False
        self._unfinished = False
        self._balanced_ms = 0
        self._registering = asyncio.Lock()
        self.of_clients: OfClients | None = None  # a node without a broker has no clients

    # -- being asked

    async def serve(self, message: Message) -> Message:
        """The answer to another node, or to this one's broker."""
        if isinstance(message, REQUESTS):
            return await self._of_quorum(message)
        try:
            self._notice()
            match message:
                case BrokerHeartbeatRequest():
                    return await self._heartbeat(message)
                case AlterPartitionRequest():
                    results = await self._controller.decide(isr_from_wire(message))
                    assert isinstance(results, IsrResults)
                    return isr_answer_to_wire(results)
                case BrokerRegistrationRequest():
                    return await self._register(message)
                case EnvelopeRequest() if self.of_clients is not None:
                    if not self._controller.leads:
                        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
                    return await self.of_clients(message)
                case AllocateProducerIdsRequest():
                    block = await self._controller.decide(
                        AllocateProducerIds(broker_id=message.broker_id, broker_epoch=message.broker_epoch)
                    )
                    assert isinstance(block, ProducerIdBlock)
                    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.count)
        except KafkaError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                log.warning("refused", asked=type(message).__name__, reason=str(error))
            refused: Message = _ERRORS[type(message)](error_code=error.code)
            return refused
        except Exception:  # a bug, which whoever asks again would only meet again
            log.exception("a node's request failed unexpectedly", asked=type(message).__name__)
            failed: Message = _ERRORS[type(message)](error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            return failed
        raise UnsupportedVersion(f"{type(message).__name__} is nothing that a controller is asked for")

    async def _register(self, message: BrokerRegistrationRequest) -> Message:
        """One after the other: what a process has asked before it died may come beside what the next one of that node
        asks, and would drive that one out, as nobody has heard of it before it is registered.
        """
        async with self._registering:
            while True:
                live = self._sessions.is_live(message.broker_id, self._now_ms())
                done = await self._controller.decide(registration_from_wire(message, session_live=live))
                assert isinstance(done, Registration)
                if done.error is not None:
                    raise done.error
                if not done.unfinished:
                    break
            self._sessions.heard(message.broker_id, done.broker_epoch, self._now_ms())
        log.info("broker registered", broker_id=message.broker_id, broker_epoch=done.broker_epoch)
        return BrokerRegistrationResponse(broker_epoch=done.broker_epoch)

    async def _heartbeat(self, message: BrokerHeartbeatRequest) -> Message:
        node, epoch = message.broker_id, message.broker_epoch
        know = self._sessions.others_know(node, self._controller.image.brokers, self._now_ms())
        result = await self._controller.decide(heartbeat_from_wire(message, others_know=know))
        assert isinstance(result, HeartbeatResult)
        self._unfinished |= result.unfinished
        if result.error is None and result.should_shut_down:
            self._sessions.forget(node, epoch)
        elif result.error is None:
            offset = message.current_metadata_offset
            self._sessions.heard(node, epoch, self._now_ms(), metadata_offset=offset, left_at=result.left_at)
        return heartbeat_to_wire(result)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _notice(self) -> None:
        """Begin anew if this node has become the active controller."""
        leads = self._controller.leads
        if leads and not self._led:
            self._sessions.begin(self._controller.image.brokers, self._now_ms())
            self._unfinished = True
            self._balanced_ms = self._now_ms()
        self._led = leads

    # -- what nobody asks for

    async def run(self) -> None:
        """Look after brokers and partitions while this node is active, until cancelled."""
        while True:
            self._notice()
            if self._led:
                try:
                    await self._look()
                except KafkaError as error:
                    log.info("left to the next look", reason=str(error))
                except Exception:  # a bug about one thing: whoever else is gone has to be fenced all the same
                    log.exception("brokers and partitions were not looked after to the end")
            await self._pause()

    async def _pause(self) -> None:
        """Until the next look is due, or somebody is gone."""
        if self._vigil is None:
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
            return
        try:
            async with asyncio.timeout(LOOK_INTERVAL_MS / 1000):
                await self._vigil.news.wait()
        except TimeoutError:
            return
        self._vigil.news.clear()  # on nodes that do not decide too, or they would never rest again

    def _miss(self) -> None:
        """The sessions of processes that are gone are over."""
        if self._vigil is not None:
            for node, epoch in self._vigil.gone:
                self._sessions.end(node, epoch, self._now_ms())

    async def _look(self) -> None:
        self._miss()
        over = self._sessions.expired(self._controller.image.brokers, self._now_ms())
        if over:
            for node, epoch in over:
                log.warning(
                    "broker fenced: it is gone, or was not heard of for a session", broker_id=node, broker_epoch=epoch
                )
            fenced = await self._controller.decide(FenceBrokers(brokers=over))
            assert isinstance(fenced, Mended)
            self._unfinished |= fenced.unfinished
        while self._unfinished:
            mended = await self._controller.decide(MendPartitions())
            assert isinstance(mended, Mended)
            self._unfinished = mended.unfinished
        if self._now_ms() - self._balanced_ms >= self._balance_interval_ms:
            self._balanced_ms = self._now_ms()
            moved = await self._controller.decide(ElectPreferred())
            assert isinstance(moved, BalanceResult)
            if moved.elected:
                log.info("leaders moved to the brokers that are preferred", partitions=moved.elected)


_ERRORS: Final[dict[type[Message], Any]] = {
    BrokerHeartbeatRequest: BrokerHeartbeatResponse,
    AlterPartitionRequest: AlterPartitionResponse,
    BrokerRegistrationRequest: BrokerRegistrationResponse,
    AllocateProducerIdsRequest: AllocateProducerIdsResponse,
    EnvelopeRequest: EnvelopeResponse,
}
"""What says that a whole request failed."""
