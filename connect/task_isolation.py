"""Whether a task has a process of its own

A setting of a connector. `shared` puts small tasks of one plugin, of one version, into processes that several share, to
spare memory. What can only be kept for a process, its limits and a job's own programs, is refused there by name: it
would be kept for the neighbours as well.

What is written here is read twice, as limits are (`task_limits`).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tidemill.connect.api import InvalidConfig, JobTask, Plugin
from tidemill.connect.task_limits import KEYS as LIMITS
from tidemill.core.config import ConfigError, ConfigKey, ConfigType, Importance, Value, in_range

ISOLATION: Final = "tidemill.task.isolation"
SHARED_MAX: Final = "tidemill.task.shared.max"
PROCESS, SHARED = "process", "shared"

TASKS_MAX: Final = 16
"""Of one process by default: with more, little memory is spared, and more stands still or dies together."""

REMEDY: Final = f"Remove it, or set {ISOLATION}={PROCESS}."


def _isolation(value: Value) -> str | None:
    return None if value in (PROCESS, SHARED) else f"String must be one of: {PROCESS}, {SHARED}"


KEY: Final = ConfigKey(
    name=ISOLATION,
    type=ConfigType.STRING,
    default=PROCESS,
    doc="process: each task has a process of its own; shared: small tasks of one plugin share processes.",
    importance=Importance.LOW,
    valid=_isolation,
)
"""The connector's."""

WORKER_KEY: Final = ConfigKey(
    name=SHARED_MAX,
    type=ConfigType.INT,
    default=TASKS_MAX,
    doc=f"Tasks in one process, at most, of connectors with {ISOLATION}={SHARED}",
    importance=Importance.LOW,
    valid=in_range(1),
)
"""The worker's."""


def is_shared(config: Mapping[str, str]) -> bool:
    """Whether a connector's tasks share processes; raises InvalidConfig, also for what can then not be kept."""
    value = config.get(ISOLATION, PROCESS).strip()
    if _isolation(value) is not None:
        raise InvalidConfig(ISOLATION, f"{ISOLATION} is {PROCESS} or {SHARED}, not {value!r}.")
    for name, problem in refusals(config):
        raise InvalidConfig(name, problem)
    return value == SHARED


def refusals(config: Mapping[str, str], plugin: Plugin | None = None) -> Iterator[tuple[str, str]]:
    """Settings that cannot be kept for one of several tasks in a process, each with a sentence that says what to do."""
    if config.get(ISOLATION, PROCESS).strip() != SHARED:
        return
    for _, key in LIMITS:
        if key.name in config and _differs(key, config[key.name]):
            yield (
                key.name,
                f"{key.name} can only be kept for a whole process, and with {ISOLATION}={SHARED} several tasks are in "
                f"one. {REMEDY}",
            )
    if plugin is not None and isinstance(plugin.task, type) and issubclass(plugin.task, JobTask):
        yield ISOLATION, job_refused(plugin.name)


def job_refused(plugin: str) -> str:
    """The sentence about a plugin that runs programs of its own."""
    return f"{plugin} runs a job, which needs a process of its own. {REMEDY}"


def _differs(key: ConfigKey, text: str) -> bool:
    """Whether it says something else than is so without it; what it says wrongly is told elsewhere."""
    try:
        return key.parse(text) != key.default
    except ConfigError:
        return False
