"""A broker's life in a cluster, at work

`lifecycle` decides; here its requests go to the active controller, one at a time, and it is told of the outcome. Who
composes the broker says what it has taken in of the metadata, asks for its end, and hears when it has to stop.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.lifecycle import (
    Event,
    Failed,
    Heartbeat,
    HeartbeatAnswered,
    Leave,
    Lifecycle,
    LifeSettings,
    MetadataTaken,
    Register,
    Registered,
    Stage,
    StandBack,
    Stop,
    Tick,
)
from tidemill.broker.quorum.metadata import RegisterBroker
from tidemill.broker.quorum.node_wire import registration_to_wire
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.transport import Unreachable
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.broker_registration import BrokerRegistrationResponse

log = structlog.get_logger("tidemill.broker.quorum")

REQUEST_TIMEOUT_S: Final = 4.5
"""Half of a session: a heartbeat whose answer is lost leaves time for another one."""

_WORDS: Final = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process with this node.id is alive, or was until some seconds "
    "ago: give each broker an id of its own, and start only one process on each data folder",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers are of another cluster: the folder belongs to one that they do "
    "not know; give this broker an empty one, or its own controllers",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster runs features that this version does not have: start a newer one",
    ErrorCode.NOT_CONTROLLER: "no active controller was found: start a majority of the controllers, and see that this "
    "broker reaches them (controller.quorum.voters, controller.quorum.bootstrap.servers)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a broker says of itself; see `RegisterBroker` for the rest."""

    broker_id: int
    cluster_id: str
    incarnation_id: uuid.UUID
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    previous_broker_epoch: int = -1
    loses_nothing: bool = False


class BrokerLife:
    """`run` is the owner's to call; it ends when the broker has to stop."""

    def __init__(
        self,
        channel: ControllerChannel,
        identity: BrokerIdentity,
        *,
        clock: Clock,
        settings: LifeSettings,
        on_change: Callable[[Stage], None] = lambda _stage: None,
    ) -> None:
        self._channel = channel
        self._identity = identity
        self._clock = clock
        self._on_change = on_change
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self.machine = Lifecycle(identity.broker_id, now_ms=self._now_ms(), settings=settings)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    @property
    def broker_epoch(self) -> int:
        """Of this incarnation; -1 until it is registered."""
        return self.machine.broker_epoch

    def advertise(self, end_points: Sequence[BrokerEndpoint]) -> None:
        """Where clients find this broker is known now; before it is registered."""
        self._identity = replace(self._identity, end_points=tuple(end_points))

    def metadata_taken(self, offset: int) -> None:
        """The broker goes by what is committed up to there."""
        self._put(MetadataTaken(offset=offset))

    def stand_back(self, wanted: bool) -> None:
        """Be fenced from now on, or no longer."""
        self._put(StandBack(wanted=wanted))

    def stop(self) -> None:
        """Leave in order: `run` ends when others have taken over, or when that takes too long."""
        self._put(Stop())

    async def run(self) -> str | None:
        """Be a member of the cluster; returns None after a stop in order, else why it was driven out."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                event = await self._next_event()
                before = self.machine.stage
                for action in self.machine.step(event, self._now_ms()):
                    if isinstance(action, Leave):
                        self._tell(before)
                        if self._asking is not None:
                            self._asking.cancel()
                        return action.reason
                    self._asking = tasks.create_task(self._ask(action))
                self._tell(before)

    def _tell(self, before: Stage) -> None:
        if self.machine.stage is not before:
            log.info("broker", stage=self.machine.stage.value, broker_epoch=self.machine.broker_epoch)
            self._on_change(self.machine.stage)

    def _put(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()

    async def _next_event(self) -> Event:
        while not self._events:
            self._arrived.clear()
            deadline_ms = self.machine.next_deadline_ms()
            wait_s = None if deadline_ms is None else max(0, deadline_ms - self._now_ms()) / 1000
            try:
                async with asyncio.timeout(wait_s):
                    await self._arrived.wait()
            except TimeoutError:
                return Tick()
        return self._events.popleft()

    async def _ask(self, action: Register | Heartbeat) -> None:
        try:
            outcome = _outcome(await self._channel.ask(self._request(action), timeout_s=REQUEST_TIMEOUT_S))
        except Unreachable as error:
            self._put(Failed(error=ErrorCode.NETWORK_EXCEPTION, message=f"the active controller: {error}"))
            return
        except KafkaError as error:
            code = ErrorCode(error.code)
            self._put(Failed(error=code, message=_WORDS.get(code, str(error))))
            return
        except Exception as error:  # a bug: whatever it is, the machine has to hear that there is no answer
            log.exception("a request to the active controller failed")
            self._put(Failed(error=ErrorCode.UNKNOWN_SERVER_ERROR, message=f"{type(error).__name__}: {error}"))
            return
        self._put(outcome)

    def _request(self, action: Register | Heartbeat) -> Message:
        me = self._identity
        if isinstance(action, Heartbeat):
            return BrokerHeartbeatRequest(
                broker_id=me.broker_id,
                broker_epoch=action.broker_epoch,
                current_metadata_offset=action.metadata_offset,
                want_fence=action.want_fence,
                want_shut_down=action.want_shut_down,
            )
        return registration_to_wire(
            RegisterBroker(
                broker_id=me.broker_id,
                incarnation_id=me.incarnation_id,
                end_points=me.end_points,
                rack=me.rack,
                fenced=True,
                cluster_id=me.cluster_id,
                previous_broker_epoch=me.previous_broker_epoch,
                loses_nothing=me.loses_nothing,
            )
        )


def _outcome(answer: Any) -> Event:
    if answer.error_code:
        error = ErrorCode(answer.error_code)
        return Failed(error=error, message=_WORDS.get(error, error.name))
    if isinstance(answer, BrokerRegistrationResponse):
        return Registered(broker_epoch=answer.broker_epoch)
    assert isinstance(answer, BrokerHeartbeatResponse)
    return HeartbeatAnswered(
        is_caught_up=answer.is_caught_up, is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down
    )
