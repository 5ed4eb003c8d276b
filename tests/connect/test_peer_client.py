"""HTTP to another worker: a real server, and servers that are none"""

import asyncio
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from tidemill.connect import peer_client
from tidemill.connect.peer_client import FellSilent, PeerAnswer, PeerClient, PeerFailure, Silent, Unreachable

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ALIVE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
"""As good a sign of life as another."""

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def peer(talk: Talk) -> AsyncIterator[str]:
    """A server on a free port that does what the test says with each connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def client() -> AsyncIterator[PeerClient]:
    client = PeerClient()
    yield client
    client.close()


async def ask(client: PeerClient, url: str, body: bytes = b"", timeout_s: float = 30) -> PeerAnswer:
    return await client.ask(
        url, "PUT", "/connectors/a%2Fb/config?forward=true", {"accept": "x/y"}, body, timeout_s=timeout_s
    )


async def head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The head of the next request; whether it lives, the server says meanwhile."""
    while (request := await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health/live "):
        writer.write(ALIVE)
    return request


def saying(answer: bytes, heard: list[bytes] | None = None) -> Talk:
    """Hears a request with a body and answers; as often as it is asked."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await head(reader, writer)
            length = next(
                int(line.split(b":")[1])
                for line in request.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            request += await reader.readexactly(length)
            if heard is not None:
                heard.append(request)
            writer.write(answer)
            await writer.drain()
            if b"connection: close" in answer:
                return

    return talk


async def test_a_request_arrives_as_it_was_given(client: PeerClient) -> None:
    heard: list[bytes] = []
    async with peer(saying(OK, heard)) as url:
        answer = await ask(client, url, b'{"a": "1"}')
    assert (answer.status, answer.header("content-length"), answer.body) == (200, "2", b"ok")
    first, _, rest = heard[0].partition(b"\r\n")
    assert first == b"PUT /connectors/a%2Fb/config?forward=true HTTP/1.1"
    assert b"\r\naccept: x/y\r\n" in rest and rest.endswith(b'\r\n\r\n{"a": "1"}')
    assert f"host: {url.removeprefix('http://')}\r\n".encode() in rest


async def test_a_path_in_front_of_an_address_stays(client: PeerClient) -> None:
    heard: list[bytes] = []
    async with peer(saying(OK, heard)) as url:
        await client.ask(f"{url}/proxy/", "POST", "/connectors", {}, b"", timeout_s=30)
    assert heard[0].startswith(b"GET /proxy/health/live HTTP/1.1\r\n")
    assert heard[1].startswith(b"POST /proxy/connectors HTTP/1.1\r\n")


async def test_one_connection_serves_many_requests(client: PeerClient) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await saying(OK)(reader, writer)

    async with peer(talk) as url:
        for _ in range(5):
            assert (await ask(client, url, b"x" * 1_000_000)).body == b"ok"
    assert connections == 1


async def test_requests_at_the_same_time_do_not_wait_for_one_another(client: PeerClient) -> None:
    arrived = asyncio.Barrier(3)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        await arrived.wait()
        writer.write(OK)

    async with peer(talk) as url, asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(ask(client, url))


async def test_no_more_connections_than_the_limit(client: PeerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_client, "CONNECTIONS_MAX", 2)
    open_now, most = 0, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        await head(reader, writer)
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")

    async with peer(talk) as url, asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(ask(client, url))
    assert most <= 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ],
)
async def test_an_answer_without_a_body(client: PeerClient, answer: bytes) -> None:
    async with peer(saying(answer)) as url:
        for _ in range(2):
            assert (await ask(client, url)).status == 204


async def test_an_error_is_an_answer_and_an_answer_may_come_in_pieces(client: PeerClient) -> None:
    pieces = b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        for byte in pieces:
            writer.write(bytes([byte]))
            await writer.drain()

    async with peer(talk) as url:
        answer = await ask(client, url)
    assert (answer.status, answer.body) == (409, b"abcde")


async def test_a_connection_that_was_closed_meanwhile_is_not_used(client: PeerClient) -> None:
    closed = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        writer.write(OK)
        await writer.drain()
        writer.close()
        closed.set()

    async with peer(talk) as url:
        for _ in range(3):
            assert (await ask(client, url)).body == b"ok"
            await closed.wait()
            closed.clear()
            await asyncio.sleep(0.01)  # for the end of the connection to arrive


async def test_nobody_there_is_told_from_everything_else(client: PeerClient) -> None:
    async with peer(saying(OK)) as url:
        pass
    with pytest.raises(Unreachable, match="refused"):
        await ask(client, url)


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1", "127.0.0.1:1", "http://", "http://a:99999", "ftp://a:1", "http://ä:1", ""]
)
async def test_an_address_of_something_else_is_nobody(client: PeerClient, url: str) -> None:
    with pytest.raises(Unreachable, match="is no http://HOST:PORT"):
        await ask(client, url)


HOSTILE = [
    (b"", "closed the connection without an answer"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "does not speak HTTP"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
    (b"\x15\x03\x01\x00\x02\x02\x46" * 3, "does not speak HTTP"),
    (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 500_000, "does not speak HTTP"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n" + b"z" * 2_000, "longer than 1000 bytes"),
]


@pytest.mark.parametrize(("said", "reason"), HOSTILE)
async def test_whoever_talks_nonsense_is_named(
    client: PeerClient, monkeypatch: pytest.MonkeyPatch, said: bytes, reason: str
) -> None:
    monkeypatch.setattr(peer_client, "ANSWER_BYTES_MAX", 1000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        writer.write(said)
        await writer.drain()

    async with peer(talk) as url:
        with pytest.raises(PeerFailure, match=reason) as caught:
            await ask(client, url)
    assert not isinstance(caught.value, Unreachable)


async def test_silence_is_waited_for_no_longer_than_the_limit(client: PeerClient) -> None:
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        await over.wait()

    async with peer(talk) as url:
        with pytest.raises(PeerFailure, match=r"no answer within 0\.05 s"):
            await ask(client, url, timeout_s=0.05)
        over.set()


async def test_what_is_no_http_is_not_sent(client: PeerClient) -> None:
    async with peer(saying(OK)) as url:
        with pytest.raises(PeerFailure, match="cannot be passed on"):
            await client.ask(url, "PUT", "/a b\r\nx: y", {}, b"", timeout_s=30)
        with pytest.raises(PeerFailure, match="cannot be passed on"):
            await client.ask(url, "PUT", "/a", {"accept": "x\r\ny: z"}, b"", timeout_s=30)


@pytest.mark.parametrize(("said", "reason"), HOSTILE[:-1])
async def test_whoever_talks_nonsense_when_asked_for_a_sign_of_life_is_sent_nothing(
    client: PeerClient, said: bytes, reason: str
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()

    async with peer(talk) as url:
        with pytest.raises(Unreachable, match=reason) as caught:
            await ask(client, url)
    assert not isinstance(caught.value, Silent)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life are missed sooner."""
    monkeypatch.setattr(peer_client, "SIGN_S", 0.2)
    monkeypatch.setattr(peer_client, "SILENCE_S", 0.5)
    monkeypatch.setattr(peer_client, "LOOK_S", 0.1)


@pytest.mark.usefixtures("impatient")
async def test_a_process_that_is_stopped_is_sent_nothing(client: PeerClient) -> None:
    """Its system still takes its connections. A server that is none of ours will do: whatever it says is a sign."""
    serve = (
        "import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); "
        "print(s.server_port, flush=True); s.serve_forever()"
    )
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", serve, stdout=pipe, stderr=pipe)
    assert server.stdout is not None and server.stderr is not None
    try:
        url = f"http://127.0.0.1:{int(await server.stdout.readline())}"
        assert (await ask(client, url)).status == 501
        server.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(5):
            with pytest.raises(Silent, match=r"no sign of life within 0\.2 s"):
                await ask(client, url)
        server.send_signal(signal.SIGCONT)
        assert (await ask(client, url)).status == 501
    finally:
        server.kill()
        _, told = await server.communicate()
    assert told.count(b"PUT") == 2 * told.count(b'"PUT') == 4  # per request a line, and one that says it is not known


@pytest.mark.usefixtures("impatient")
async def test_many_ask_one_that_hangs_over_one_connection_at_a_time(client: PeerClient) -> None:
    held, most = 0, 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal held, most
        held += 1
        most = max(most, held)
        try:
            await reader.read()
        finally:
            held -= 1

    async with peer(hang) as url, asyncio.timeout(5):
        asked = await asyncio.gather(*(ask(client, url) for _ in range(50)), return_exceptions=True)
    assert {type(each) for each in asked} == {Silent}
    assert 1 <= most <= 2  # the end of one may be read after the next was taken


@pytest.mark.usefixtures("impatient")
async def test_whoever_works_long_and_lives_is_waited_for(client: PeerClient) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await head(reader, writer):
            await asyncio.sleep(1.5)
            writer.write(OK)

    async with peer(talk) as url:
        assert (await ask(client, url)).body == b"ok"


@pytest.mark.usefixtures("impatient")
async def test_while_this_worker_is_stopped_itself_it_misses_no_sign(client: PeerClient) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        await asyncio.sleep(1.2)
        writer.write(OK)
        await writer.drain()

    async with peer(talk) as url, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(ask(client, url))
        await asyncio.sleep(0.05)
        time.sleep(0.8)  # noqa: ASYNC251  # the whole loop stands still
    assert asked.result().body == b"ok"


@pytest.mark.usefixtures("impatient")
async def test_whoever_stops_and_finishes_what_it_has_is_waited_for(client: PeerClient) -> None:
    """It listens no more, and the connection of the request stands."""
    listener = socket.create_server(("127.0.0.1", 0))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        server.close()
        await asyncio.sleep(1.5)
        writer.write(OK)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, sock=listener)
    assert (await ask(client, f"http://127.0.0.1:{listener.getsockname()[1]}")).body == b"ok"


@pytest.mark.usefixtures("impatient")
async def test_whoever_falls_silent_over_a_request_may_have_done_it(client: PeerClient) -> None:
    over, hangs = asyncio.Event(), False

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hangs
        if not hangs:
            await head(reader, writer)
            hangs = True
        await over.wait()

    async with peer(talk) as url:
        async with asyncio.timeout(5):
            with pytest.raises(FellSilent, match=r"no sign of life for 0\.5 s"):
                await ask(client, url)
        over.set()


@pytest.mark.usefixtures("impatient")
async def test_what_waits_for_its_turn_was_not_sent(client: PeerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_client, "CONNECTIONS_MAX", 1)
    over, hangs = asyncio.Event(), False

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hangs
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            if hangs:
                await over.wait()
            elif request.startswith(b"GET /health/live "):
                writer.write(ALIVE)
            else:
                await asyncio.sleep(0.3)
                hangs = True

    async with peer(talk) as url:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            first = tasks.create_task(_failure(client, url))
            await asyncio.sleep(0.1)
            second = tasks.create_task(_failure(client, url))
        over.set()
    assert (type(first.result()), type(second.result())) == (FellSilent, Silent)


@pytest.mark.usefixtures("impatient")
async def test_whoever_waited_for_its_turn_asks_for_a_sign_before_it_sends(
    client: PeerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn may have come because somebody else has given up."""
    for name, value in (("CONNECTIONS_MAX", 1), ("LOOK_S", 2.0), ("SILENCE_S", 3.0)):
        monkeypatch.setattr(peer_client, name, value)
    over, sent, hangs = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not hangs.is_set():
            if not (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health/live "):
                sent.set()
            elif not hangs.is_set():
                writer.write(ALIVE)
                if sent.is_set():
                    hangs.set()
        await over.wait()

    async with peer(talk) as url, asyncio.timeout(10):
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(ask(client, url))
            await sent.wait()
            second = tasks.create_task(_failure(client, url))
            await hangs.wait()
            await asyncio.sleep(0.1)
            first.cancel()
        over.set()
    assert type(second.result()) is Silent


async def _failure(client: PeerClient, url: str) -> PeerFailure:
    with pytest.raises(PeerFailure) as caught:
        await ask(client, url)
    return caught.value


def working(sent: asyncio.Event, seconds: float = 1.5) -> Talk:
    """Works long, and lives."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader, writer)
        sent.set()
        await asyncio.sleep(seconds)
        writer.write(OK)
        await writer.drain()

    return talk


@pytest.mark.usefixtures("impatient")
async def test_names_that_cannot_be_looked_up_meanwhile_cut_nobody_off(client: PeerClient) -> None:
    """Lookups wait for threads that others use too, for Kafka's cluster for one."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    sent = asyncio.Event()
    async with peer(working(sent)) as url, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(ask(client, url.replace("127.0.0.1", "localhost")))
        await sent.wait()
        tasks.create_task(asyncio.to_thread(time.sleep, 1.4))
    assert asked.result().body == b"ok"


@pytest.mark.usefixtures("impatient")
async def test_a_worker_without_a_descriptor_left_cuts_nobody_off(client: PeerClient) -> None:
    """That it cannot ask says nothing of who is asked."""
    sent, limits = asyncio.Event(), resource.getrlimit(resource.RLIMIT_NOFILE)
    async with peer(working(sent)) as url, asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(ask(client, url))
        await sent.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            await asyncio.sleep(1.4)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert asked.result().body == b"ok"


@pytest.mark.usefixtures("impatient")
async def test_what_a_silent_worker_has_not_taken_yet_is_taken_back(client: PeerClient) -> None:
    """Or it would be kept for it as long as it hangs, and given to it when it goes on."""
    over, ended, hangs, taken = asyncio.Event(), asyncio.Event(), False, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hangs, taken
        if hangs:
            await over.wait()
            return
        await head(reader, writer)
        hangs = True
        await over.wait()
        try:
            while data := await reader.read(1 << 20):
                taken += len(data)
        finally:
            ended.set()

    body = bytes(24 * 1024 * 1024)  # more than the systems on both sides hold
    async with peer(talk) as url, asyncio.timeout(10):
        with pytest.raises(FellSilent):
            await ask(client, url, body)
        over.set()
        await ended.wait()
    assert taken < len(body)


@pytest.mark.parametrize("url", ["http://a..b:8083", "http://[::1:8083"])
async def test_an_address_that_is_none_is_nobody(client: PeerClient, url: str) -> None:
    with pytest.raises(Unreachable):
        await ask(client, url)
