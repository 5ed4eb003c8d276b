"""What a process tells those who watch it

Orchestrators ask over HTTP: `/health/live` (restart it if not), `/health/ready` (send it nothing while not), and
`/metrics` in Prometheus' text. The answers come from the process' own parts, so an open port alone proves nothing: a
part that works on an event loop is asked there (`on_loop`), and a loop that does not answer in time is not alive.

The server has threads of its own, so that it answers while the process is busy, and says then that it is. A client has
a thread while it asks, and so long to ask in all, so one that says nothing, or a byte now and then, keeps nobody else
waiting; when too many ask at once, the one that has been asking the longest makes room. Metrics are written for one
client at a time, so nobody can make the process hold memory.

Not here: what the parts have to say, and a Connect worker, whose REST API answers the same paths.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from typing import Final, TypeVar

import structlog

log = structlog.get_logger("tidemill.probe")

LOOP_PATIENCE_S: Final = 5.0
"""How long an event loop may take to answer; orchestrators ask every ten seconds or so."""

CLIENT_PATIENCE_S: Final = 5.0
"""How long a client may take, in all, to say what it wants, and again to take the answer."""

CLIENTS_MAX: Final = 32
"""Who ask at the same time; an orchestrator, a scraper and a few people are far fewer."""

SCRAPERS_MAX: Final = 4
"""Of them, who want metrics: while these are written, however slowly, there is room for questions about health."""

REQUEST_BYTES_MAX: Final = 16 * 1024
"""Of a request's head; that of a browser with cookies has 4 KiB."""

STOP_POLL_S: Final = 0.1
"""How often the server looks whether it is to stop."""

CLOSE_PATIENCE_S: Final = 6.0
"""How long a stop waits for the last answers; longer than an event loop may take."""

_THREAD = "tidemill-probe"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One part of a process that is not ready, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What is asked; every function is called on threads of the server, `metrics` by one of them at a time.

    `live` returns why the process cannot do anything any more, None while it can. `ready` returns what is not ready.
    `metrics` returns Prometheus' text exposition; None where nothing is counted.
    """

    live: Callable[[], str | None]
    ready: Callable[[], Sequence[Reason]]
    metrics: Callable[[], bytes] | None = None


class LoopSilent(Exception):
    """The event loop has not answered."""


def on_loop(
    loop: asyncio.AbstractEventLoop, ask: Callable[[], Awaitable[Answer]], patience_s: float = LOOP_PATIENCE_S
) -> Callable[[], Answer]:
    """A function that asks on `loop` from another thread; it raises LoopSilent when there is no answer in time."""

    async def asked() -> Answer:
        return await ask()

    def call() -> Answer:
        question = asked()
        try:
            future = asyncio.run_coroutine_threadsafe(question, loop)
        except RuntimeError:
            question.close()
            raise LoopSilent("the process is stopping") from None
        try:
            return future.result(patience_s)
        except FutureTimeoutError:
            future.cancel()
            raise LoopSilent(f"the event loop has not answered for {patience_s:g} s") from None

    return call


class ProbeServer:
    """The HTTP server; `probe` may be exchanged while it runs, as when a process has finished starting."""

    def __init__(self, host: str, port: int, probe: Probe, *, client_patience_s: float = CLIENT_PATIENCE_S) -> None:
        """Listen; raises OSError."""
        self.probe = probe
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._scrapers = threading.Semaphore(SCRAPERS_MAX)
        self._writing = threading.Lock()
        self._server = _Server((host, port), family, self._answer, client_patience_s)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(STOP_POLL_S,), name=_THREAD, daemon=True
        )

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> "ProbeServer":
        """Begin to answer."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Answer nobody any more: who is still asking is sent away, who has asked is answered, unless it takes long."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.empty(CLOSE_PATIENCE_S)
        self._server.server_close()

    def _answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        probe = self.probe
        match path.partition("?")[0].rstrip("/"):
            case "/health/live":
                return _told(_why_dead(probe))
            case "/health" | "/health/ready":
                dead = _why_dead(probe)
                return _told(dead) if dead else _told_ready(probe)
            case "/metrics" if probe.metrics is not None:
                return self._scraped(probe.metrics)
        known = ["/health/live", "/health/ready", *(["/metrics"] if probe.metrics else [])]
        return HTTPStatus.NOT_FOUND, _JSON, _json({"error": f"there is nothing here; there is {', '.join(known)}"})

    def _scraped(self, metrics: Callable[[], bytes]) -> tuple[HTTPStatus, str, bytes]:
        if not self._scrapers.acquire(blocking=False):
            why = f"{SCRAPERS_MAX} clients wait for metrics already; ask again, and less often"
            return HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _json({"error": why})
        try:
            with self._writing:
                return HTTPStatus.OK, _TEXT, metrics()
        finally:
            self._scrapers.release()


def _why_dead(probe: Probe) -> str | None:
    try:
        return probe.live()
    except LoopSilent as error:
        return str(error)


def _told(dead: str | None) -> tuple[HTTPStatus, str, bytes]:
    if dead is None:
        return HTTPStatus.OK, _JSON, _json({"status": "live"})
    return HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _json({"status": "not live", "why": dead})


def _told_ready(probe: Probe) -> tuple[HTTPStatus, str, bytes]:
    try:
        reasons = probe.ready()
    except LoopSilent as error:
        reasons = [Reason(what="process", why=str(error))]
    if not reasons:
        return HTTPStatus.OK, _JSON, _json({"status": "ready"})
    told = [{"what": reason.what, "why": reason.why} for reason in reasons]
    return HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _json({"status": "not ready", "reasons": told})


def _json(body: object) -> bytes:
    return json.dumps(body).encode() + b"\n"


class _Server(HTTPServer):
    """Hands the path of a GET to `answer`."""

    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        family: int,
        answer: Callable[[str], tuple[HTTPStatus, str, bytes]],
        client_patience_s: float,
    ) -> None:
        self.address_family = family
        self.answer = answer
        self.client_patience_s = client_patience_s
        self._places = threading.Semaphore(CLIENTS_MAX)
        self._lock = threading.Lock()
        self._asking: dict[socket.socket, None] = {}  # whose request is not complete, the oldest first
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, object]:
        """The next client; where the system has none to give, as without a free file, no faster than now and then."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(STOP_POLL_S)
            raise

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Serve a client on a thread, once there is room."""
        if not self._places.acquire(blocking=False):
            self._turn_out()
            while not self._places.acquire(timeout=STOP_POLL_S):  # whoever is made to leave needs a moment
                self._turn_out()
        with self._lock:
            self._asking[request] = None
        serve = threading.Thread(target=self._serve, args=(request, client_address), name=_THREAD, daemon=True)
        try:
            serve.start()
        except RuntimeError:  # the system has no thread for us; the next client may be luckier
            self._leave(request)

    def _turn_out(self) -> None:
        """Whoever has been asking the longest makes room."""
        with self._lock:
            oldest = next(iter(self._asking), None)
            if oldest is not None:
                del self._asking[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def empty(self, patience_s: float) -> None:
        """Until nobody has a place, or for so long."""
        ends, free = time.monotonic() + patience_s, 0
        while free < CLIENTS_MAX:
            self._turn_out()
            if not self._places.acquire(timeout=max(ends - time.monotonic(), 0)):
                break
            free += 1
        if free:
            self._places.release(free)

    def asked(self, request: socket.socket) -> None:
        """A client has said what it wants, or never will."""
        with self._lock:
            self._asking.pop(request, None)

    def _serve(self, request: socket.socket, client_address: object) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: socket.socket) -> None:
        self.asked(request)
        self.shutdown_request(request)
        self._places.release()

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take a resolver's time-out."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away or sent garbage is nobody's trouble."""
        log.debug("a question was not answered", client=str(client_address), exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        """Read what a client wants, with the patience there is for all of it."""
        super().setup()
        head = _head_of(self.connection, self.server.client_patience_s)
        self.server.asked(self.connection)
        self.connection.settimeout(self.server.client_patience_s)
        self.rfile = BytesIO(head)

    def do_GET(self) -> None:
        """Answer a question."""
        try:
            status, kind, body = self.server.answer(self.path)
        except Exception:
            log.exception("a question failed", path=self.path)
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, _JSON
            body = _json({"error": "the question failed; the log of the process says why"})
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def version_string(self) -> str:
        """What the Server header says."""
        return "tidemill"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: whoever watches asks every few seconds."""


def _head_of(client: socket.socket, patience_s: float) -> bytes:
    """What a client sends up to the end of a request's head; raises TimeoutError."""
    ends = time.monotonic() + patience_s
    head = bytearray()
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < REQUEST_BYTES_MAX:
        left_s = ends - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request did not come in time")
        client.settimeout(left_s)
        data = client.recv(REQUEST_BYTES_MAX - len(head))
        if not data:
            break
        head += data
    return bytes(head)
