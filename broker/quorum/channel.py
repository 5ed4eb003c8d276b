"""The way to the active controller, wherever it is

Which node decides is known from the quorum, and it changes. So whoever wants something of it asks here: the request
goes to the node that leads, or no way at all where that is this one; where none leads, or the one that was thought to
does not any more, it waits for the next, up to a limit.

A request whose answer is lost may have been carried out: it is not sent twice by itself. Only what was refused because
another node decides is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tidemill.broker.quorum.transport import Transport, Unreachable
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import NotController
from tidemill.core.wire.message import Message

RETRY_S: Final = 0.1
"""Between a refusal and the next request, where nothing is heard of another leader."""


class Quorum(Protocol):
    """What has to be known of the quorum; an elected member knows it."""

    @property
    def leads(self) -> bool:
        """Whether this node is the active controller."""

    @property
    def leader_address(self) -> Address | None:
        """Where the active controller answers, if that is known."""

    async def changed(self) -> None:
        """Return when one of the two may be other than before."""


class ControllerChannel:
    """Asks the active controller; `here` answers where this node is that."""

    def __init__(self, quorum: Quorum, transport: Transport, here: Callable[[Message], Awaitable[Message]]) -> None:
        self._quorum = quorum
        self._transport = transport
        self._here = here

    async def ask(self, request: Message, *, timeout_s: float) -> Message:
        """The active controller's answer; raises NotController if there is none in time, and Unreachable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        refused: Address | None = None  # by whom, the last time
        while True:
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise NotController("no active controller was found in time: see the quorum's status")
            if self._quorum.leads:
                answer = await self._ask_here(request, left_s)
                where = None
            else:
                where = self._quorum.leader_address
                if where is None or where == refused:
                    await self._wait(min(left_s, RETRY_S))
                    refused = None
                    continue
                answer = await self._transport.call(where, request, timeout_s=left_s)
            if error_of(answer) != ErrorCode.NOT_CONTROLLER:
                return answer
            refused = where
            await self._wait(min(left_s, RETRY_S))

    async def _ask_here(self, request: Message, timeout_s: float) -> Message:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._here(request)
        except TimeoutError:
            here = self._quorum.leader_address or Address("this node", 0)
            raise Unreachable(here, f"no answer after {timeout_s:.0f} s") from None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._quorum.changed()
        except TimeoutError:
            pass


def error_of(answer: Any) -> int:
    """The error of a whole answer; 0 where it has none."""
    code: int = getattr(answer, "error_code", 0)
    return code
