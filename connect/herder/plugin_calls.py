"""What a worker asks a plugin itself, and where

A plugin that the worker has imported is asked on a thread, with a deadline; one that lives in an environment of its
own, in a process there. Both look the same from here on, their failures too. Preflights, which may talk to a database,
run in a process in any case.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import structlog

from tidemill.connect.api import InvalidConfig, Plugin, PluginKind
from tidemill.connect.loader import Plugins
from tidemill.connect.settings import parse_settings, valid_settings
from tidemill.connect.stand_in import StandIn, environment_of
from tidemill.connect.task_spec import PluginFailed, SettingProblem

log = structlog.get_logger("tidemill.connect.herder")

SPLIT_TIMEOUT_S = 60.0
"""How long a plugin may take to say what its tasks are; Connect's REST requests have 90 s in all."""

LEFT_BEHIND_TIMEOUT_S = 10.0
"""How long it may take to say what a deleted connector leaves behind; the deletion waits for it."""

T = TypeVar("T")


class Asked(Protocol):
    """What is needed of a task host."""

    async def validate(
        self, plugin: str, config: Mapping[str, str], *, timeout_s: float, environment: str
    ) -> tuple[SettingProblem, ...]: ...
    async def ask(
        self,
        about: str,
        plugin: str,
        config: Mapping[str, str],
        *,
        timeout_s: float,
        tasks_max: int = 1,
        environment: str,
    ) -> Any: ...

    def let_go(self, environment: str) -> None: ...


class PluginCalls:
    """Questions to plugins, for one worker."""

    def __init__(self, host: Asked, plugins: Plugins) -> None:
        self._host = host
        self._plugins = plugins

    async def tasks(
        self, plugin: Plugin, config: Mapping[str, str], *, for_java: bool
    ) -> tuple[Mapping[str, str], ...]:
        """What a connector's tasks are; raises what the plugin does, PluginFailed or TimeoutError."""
        said: Sequence[Mapping[str, str]] | None = None
        if isinstance(plugin, StandIn) and plugin.split is not None:
            said = await self._host.ask(
                "split",
                plugin.target,
                config,
                timeout_s=SPLIT_TIMEOUT_S,
                tasks_max=int(config.get("tasks.max", "1")),
                environment=plugin.environment,
            )
        return await off_loop(lambda: split(plugin, config, for_java=for_java, said=said), SPLIT_TIMEOUT_S)

    async def left_behind(self, plugin: Plugin, config: Mapping[str, str]) -> Sequence[str]:
        """What stays elsewhere when a connector is deleted, in the plugin's words."""
        if plugin.left_behind is None:
            return ()
        try:
            if not isinstance(plugin, StandIn):
                return plugin.left_behind(parse_settings(plugin, config))
            found: Sequence[str] = await self._host.ask(
                "left_behind",
                plugin.target,
                config,
                timeout_s=LEFT_BEHIND_TIMEOUT_S,
                environment=plugin.environment,
            )
            return found
        except ValueError:  # pydantic's: it never ran with settings like these
            return ()
        except (PluginFailed, TimeoutError) as error:
            reason = str(error) or "it gave no answer in time"
            log.warning("not known what a deleted connector leaves behind", plugin=plugin.name, reason=reason)
            return ()

    def let_go(self, environment: str) -> None:
        """Have nothing stay ready in an environment that is to be removed."""
        self._host.let_go(environment)

    async def check(self, plugin: Plugin, config: Mapping[str, str], timeout_s: float) -> Sequence[SettingProblem]:
        """Run a plugin's preflight in a process of its own."""
        target, environment = self._plugins.target(plugin), environment_of(plugin)
        return await self._host.validate(target, config, timeout_s=timeout_s, environment=environment)


def split(
    plugin: Plugin,
    config: Mapping[str, str],
    *,
    for_java: bool = False,
    said: Sequence[Mapping[str, str]] | None = None,
) -> tuple[Mapping[str, str], ...]:
    """Ask the plugin for its tasks: the connector's configuration, each with the plugin's changes (or what it `said`).

    Java's workers can run them, too, if they name the class of a task (`for_java`), as theirs do.
    """
    settings = valid_settings(plugin, config)
    tasks_max = int(config.get("tasks.max", "1"))
    overrides: Sequence[Mapping[str, str]]
    if said is not None:
        overrides = said
    elif plugin.split is not None:
        overrides = plugin.split(settings, tasks_max)
    else:
        # A sink's tasks share the consumer group, so any number of equal ones divides the partitions.
        overrides = [{}] * (tasks_max if plugin.kind is PluginKind.SINK else 1)
    enforced = config.get("tasks.max.enforce", "true").strip().lower() != "false"
    if len(overrides) > tasks_max and enforced:
        raise InvalidConfig(
            "tasks.max",
            f"The connector {config.get('name')} has generated {len(overrides)} tasks, which is more than "
            f"tasks.max={tasks_max} allows.",
            "Raise it.",
        )
    java = {"task.class": plugin.java_task} if for_java and plugin.java_task else {}
    return tuple({**config, **override, **java} for override in overrides)


async def off_loop(function: Callable[[], T], timeout_s: float) -> T:
    """Run plugin code on a thread of its own; one that never returns costs a thread and nothing else."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only where T is None

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (function(), None)
        except Exception as error:
            outcome = (None, error)
        except BaseException as error:  # sys.exit(), which the event loop would take for its own end
            outcome = (None, RuntimeError(f"the plugin ended its thread: {error!r}"))
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, *outcome)

    threading.Thread(target=run, name="plugin call", daemon=True).start()
    async with asyncio.timeout(timeout_s):
        return await future
