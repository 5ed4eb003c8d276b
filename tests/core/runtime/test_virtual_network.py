"""A network in memory, with everything that a network does to its users"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tidemill.core.runtime.virtual_network import GIVE_UP_S, VirtualNetwork
from tidemill.core.runtime.virtual_time import NotSimulated, VirtualLoop, place

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def run(main: Callable[[VirtualNetwork], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    """The result of `main` in a world with a network."""
    network = VirtualNetwork(random.Random(seed))
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(network=network)) as runner:
        return runner.run(main(network))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def served(handler: Any = echo) -> AsyncIterator[asyncio.Server]:
    with place("server"):
        server = await asyncio.start_server(handler, None, 9092)
    yield server
    server.close()


async def dial() -> Streams:
    with place("client"):
        return await asyncio.open_connection("server", 9092)


async def test_it_is_of_no_use_to_an_ordinary_loop() -> None:
    with pytest.raises(OSError):
        await asyncio.open_connection("server.invalid", 9092)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_however_they_are_cut(seed: int) -> None:
    async def main(_network: VirtualNetwork) -> bytes:
        async with served():
            reader, writer = await dial()
            for number in range(200):
                writer.write(b"%d," % number * 3)
            got = await reader.readexactly(len(b"".join(b"%d," % n * 3 for n in range(200))))
            writer.close()
            await writer.wait_closed()
            return got

    assert run(main, seed) == b"".join(b"%d," % number * 3 for number in range(200))


def test_addresses_are_places() -> None:
    async def main(_network: VirtualNetwork) -> tuple[Any, Any]:
        async with served() as server:
            _, writer = await dial()
            assert server.sockets[0].getsockname() == ("server", 9092)
            return writer.get_extra_info("peername"), writer.get_extra_info("sockname")[0]

    assert run(main) == (("server", 9092), "client")


def test_a_port_is_taken_once_and_free_again() -> None:
    async def main(_network: VirtualNetwork) -> None:
        async with served():
            with place("server"), pytest.raises(OSError, match="in use"):
                await asyncio.start_server(echo, None, 9092)
        with pytest.raises(ConnectionRefusedError):
            await dial()
        async with served():
            await dial()

    run(main)


def test_the_last_word_of_one_end_is_the_end_of_the_stream() -> None:
    async def says(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"all of it")
        writer.close()

    async def main(_network: VirtualNetwork) -> bytes:
        async with served(says):
            reader, _ = await dial()
            return await reader.read()

    assert run(main) == b"all of it"


def test_an_abort_is_a_reset_for_the_other_end() -> None:
    async def aborts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async def main(_network: VirtualNetwork) -> None:
        async with served(aborts):
            reader, writer = await dial()
            writer.write(b"x")
            with pytest.raises(ConnectionResetError):
                await reader.read()

    run(main)


def test_who_does_not_read_is_not_written_to_for_ever() -> None:
    async def ignores(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)
        while await reader.read(100_000):
            pass

    async def main(_network: VirtualNetwork) -> float:
        async with served(ignores):
            _, writer = await dial()
            for _ in range(100):
                writer.write(bytes(10_000))
                await writer.drain()
            took_s = asyncio.get_running_loop().time()
            writer.close()
            return took_s

    assert run(main) >= 60


def test_what_waits_at_a_cut_arrives_when_it_is_healed() -> None:
    async def main(network: VirtualNetwork) -> float:
        loop = asyncio.get_running_loop()
        async with served():
            reader, writer = await dial()
            network.cut("server", "client")
            writer.write(b"x")
            loop.call_later(10, network.heal, "server", "client")
            assert await reader.read(10) == b"x"
            return loop.time()

    assert 10 < run(main) < 11


def test_a_cut_that_stays_ends_the_connection_of_who_sends_only() -> None:
    async def main(network: VirtualNetwork) -> float:
        loop = asyncio.get_running_loop()
        async with served():
            reader, writer = await dial()
            network.cut("client", "server")
            writer.write(b"x")
            with pytest.raises(TimeoutError):
                await reader.read(10)
            return loop.time()

    assert GIVE_UP_S < run(main) < GIVE_UP_S + 1


def test_a_connection_is_not_made_over_a_cut() -> None:
    async def main(network: VirtualNetwork) -> None:
        async with served():
            network.cut("server", "client")
            await dial()  # one direction is enough to get in: the answer is only late
            network.cut("client", "server")
            with pytest.raises(TimeoutError):
                await dial()
            asyncio.get_running_loop().call_later(5, network.heal_all)
            await dial()

    run(main)


def test_after_a_power_cut_the_other_end_hears_nothing_until_it_asks_the_machine_that_is_back() -> None:
    async def main(network: VirtualNetwork) -> float:
        loop = asyncio.get_running_loop()
        async with served():
            reader, writer = await dial()
            network.vanish("server")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(100):
                    await reader.read(1)
            loop.call_later(5, network.appear, "server")
            writer.write(b"x")
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            return loop.time()

    assert 105 < run(main) < 106


def test_after_a_kill_the_other_end_is_reset_and_the_port_is_free() -> None:
    async def main(network: VirtualNetwork) -> None:
        async with served():
            reader, _ = await dial()
            network.kill("server")
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            async with served():
                await dial()

    run(main)


def test_one_connection_of_many_can_be_broken() -> None:
    async def main(network: VirtualNetwork) -> None:
        assert not network.break_one(3)
        async with served():
            (first, _), (second, writer) = await dial(), await dial()
            assert network.break_one(0)
            with pytest.raises(ConnectionResetError):
                await first.read(1)
            writer.write(b"x")
            assert await second.read(1) == b"x"

    run(main)


def test_a_protocol_that_fails_loses_its_connection_and_no_other() -> None:
    class Fails(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise ValueError("no")

    told: list[Any] = []

    async def main(_network: VirtualNetwork) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        with place("server"):
            await loop.create_server(Fails, None, 9092)
        (reader, writer), (other, _) = await dial(), await dial()
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await other.read(1)

    run(main)
    assert [type(each) for each in told] == [ValueError]


def test_tls_is_refused() -> None:
    async def main(_network: VirtualNetwork) -> None:
        with pytest.raises(NotSimulated, match="TLS"):
            await asyncio.get_running_loop().create_server(asyncio.Protocol, "server", 1, ssl=True)

    run(main)
