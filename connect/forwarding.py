"""Requests that another worker of the group decides, passed on to it

Stands before the REST API. `request_target` says where a request goes; this is the shell around it: a request for
somebody else is read, sent on as the bytes it was, and its answer given back as the bytes it is. So any worker can be
asked for anything, by any client, and says what the worker that decides would have said.

- Only `Authorization`, what describes the body, and the signature of a worker's own call are passed on, as by Kafka's
  worker (RestClient); what comes back is the whole answer without what belongs to the connection.
- While the group is between two leaders, or a connector between two workers, a request waits for what comes next
  instead of being refused; so it does where the leader that everybody still names cannot be reached. Whoever asked sees
  a slow answer. Only when nobody was found within `SETTLE_S` it is Kafka's 409, or 500 for an address that nobody
  answers at, or because this worker's group is out of its reach, as when the Kafka cluster is away.
- What became of a request whose connection broke is not known. Where to do it twice is to do it once (PUT, PATCH,
  DELETE) it is sent once more, so that a leader which is stopped costs nobody an error. Else the answer says so (500,
  in Kafka's words, with what to do).
- A worker that hangs is not waited for as one that works long is (`peer_client` tells them apart). What was not sent to
  it goes to whoever leads next, if somebody does within `SILENCE_S`, else the answer is 503. What was sent before it
  fell silent is treated as if the connection had broken, with 504.
- What comes from another worker is not done once that has given it up, as it does if this one hangs: it may have had it
  done elsewhere, and what that did may have been changed since. A worker that goes on after it hung finds the request
  and the end of its connection together, so it looks for the one before it does the other.
- Who asked for a change through this worker must find it through this worker. The worker that decides tells how far its
  topics went when it answered (`POSITION`); the answer is given back when this worker has read as far.
- A leader that turns out to be none any more while it writes (`OFFICE_LOST`, set by the API) has changed nothing: the
  request is looked at anew and goes to the one in office.

Bodies are held in memory, up to the API's own limit; they would be there, too.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import structlog
from starlette.requests import ClientDisconnect, Request

from tidemill.connect.operations import RestError
from tidemill.connect.peer_client import (
    SILENCE_S,
    FellSilent,
    HungUp,
    PeerAnswer,
    PeerClient,
    PeerFailure,
    Silent,
    Unreachable,
)
from tidemill.connect.request_target import (
    NO_LEADER,
    Decider,
    Elsewhere,
    Here,
    Hop,
    Membership,
    Target,
    Unsettled,
    destination,
    hop_of,
    marked,
    target_of,
)
from tidemill.connect.rest import OFFICE_LOST, Asgi, Receive, Scope, Send, encoded_path, failure, read_body
from tidemill.connect.signing import ALGORITHM_HEADER, MADE_FROM, SIGNATURE_HEADER
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.forwarding")

REQUEST_TIMEOUT_S: Final = 90.0
"""How long a request may take in all, as in Kafka's worker."""

SETTLE_S: Final = 30.0
"""How long a request waits for somebody to decide it. A leader that was killed is replaced within half of that."""

SETTLE_LAST_S: Final = 5.0
"""The same on the last hop: whoever sent it here knows more than this worker, which need only catch up."""

READ_TIMEOUT_S: Final = 10.0
"""How long an answer is held back until this worker has read what it tells of."""

WAITING_MAX: Final = 64
"""How many requests wait for somebody to decide them, each with a body of 4 MiB at most; further ones are refused."""

LOOK_AGAIN_S: Final = 0.05
CONNECT_AGAIN_S: Final = 0.25

TURNS: Final = 10
"""Of the event loop, until it has read the end of a connection that came with a request; three would do."""

RETRY_AFTER_S: Final = 5
"""When to ask again while the worker that decides hangs: a session is about that long."""

POSITION: Final = "x-tidemill-position"
"""Header of an answer to another worker: how far the topics went that the request may have changed."""

PASSED_ON: Final = ("authorization", "content-type", "accept", SIGNATURE_HEADER, ALGORITHM_HEADER, MADE_FROM)

OF_THE_CONNECTION: Final = frozenset(
    [
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
) | {POSITION}

AS_IT_IS: Final = "/%:@!$&'()*+,;=~"
"""What a path that is encoded already may hold beside letters, digits and `-._`."""

GROUP_AWAY: Final = "Request timed out: {trouble}. Nothing was changed."
NOT_REACHED: Final = (
    "IO Error trying to forward REST request: {reason}. The worker at {url} decides this request: see whether it runs, "
    "and whether its rest.advertised.host.name and rest.advertised.port are an address that this worker can reach."
)
SILENT: Final = (
    "The worker at {url} decides this request and hangs, or cannot be reached: {reason}. The request was not sent to "
    "it. Ask again in a moment: another worker may decide by then. If it stays so, see whether the worker at {url} "
    "runs, and start it again."
)
NOT_KNOWN: Final = (
    "IO Error trying to forward REST request: the worker at {url}: {reason}. It may have done what it was asked: look "
    "before you ask again."
)
FELL_SILENT: Final = (
    "The worker at {url} was sent this request and hangs, or cannot be reached: {reason}. See whether it runs, and "
    "start it again. It may have done what it was asked, or may do it yet: {advice}."
)


class Reads(Protocol):
    """How far this worker has read its topics."""

    def position(self, *, offsets: bool) -> str:
        """The ends of the config topic and, if asked, the offsets topic, as far as they were read."""
        ...

    async def reached(self, position: str, timeout_s: float) -> bool:
        """Wait until this worker has read as far as another one; False if it has not in time."""
        ...


class _Refusal(NamedTuple):
    """What is said if nobody is found to decide a request."""

    status: int
    message: str
    pause_s: float = LOOK_AGAIN_S  # before another look
    retry_after_s: int | None = None
    is_final: bool = False  # there is no other look
    looks_anew: bool = False  # somebody had the request meanwhile: what was waited before does not count


class Forwarding:
    """The REST API of one worker among several, as an ASGI application around that of the worker itself."""

    def __init__(
        self,
        app: Asgi,
        *,
        group: Membership,
        trouble: Callable[[], str],
        exists: Callable[[str, int | None], bool],
        reads: Reads,
        peers: PeerClient,
        clock: Clock,
    ) -> None:
        self._app = app
        self._group = group
        self._trouble = trouble  # what keeps this worker from its group; empty if nothing does
        self._exists = exists
        self._reads = reads
        self._peers = peers
        self._clock = clock
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        target = _target(scope)
        if target.decider is Decider.ANYBODY:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await read_body(request)
        except ClientDisconnect:
            return
        except RestError as error:
            await failure(error.status, error.message)(scope, receive, send)
            return
        await self._decide(_Asked(scope, receive, send, target, body))

    async def _decide(self, asked: "_Asked") -> None:
        began = looks_since = self._clock.monotonic()
        settle_s = SETTLE_LAST_S if asked.hop is Hop.LAST else SETTLE_S
        while True:
            if asked.hop is not Hop.FIRST and await asked.is_given_up():
                log.warning("request of another worker that waits no more: not done", **asked.line)
                return
            match destination(asked.target, asked.hop, self._group, self._exists):
                case Here():
                    if await self._serve(asked):
                        return
                    refusal = self._nobody(NO_LEADER)
                case Elsewhere(url=url, hop=hop):
                    left_s = REQUEST_TIMEOUT_S - (self._clock.monotonic() - began)
                    passed_on = await self._pass_on(asked, url, hop, left_s)
                    if passed_on is None:
                        return
                    refusal = passed_on
                case Unsettled(message=message):
                    refusal = self._nobody(message)
            now = self._clock.monotonic()
            looks_since = now if refusal.looks_anew else looks_since
            is_over = refusal.is_final or now - looks_since >= settle_s
            if is_over or self._waiting >= WAITING_MAX:
                refusal = asked.unanswered or refusal  # what may have been done matters more than who is not there
                log.error("nobody found to decide a request", **asked.line, reason=refusal.message)
                await asked.refuse(refusal.status, refusal.message, refusal.retry_after_s)
                return
            self._waiting += 1
            try:
                await asyncio.sleep(refusal.pause_s)
            finally:
                self._waiting -= 1

    def _nobody(self, message: str) -> _Refusal:
        """What is said while nobody is known to decide, which may have a reason that only a person can mend."""
        trouble = self._trouble()
        return _Refusal(500, GROUP_AWAY.format(trouble=trouble)) if trouble else _Refusal(409, message)

    async def _pass_on(self, asked: "_Asked", url: str, hop: Hop, timeout_s: float) -> _Refusal | None:
        """Have another worker answer; None if it has, else what to say if there is nobody else."""
        began = self._clock.monotonic()
        try:
            answer = await self._ask(asked, url, hop, timeout_s)
        except Silent as error:
            is_final = self._clock.monotonic() - asked.silent_since(url, began) >= SILENCE_S
            message = SILENT.format(reason=error, url=url)
            return _Refusal(503, message, CONNECT_AGAIN_S, RETRY_AFTER_S, is_final)
        except Unreachable as error:
            return _Refusal(500, NOT_REACHED.format(reason=error, url=url), CONNECT_AGAIN_S)
        except PeerFailure as error:
            asked.heard()
            if isinstance(error, FellSilent):
                asked.silent_since(url, self._clock.monotonic() - SILENCE_S)
            asked.unanswered = asked.unanswered or _unanswered(asked, url, error)
            if isinstance(error, HungUp | FellSilent) and asked.may_be_repeated():
                log.info("request sent once more", to=url, **asked.line, reason=str(error))
                return asked.unanswered._replace(looks_anew=True)
            log.error("request passed on without an answer", to=url, **asked.line, reason=str(error))
            return asked.unanswered._replace(is_final=True)
        await self._give_back(asked, url, answer)
        return None

    async def _ask(self, asked: "_Asked", url: str, hop: Hop, timeout_s: float) -> PeerAnswer:
        log.debug("request passed on", to=url, **asked.line)
        query = marked(asked.query, hop)
        headers = {name: value for name in PASSED_ON if (value := asked.headers.get(name)) is not None}
        target = f"{quote(asked.path, safe=AS_IT_IS)}?{query}"
        return await self._peers.ask(url, asked.method, target, headers, asked.body, timeout_s=timeout_s)

    async def _give_back(self, asked: "_Asked", url: str, answer: PeerAnswer) -> None:
        if 300 <= answer.status < 400:
            message = f"Unexpected status code when handling forwarded request: {answer.status}"
            await asked.refuse(500, message)
            return
        position = answer.header(POSITION)
        if asked.is_done(answer.status):
            answer = replace(answer, status=204, headers=(), body=b"")
        if position is not None and not await self._reads.reached(position, READ_TIMEOUT_S):
            log.warning("answered before what was changed has been read here", **asked.line, position=position)
        headers = [
            (name, _location(value, url, asked.own_url) if name == "location" else value)
            for name, value in answer.headers
            if name not in OF_THE_CONNECTION
        ]
        if asked.hop is not Hop.FIRST and position is not None:
            headers.append((POSITION, position))
        await asked.answer(answer.status, headers, answer.body)

    async def _serve(self, asked: "_Asked") -> bool:
        """Have the API of this worker answer; False if it found that it cannot, and nothing has been said."""

        lost = False

        async def send(message: Mapping[str, object]) -> None:
            nonlocal lost
            if message["type"] == "http.response.start":
                headers = list(message["headers"])  # type: ignore[call-overload]  # as ASGI defines it
                lost = any(name == OFFICE_LOST.encode() for name, _ in headers)
                if asked.hop is not Hop.FIRST:
                    position = self._reads.position(offsets=asked.target.moves_offsets)
                    headers.append((POSITION.encode(), position.encode()))
                message = {**message, "headers": headers}
            if not lost:
                await asked.send(dict(message))

        await self._app(asked.scope, asked.receive_again(), send)
        return not lost


class _Asked:
    """A request whose body has been read."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, target: Target, body: bytes) -> None:
        self.scope = scope
        self.send = send
        self.target = target
        self.body = body
        self.method: str = scope["method"]
        self.path = encoded_path(scope)
        self.query: str = scope["query_string"].decode("latin-1")
        self.hop = hop_of(self.query)
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self._receive = receive
        self._sent_again = False
        self._silent: tuple[str, float] = ("", 0.0)
        self.unanswered: _Refusal | None = None  # what to say of a worker that was sent it and has not answered

    @property
    def line(self) -> dict[str, str]:
        """What the log says of it."""
        return {"method": self.method, "path": self.path}

    @property
    def own_url(self) -> str:
        """Where the client has asked."""
        return str(Request(self.scope).base_url).rstrip("/")

    @property
    def is_idempotent(self) -> bool:
        """Whether to do it twice is to do it once."""
        return self.method in ("PUT", "PATCH", "DELETE")

    async def is_given_up(self) -> bool:
        """Whether whoever asked has ended its connection, as far as this worker's system knows."""
        request = Request(self.scope, self._receive)
        for _ in range(TURNS):  # in each uvicorn reads on, which it does not by itself after a long body
            if await request.is_disconnected():
                return True
        return False

    def silent_since(self, url: str, since_s: float) -> float:
        """Since when nothing was heard of the worker there; at first since `since_s`."""
        if self._silent[0] != url:
            self._silent = (url, since_s)
        return self._silent[1]

    def heard(self) -> None:
        """Nobody has been silent until now."""
        self._silent = ("", 0.0)

    def may_be_repeated(self) -> bool:
        """Whether it does no harm to send it once more; said once only."""
        may = self.is_idempotent and not self._sent_again
        self._sent_again = True
        return may

    def is_done(self, status: int) -> bool:
        """Whether an answer says only that the connector was deleted the first time."""
        return self._sent_again and self.target.deletes and status == 404

    def receive_again(self) -> Receive:
        """The body once more, then whatever else comes."""
        told = False

        async def receive() -> dict[str, object]:
            nonlocal told
            if told:
                return dict(await self._receive())
            told = True
            return {"type": "http.request", "body": self.body, "more_body": False}

        return receive

    async def refuse(self, status: int, message: str, retry_after_s: int | None = None) -> None:
        """Answer with an error of this worker's own."""
        answer = failure(status, message)
        if retry_after_s is not None:
            answer.headers["retry-after"] = str(retry_after_s)
        await answer(self.scope, self._receive, self.send)

    async def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer as another worker has answered."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        if status != 204:
            raw.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body})


def _unanswered(asked: _Asked, url: str, error: PeerFailure) -> _Refusal:
    if not isinstance(error, FellSilent):
        return _Refusal(500, NOT_KNOWN.format(reason=error, url=url), CONNECT_AGAIN_S)
    again = "to ask again does no harm" if asked.is_idempotent else "look before you ask again"
    message = FELL_SILENT.format(reason=error, url=url, advice=again)
    return _Refusal(504, message, CONNECT_AGAIN_S, RETRY_AFTER_S if asked.is_idempotent else None)


def _target(scope: Scope) -> Target:
    if scope["type"] != "http":
        return Target(decider=Decider.ANYBODY)
    return target_of(scope["method"], encoded_path(scope), scope["query_string"].decode("latin-1"))


def _location(location: str, theirs: str, ours: str) -> str:
    """The place of what was created, at the worker that was asked for it.

    >>> _location("http://leader:8083/connectors/a", "http://leader:8083/", "http://worker:8083")
    'http://worker:8083/connectors/a'
    """
    base = theirs.rstrip("/")
    if urlsplit(location).netloc != urlsplit(base).netloc:
        return location
    return ours + location.removeprefix(base)
