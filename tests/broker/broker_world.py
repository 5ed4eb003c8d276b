"""A whole broker in the test's own event loop, and a client that speaks any version of any request."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tidemill.broker.config import BrokerConfig
from tidemill.broker.node import Broker, open_broker
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.message import Message


@asynccontextmanager
async def running_broker(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker with its data in `folder` on a free port; settings are keys with underscores for dots."""
    raw = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    raw |= {key.replace("_", "."): value for key, value in settings.items()}
    async with open_broker(BrokerConfig.parse(raw)) as broker:
        yield broker


class WireClient:
    """One connection; requests one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation = 0

    async def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        """The answer to one request."""
        self._correlation += 1
        self.send(encode_request(key, version, self._correlation, "test-client", request))
        correlation, response = decode_response(key, version, await self.receive())
        assert correlation == self._correlation
        return response

    def send(self, data: bytes | bytearray) -> None:
        """Bytes as they are, requests with their sizes before them."""
        self._writer.write(data)

    async def receive(self) -> bytes:
        """The next response without its size; raises IncompleteReadError if the broker hangs up."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def wire_client(broker: Broker) -> AsyncIterator[WireClient]:
    """A connection to the first listener of `broker`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.servers[0].port)
    client = WireClient(reader, writer)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def broker_and_client(folder: Path, **settings: str) -> AsyncIterator[tuple[Broker, WireClient]]:
    """Both."""
    async with running_broker(folder, **settings) as broker, wire_client(broker) as client:
        yield broker, client
