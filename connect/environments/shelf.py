"""The plugin environments that a worker knows, as they come and go

The folder is looked at every second, and before a configuration is judged, so that what was just installed is there
without a restart; on a thread, since it may be another machine's. What is read of an environment is kept, because under
one name there is always the same. What cannot be read now leaves what was known.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

import structlog

from tidemill.connect.environments.folder import Environment, Folder
from tidemill.connect.herder.plugin_calls import off_loop
from tidemill.connect.stand_in import StandIn, stand_in

log = structlog.get_logger("tidemill.connect.environments")

LOOK_S = 1.0
LOOK_TIMEOUT_S = 5.0  # for the folder to answer; who creates a connector waits for it
SWEEP_TIMEOUT_S = 60.0

_Known: TypeAlias = dict[str, tuple[Environment, tuple[StandIn, ...]]]


class Shelf:
    """What is in the folder, if the worker has one."""

    def __init__(self, folder: Folder | None) -> None:
        self.folder = folder
        self.problem = ""  # why it cannot be looked at now
        self.plugins: tuple[StandIn, ...] = ()  # another tuple each time that something has changed
        self._known: Mapping[str, tuple[Environment, tuple[StandIn, ...]]] = MappingProxyType({})
        self._reading = False
        self._looking = asyncio.Lock()

    @property
    def environments(self) -> tuple[Environment, ...]:
        """Everything in it, also what cannot be used."""
        return tuple(environment for environment, _ in self._known.values())

    async def look(self) -> None:
        """See what is there now."""
        if self.folder is None:
            return
        async with self._looking:
            try:
                found = await self._found(self.folder)
            except Exception as error:  # of whatever kind: the worker goes on with what it knows
                problem = f"{self.folder.path} cannot be read: {_why(error)}"
                if problem != self.problem:
                    log.error("plugin environments cannot be looked at", reason=problem)
                self.problem = problem
                return
            self.problem = ""
            if found is not None:
                self._take(found)

    async def _found(self, folder: Folder) -> _Known | None:
        if self._reading:
            raise TimeoutError  # the thread of a look before still waits for an answer

        def read() -> _Known | None:
            self._reading = True
            try:
                return self._read(folder)
            finally:
                self._reading = False

        return await off_loop(read, LOOK_TIMEOUT_S)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Look again and again for as long as the context is open; what was left behind is removed before."""
        if self.folder is None:
            yield
            return
        with contextlib.suppress(Exception):  # what is left behind can stay
            await off_loop(self.folder.sweep, SWEEP_TIMEOUT_S)
        await self.look()
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._keep(), name="plugin environments")
            try:
                yield
            except (Exception, asyncio.CancelledError) as error:  # as it came, not in a group
                failure = error
            finally:
                looking.cancel()
        if failure is not None:
            raise failure

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    def _read(self, folder: Folder) -> _Known | None:
        names = folder.names()
        unread = [name for name, (environment, _) in self._known.items() if environment.problem]
        if names == tuple(self._known) and not unread:
            return None
        found = {}
        for name in names:
            known = self._known.get(name)
            if known is None or name in unread:
                known = _seen(folder.environment(name))
            found[name] = known
        return found

    def _take(self, found: _Known) -> None:
        for name in [each for each in found if each not in self._known]:
            environment, plugins = found[name]
            shown = [f"{plugin.name} {plugin.version}" for plugin in plugins]
            if environment.problem:
                log.warning("plugin environment not used", folder=environment.path, reason=environment.problem)
            else:
                log.info("plugin environment found", folder=environment.path, plugins=shown)
        for name in [each for each in self._known if each not in found]:
            log.info("plugin environment gone", folder=self._known[name][0].path)
        self._known = MappingProxyType(found)
        plugins = tuple(plugin for _, plugins in found.values() for plugin in plugins)
        if plugins != self.plugins:
            self.plugins = plugins


def _seen(environment: Environment) -> tuple[Environment, tuple[StandIn, ...]]:
    """An environment with its plugins, or with what is wrong with them."""
    if environment.description is None or environment.problem:
        return environment, ()
    try:
        return environment, tuple(stand_in(each, environment.path) for each in environment.description.plugins)
    except Exception as error:  # what describes them makes no sense here, though it did where it was written
        problem = f"its plugins cannot be used: {type(error).__name__}: {error}"
        return replace(environment, problem=problem), ()


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it does not answer within {LOOK_TIMEOUT_S:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
