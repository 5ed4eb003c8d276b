"""Tasks brought to the leader: a real HTTP server that plays it"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
import pytest

from tidemill.connect.peer_client import PeerClient
from tidemill.connect.signing import MADE_FROM, judge
from tidemill.connect.task_submission import NeverTaken, NotTaken, TaskSubmission

KEY = b"k" * 32


@dataclass
class Group:
    """What a worker that does not lead knows."""

    leader_url: str | None
    is_leader: bool = False
    url: str = "http://127.0.0.1:1"

    def holder_url(self, connector: str, task: int | None) -> str | None:
        return None


class Leader:
    """Writes down what it is sent, and says what the test wants."""

    def __init__(self) -> None:
        self.status = b"204 No Content"
        self.body = b""
        self.line = b""
        self.headers: dict[str, str] = {}
        self.content = b""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health/live "):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        self.line, *lines = head.strip().split(b"\r\n")
        self.headers = {name.decode(): value.decode() for name, value in (line.split(b": ", 1) for line in lines)}
        self.content = await reader.readexactly(int(self.headers["content-length"]))
        length = b"" if self.status.startswith(b"204") else b"content-length: %d\r\n" % len(self.body)
        writer.write(b"HTTP/1.1 " + self.status + b"\r\n" + length + b"\r\n" + self.body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def leader() -> AsyncIterator[tuple[Leader, str]]:
    leader = Leader()
    server = await asyncio.start_server(leader.talk, "127.0.0.1", 0)
    async with server:
        yield leader, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def submission(url: str | None, key: bytes | None = KEY) -> TaskSubmission:
    return TaskSubmission(group=Group(url), peers=PeerClient(), key=lambda: key, algorithm="HmacSHA256")


async def test_tasks_arrive_signed_over_their_very_bytes(leader: tuple[Leader, str]) -> None:
    told, url = leader
    await submission(url).submit("a/b", [{"b": "2", "a": "1"}, {}], 17)
    assert told.line == b"POST /connectors/a%2Fb/tasks?forward=true HTTP/1.1"
    assert told.content == b'[{"b":"2","a":"1"},{}]'
    assert told.headers["content-type"] == "application/json" and told.headers[MADE_FROM] == "17"
    assert judge(told.headers, told.content, KEY, ["HmacSHA256"]) is None


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (b"403 Forbidden", orjson.dumps({"error_code": 403, "message": "invalid signature"}), "403: invalid signature"),
        (b"409 Conflict", orjson.dumps({"message": "m" * 5_000}), "409: mmm"),
        (b"503 Unavailable", b"<html>", "503: b'<html>'"),
        (b"302 Found", b"", "302"),
    ],
)
async def test_what_is_refused_may_be_taken_later(
    leader: tuple[Leader, str], status: bytes, body: bytes, said: str
) -> None:
    told, url = leader
    told.status, told.body = status, body
    with pytest.raises(NotTaken, match=said) as caught:
        await submission(url).submit("c", [], 1)
    assert not isinstance(caught.value, NeverTaken) and len(str(caught.value)) < 2_000


async def test_what_does_not_fit_is_never_taken(leader: tuple[Leader, str]) -> None:
    told, url = leader
    told.status, told.body = b"413 Too Large", b'{"message":"too large"}'
    with pytest.raises(NeverTaken, match="too large"):
        await submission(url).submit("c", [{"a": "x"}], 1)


async def test_without_a_leader_or_a_key_nothing_is_sent(leader: tuple[Leader, str]) -> None:
    told, url = leader
    for group_url, key in ((None, KEY), ("http://127.0.0.1:1/", KEY), (url, None)):
        with pytest.raises(NotTaken):
            await submission(group_url, key).submit("c", [], 1)
    assert told.line == b""


async def test_a_leader_that_is_gone_is_named(leader: tuple[Leader, str]) -> None:
    server = await asyncio.start_server(leader[0].talk, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    with pytest.raises(NotTaken, match=f"{url}: Connection refused"):
        await submission(url).submit("c", [], 1)
