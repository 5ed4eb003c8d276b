"""A group member on a cluster's connections

Runs the machine of `tidemill.core.client.membership`: sends what it asks for, each request in a task of its own, and
tells it what came back and what time it is. The owner hears what concerns it (`Decide`, `Assigned`, `Leased`,
`Unsettled`, `Lost`, `Left`, `Refused`) in a plain call from within the step, and answers with `tell`, at once or later.

Joins and heartbeats go over connections of their own (`Lane`): a broker answers a connection in order, and a join is
answered only when everybody has joined.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from ..errors import KafkaError
from ..runtime.clock import Clock, SystemClock
from ..wire.message import Message
from .cluster import ClusterClient
from .connection import ConnectionFailed
from .membership import (
    Action,
    Answered,
    Ask,
    Assigned,
    Decide,
    Event,
    Failed,
    Found,
    HangUp,
    Lane,
    Leased,
    Left,
    Lost,
    MemberMachine,
    MemberSettings,
    Phase,
    Refused,
    Seek,
    Tick,
    Unsettled,
    WakeAt,
)

News: TypeAlias = Decide | Assigned | Leased | Unsettled | Lost | Left | Refused


class GroupMember:
    """A member; it joins with the first `Describe` it is told, once it runs."""

    def __init__(
        self,
        client: ClusterClient,
        settings: MemberSettings,
        hear: Callable[[News], None],
        *,
        clock: Clock | None = None,
    ) -> None:
        self._machine = MemberMachine(settings)
        self._client = client
        self._settings = settings
        self._hear = hear
        self._clock = clock or SystemClock()
        self._tasks: asyncio.TaskGroup | None = None
        self._unsent: list[Seek | Ask] = []  # asked for before it ran
        self._requests: set[asyncio.Task[None]] = set()
        self._events: deque[Event] = deque()
        self._stepping = False
        self._wake_at_ms: int | None = None
        self._changed = asyncio.Event()
        self._over = False

    @property
    def phase(self) -> Phase:
        """Where it is."""
        return self._machine.phase

    @property
    def trouble(self) -> tuple[str, int]:
        """What keeps it from the coordinator, and for how many milliseconds now; an empty text if nothing does."""
        trouble = self._machine.trouble
        return trouble, self._now_ms() - self._machine.trouble_since_ms if trouble else 0

    async def run(self) -> None:
        """Be a member until the group was left, refuses it, or this is cancelled, which leaves it to its session."""
        async with asyncio.TaskGroup() as self._tasks:
            for action in self._unsent:
                self._send(action)
            await self._keep_time()
            for request in self._requests:
                request.cancel()

    def tell(self, event: Event) -> None:
        """Take in an event of the owner's; from within `hear` it waits for the end of the step."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                for action in self._machine.step(self._events.popleft(), self._now_ms()):
                    self._do(action)
        finally:
            self._stepping = False

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    async def _keep_time(self) -> None:
        while not self._over:
            wait_s = None if self._wake_at_ms is None else max(0, self._wake_at_ms - self._now_ms()) / 1000
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                self._wake_at_ms = None
                self.tell(Tick())
            self._changed.clear()

    def _do(self, action: Action) -> None:
        match action:
            case Seek() | Ask():
                self._send(action)
            case WakeAt(at_ms=at_ms):
                self._wake_at_ms = at_ms
                self._changed.set()
            case HangUp(node_id=node_id):
                for lane in Lane:
                    connection = self._client.open_connection(node_id, self._lane(lane))
                    if connection is not None:
                        connection.close()
            case Left() | Refused():
                self._over = True
                self._changed.set()
                self._hear(action)
            case _:
                self._hear(action)

    # ---------------------------------------------------------------- requests

    def _send(self, action: Seek | Ask) -> None:
        if self._tasks is None:
            self._unsent.append(action)
            return
        work = self._seek(action) if isinstance(action, Seek) else self._ask(action)
        request = self._tasks.create_task(work, name=f"request {action.token} of {self._settings.group}'s member")
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _seek(self, seek: Seek) -> None:
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                found: Event = Found(token=seek.token, node_id=await self._client.coordinator(self._settings.group))
        except (ConnectionFailed, KafkaError, TimeoutError) as error:
            found = _failed(seek.token, error)
        self.tell(found)

    async def _ask(self, ask: Ask) -> None:
        try:
            async with asyncio.timeout(ask.timeout_ms / 1000):
                connection = await self._client.connection(ask.node_id, self._lane(ask.lane))
                answer = await connection.request(ask.key, ask.request, Message, timeout_ms=ask.timeout_ms)
            heard: Event = Answered(token=ask.token, answer=answer)
        except (ConnectionFailed, KafkaError, TimeoutError) as error:
            heard = _failed(ask.token, error)
        self.tell(heard)

    def _lane(self, lane: Lane) -> str:
        return f"group {self._settings.group} {lane.value}"


def _failed(token: int, error: Exception) -> Failed:
    if isinstance(error, KafkaError) and not error.retriable:
        return Failed(token=token, reason=str(error), error_code=error.code)
    return Failed(token=token, reason=str(error) or "no answer in time")
