"""Requests passed on between workers: real HTTP servers, a scripted group

Statuses and texts were read in the source of Apache Kafka 4.x (HerderRequestHandler.java, RestClient.java).
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import pytest

from tidemill.connect import forwarding, peer_client
from tidemill.connect.entities import ServerInfo
from tidemill.connect.forwarding import POSITION, Forwarding
from tidemill.connect.loggers import LoggerLevels
from tidemill.connect.operations import OfficeLost, Operations
from tidemill.connect.peer_client import SIGN_PATH, PeerClient
from tidemill.connect.request_target import NO_LEADER, TOO_FAR
from tidemill.connect.rest import BODY_BYTES_MAX, OFFICE_LOST, Asgi, Parts, Receive, Scope, Send, create_app
from tidemill.connect.serving import Server
from tidemill.core.runtime.clock import SystemClock


@dataclass
class Worker:
    """One worker: what it knows of the group, what it was asked to decide, and how it answers."""

    url: str
    is_leader: bool = False
    leader_url: str | None = None
    holders: dict[tuple[str, int | None], str] = field(default_factory=dict)
    known: bool = True
    trouble: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b'{"answered": true}'
    offset: int = 0
    held_back: list[str] = field(default_factory=list)
    readable: asyncio.Event = field(default_factory=asyncio.Event)
    on_request: Callable[["Worker"], None] = lambda worker: None
    api: Asgi | None = None  # answers instead

    def holder_url(self, connector: str, task: int | None) -> str | None:
        return self.holders.get((connector, task))

    def position(self, *, offsets: bool) -> str:
        return f"config:0={self.offset}" + (";offset:" if offsets else "")

    async def reached(self, position: str, timeout_s: float) -> bool:
        self.held_back.append(position)
        try:
            await asyncio.wait_for(self.readable.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The worker's own API: writes down what it is asked."""
        if self.api is not None:
            await self.api(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        path, query = scope["raw_path"].decode(), scope["query_string"].decode()
        if path == SIGN_PATH:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        self.asked.append({"method": scope["method"], "path": path, "query": query, "headers": headers, "body": body})
        self.on_request(self)
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


@dataclass
class Group:
    """Three workers that know one another; B leads, C runs what is run."""

    a: Worker
    b: Worker
    c: Worker
    client: httpx.AsyncClient  # of A

    def lead(self, leader: Worker | None) -> None:
        for worker in (self.a, self.b, self.c):
            worker.is_leader = worker is leader
            worker.leader_url = None if leader is None else leader.url

    def run_at(self, worker: Worker) -> None:
        for each in (self.a, self.b, self.c):
            each.holders = {("c", None): worker.url, ("c", 3): worker.url}

    @property
    def deciders(self) -> str:
        """Who was asked to decide, in the order of names, once for each time."""
        return "".join(name * len(getattr(self, name).asked) for name in "abc")


@asynccontextmanager
async def serving(app: Asgi, listener: socket.socket) -> AsyncIterator[None]:
    server = Server(app, grace_s=1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        try:
            yield
        finally:
            server.end()


def listening() -> tuple[socket.socket, str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def group(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Group]:
    """Three workers on ports of their own."""
    peers = PeerClient()
    workers = []
    async with AsyncExitStack() as stack:
        stack.callback(peers.close)
        for _ in range(3):
            listener, url = listening()
            worker = Worker(url)
            worker.readable.set()
            app = Forwarding(
                worker.app,
                group=worker,
                trouble=lambda worker=worker: worker.trouble,  # type: ignore[misc]
                exists=lambda connector, task, worker=worker: worker.known,  # type: ignore[misc]
                reads=worker,
                peers=peers,
                clock=SystemClock(),
            )
            await stack.enter_async_context(serving(app, listener))
            workers.append(worker)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=workers[0].url, timeout=30))
        made = Group(*workers, client)
        made.lead(made.b)
        made.run_at(made.c)
        yield made


async def test_a_write_goes_to_the_leader_as_the_bytes_it_is(group: Group) -> None:
    body = b'{ "tasks.max" : 1.50, "x": "\xc3\xa9" }'
    group.b.status = 201
    group.b.headers = [
        (b"content-type", b"application/json"),
        (b"location", group.b.url.encode() + b"/connectors/a%2Fb"),
    ]
    answer = await group.client.put(
        "/connectors/a%2Fb/config/?x=1&x=%26",
        content=body,
        headers={"authorization": "Basic x", "content-type": "application/json", "cookie": "mine", "x-other": "1"},
    )
    assert group.deciders == "b"
    (asked,) = group.b.asked
    assert (asked["method"], asked["path"], asked["query"]) == (
        "PUT",
        "/connectors/a%2Fb/config",
        "x=1&x=%26&forward=true",
    )
    assert asked["body"] == body
    assert asked["headers"]["authorization"] == "Basic x"
    assert asked["headers"]["content-type"] == "application/json"
    assert not {"cookie", "x-other"} & set(asked["headers"])
    assert (answer.status_code, answer.content) == (201, b'{"answered": true}')
    assert answer.headers["location"] == f"{group.a.url}/connectors/a%2Fb"


async def test_what_this_worker_decides_is_not_passed_on(group: Group) -> None:
    group.lead(group.a)
    assert (await group.client.post("/connectors", content=b"{}")).json() == {"answered": True}
    assert group.deciders == "a"
    assert group.a.asked[0]["body"] == b"{}"


async def test_reads_are_answered_by_whoever_is_asked(group: Group) -> None:
    for path in ("/", "/connectors", "/connectors/c/status", "/connectors/c/offsets"):
        await group.client.get(path)
    assert group.deciders == "aaaa"


@pytest.mark.parametrize(
    ("status", "body"), [(204, b""), (409, b'{"error_code":409,"message":"m"}'), (500, b"<html>"), (202, b"")]
)
async def test_an_answer_is_given_back_as_it_is(group: Group, status: int, body: bytes) -> None:
    group.b.status, group.b.body = status, body
    group.b.headers = [(b"retry-after", b"1"), (b"x-tidemill-position", b"ignored")]
    answer = await group.client.put("/connectors/c/pause")
    assert (answer.status_code, answer.content, answer.headers["retry-after"]) == (status, body, "1")
    assert POSITION not in answer.headers


async def test_a_redirection_is_no_answer_of_a_worker(group: Group) -> None:
    group.b.status, group.b.headers = 302, [(b"location", b"http://elsewhere/")]
    answer = await group.client.delete("/connectors/c")
    assert answer.status_code == 500
    assert answer.json()["message"] == "Unexpected status code when handling forwarded request: 302"


async def test_a_restart_takes_two_hops(group: Group) -> None:
    await group.client.post("/connectors/c/tasks/3/restart")
    assert group.deciders == "c"
    assert group.c.asked[0]["query"] == "forward=false"
    await group.client.post("/connectors/c/restart?onlyFailed=false")
    assert group.deciders == "cc"
    assert group.c.asked[1]["query"] == "onlyFailed=false&forward=false"


async def test_a_restart_of_something_of_this_worker_stays(group: Group) -> None:
    group.run_at(group.a)
    await group.client.post("/connectors/c/restart")
    assert group.deciders == "a"


async def test_the_leader_says_that_there_is_no_such_task(group: Group) -> None:
    for worker in (group.a, group.b, group.c):
        worker.known = False
    await group.client.post("/connectors/none/tasks/3/restart")
    assert group.deciders == "b"


async def test_a_request_waits_for_a_leader_instead_of_being_refused(group: Group) -> None:
    group.lead(None)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group.client.put("/connectors/c/stop"))
        await asyncio.sleep(0.2)  # it is passed on to nobody meanwhile
        assert group.deciders == ""
        group.lead(group.c)
    assert waiting.result().status_code == 200
    assert group.deciders == "c"


async def test_a_request_waits_for_the_next_leader_while_the_last_one_is_gone(group: Group) -> None:
    gone, url = listening()
    gone.close()
    group.a.leader_url = url
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group.client.put("/connectors/c/stop"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        group.lead(group.c)
    assert waiting.result().status_code == 200
    assert group.deciders == "c"


async def test_nobody_waits_for_ever(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "SETTLE_S", 0.0)
    monkeypatch.setattr(forwarding, "SETTLE_LAST_S", 0.0)
    group.lead(None)
    answer = await group.client.put("/connectors/c/stop")
    assert (answer.status_code, answer.json()) == (409, {"error_code": 409, "message": NO_LEADER})
    group.a.leader_url, group.b.leader_url, group.c.leader_url = group.b.url, group.c.url, group.a.url
    answer = await group.client.put("/connectors/c/stop")
    assert (answer.status_code, answer.json()) == (409, {"error_code": 409, "message": TOO_FAR})
    assert group.deciders == ""


async def test_whoever_cannot_reach_the_group_says_so_and_what_is_stuck(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "SETTLE_S", 0.0)
    group.lead(None)
    group.a.trouble = "nobody answers at 127.0.0.1:9092"
    answer = await group.client.put("/connectors/c/pause")
    assert answer.status_code == 500
    assert answer.json()["message"] == ("Request timed out: nobody answers at 127.0.0.1:9092. Nothing was changed.")
    group.a.trouble = ""
    assert (await group.client.put("/connectors/c/pause")).status_code == 409


async def test_an_address_that_nobody_answers_at_is_named_with_the_remedy(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "SETTLE_S", 0.0)
    gone, group.a.leader_url = listening()
    gone.close()
    answer = await group.client.put("/connectors/c/stop")
    assert answer.status_code == 500
    message = answer.json()["message"]
    assert message.startswith("IO Error trying to forward REST request: ")
    assert group.a.leader_url in message and "rest.advertised.host.name" in message


ALIVE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def hanging_up() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A worker that ends every connection as soon as it has heard what is asked of it."""
    heard: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health/live "):
            writer.write(ALIVE)
        heard.append(head)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


def unknown_outcome(answer: httpx.Response) -> bool:
    message: str = answer.json()["message"]
    begins = message.startswith("IO Error trying to forward REST request: ")
    return answer.status_code == 500 and begins and "look before you ask again" in message


async def test_what_must_not_be_done_twice_is_not_sent_twice(group: Group) -> None:
    async with hanging_up() as (url, heard):
        group.a.leader_url = url
        assert unknown_outcome(await group.client.post("/connectors", content=b"{}"))
    assert len(heard) == 1


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_what_may_be_done_twice_outlives_a_leader_that_stops(group: Group, method: str) -> None:
    async with hanging_up() as (url, heard):
        group.a.leader_url = url
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(group.client.request(method, "/connectors/c/config", content=b"{}"))
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            group.lead(group.c)
    assert asked.result().status_code == 200
    assert (len(heard), group.deciders) == (1, "c")


async def test_nothing_is_sent_more_than_twice(group: Group) -> None:
    async with hanging_up() as (url, heard):
        group.a.leader_url = url
        assert unknown_outcome(await group.client.put("/connectors/c/config", content=b"{}"))
    assert len(heard) == 2


async def test_what_was_deleted_the_first_time_is_deleted(group: Group) -> None:
    group.c.status, group.c.body = 404, b'{"error_code":404,"message":"Connector c not found"}'
    group.c.offset = 5
    async with hanging_up() as (url, heard):
        group.a.leader_url = url
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(group.client.delete("/connectors/c"))
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            group.lead(group.c)
    assert (asked.result().status_code, asked.result().content) == (204, b"")
    assert group.a.held_back == ["config:0=5"], "and who asked does not find it any more"
    assert (await group.client.delete("/connectors/c")).status_code == 404


async def test_offsets_of_a_connector_that_there_is_not_were_not_reset_the_first_time(group: Group) -> None:
    group.c.status = 404
    async with hanging_up() as (url, heard):
        group.a.leader_url = url
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(group.client.delete("/connectors/c/offsets"))
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            group.lead(group.c)
    assert asked.result().status_code == 404


async def test_a_leader_that_lost_its_office_while_it_wrote_asks_the_next_one(group: Group) -> None:
    def replaced(worker: Worker) -> None:
        group.lead(group.c)

    group.b.on_request = replaced
    group.b.status, group.b.headers = 409, [(OFFICE_LOST.encode(), b"true")]
    answer = await group.client.post("/connectors", content=b'{"name": "x"}')
    assert answer.status_code == 200
    assert group.deciders == "bc"
    assert group.c.asked[0]["body"] == b'{"name": "x"}'
    assert group.c.asked[0]["query"] == "forward=false"


async def test_the_real_api_says_that_it_lost_its_office(group: Group) -> None:
    """What the API answers then never reaches the client."""

    class Api:
        async def delete(self, name: str) -> None:
            group.lead(group.c)
            raise OfficeLost(409, NO_LEADER)

    parts = Parts(
        operations=cast("Operations", Api()),
        server_info=ServerInfo(version="1", commit="1", kafka_cluster_id="k"),
        loggers=LoggerLevels(SystemClock()),
        health=lambda: "healthy",
        metrics=str,
    )
    group.b.api = create_app(parts)
    answer = await group.client.delete("/connectors/c")
    assert (answer.status_code, answer.json()) == (200, {"answered": True})
    assert group.deciders == "c"


@pytest.mark.parametrize(
    ("path", "deciders"),
    [
        ("/connectors/c/restart?includeTasks=false&includeTasks=true", "c"),
        ("/connectors/c/restart?includeTasks=true&includeTasks=false", "b"),
        ("/admin/loggers/x?scope=worker&scope=cluster", "a"),
        ("/admin/loggers/x?scope=cluster&scope=worker", "b"),
    ],
)
async def test_who_decides_reads_a_query_as_who_passed_it_on(group: Group, path: str, deciders: str) -> None:
    """Of what is said twice the first counts, as for Java's workers."""
    heard: list[tuple[str, str]] = []

    class Api:
        def __init__(self, name: str) -> None:
            self.name = name

        async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
            heard.append((self.name, "leader" if include_tasks else "holder"))

        async def set_cluster_level(self, logger: str, level: str) -> None:
            heard.append((self.name, "leader"))

    for name in "abc":
        worker = getattr(group, name)
        parts = Parts(
            operations=cast("Operations", Api(name)),
            server_info=ServerInfo(version="1", commit="1", kafka_cluster_id="k"),
            loggers=LoggerLevels(SystemClock()),
            health=lambda: "healthy",
            metrics=str,
        )
        worker.api = create_app(parts)
    method = "PUT" if "loggers" in path else "POST"
    answer = await group.client.request(method, path, json={"level": "INFO"})
    assert answer.status_code < 300
    assert heard == {"a": [], "b": [("b", "leader")], "c": [("c", "holder")]}[deciders]


async def test_no_more_requests_wait_than_the_limit(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "WAITING_MAX", 2)
    group.lead(None)
    refused = 0
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(group.client.put("/connectors/c/stop")) for _ in range(5)]
        while refused < 3:
            await asyncio.sleep(0.01)
            refused = sum(each.done() for each in waiting)
        group.lead(group.b)
    assert sorted(each.result().status_code for each in waiting) == [200, 200, 409, 409, 409]


async def test_who_asked_here_finds_it_here(group: Group) -> None:
    """The answer is held back until this worker has read what the leader wrote."""
    group.a.readable.clear()
    group.b.offset = 41
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group.client.put("/connectors/c/config", content=b"{}"))
        while not group.a.held_back:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not waiting.done()
        group.a.readable.set()
    assert group.a.held_back == ["config:0=41"]
    assert POSITION not in waiting.result().headers
    await group.client.delete("/connectors/c/offsets")
    assert group.a.held_back[1:] == ["config:0=41;offset:"]


async def test_a_worker_in_between_reads_it_too_and_tells_on(group: Group) -> None:
    group.c.offset = 7
    await group.client.post("/connectors/c/tasks/3/restart")
    assert group.b.held_back == group.a.held_back == ["config:0=7"]


async def test_an_answer_comes_even_if_this_worker_does_not_get_to_read(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "READ_TIMEOUT_S", 0.01)
    group.a.readable.clear()
    assert (await group.client.put("/connectors/c/config", content=b"{}")).status_code == 200


async def test_a_body_that_is_too_large_is_passed_on_to_nobody(group: Group) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1024 * 1024

    for content in (b"x" * (BODY_BYTES_MAX + 1), pieces()):
        try:
            answer = await group.client.put("/connectors/c/config", content=content)
        except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
            continue  # the server hung up on what it does not want to read
        assert answer.status_code == 413
    assert group.deciders == ""
    assert (await group.client.put("/connectors/c/config", content=b"x" * BODY_BYTES_MAX)).status_code == 200
    assert len(group.b.asked[0]["body"]) == BODY_BYTES_MAX


async def test_a_client_that_goes_away_leaves_nothing_behind(group: Group) -> None:
    host, port = group.a.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PUT /connectors/c/config HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.close()
    assert (await group.client.put("/connectors/c/config", content=b"{}")).status_code == 200
    assert group.deciders == "b"


async def test_a_signature_goes_with_its_body(group: Group) -> None:
    signature = {"X-Connect-Authorization": "AAAA", "X-Connect-Request-Signature-Algorithm": "HmacSHA256"}
    await group.client.post("/connectors/c/tasks", content=b"[ ]", headers=signature)
    (asked,) = group.b.asked
    assert asked["body"] == b"[ ]"
    assert {name.lower(): value for name, value in signature.items()}.items() <= asked["headers"].items()


async def test_a_path_that_is_no_ascii_does_no_harm(group: Group) -> None:
    host, port = group.a.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PUT /connectors/\xff\xc3\xa9/pause HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    assert all(asked["path"].isascii() for asked in group.b.asked)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life are missed sooner."""
    for module, name, seconds in (
        (peer_client, "SIGN_S", 0.2),
        (peer_client, "SILENCE_S", 1.0),
        (peer_client, "LOOK_S", 0.1),
        (forwarding, "SILENCE_S", 1.0),
    ):
        monkeypatch.setattr(module, name, seconds)


@contextmanager
def stopped() -> Iterator[str]:
    """A worker whose process is stopped: its system takes connections and requests, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def falling_silent() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A worker that hangs from the moment it has heard what is asked of it."""
    heard: list[bytes] = []
    over = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not heard:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /health/live "):
                writer.write(ALIVE)
            else:
                heard.append(head)
        await over.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
        over.set()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/connectors"),
        ("PUT", "/connectors/c/config"),
        ("PATCH", "/connectors/c/config"),
        ("DELETE", "/connectors/c"),
    ],
)
async def test_a_leader_that_hangs_is_named_soon_with_the_remedy(group: Group, method: str, path: str) -> None:
    with stopped() as url:
        group.a.leader_url = url
        async with asyncio.timeout(5):
            answer = await group.client.request(method, path, content=b"{}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    message = answer.json()["message"]
    assert answer.json()["error_code"] == 503
    assert url in message and "was not sent" in message and "Ask again" in message and "start it again" in message


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_what_a_leader_that_hangs_was_not_sent_goes_to_the_next_one(group: Group, method: str) -> None:
    with stopped() as url:
        group.a.leader_url = url
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            path = "/connectors" if method == "POST" else "/connectors/c/config"
            asked = tasks.create_task(group.client.request(method, path, content=b"{}"))
            await asyncio.sleep(0.5)
            assert not asked.done()
            group.lead(group.c)
    assert (asked.result().status_code, group.deciders) == (200, "c")


@pytest.mark.usefixtures("impatient")
async def test_a_group_that_is_between_two_leaders_is_waited_for_longer(group: Group) -> None:
    """The one that hangs is out already, and nobody leads yet: that is not silence."""
    with stopped() as url:
        group.a.leader_url = url
        async with asyncio.timeout(8), asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(group.client.put("/connectors/c/stop"))
            await asyncio.sleep(0.5)
            group.lead(None)
            await asyncio.sleep(1.5)
            assert not asked.done()
            group.lead(group.c)
    assert (asked.result().status_code, group.deciders) == (200, "c")


@pytest.mark.usefixtures("impatient")
async def test_what_is_not_to_be_done_twice_is_not_sent_twice_to_whom_falls_silent(group: Group) -> None:
    async with falling_silent() as (url, heard):
        group.a.leader_url = url
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(group.client.post("/connectors", content=b"{}"))
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            group.lead(group.c)
    answer = asked.result()
    assert (answer.status_code, group.deciders, "retry-after" in answer.headers) == (504, "", False)
    assert url in answer.json()["message"] and "look before you ask again" in answer.json()["message"]


@pytest.mark.usefixtures("impatient")
async def test_what_may_be_done_twice_goes_from_whom_falls_silent_to_the_next_leader(group: Group) -> None:
    async with falling_silent() as (url, heard):
        group.a.leader_url = url
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(group.client.put("/connectors/c/config", content=b"{}"))
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            group.lead(group.c)
    assert (asked.result().status_code, group.deciders) == (200, "c")


@pytest.mark.usefixtures("impatient")
async def test_whom_it_was_sent_is_told_even_if_it_is_silent_the_second_time(group: Group) -> None:
    async with falling_silent() as (url, heard):
        group.a.leader_url = url
        async with asyncio.timeout(5):
            answer = await group.client.put("/connectors/c/config", content=b"{}")
    assert (answer.status_code, len(heard), answer.headers["retry-after"]) == (504, 1, "5")
    assert url in answer.json()["message"] and "to ask again does no harm" in answer.json()["message"]


@pytest.mark.usefixtures("impatient")
async def test_a_leader_that_works_long_is_not_cut_off(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "SETTLE_S", 1.0)
    released = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != SIGN_PATH:
            await released.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    group.b.api = slow
    async with asyncio.timeout(8), asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(group.client.post("/connectors", content=b"{}"))
        await asyncio.sleep(2.5)
        assert not asked.done()
        released.set()
    assert asked.result().status_code == 200


async def test_a_leader_that_stops_after_a_long_time_costs_nobody_an_error(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it had the request: the search for the next one begins when it is gone."""
    monkeypatch.setattr(forwarding, "SETTLE_S", 0.3)
    heard = asyncio.Event()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health/live "):
            writer.write(ALIVE)
        heard.set()
        await asyncio.sleep(0.6)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, asyncio.TaskGroup() as tasks:
        group.a.leader_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asked = tasks.create_task(group.client.put("/connectors/c/config", content=b"{}"))
        await heard.wait()
        group.lead(group.c)
    assert (asked.result().status_code, group.deciders) == (200, "c")


@pytest.mark.usefixtures("impatient")
async def test_silence_is_counted_from_when_the_leader_was_last_heard(group: Group) -> None:
    """A hiccup before it took the request says nothing of how long it is silent after it."""
    speaks, heard = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /health/live "):
                await speaks.wait()
                writer.write(ALIVE)
            heard.set()
            await asyncio.sleep(1.2)
            speaks.clear()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server, asyncio.timeout(8), asyncio.TaskGroup() as tasks:
        group.a.leader_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        asked = tasks.create_task(group.client.put("/connectors/c/config", content=b"{}"))
        await asyncio.sleep(0.3)
        speaks.set()
        await heard.wait()
        await asyncio.sleep(1.2 + 0.7)
        group.lead(group.c)
        await asked
        speaks.set()
    assert (asked.result().status_code, group.deciders) == (200, "c")


@pytest.mark.parametrize("size", [2, 150_000])
@pytest.mark.parametrize("hop", ["true", "false"])
@pytest.mark.parametrize("request_line", ["POST /connectors", "PUT /connectors/c/config", "DELETE /connectors/c"])
async def test_what_was_given_up_while_this_worker_hung_is_not_done_late(
    group: Group, request_line: str, hop: str, size: int
) -> None:
    """Whoever passed it on has had it done elsewhere meanwhile, and what that did may have been changed since."""
    _, _, port = group.b.url.rpartition(":")
    head = f"{request_line}?forward={hop} HTTP/1.1\r\nhost: b\r\ncontent-length: {size}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(port))) as passed_on:  # the loop stands still until it is closed
        passed_on.sendall(head.encode() + b"x" * size)
    await asyncio.sleep(0.3)
    assert group.deciders == ""


async def test_what_is_given_up_while_nobody_leads_is_not_passed_on(group: Group) -> None:
    group.lead(None)
    _, _, port = group.b.url.rpartition(":")
    _, passed_on = await asyncio.open_connection("127.0.0.1", int(port))
    passed_on.write(b"PUT /connectors/c/config?forward=true HTTP/1.1\r\nhost: b\r\ncontent-length: 2\r\n\r\n{}")
    await asyncio.sleep(0.2)
    passed_on.close()
    await passed_on.wait_closed()
    await asyncio.sleep(0.1)
    group.lead(group.c)
    await asyncio.sleep(0.3)
    assert group.deciders == ""
