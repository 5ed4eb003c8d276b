"""Which programs a worker lets its connectors run

`process.commands` lists beginnings of commands, divided into words as a shell would. None is the default: whoever
reaches the REST API would otherwise have a shell. The worker tells its own process, in which connectors divide their
work, and all that it starts by an environment variable, which it always sets: one that was inherited does not count.
The plugins that run programs read it; where no worker has set it nobody's REST API is involved, and anything may be
run.

The variable holds a JSON list of beginnings, each a list of words. `*`, any command, is the empty beginning; no other
entry has no words.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, cast

from tidemill.core.config import ConfigKey, ConfigType, Importance, Value

VARIABLE: Final = "TIDEMILL_PROCESS_COMMANDS"
ANY: Final = "*"

_NAME = "process.commands"


def _divisible(value: Value) -> str | None:
    for entry in cast("tuple[str, ...]", value):
        try:
            shlex.split(entry)
        except ValueError as error:
            return f"{entry} cannot be divided into words ({error}); a comma divides commands, also within quotes"
    return None


KEY: Final = ConfigKey(
    name=_NAME,
    type=ConfigType.LIST,
    default=(),
    doc="Commands that ProcessSource and ProcessSink may run, each with any further arguments; `*` for all there are",
    importance=Importance.MEDIUM,
    valid=_divisible,
)
"""The setting, as a row of the worker's table."""


def parsed(values: Mapping[str, Value]) -> tuple[tuple[str, ...], ...]:
    """The beginnings of commands that a parsed table allows."""
    entries = cast("tuple[str, ...]", values[_NAME])
    return tuple(() if entry == ANY else tuple(shlex.split(entry)) for entry in entries)


@contextmanager
def announced(beginnings: Sequence[Sequence[str]]) -> Iterator[Mapping[str, str]]:
    """Tell this process for a while; yields the variables for those that it starts."""
    told = {VARIABLE: json.dumps(beginnings)}
    inherited = os.environ.get(VARIABLE)
    os.environ.update(told)
    try:
        yield told
    finally:
        if inherited is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = inherited
