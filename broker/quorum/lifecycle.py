"""One broker's life in a cluster, as the broker sees it

It registers, which gives it an epoch; heartbeats tell the active controller that it is there and how much of the
metadata it has taken in, and the answers whether it may lead. When it is to stop it says so, and goes when the
controller says that others lead what it led, or when that takes too long.

Somebody else with the same id is one of two: what is left of the process before, whose session will end, or another
broker that was given the id by mistake. The one is waited for; when the time for that is over, it is the other. And a
broker that hears that its epoch is over was replaced while it runs: it must not go on.

Pure: `step` says what is to be asked; who asks tells it of the outcome, one request at a time.
"""

import enum
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.core.error_code import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSettings:
    """Kafka's `broker.heartbeat.interval.ms`, `initial.broker.registration.timeout.ms`; all in milliseconds."""

    heartbeat_interval_ms: int = 2_000
    registration_timeout_ms: int = 60_000
    retry_ms: int = 500
    """Between a request that failed and the next."""
    shutdown_timeout_ms: int = 30_000
    """So long a broker that is to stop waits for others to take over."""


class Stage(enum.Enum):
    """How far a broker is."""

    REGISTERING = "registering"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Nothing but the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The controller has taken the registration in."""

    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    """How the controller sees this broker."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The request was refused, or (NETWORK_EXCEPTION) nobody answered; `message` says it in words."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTaken:
    """Metadata up to this offset, exclusive, is what this broker goes by."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StandBack:
    """Be fenced for as long as this is `wanted`."""

    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Leave in order."""


Event: TypeAlias = Tick | Registered | HeartbeatAnswered | Failed | MetadataTaken | StandBack | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """Ask to be registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Say that this broker is there; `metadata_offset` is that of the last record taken in."""

    broker_epoch: int
    metadata_offset: int
    want_shut_down: bool
    want_fence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Nothing more is to be asked: stop serving. With a `reason` the broker was driven out and must say it."""

    reason: str | None = None


Action: TypeAlias = Register | Heartbeat | Leave

FOR_GOOD = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION})
"""Refusals of a registration that no time mends."""

NOBODY_ANSWERED = (
    "no active controller has answered: start a majority of the controllers, and see that this broker reaches them "
    "(controller.quorum.voters)"
)


class Lifecycle:
    """Mutable: changes by `step` only."""

    def __init__(self, node_id: int, *, now_ms: int, settings: LifeSettings) -> None:
        self.stage = Stage.REGISTERING
        self.broker_epoch = -1
        self.is_fenced = True
        self.trouble = ""
        """Why the last request failed, for whoever looks at the broker; empty if it did not."""
        self.answered_ms = now_ms
        """When the controller last said something about this broker."""
        self.known_ms = now_ms
        """When it was asked what it said last: the answer may have waited, for as long as this process was paused."""
        self._asked_ms = now_ms
        self._node_id = node_id
        self._settings = settings
        self._metadata_offset = -1
        self._asking = False
        self._stands_back = False
        self._due_ms = now_ms
        self._deadline_ms = now_ms + settings.registration_timeout_ms

    def next_deadline_ms(self) -> int | None:
        """When a Tick is due at the latest."""
        if self.stage is Stage.STOPPED:
            return None
        if self.stage in (Stage.REGISTERING, Stage.STOPPING):
            return self._deadline_ms if self._asking else min(self._due_ms, self._deadline_ms)
        return None if self._asking else self._due_ms

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Take one event in; returns what is to be done."""
        if self.stage is Stage.STOPPED:
            return []
        match event:
            case Registered():
                self._asking, self.trouble, self.answered_ms, self.known_ms = False, "", now_ms, self._asked_ms
                self.broker_epoch, self._due_ms = event.broker_epoch, now_ms
                if self.stage is Stage.REGISTERING:
                    self.stage = Stage.STARTING
            case HeartbeatAnswered():
                self._answered(event, now_ms)
            case Failed():
                self._failed(event, now_ms)
            case MetadataTaken():
                self._metadata_offset = max(self._metadata_offset, event.offset - 1)
                if self.stage is Stage.STARTING and self.is_fenced and self._metadata_offset >= self.broker_epoch:
                    self._due_ms = min(self._due_ms, now_ms)  # it is waited for: clients are let in when it leads
            case StandBack():
                if event.wanted != self._stands_back and self.stage is Stage.RUNNING:
                    self._stands_back, self._due_ms = event.wanted, now_ms
            case Stop():
                self._stop(now_ms)
        return self._proceed(now_ms)

    def _answered(self, event: HeartbeatAnswered, now_ms: int) -> None:
        self._asking, self.trouble, self.is_fenced = False, "", event.is_fenced
        self.answered_ms, self.known_ms = now_ms, self._asked_ms
        self._due_ms = now_ms + self._settings.heartbeat_interval_ms
        if self.stage is Stage.STARTING and not event.is_fenced:
            self.stage = Stage.RUNNING
        elif self.stage is Stage.STARTING and self._metadata_offset < self.broker_epoch:
            pass  # the next one is due when it has taken in its own registration
        elif self.stage is Stage.STARTING:
            self._due_ms = now_ms + self._settings.retry_ms
        elif self.stage is Stage.STOPPING and event.should_shut_down:
            self.stage = Stage.STOPPED
        elif self.stage is Stage.STOPPING:
            self._due_ms = now_ms + self._settings.retry_ms

    def _failed(self, event: Failed, now_ms: int) -> None:
        self._asking = False
        self.trouble = event.message or event.error.name
        self._due_ms = now_ms + self._settings.retry_ms
        registering = self.stage is Stage.REGISTERING
        if registering and event.error in FOR_GOOD:
            self._deadline_ms = now_ms
        elif self.stage is Stage.STOPPING and event.error is ErrorCode.NOT_CONTROLLER:
            self._deadline_ms = now_ms  # nobody was elected all the time: the others are away, or stopping too
        elif not registering and event.error is ErrorCode.STALE_BROKER_EPOCH:
            self.trouble = (
                f"another broker has registered with node.id={self._node_id}: give each broker an id of its own, and "
                "start only one process on each data folder (or it was away and unregistered meanwhile: start it again)"
            )
            self._deadline_ms = now_ms
            self.stage = Stage.REGISTERING  # nobody's any more

    def _stop(self, now_ms: int) -> None:
        if self.stage in (Stage.STARTING, Stage.RUNNING):
            self._due_ms = now_ms
            self._deadline_ms = now_ms + self._settings.shutdown_timeout_ms
            self.stage = Stage.STOPPING
        elif self.stage is Stage.REGISTERING:
            self.stage = Stage.STOPPED

    def _proceed(self, now_ms: int) -> list[Action]:
        if self.stage is Stage.STOPPED:
            return [Leave()]
        if self.stage in (Stage.REGISTERING, Stage.STOPPING) and now_ms >= self._deadline_ms:
            stopping = self.stage is Stage.STOPPING
            self.stage = Stage.STOPPED
            return [Leave(reason=None if stopping else self.trouble or NOBODY_ANSWERED)]
        if self._asking or now_ms < self._due_ms:
            return []
        self._asking, self._asked_ms = True, now_ms
        if self.stage is Stage.REGISTERING:
            return [Register()]
        stopping = self.stage is Stage.STOPPING
        return [
            Heartbeat(
                broker_epoch=self.broker_epoch,
                metadata_offset=self._metadata_offset,
                want_shut_down=stopping,
                want_fence=self._stands_back and not stopping,
            )
        ]
