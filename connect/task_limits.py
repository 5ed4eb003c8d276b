"""What a task may use of its machine, and how long it may stand still

Settings of a connector, for each of its tasks with all that it started. Who keeps them: the kernel where the worker may
make control groups, else the worker by looking (`remote/host.py`); the time of a call the task itself.

What is written here is read twice, when a connector is judged and when a task is started: the configuration may come
from a topic that somebody else has written.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemill.connect.api import InvalidConfig
from tidemill.core.config import ConfigKey, ConfigType, Importance, Validator, Value, in_range

MEMORY_MAX: Final = "task.memory.max.bytes"
CPU_MAX: Final = "task.cpu.max.cores"
CALL_MAX: Final = "task.call.max.ms"
HANG_MAX: Final = "task.hang.max.ms"

DELEGATE: Final = (
    "give the worker a part of cgroup v2 of its own (systemd: Delegate=cpu memory; or tidemill.task.cgroup)"
)
"""What can be done where the kernel does not keep a limit."""

LEAST_CORES: Final = 0.01
"""The kernel's least share: a millisecond of a tenth of a second."""

LEAST_MS: Final = 15_000
"""Of the times: a standstill is known after twelve seconds, and looked for every two."""


def _never_or_long(value: Value) -> str | None:
    if isinstance(value, int) and (value == 0 or value >= LEAST_MS):
        return None
    return f"Value must be 0, for no limit, or at least {LEAST_MS}"


def _share(value: Value) -> str | None:
    if isinstance(value, float) and (value == 0 or LEAST_CORES <= value < math.inf):
        return None
    return f"Value must be 0, for all there are, or at least {LEAST_CORES}"


def _key(name: str, default: float, doc: str, valid: Validator) -> ConfigKey:
    kind = ConfigType.DOUBLE if isinstance(default, float) else ConfigType.LONG
    return ConfigKey(name=name, type=kind, default=default, doc=doc, importance=Importance.LOW, valid=valid)


KEYS: Final = (
    ("Task memory limit", _key(MEMORY_MAX, 0, "Memory a task may use; 0: all there is.", in_range(0))),
    (
        "Task processor limit",
        _key(
            CPU_MAX,
            0.0,
            "Processors a task may use, such as 0.5; 0: all. Refused where tasks have no control groups.",
            _share,
        ),
    ),
    (
        "Longest call into a plugin",
        _key(
            CALL_MAX,
            0,
            "How long one call into the plugin may take before the task is killed and started again; 0: for ever.",
            _never_or_long,
        ),
    ),
    (
        "Longest standstill of a task",
        _key(
            HANG_MAX,
            300_000,
            "How long code of C may keep the task's interpreter from running anything else before the task is killed "
            "and started again; 0: for ever.",
            _never_or_long,
        ),
    ),
)
"""Every setting, with the name that a form shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """The limits of one task; 0 is no limit."""

    memory_bytes: int = 0
    cpu_cores: float = 0.0
    call_ms: int = 0
    hang_ms: int = 0


def task_limits(config: Mapping[str, str]) -> TaskLimits:
    """Read them; raises InvalidConfig."""
    return TaskLimits(
        memory_bytes=_number(config, MEMORY_MAX, "bytes"),
        cpu_cores=_cores(config),
        call_ms=_number(config, CALL_MAX, "milliseconds"),
        hang_ms=_number(config, HANG_MAX, "milliseconds"),
    )


def _cores(config: Mapping[str, str]) -> float:
    text = config.get(CPU_MAX, "0").strip()
    try:
        cores = float(text)
    except ValueError:
        cores = math.nan
    if _share(cores) is not None:
        raise InvalidConfig(
            CPU_MAX, f"{CPU_MAX} is a number of processors, such as 0.5, not {text!r}.", "0 is no limit."
        )
    return cores


def _number(config: Mapping[str, str], name: str, of: str) -> int:
    default = next(key.default for _, key in KEYS if key.name == name)
    text = config.get(name, str(default)).strip()
    if not text.isdecimal():
        raise InvalidConfig(name, f"{name} is a number of {of}, not {text!r}.", "0 is no limit.")
    return int(text)
