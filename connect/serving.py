"""The REST server of a worker, as a part of its event loop

uvicorn, but for what it takes for granted: that it is the program, and that the program ends with it. Signals are the
worker's. A connection that was accepted in the very moment of the end is closed, too, which uvicorn does not see: left
alone it would be served on for as long as the loop runs, by a worker that has left its group. And it is told when to
end, where uvicorn looks ten times a second.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn

from tidemill.connect.rest import Asgi

GRACE_S: Final = 5
"""How long requests that are under way may take when the server is to end; then they are cancelled."""

LATE_S: Final = 0.05
"""Between two looks for connections that came too late."""

DATE_S: Final = 1.0
"""How often the date is written that answers bear."""


class Server(uvicorn.Server):
    """A server whose end is the end of all its connections."""

    def __init__(self, app: Asgi, *, grace_s: int = GRACE_S) -> None:
        self._ending = asyncio.Event()
        super().__init__(
            uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=grace_s)
        )
        self.listening = asyncio.Event()

    def end(self) -> None:
        """Serve no longer than what is under way."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Keep the date until the end."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._ending.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when it has begun to accept."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, with every connection; a request that is answered before `grace_s` is over has its answer."""
        async with asyncio.TaskGroup() as tasks:
            closing = tasks.create_task(self._close_latecomers(), name="latecomers")
            try:
                await super().shutdown(sockets)
            finally:
                closing.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _close_latecomers(self) -> None:
        while True:
            await asyncio.sleep(LATE_S)
            for connection in list(self.server_state.connections):
                if not connection.transport.is_closing():
                    connection.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def serving(app: Asgi, listener: socket.socket) -> AsyncIterator[None]:
    """Serve what connects to the listener for as long as the context is open, whatever ends it."""
    server = Server(app)
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]), name="rest")
        await server.listening.wait()
        try:
            yield
        except (Exception, asyncio.CancelledError) as error:  # of it the group would cancel the server, unclosed
            failure = error
        finally:
            server.end()
    if failure is not None:
        raise failure
