"""The end of a worker's REST server"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidemill.connect.rest import Asgi, Receive, Scope, Send
from tidemill.connect.serving import Server, serving

REQUEST = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"


async def answered(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def listening(app: Asgi, *, grace_s: int = 1) -> AsyncIterator[tuple[Server, tuple[str, int]]]:
    server = Server(app, grace_s=grace_s)
    listener = socket.create_server(("127.0.0.1", 0))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([listener])
    yield server, listener.getsockname()


@pytest.mark.parametrize("turns", range(8))
async def test_who_connects_in_the_moment_of_the_end_is_not_served_on(turns: int) -> None:
    """At each turn of the loop between the system's accept and uvicorn's knowing of the connection."""
    async with listening(answered, grace_s=20) as (server, address):
        with socket.create_connection(address) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            began = asyncio.get_running_loop().time()
            await server.shutdown()
            assert asyncio.get_running_loop().time() - began < 10, "the end of the grace was waited for"
            gc.collect()  # asyncio itself drops what it accepts while it stops listening, and does not close it
            client.setblocking(False)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""


async def test_an_answer_that_is_under_way_is_given_and_the_connection_closed() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await go_on.wait()
        await answered(scope, receive, send)

    async with listening(slow) as (server, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(REQUEST)
        await asked.wait()
        ending = asyncio.create_task(server.shutdown())
        await asyncio.sleep(0)
        go_on.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 204")
        await ending
        writer.close()


async def test_what_takes_longer_than_the_grace_is_cut_off() -> None:
    cancelled = asyncio.Event()

    async def stuck(_scope: Scope, _receive: Receive, _send: Send) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with listening(stuck) as (server, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(REQUEST)
        await asyncio.sleep(0.05)
        await server.shutdown()
        await cancelled.wait()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        assert not server.server_state.connections
        writer.close()


async def test_the_end_of_the_context_is_the_end_of_the_server() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    async with serving(answered, listener):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(REQUEST)
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
    assert (await reader.read()).endswith(b"\r\n\r\n")
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_the_end_is_not_waited_for() -> None:
    """A server that looks now and then whether it is to end, ends that much later, and wakes for nothing."""
    took = []
    for _ in range(5):
        async with serving(answered, socket.create_server(("127.0.0.1", 0))):
            began = asyncio.get_running_loop().time()
        took.append(asyncio.get_running_loop().time() - began)
    assert min(took) < 0.15, "uvicorn gives connections a tenth of a second to end, and nobody has one"


async def test_answers_say_what_time_it_is() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(answered, listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        told = set()
        async with asyncio.timeout(10):
            while len(told) < 3:
                writer.write(REQUEST)
                lines = (await reader.readuntil(b"\r\n\r\n")).splitlines()
                told |= {line for line in lines if line.startswith(b"date: ")}
                await asyncio.sleep(0.1)
        writer.close()


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
async def test_a_worker_that_fails_or_is_cancelled_ends_its_server_too(error: type[BaseException]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    connected: list[asyncio.StreamReader | asyncio.StreamWriter] = []

    async def fail() -> None:
        async with serving(answered, listener):
            reader, writer = await asyncio.open_connection(*address)
            connected.extend((reader, writer))
            writer.write(REQUEST)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            raise error

    with pytest.raises(error):
        await fail()
    reader, writer = connected
    assert isinstance(reader, asyncio.StreamReader) and isinstance(writer, asyncio.StreamWriter)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
