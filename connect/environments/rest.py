"""Plugin environments over HTTP: what is there, one more, one less

Of this worker alone, as the folder is its own, or one that several share. To look is free to all; to change something
takes the worker's setting `plugin.install.packages`. One installation at a time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias
from urllib.parse import unquote

import structlog
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from packaging.utils import canonicalize_name
from pydantic import ValidationError

from tidemill.connect.entities import Entity, ErrorMessage, PluginInfo, Sparse, body
from tidemill.connect.environments.folder import Environment, Folder, FolderProblem, InUse, NotThere
from tidemill.connect.environments.install import InstallFailed, install
from tidemill.connect.environments.requirements import BadRequirements, parse, unlisted
from tidemill.connect.environments.settings import PACKAGES, EnvironmentSettings
from tidemill.connect.environments.shelf import Shelf
from tidemill.connect.herder.plugin_calls import off_loop
from tidemill.connect.operations import RestError
from tidemill.connect.rest import read_body

log = structlog.get_logger("tidemill.connect.environments")

INSTALL_TIMEOUT_S = 1_200.0
"""For all of it; its steps have limits of their own, and better messages."""

UNKNOWN = "what nothing is known of"
"""Stands for the name of an environment that does not say it; who may remove everything may remove that, too."""

JSON = "application/json"

PARSE_TIMEOUT_S = 60.0  # of the longest there may be, seconds: on a thread, since others want to be answered meanwhile

REMOVE_TIMEOUT_S = 60.0

ENDING_S = 10.0
"""For the last tasks of a connector that was just deleted, and what stays ready for others, to be gone."""

PAUSE_S = 0.1


Users: TypeAlias = Mapping[str, Sequence[str]]
"""Connectors by the environment that their tasks would run in."""


class EnvironmentInfo(Sparse):
    """One environment."""

    name: str
    version: str | None = None
    folder: str
    installed: str | None = None
    requirements: tuple[str, ...] = ()
    plugins: tuple[PluginInfo, ...] = ()
    used_by: tuple[str, ...] = ()  # connectors
    problem: str | None = None


class EnvironmentsInfo(Sparse):
    """All of them."""

    folder: str | None = None
    installable: tuple[str, ...]  # packages, through this API
    environments: tuple[EnvironmentInfo, ...]
    problem: str | None = None


class InstallRequest(Entity):
    """What to install: lines as pip reads them, each pinned and with its hashes."""

    requirements: tuple[str, ...]


class Environments:
    """What the API can do with the environments of one worker."""

    def __init__(
        self,
        shelf: Shelf,
        settings: EnvironmentSettings,
        users: Callable[[], Users],
        let_go: Callable[[str], None],
    ) -> None:
        self._shelf = shelf
        self._settings = settings
        self._users = users
        self._let_go = let_go  # of what stays ready in an environment
        self._changing = asyncio.Lock()

    async def every(self) -> EnvironmentsInfo:
        """What is there."""
        await self._shelf.look()
        users = self._users()
        return EnvironmentsInfo(
            folder=self._settings.folder or None,
            installable=self._settings.packages,
            environments=tuple(_info(each, users) for each in self._shelf.environments),
            problem=self._shelf.problem or None,
        )

    async def install(self, lines: Sequence[str]) -> EnvironmentInfo:
        """Install; what is there already is returned as it is."""
        folder = self._allowed()
        try:
            pinned = await off_loop(lambda: parse("\n".join(lines)), PARSE_TIMEOUT_S)
        except BadRequirements as error:
            raise RestError(400, f"This cannot be installed:\n{error}") from None
        self._refuse_unlisted([each.name for each in pinned])
        if self._changing.locked():
            raise RestError(409, "This worker is installing a plugin; try again when it is done.")
        async with self._changing:
            try:
                made = await off_loop(lambda: install(folder, pinned), INSTALL_TIMEOUT_S)
            except (InstallFailed, FolderProblem, TimeoutError) as error:
                reason = str(error) or f"it took longer than {INSTALL_TIMEOUT_S:g} s"
                log.warning("plugin not installed", requirements=[each.text for each in pinned], reason=reason)
                raise RestError(422, f"Nothing was installed: {reason}") from None
        await self._shelf.look()
        log.info("plugin installed", package=made.called, folder=made.path)
        return _info(made, self._users())

    async def remove(self, name: str, version: str, *, force: bool) -> None:
        """Remove one that no connector uses, or any by force."""
        folder = self._allowed()
        self._refuse_unlisted([name])
        await self._shelf.look()
        try:
            environment = await off_loop(lambda: folder.find(canonicalize_name(name), version), REMOVE_TIMEOUT_S)
            self._refuse_unlisted([environment.header.name if environment.header is not None else UNKNOWN])
            users = () if force else self._users().get(environment.path, ())
            if users:
                raise RestError(
                    409,
                    f"{environment.called} is used by {', '.join(users)}: give them another connector.plugin.version "
                    "or delete them, or remove it by force, after which their tasks cannot be started",
                )
            await self._take_away(folder, environment, force)
        except NotThere as error:
            raise RestError(404, str(error)) from None
        except InUse as error:
            raise RestError(409, str(error)) from None
        except FolderProblem as error:
            raise RestError(500, str(error)) from None
        await self._shelf.look()
        log.info("plugin removed", package=environment.called, folder=environment.path, force=force)

    async def _take_away(self, folder: Folder, environment: Environment, force: bool) -> None:
        clock = asyncio.get_running_loop()
        until = clock.time() + ENDING_S
        while True:
            self._let_go(environment.path)
            try:
                await off_loop(lambda: folder.remove(environment, force=force), REMOVE_TIMEOUT_S)
                return
            except InUse:
                if clock.time() >= until:
                    raise
            await asyncio.sleep(PAUSE_S)

    def _allowed(self) -> Folder:
        refusal = self._settings.refusal()
        if refusal or self._shelf.folder is None:
            raise RestError(403, refusal[:1].upper() + refusal[1:])
        return self._shelf.folder

    def _refuse_unlisted(self, names: Sequence[str]) -> None:
        missing = unlisted(names, self._settings.packages)
        if missing:
            raise RestError(403, f"Packages that this worker's {PACKAGES} does not list: {', '.join(missing)}")


def _info(environment: Environment, users: Users) -> EnvironmentInfo:
    described, header = environment.description, environment.header
    if described is None:
        return EnvironmentInfo(
            name=header.name if header is not None else environment.called,
            version=header.version if header is not None else None,
            folder=environment.path,
            problem=environment.problem,
        )
    return EnvironmentInfo(
        name=described.name,
        version=described.version,
        folder=environment.path,
        installed=described.installed,
        requirements=described.requirements,
        plugins=tuple(
            PluginInfo(plugin_class=each.name, type=each.kind.value, version=each.version) for each in described.plugins
        ),
        used_by=tuple(users.get(environment.path, ())),
        problem=environment.problem or None,
    )


def routes(environments: Environments) -> APIRouter:
    """The REST API's part of it."""
    router = APIRouter(prefix="/tidemill/plugins", tags=["plugins"])
    refused: dict[int | str, dict[str, Any]] = {
        403: {"model": ErrorMessage, "description": "The worker's settings do not allow it."}
    }

    @router.get("", response_model=EnvironmentsInfo)
    async def every() -> Response:
        """Plugins that are installed in environments of their own on this worker. Not in Apache's API."""
        return JSONResponse(body(await environments.every()))

    @router.post("", response_model=EnvironmentInfo, status_code=201, responses=refused)
    async def install_one(request: Request) -> Response:
        """Install a plugin: {"requirements": ["web-orders==1.2.0 --hash=sha256:…"]}. Not in Apache's API."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise RestError(
                415, f"What is to be installed is sent as {JSON}, which a page in a browser cannot do unasked."
            )
        try:
            wanted = InstallRequest.model_validate_json(await read_body(request))
        except ValidationError:
            raise RestError(
                400, 'The body must be a JSON object like {"requirements": ["NAME==VERSION --hash=sha256:…"]}'
            ) from None
        return JSONResponse(body(await environments.install(wanted.requirements)), 201)

    @router.delete("/{name}/{version}", status_code=204, responses=refused)
    async def remove_one(name: str, version: str, force: Annotated[str, Query()] = "") -> Response:
        """Remove a plugin that no connector uses, or with `force=true` any. Not in Apache's API."""
        await environments.remove(unquote(name), unquote(version), force=force.strip().lower() == "true")
        return Response(status_code=204)

    return router
