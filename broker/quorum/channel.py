"""The way to the active controller, wherever it is

Which node decides is known from the quorum, and it changes. So whoever wants something of it asks here: the request
goes to the node that leads, or no way at all where that is this one; where none leads, or the one that was thought to
does not any more, it waits for the next, up to a limit.

A request whose answer is lost may have been carried out: it is not sent twice by itself. Only what was refused because
another node decides is, and what its sender says may be asked `again`. Such a request is not waited for at a node that
another has taken over from: what that one had decided by then holds, what it had not never will, and the new controller
knows which before it decides anything.
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

LAST_WORD_S: Final = 1.0
"""So long the answer of a node may be on its way that another has taken over from."""


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

    async def ask(self, request: Message, *, timeout_s: float, again: bool = False) -> Message:
        """The active controller's answer; raises NotController if there is none in time, and Unreachable.

        `again`: also where an answer is lost, until the time is over, but not where it would be so again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        refused: Address | None = None  # by whom, the last time
        lost: Unreachable | None = None  # the last answer that was
        while True:
            left_s = deadline - loop.time()
            if left_s <= 0:
                if lost is not None:
                    raise lost
                raise NotController("no active controller was found in time: see the quorum's status")
            where = None if self._quorum.leads else self._quorum.leader_address
            if not self._quorum.leads and (where is None or where == refused):
                await self._wait(min(left_s, RETRY_S))
                refused = None
                continue
            try:
                answer = await self._answer_of(where, request, left_s, again)
            except Unreachable as error:
                if not again or error.lasting:
                    raise
                lost = error
            else:
                if error_of(answer) != ErrorCode.NOT_CONTROLLER:
                    return answer
            refused = where
            await self._wait(min(left_s, RETRY_S))

    async def _answer_of(self, where: Address | None, request: Message, timeout_s: float, again: bool) -> Message:
        """That of the node there, or of this one."""
        if where is None:
            return await self._ask_here(request, timeout_s)
        if not again:
            return await self._transport.call(where, request, timeout_s=timeout_s)
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(self._called(where, request, timeout_s))
            followed = tasks.create_task(self._is_followed(where))
            await asyncio.wait((call, followed), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((call,), timeout=LAST_WORD_S)
            call.cancel()
            followed.cancel()
        answer = Unreachable(where, "another controller has taken over") if call.cancelled() else call.result()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _called(self, where: Address, request: Message, timeout_s: float) -> Message | Exception:
        try:
            return await self._transport.call(where, request, timeout_s=timeout_s)
        except Exception as error:  # as it is, and not as one of a group
            return error

    async def _is_followed(self, where: Address) -> None:
        """Return when another than the node there decides."""
        while not self._quorum.leads and self._quorum.leader_address in (None, where):
            await self._quorum.changed()

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
