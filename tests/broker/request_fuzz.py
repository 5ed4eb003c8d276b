"""A whole broker in a loop of its own, fed with frames one by one, and ways to spoil frames

What a frame may lead to is decided here once: `Fed.feed` raises when the broker does anything but answer in the
protocol's own words or ask for the connection to be closed.
"""

import asyncio
import base64
import contextlib
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from tests.broker.broker_world import running_broker
from tidemill.broker.dispatch import DropConnection, Exchange, Peer, UnservedRequest
from tidemill.broker.node import Broker
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response

PEER = Peer(client_host="10.0.0.9", listener="PLAINTEXT", connection_id="fuzz", server_host="10.0.0.1", server_port=1)
GOLDEN = Path(__file__).parents[1] / "golden" / "client_frames.txt"
BUG_EVENTS = ("request failed unexpectedly", "response cannot be encoded")
PATIENCE_S = 20

EXTREMES = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\x7f\xff", b"\0\0\0\0"]


@dataclass(frozen=True, slots=True)
class ClientFrame:
    """One request as a client library sent it, without its size."""

    client: str
    api_key: int
    version: int
    frame: bytes


def client_frames() -> list[ClientFrame]:
    """The frames of `tests/golden/capture_frames.py`."""
    rows = (line.split() for line in GOLDEN.read_text().splitlines())
    return [ClientFrame(client, int(key), int(version), base64.b64decode(data)) for client, key, version, data in rows]


def header(key: int, version: int) -> bytes:
    """A plain request header; flexible versions read its last byte as an empty tag section."""
    return struct.pack(">hhih", key, version, 1, 1) + b"c"


def spoil(frame: bytes, rng: random.Random, first: int = 8) -> bytes:
    """`frame` with one to three things wrong behind byte `first`: bits, bytes, lengths, cuts, repeats."""
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        if len(data) <= first:
            break
        at = rng.randrange(first, len(data))
        kind = rng.randrange(6)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            extreme = rng.choice(EXTREMES)
            data[at : at + len(extreme)] = extreme
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            end = min(len(data), at + rng.randrange(1, 40))
            data[at:at] = data[at:end] * rng.randrange(1, 4)
    return bytes(data)


class Fed:
    """A broker that eats frames."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        self._loop = loop
        self.broker = broker
        self.answered = self.closed = 0

    def feed(self, frame: bytes) -> Any:
        """The decoded answer to one frame; None for none, and for a closed connection."""
        with capture_logs() as lines:
            try:
                answer = self._loop.run_until_complete(self._feed(frame))
            except (UnservedRequest, DropConnection):
                self.closed += 1
                answer = None
        bugs = [line for line in lines if line["event"] in BUG_EVENTS]
        assert not bugs, (frame.hex(), bugs)
        return answer

    async def _feed(self, frame: bytes) -> Any:
        dispatcher = self.broker.dispatcher
        exchange = dispatcher.start(memoryview(bytearray(frame)), PEER)
        if exchange.pending is not None:
            await self._wait(exchange)
        if not exchange.chunks:
            return None
        self.answered += 1
        data = b"".join(bytes(chunk) for chunk in exchange.chunks)
        assert struct.unpack_from(">i", data)[0] == len(data) - 4
        key, version = exchange.header.api_key, exchange.header.api_version
        return decode_response(key, version, data[4:])[1]

    async def _wait(self, exchange: Exchange) -> None:
        """As the server: futures end with their client, coroutines run to their end."""
        pending = exchange.pending
        assert pending is not None
        task: asyncio.Future[Any] = asyncio.ensure_future(pending)
        patience_s = 0.02 if asyncio.isfuture(pending) else PATIENCE_S
        await asyncio.wait([task], timeout=patience_s)
        if not task.done():
            assert asyncio.isfuture(pending), f"{ApiKey(exchange.header.api_key).name} takes {PATIENCE_S} s"
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            exchange.chunks = []
            return
        error = task.exception()
        if error is None:
            self.broker.dispatcher.answer(exchange, task.result(), PEER)
        else:
            self.broker.dispatcher.fail(exchange, error, PEER)


@contextlib.contextmanager
def fed_broker(folder: Path, **settings: str) -> Iterator[Fed]:
    """A broker in `folder`, in an event loop that runs only while it is fed."""
    loop = asyncio.new_event_loop()
    context = running_broker(folder, **settings)
    try:
        yield Fed(loop, loop.run_until_complete(context.__aenter__()))
    finally:
        loop.run_until_complete(context.__aexit__(None, None, None))
        loop.close()
