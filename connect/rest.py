"""Kafka Connect's REST API over HTTP

Paths, verbs, query parameters, status codes and headers of Apache's worker, mapped one to one onto `operations`. The
tools of the field (kcctl, Terraform, Strimzi, the UIs) are the test of this file, so it reproduces habits that are
nobody's idea of good style:

- a trailing slash is no different path, and a percent-encoded connector name may hold anything, `/` included: paths are
  therefore routed in their encoded form and names decoded afterwards;
- numbers and booleans in a configuration become strings as they were written (`1.50` stays `1.50`), null is kept;
- a query parameter that is not `true` is false;
- every answer of 400 and above is an ErrorMessage, also for unknown paths, wrong verbs and bodies that are not JSON.

Where Apache answers 500 to a body it cannot read, the answer here is 400: the mistake is the client's.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, unquote

import structlog
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from tidemill.connect.entities import (
    ConnectorOffsets,
    Entity,
    ErrorMessage,
    Health,
    Message,
    ServerInfo,
    WorkerInfo,
    body,
)
from tidemill.connect.loggers import LEVELS, LoggerLevels
from tidemill.connect.operations import OfficeLost, Operations, RestError, Written
from tidemill.connect.stores import TargetState

log = structlog.get_logger("tidemill.connect.rest")

BODY_BYTES_MAX = 4 * 1024 * 1024
"""Far above any configuration; the record that stores it has to fit into a Kafka message anyway."""

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


OFFICE_LOST = "x-tidemill-office-lost"
"""Header of the answer of a worker that has just ceased to lead; `forwarding` asks the next leader instead."""


def encoded_path(scope: Scope) -> str:
    """The path as it was sent, without its trailing slash."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.partition(b"?")[0].decode("ascii", "replace").rstrip("/") or "/"


class EncodedPaths:
    """Routes on the path as it was sent, without its trailing slash."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its encoded path."""
        if scope["type"] == "http":
            scope = {**scope, "path": encoded_path(scope)}
        await self._app(scope, receive, send)


def _answer(entity: Entity, status: int = 200, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(body(entity), status_code=status, headers=headers)


def failure(status: int, message: str) -> JSONResponse:
    """An answer of 400 or above."""
    return _answer(ErrorMessage(error_code=status, message=message), status)


# ---------------------------------------------------------------- what is sent


async def read_body(request: Request) -> bytes:
    """The request's body; refused as soon as it is known to be too large, before the rest of it is read."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and len(announced) < 20 and int(announced) > BODY_BYTES_MAX:
        raise _too_large(int(announced))
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > BODY_BYTES_MAX:
            raise _too_large(len(content))
    return bytes(content)


def _too_large(size: int) -> RestError:
    return RestError(413, f"The body has {size} bytes or more; at most {BODY_BYTES_MAX} are taken.")


async def _json(request: Request, *, as_written: bool = False) -> Any:
    """The body as JSON, its numbers as text if `as_written`.

    JSON can spell halves of characters that UTF-8 has no bytes for; what holds one cannot be stored and is refused.
    """
    number = str if as_written else None
    try:
        content = json.loads(await read_body(request), parse_int=number, parse_float=number, parse_constant=number)
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RestError(400, f"The body is not JSON: {error}") from None
    return content


def _settings(content: Any, what: str = "The body") -> dict[str, str | None]:
    """A flat map of settings; scalars become strings, null stays."""
    if not isinstance(content, dict):
        raise RestError(400, f'{what} must be a JSON object of settings, like {{"connector.class": "..."}}')
    settings: dict[str, str | None] = {}
    for name, value in content.items():
        if isinstance(value, dict | list):
            raise RestError(400, f"The value of setting '{name}' must be a string, a number or a boolean")
        if isinstance(value, bool):
            settings[name] = str(value).lower()
        else:
            settings[name] = None if value is None else str(value)
    return settings


def _initial_state(value: Any) -> TargetState | None:
    if value is None:
        return None
    states = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
    state = states.get(str(value).upper())
    if state is None:
        raise RestError(400, f"initial_state must be one of {', '.join(states)}, got {value}")
    return state


def _first(values: Sequence[str] | None) -> str | None:
    """Of a parameter that is given twice the first counts, as for JAX-RS, and for whoever passes the request on."""
    return values[0] if values else None


def _flag(values: Sequence[str] | None) -> bool:
    return (_first(values) or "").strip().lower() == "true"


def _task_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(404)
    return int(text)


async def _name(connector: str) -> str:
    return unquote(connector)


async def _task(task: str) -> int:
    return _task_number(task)


async def _plugin(plugin: str) -> str:
    return unquote(plugin)


Name = Annotated[str, Depends(_name)]
Task = Annotated[int, Depends(_task)]
PluginName = Annotated[str, Depends(_plugin)]


def _operations(request: Request) -> Operations:
    operations: Operations = request.app.state.operations
    return operations


Api = Annotated[Operations, Depends(_operations)]

# ------------------------------------------------------------------ connectors

connectors = APIRouter(prefix="/connectors", tags=["connectors"])


@connectors.get("")
async def list_connectors(api: Api, expand: Annotated[list[str] | None, Query()] = None) -> Response:
    """Names of all connectors, or what `expand` asks for about each of them: status, info."""
    parts: Mapping[str, Callable[[str], Entity]] = {"status": api.status, "info": api.info}
    if not expand:
        return JSONResponse(api.names())
    found: dict[str, dict[str, Any]] = {}
    for name in api.names():
        try:
            found[name] = {part: body(parts[part](name)) for part in expand if part in parts}
        except RestError:  # it has no status yet, or was deleted
            log.debug("left out of the list", connector=name)
    return JSONResponse(found)


@connectors.post("")
async def create_connector(request: Request, api: Api) -> Response:
    """Create a connector: {"name": ..., "config": {...}, "initial_state": ...}."""
    content = await _json(request, as_written=True)
    if not isinstance(content, dict):
        raise RestError(400, 'The body must be a JSON object like {"name": "...", "config": {...}}')
    unknown = sorted(content.keys() - {"name", "config", "initial_state"})
    if unknown:
        raise RestError(400, f'Unrecognized field "{unknown[0]}": known are "config", "name", "initial_state"')
    if content.get("config") is None:
        raise RestError(400, 'The body has no "config"')
    name = str(content.get("name") or "").strip()
    written = await api.create(
        name, _settings(content["config"], '"config"'), _initial_state(content.get("initial_state"))
    )
    return _written(request, written)


@connectors.get("/{connector}")
async def get_connector(name: Name, api: Api) -> Response:
    """Configuration and tasks."""
    return _answer(api.info(name))


@connectors.delete("/{connector}")
async def delete_connector(name: Name, api: Api) -> Response:
    """Delete a connector; its stored offsets stay."""
    await api.delete(name)
    return Response(status_code=204)


@connectors.get("/{connector}/config")
async def get_config(name: Name, api: Api) -> Response:
    """The configuration as submitted."""
    return JSONResponse(api.config(name))


@connectors.put("/{connector}/config")
async def put_config(name: Name, request: Request, api: Api) -> Response:
    """Create the connector or replace its configuration."""
    return _written(request, await api.configure(name, _settings(await _json(request, as_written=True))))


@connectors.patch("/{connector}/config")
async def patch_config(name: Name, request: Request, api: Api) -> Response:
    """Change single settings; null removes one."""
    return _answer(await api.patch(name, _settings(await _json(request, as_written=True))))


def _written(request: Request, written: Written) -> Response:
    if not written.created:
        return _answer(written.info)
    location = f"{str(request.base_url).rstrip('/')}/connectors/{quote(written.info.name, safe='')}"
    return _answer(written.info, 201, {"Location": location})


@connectors.get("/{connector}/status")
async def get_status(name: Name, api: Api) -> Response:
    """Whether the connector and its tasks run."""
    return _answer(api.status(name))


@connectors.get("/{connector}/tasks")
async def get_tasks(name: Name, api: Api) -> Response:
    """The tasks and their configurations."""
    return JSONResponse([body(task) for task in api.tasks(name)])


@connectors.get("/{connector}/tasks/{task}/status")
async def get_task_status(name: Name, task: Task, api: Api) -> Response:
    """Whether one task runs."""
    return _answer(api.task_status(name, task))


@connectors.post("/{connector}/tasks/{task}/restart")
async def restart_task(name: Name, task: Task, api: Api) -> Response:
    """Restart one task."""
    api.restart_task(name, task)
    return Response(status_code=204)


@connectors.post("/{connector}/restart")
async def restart_connector(
    name: Name,
    api: Api,
    include_tasks: Annotated[list[str] | None, Query(alias="includeTasks")] = None,
    only_failed: Annotated[list[str] | None, Query(alias="onlyFailed")] = None,
) -> Response:
    """Restart the connector and, if asked, its tasks or those of both that have failed."""
    state = await api.restart(name, include_tasks=_flag(include_tasks), only_failed=_flag(only_failed))
    return Response(status_code=204) if state is None else _answer(state, 202)


@connectors.put("/{connector}/pause")
async def pause(name: Name, api: Api) -> Response:
    """Stop reading, keep everything open."""
    await api.set_target(name, TargetState.PAUSED)
    return Response(status_code=202)


@connectors.put("/{connector}/resume")
async def resume(name: Name, api: Api) -> Response:
    """Go on after a pause or a stop."""
    await api.set_target(name, TargetState.STARTED)
    return Response(status_code=202)


@connectors.put("/{connector}/stop")
async def stop(name: Name, api: Api) -> Response:
    """End every task, keep configuration and offsets."""
    await api.set_target(name, TargetState.STOPPED)
    return Response(status_code=204)


@connectors.get("/{connector}/topics")
async def get_topics(name: Name, api: Api) -> Response:
    """Topics the connector has used."""
    return JSONResponse({name: {"topics": api.topics(name)}})


@connectors.put("/{connector}/topics/reset")
async def reset_topics(name: Name, api: Api) -> Response:
    """Forget which topics the connector has used."""
    api.reset_topics(name)
    return Response(status_code=202)


@connectors.get("/{connector}/offsets")
async def get_offsets(name: Name, api: Api) -> Response:
    """How far the connector got."""
    return _answer(await api.offsets(name))


@connectors.patch("/{connector}/offsets")
async def alter_offsets(name: Name, request: Request, api: Api) -> Response:
    """Move a stopped connector."""
    content = await _json(request)
    if isinstance(content, dict) and content.get("offsets") is None:
        content = {**content, "offsets": []}
    try:
        changes = ConnectorOffsets.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RestError(400, f"The body is not a list of offsets: {where}: {first['msg']}") from None
    return _answer(Message(message=await api.alter_offsets(name, changes.offsets)))


@connectors.delete("/{connector}/offsets")
async def reset_offsets(name: Name, api: Api) -> Response:
    """Forget how far a stopped connector got."""
    return _answer(Message(message=await api.reset_offsets(name)))


# --------------------------------------------------------------------- plugins

plugins = APIRouter(prefix="/connector-plugins", tags=["plugins"])


@plugins.get("")
async def list_plugins(
    api: Api, connectors_only: Annotated[list[str] | None, Query(alias="connectorsOnly")] = None
) -> Response:
    """What can be run here."""
    only = connectors_only is None or _flag(connectors_only)
    await api.look()
    return JSONResponse([body(each) for each in api.plugins(connectors_only=only)])


@plugins.get("/{plugin}/config")
async def plugin_config(plugin: PluginName, api: Api, version: Annotated[list[str] | None, Query()] = None) -> Response:
    """The settings of one plugin, in its newest version or in the one that is asked for."""
    await api.look()
    return JSONResponse([body(each) for each in api.plugin_config(plugin, _first(version) or "")])


@plugins.put("/{plugin}/config/validate")
async def validate(plugin: PluginName, request: Request, api: Api) -> Response:
    """Judge a configuration without using it."""
    return _answer(await api.validate(plugin, _settings(await _json(request, as_written=True))))


# ---------------------------------------------------------------------- worker

worker = APIRouter(tags=["worker"])


@worker.get("/")
async def root(request: Request) -> Response:
    """Version and Kafka cluster."""
    info: ServerInfo = request.app.state.server_info
    return _answer(info)


@worker.get("/health")
async def health(request: Request) -> Response:
    """Whether this worker can do its work."""
    status: str = request.app.state.health()
    texts = {
        "healthy": (200, "Worker has completed startup and is ready to handle requests."),
        "starting": (503, "Worker is still starting up."),
        "unhealthy": (500, "Worker cannot reach its internal topics."),
    }
    code, message = texts[status]
    return _answer(Health(status=status, message=message), code)


@worker.get("/health/live")
async def live(request: Request) -> Response:
    """That the worker's event loop answers, as every Tidemill process tells it."""
    return JSONResponse({"status": "live"})


@worker.get("/health/ready")
async def ready(request: Request) -> Response:
    """Whether this worker can do its work, and why not, as every Tidemill process tells it."""
    status: str = request.app.state.health()
    if status == "healthy":
        return JSONResponse({"status": "ready"})
    why = {
        "starting": "it is reading connectors, offsets and statuses from its topics",
        "unhealthy": "it cannot write its topics, one of them is gone or another one, or it has lost its place in its "
        "group: see /tidemill/group, and whether the Kafka cluster answers",
    }[status]
    return JSONResponse({"status": "not ready", "reasons": [{"what": "worker", "why": why}]}, 503)


@worker.get("/tidemill/group")
async def group(api: Api) -> Response:
    """The workers that share the work, who leads, and what keeps them from it. Not in Apache's API."""
    return _answer(api.group())


@worker.get("/tidemill/worker")
async def this_worker(request: Request) -> Response:
    """This worker alone: whether the kernel limits its tasks. Not in Apache's API."""
    info: WorkerInfo | None = request.app.state.worker_info
    return _answer(info or WorkerInfo(url=""))


@worker.get("/admin/loggers")
async def list_loggers(request: Request) -> Response:
    """Every logger and its level."""
    return JSONResponse({name: body(info) for name, info in _loggers(request).every().items()})


@worker.get("/admin/loggers/{logger}")
async def get_logger(logger: str, request: Request) -> Response:
    """One logger's level."""
    info = _loggers(request).get(unquote(logger))
    if info is None:
        raise RestError(404, f"Logger {unquote(logger)} not found.")
    return _answer(info)


@worker.put("/admin/loggers/{logger}")
async def set_logger(
    logger: str, request: Request, api: Api, scopes: Annotated[list[str] | None, Query(alias="scope")] = None
) -> Response:
    """Change the level of a logger and those below it, on this worker or on all."""
    content = await _json(request, as_written=True)
    level = content.get("level") if isinstance(content, dict) else None
    if level is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    name, wanted, scope = unquote(logger), str(level).upper(), _first(scopes)
    if wanted not in LEVELS:
        raise RestError(404, f"invalid log level '{level}'.")
    if scope is not None and scope.lower() == "cluster":
        await api.set_cluster_level(name, wanted)
        return Response(status_code=204)
    if scope is not None and scope.lower() != "worker":
        log.warning("unknown scope taken as worker", scope=scope)
    return JSONResponse(_loggers(request).set(name, wanted))


def _loggers(request: Request) -> LoggerLevels:
    loggers: LoggerLevels = request.app.state.loggers
    return loggers


@worker.get("/metrics")
async def metrics(request: Request) -> Response:
    """Everything countable, for Prometheus."""
    text: str = request.app.state.metrics()
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


# ------------------------------------------------------------------------- app


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the API stands on."""

    operations: Operations
    server_info: ServerInfo
    loggers: LoggerLevels
    health: Callable[[], str]  # healthy, starting, unhealthy
    metrics: Callable[[], str]
    session_key: Callable[[], bytes | None] = lambda: None  # of the group, None until it is known
    verification: Sequence[str] = ("HmacSHA256",)  # algorithms that other workers may sign with
    worker_info: WorkerInfo | None = None


def create_app(parts: Parts, more: Sequence[APIRouter] = ()) -> Asgi:
    """The API as an ASGI application, with further routes."""
    app = FastAPI(
        title="Tidemill Connect",
        version=parts.server_info.version,
        description="Kafka Connect's REST API.",
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.parts = parts
    for field in fields(parts):
        setattr(app.state, field.name, getattr(parts, field.name))
    for router in (worker, connectors, plugins, *more):
        app.include_router(router)
    app.add_exception_handler(RestError, _refused)
    app.add_exception_handler(HTTPException, _http_failure)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(Exception, _broken)
    return EncodedPaths(app)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)
    answer = failure(error.status, error.message)
    if isinstance(error, OfficeLost):
        answer.headers[OFFICE_LOST] = "true"
    return answer


async def _http_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return failure(error.status_code, f"HTTP {error.status_code} {HTTPStatus(error.status_code).phrase}")


async def _not_understood(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return failure(400, f"{where}: {first['msg']}")


async def _broken(request: Request, error: Exception) -> Response:
    # Starlette logs nothing for handled exceptions of this kind and raises them again for the server to log.
    return failure(500, f"{type(error).__name__}: {error}")
