"""Brokers' processes as their connections tell of them: real sockets, and servers that come and go"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tidemill.broker.quorum import vigil
from tidemill.broker.quorum.image import BrokerImage, ClusterImage
from tidemill.broker.quorum.vigil import Vigil
from tidemill.core.client.connection import Address
from tidemill.core.runtime.net import Dialer, OnFrame, OnLost, Stream, TcpDialer


class Server:
    """A broker's listener: it accepts, and is closed with all its connections."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)

    def drop(self) -> None:
        """Close the connections only."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()


def image(**fenced: bool) -> ClusterImage:
    return ClusterImage(brokers={int(name[1:]): broker(int(name[1:]), fenced[name]) for name in fenced})


def broker(node_id: int, fenced: bool) -> BrokerImage:
    return BrokerImage(
        node_id=node_id, epoch=7, incarnation_id=uuid.UUID(int=1), end_points=(), rack=None, fenced=fenced
    )


@asynccontextmanager
async def watched(server: Server, dialer: Dialer | None = None) -> AsyncIterator[Vigil]:
    found = Vigil(1, dialer or TcpDialer(), lambda _node: Address("127.0.0.1", server.port))
    task = asyncio.get_running_loop().create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])
        server.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_who_listens_no_more_is_gone_at_once() -> None:
    server = Server()
    await server.open()
    async with watched(server) as found:
        found.see(image(n1=False, n2=False))
        await until(lambda: server.connections == 1)
        server.close()
        async with asyncio.timeout(5):
            await found.news.wait()
        assert found.gone == {(2, 7)}
        assert found.misses(2)
        found.see(image(n1=False, n2=True))
        assert found.gone == set(), "it is fenced, which is all that there was to do"
        assert not found.misses(2)


async def test_a_connection_that_is_lost_is_no_broker() -> None:
    server = Server()
    await server.open()
    async with watched(server) as found:
        found.see(image(n2=False))
        await until(lambda: server.connections == 1)
        assert not found.misses(2)
        server.drop()
        await until(lambda: server.connections == 2)
        await until(lambda: not found.misses(2))
        assert not found.gone


async def test_a_connection_that_grows_old_is_renewed_and_nobody_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker would close it that has not heard of this node for ten minutes."""
    monkeypatch.setattr(vigil, "RENEW_S", 0.3)
    server = Server()
    await server.open()
    async with watched(server) as found, asyncio.timeout(10):
        found.see(image(n2=False))
        while server.connections < 4:
            assert not found.misses(2)
            await asyncio.sleep(0)
        assert not found.gone


async def test_who_is_refused_here_alone_is_not_missed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "LATER_S", 0.2)
    server = Server()
    await server.open()
    async with watched(server) as found:
        found.see(image(n2=False))
        await until(lambda: server.connections == 1)
        server.close()
        await until(lambda: bool(found.gone))
        assert found.misses(2)
        await until(lambda: not found.misses(2))
        assert found.gone == {(2, 7)}, "the controller may still look after it"


class Cut:
    """A network that is there for the first connection, and answers no other."""

    def __init__(self) -> None:
        self.lose: OnLost | None = None
        self.dialled = 0

    async def dial(self, host: str, port: int, on_frame: OnFrame, on_lost: OnLost) -> Stream:
        self.dialled += 1
        if self.lose is not None:
            await asyncio.Event().wait()
        self.lose = on_lost
        return await TcpDialer().dial(host, port, on_frame, on_lost)


async def test_who_is_lost_is_missed_at_once_and_no_longer_than_an_answer_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vigil, "LATER_S", 0.1)
    server, cut = Server(), Cut()
    await server.open()
    async with watched(server, cut) as found:
        found.see(image(n2=False))
        await until(lambda: cut.lose is not None and server.connections == 1)
        assert cut.lose is not None
        await asyncio.sleep(0)
        cut.lose(None)
        assert found.misses(2), "whoever lost the same process asks in this moment"
        await until(lambda: cut.dialled == 3)
        assert not found.misses(2), "silence is for sessions to judge"
        assert not found.gone


async def test_who_was_never_reached_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "LATER_S", 0.01)
    server = Server()
    await server.open()
    server.close()
    async with watched(server) as found:
        found.see(image(n2=False))
        await asyncio.sleep(0.3)
        assert not found.gone
        await server.open()
        await until(lambda: server.connections == 1)


async def test_fenced_brokers_and_this_one_are_left_alone() -> None:
    server = Server()
    await server.open()
    async with watched(server) as found:
        found.see(image(n1=False, n2=True))
        await asyncio.sleep(0.1)
        assert server.connections == 0


async def test_who_lets_nobody_stay_is_neither_missed_nor_called_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a listener does that is full, or that wants a certificate which this node does not have."""
    monkeypatch.setattr(vigil, "LATER_S", 0.2)
    server = Server()
    await server.open()
    async with watched(server) as found:
        found.see(image(n2=False))
        for times in (1, 2):
            await until(lambda times=times: server.connections == times)  # type: ignore[misc]
            server.drop()
        await until(lambda: not found.misses(2))
        for _ in range(20):  # a fiftieth of what a loop without a pause would make of it
            server.drop()
            await asyncio.sleep(0.02)
        assert server.connections <= 5
        assert not found.gone
