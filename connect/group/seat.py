"""A worker's seat in its group: machine, member and herder, joined

What the member hears and what changes at the herder goes through `GroupMachine`; what it says is carried out here.
One event is one step, none inside another. Whoever asks about the group (the REST API, metrics) reads the seat.

Lives before this one on the same machine that are over (`lives`) are taken out of the group before it joins: it need
not wait for their sessions.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from tidemill.connect.group.incremental import Assignor
from tidemill.connect.group.lives import LifeFacts
from tidemill.connect.group.machine import (
    Action,
    Allow,
    EndAll,
    Event,
    Facts,
    GroupMachine,
    Lead,
    Lease,
    Listed,
    Look,
    Over,
    Stop,
    Tell,
    Trouble,
    WakeAt,
)
from tidemill.connect.group.sessioned import SessionedMachine
from tidemill.connect.group.sessioned_words import PROTOCOL as SESSIONED
from tidemill.connect.group.words import PROTOCOL, PROTOCOL_TYPE
from tidemill.connect.herder.placement import CONNECTOR, AloneIn, Instance, Placement, PlacementSettings
from tidemill.core.client import membership as m
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.group_member import GroupMember, News
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import BootClock, Clock
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

log = structlog.get_logger("tidemill.connect.group")

FAREWELL_S = 5.0
"""How long the goodbye of lives that are over may take; their sessions end by themselves."""

BEHIND_TOLD_MS = 5_000
"""A worker that reads the config topic for longer than this says so in its log."""

LOOK_S = 2.0
"""How long it may take to be told who is in the group; it is joined without that, too."""

FOREIGN_RETRY_S = 1.0
FOREIGN_LIMIT_S = 30.0
"""How long workers of another kind are waited for that may be about to leave the group, or are dead."""

FOREIGN = (
    "the group has members that are not Tidemill's workers, as Apache Connect's are: stop them first, have all "
    "workers speak as they do (tidemill.group.protocol=sessioned), or give this worker another group.id"
)

FOREIGN_TO_SESSIONED = (
    "the group has members that do not speak Kafka's protocol sessioned: Tidemill's workers without "
    "tidemill.group.protocol=sessioned, or Apache Connect's with another connect.protocol; stop them first, or give "
    "this worker another group.id"
)


class GroupRefused(Exception):
    """The worker cannot be in its group; one line for people."""


class Herding(Protocol):
    """What the seat needs of the herder."""

    def wanted(self) -> frozenset[Instance]: ...
    def running(self) -> frozenset[Instance]: ...
    def said_to_run(self) -> frozenset[Instance]: ...
    def allow(self, allowed: Allow) -> None: ...
    def lease(self, until_s: float) -> None: ...
    @property
    def config_offset(self) -> int: ...
    @property
    def generation_heard(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The group, how it is reached, and its times."""

    group: str
    worker_id: str
    client: Callable[[], ClusterClient]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    return_ms: int
    protocol: str = PROTOCOL
    topics: tuple[str, ...] = ()  # where the worker reads what is wanted, and keeps what comes of it
    alone_because: str = ""  # why the worker can be in no group, if it cannot

    @property
    def url(self) -> str:
        """Where the others reach this worker."""
        return f"http://{self.worker_id}"

    def of_member(self) -> m.MemberSettings:
        """The member's."""
        return m.MemberSettings(
            group=self.group,
            protocol_type=PROTOCOL_TYPE,
            protocol=self.protocol,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            request_timeout_ms=max(500, self.session_timeout_ms // 2),
        )

    def of_placement(self) -> PlacementSettings:
        """The leader's."""
        return PlacementSettings(
            lease_ms=self.session_timeout_ms, rebalance_timeout_ms=self.rebalance_timeout_ms, return_ms=self.return_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Rounds that this worker has been through; milliseconds."""

    completed: int = 0
    total_ms: int = 0
    longest_ms: int = 0
    ended_ms: int = 0  # by the seat's clock


class Seat:
    """The seat; `run` it until the worker has left."""

    def __init__(
        self,
        settings: GroupSettings,
        herder: Herding,
        *,
        over: tuple[LifeFacts, ...] = (),
        joined: Callable[[str, int, int], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = settings.url
        self.rounds = Rounds()
        self._settings = settings
        self._herder = herder
        self._dead = over
        self._joined = joined
        self._clock = clock or BootClock()
        self._member: GroupMember | None = None
        self._machine = self._new_machine()
        self._events: deque[Event] = deque()
        self._stepping = False
        self._began_ms = self._now_ms()
        self._unsettled_ms: int | None = self._began_ms
        self._wake_at_ms: int | None = None
        self._waking: asyncio.TimerHandle | None = None
        self._over: Over | None = None
        self._refused = 0  # the code, if the group does not take it
        self._has_sat = False
        self._behind_ms: int | None = None  # since when it is behind the config topic
        self._behind_told = False
        self._told: tuple[frozenset[str], str | None] | None = None  # who was there and who led when it was last told
        self.seated = asyncio.Event()  # since it first had work to do, or to wait for
        self.left = asyncio.Event()

    def _new_machine(self) -> GroupMachine | SessionedMachine:
        settings = self._settings
        if settings.protocol == SESSIONED:
            assignor = Assignor(
                settings.return_ms,
                lease_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
            )
            return SessionedMachine(settings.url, assignor)
        gone = frozenset(life.member_id for life in self._dead if life.member_id)
        alone = [AloneIn(generation=life.alone_in, overall=life.generation) for life in self._dead if life.alone_in > 0]
        placement = Placement(settings.of_placement(), alone)
        return GroupMachine(
            settings.url, placement, lease_ms=settings.session_timeout_ms, gone=gone, topics=settings.topics
        )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # ------------------------------------------------------------------- running

    async def run(self) -> None:
        """Be in the group until `stop` has been heard; raises GroupRefused."""
        until_s = self._clock.monotonic() + FOREIGN_LIMIT_S
        async with self._settings.client() as client:
            await self._take_leave(client)
            while True:
                await self._look_who_is_there(client)
                self._member = GroupMember(client, self._settings.of_member(), self._hear, clock=self._clock)
                self.look()
                await self._member.run()
                foreign = FOREIGN_TO_SESSIONED if self._settings.protocol == SESSIONED else FOREIGN
                if self._refused == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and not self._has_sat:
                    if self._clock.monotonic() < until_s and not self.left.is_set():
                        log.warning("group not joined yet", group=self._settings.group, reason=foreign)
                        await asyncio.sleep(FOREIGN_RETRY_S)
                        self._machine, self._over, self._refused = self._new_machine(), None, 0
                        continue
                    raise GroupRefused(f"cannot join group {self._settings.group!r}: {foreign}")
                break
        self.left.set()
        reason = None if self._over is None else self._over.reason
        if reason is not None:
            raise GroupRefused(f"no longer in group {self._settings.group!r}: {reason}")

    async def _take_leave(self, client: ClusterClient) -> None:
        """Take lives that are over out of the group."""
        members = tuple(MemberIdentity(member_id=life.member_id) for life in self._dead if life.member_id)
        if not members:
            return
        try:
            async with asyncio.timeout(FAREWELL_S):
                node_id = await client.coordinator(self._settings.group)
                for each in members:
                    request = LeaveGroupRequest(
                        group_id=self._settings.group, member_id=each.member_id, members=(each,)
                    )
                    await client.call_node(node_id, ApiKey.LEAVE_GROUP, request, LeaveGroupResponse)
        except (ConnectionFailed, KafkaError, TimeoutError) as error:
            log.info("a life before is waited for", group=self._settings.group, reason=str(error))

    async def _look_who_is_there(self, client: ClusterClient) -> None:
        """Ask who is in the group before joining it: should it have to lead at once, it has to know who is missing."""
        group = self._settings.group
        try:
            async with asyncio.timeout(LOOK_S):
                node_id = await client.coordinator(group)
                request = DescribeGroupsRequest(groups=(group,))
                answer = await client.call_node(node_id, ApiKey.DESCRIBE_GROUPS, request, DescribeGroupsResponse)
        except (ConnectionFailed, KafkaError, TimeoutError) as error:
            log.info("who is in the group is not known", group=group, reason=str(error))
            return
        for row in answer.groups:
            if row.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                self._events.append(Listed(members=frozenset(each.member_id for each in row.members)))

    def stop(self) -> None:
        """End in order: what runs is ended, then the group hears of it; see `left`."""
        self._step(Stop())

    def look(self) -> None:
        """Something may have changed at the herder."""
        self._step(Look())

    def _hear(self, news: News) -> None:
        match news:
            case m.Decide():
                event: Event = Lead(
                    decide=news, said_to_run=self._herder.said_to_run(), generation_heard=self._herder.generation_heard
                )
            case _:
                event = news
        self._step(event)

    def _step(self, event: Event) -> None:
        """One step and what comes of it; from within one, behind it."""
        self._events.append(event)
        if self._stepping or self._member is None:
            return
        self._stepping = True
        try:
            while self._events:
                self._count(event := self._events.popleft())
                for action in self._machine.step(event, self._facts(), self._now_ms()):
                    self._do(action)
                if self._machine.has_seat:
                    self._has_sat = True
                    self.seated.set()
                    self._tell_changes()
                self._tell_behind()
        finally:
            self._stepping = False

    def _tell_changes(self) -> None:
        """A line of the log when workers came or went, or another one leads; the first is the herder's."""
        there, leader = frozenset(self._machine.workers.values()), self.leader_url
        if leader is None or self._told == (there, leader):
            return
        if self._told is not None:
            log.info(
                "group changed",
                group=self._settings.group,
                leader=leader,
                workers=sorted(there),
                came=sorted(there - self._told[0]),
                went=sorted(self._told[0] - there),
            )
        self._told = there, leader

    def _tell_behind(self) -> None:
        """A line of the log when reading the config topic takes long, and when it is done."""
        reason, for_ms = self.behind
        if not reason:
            self._behind_ms = None
            if self._behind_told:
                log.info("the config topic is read", group=self._settings.group)
            self._behind_told = False
            return
        if self._behind_ms is None:
            self._behind_ms = self._now_ms()
        if for_ms >= BEHIND_TOLD_MS and not self._behind_told:
            self._behind_told = True
            log.warning("behind the config topic", group=self._settings.group, reason=reason, for_s=for_ms // 1000)

    def _facts(self) -> Facts:
        assert self._member is not None
        herder = self._herder
        return Facts(
            wanted=herder.wanted(),
            config_offset=herder.config_offset,
            running=herder.running(),
            settled=self._member.phase is m.Phase.STABLE,
        )

    def _do(self, action: Action) -> None:
        assert self._member is not None
        match action:
            case Tell(event=event):
                self._member.tell(event)
            case Allow():
                if self._joined is not None:
                    self._joined(self._machine.member_id, action.generation, self._machine.alone_in)
                self._herder.allow(action)
            case Lease(until_ms=until_ms):
                self._herder.lease(until_ms / 1000)
            case EndAll(reason=reason):
                self._herder.lease(0.0)
                log.warning("no longer in the group", group=self._settings.group, reason=reason)
            case WakeAt(at_ms=at_ms):
                self._wake_at(at_ms)
            case Trouble(member_id=member_id, reason=reason):
                log.error("words of a worker not understood", member=member_id, reason=reason)
            case Over():
                self._over = action

    def _wake_at(self, at_ms: int) -> None:
        if self._waking is not None:
            self._waking.cancel()
        delay_s = max(0, at_ms - self._now_ms()) / 1000
        self._waking = asyncio.get_running_loop().call_later(delay_s, self.look)

    def _count(self, event: Event) -> None:
        """Keep count of rounds."""
        now_ms = self._now_ms()
        match event:
            case m.Refused(error_code=code):
                self._refused = code
            case m.Unsettled() | m.Lost() if self._unsettled_ms is None:
                self._unsettled_ms = now_ms
            case m.Assigned():
                took_ms = 0 if self._unsettled_ms is None else now_ms - self._unsettled_ms
                self._unsettled_ms = None
                self.rounds = Rounds(
                    completed=self.rounds.completed + 1,
                    total_ms=self.rounds.total_ms + took_ms,
                    longest_ms=max(self.rounds.longest_ms, took_ms),
                    ended_ms=now_ms,
                )

    # ----------------------------------------------------------------- who asks

    @property
    def is_leader(self) -> bool:
        """Whether this worker decides for the group now."""
        return self._machine.leads and self._machine.has_seat

    @property
    def leader_url(self) -> str | None:
        """Where the leader answers, if there is one that this worker knows."""
        return self._machine.leader_url

    @property
    def phase(self) -> str:
        """`stable`, `rebalancing` (in a round; what runs goes on) or `joining` (nothing runs)."""
        if not self._machine.has_seat:
            return "joining"
        return "stable" if self._unsettled_ms is None else "rebalancing"

    @property
    def assigned(self) -> dict[Instance, str]:
        """Who is to do what by the last plan, as addresses."""
        return {instance: holder.url for instance, holder in self._machine.plan.assigned.items()}

    @property
    def workers(self) -> dict[str, str]:
        """Addresses of the members of the last round, by member id."""
        return dict(self._machine.workers)

    @property
    def generation(self) -> int:
        """Of the last round."""
        return self._machine.plan.generation

    @property
    def unsettled_ms(self) -> int | None:
        """For how long there has been no assignment that is in force; None while there is one."""
        return None if self._unsettled_ms is None else self._now_ms() - self._unsettled_ms

    @property
    def settled_ms(self) -> int | None:
        """How long ago the last round ended."""
        return self._now_ms() - self.rounds.ended_ms if self.rounds.completed else None

    @property
    def holds_lease(self) -> bool:
        """Whether this worker may do what it was assigned."""
        return self._machine.holds_lease

    @property
    def trouble(self) -> tuple[str, int]:
        """What keeps it from the group's coordinator, and for how many milliseconds; an empty text if nothing does."""
        return ("", 0) if self._member is None else self._member.trouble

    @property
    def behind(self) -> tuple[str, int]:
        """What of the config topic it has to read before it may begin what is new to it, and for how many milliseconds.

        An empty text where nothing is waited for, as all but always.
        """
        since_ms = self._behind_ms
        return self._machine.behind, 0 if since_ms is None or not self._machine.behind else self._now_ms() - since_ms

    def holder_url(self, connector: str, task: int | None = None) -> str | None:
        """Where the worker answers that does a task, or the connector itself; None while nobody does."""
        holder = self._machine.plan.assigned.get(Instance(connector, CONNECTOR if task is None else task))
        return None if holder is None else holder.url

    def others_hold(self, connector: str) -> bool:
        """Whether another worker may be doing a task of this connector."""
        machine = self._machine
        return any(
            instance.connector == connector and instance.task != CONNECTOR and holder.member_id != machine.member_id
            for instance, holder in machine.plan.holders.items()
        )
