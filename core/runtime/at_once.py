"""A future whose callbacks run in the turn that settles it

Those of an ordinary one run in the next turn of the event loop: the loop asks the kernel for news in between, and what
was begun before comes first. Where a client waits for nothing else that is a good part of its time.

So whoever settles one calls what others have left there, and those must leave alone what it is in the middle of. One
that raises keeps no other from being called, nor whoever settles it from going on: the event loop is told, as of any
callback. It is for callbacks only; a task cannot wait for it.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, cast


class _AtOnce:
    """What such a future takes for its event loop."""

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> None:
        """Not soon: now, and in the context of whoever settles it."""
        try:
            callback(*args)
        except Exception as error:
            self.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})

    def get_debug(self) -> bool:
        """As an event loop says it."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What a callback raises, and the exception of one that is gone and that nobody has asked for."""
        asyncio.get_running_loop().call_exception_handler(context)


_AT_ONCE = cast(asyncio.AbstractEventLoop, _AtOnce())


def future_at_once() -> "asyncio.Future[Any]":
    """A new one."""
    return asyncio.Future(loop=_AT_ONCE)
