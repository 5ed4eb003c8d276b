"""Which programs a worker lets its connectors run

`process.commands` lists beginnings of commands, divided into words as a shell would. None is the default: whoever
reaches the REST API would otherwise have a shell. The worker tells its own process, in which connectors divide their
work, and all that it starts by an environment variable, which it always sets: one that was inherited does not count.
The plugins that run programs read it; where no worker has set it nobody's REST API is involved, and anything may be
run. Where several workers are in one process, what it does itself is allowed by all of them or not at all.

The variable holds a JSON list of beginnings, each a list of words. `*`, any command, is the empty beginning; no other
entry has no words.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, cast

from tidemill.core.config import ConfigKey, ConfigType, Importance, Value

VARIABLE: Final = "TIDEMILL_PROCESS_COMMANDS"
ANY: Final = "*"

Beginnings: TypeAlias = tuple[tuple[str, ...], ...]

_in_force: Final[list[Beginnings]] = []
"""Of the workers of this process, which has one environment for all of them."""

_inherited: Final[list[str]] = []
"""What the variable was before the first of them."""

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


def parsed(values: Mapping[str, Value]) -> Beginnings:
    """The beginnings of commands that a parsed table allows."""
    entries = cast("tuple[str, ...]", values[_NAME])
    return tuple(() if entry == ANY else tuple(shlex.split(entry)) for entry in entries)


@contextmanager
def announced(beginnings: Sequence[Sequence[str]]) -> Iterator[Mapping[str, str]]:
    """Tell this process for a while; yields the variables for those that it starts."""
    mine = tuple(tuple(each) for each in beginnings)
    if not _in_force:
        _inherited[:] = [os.environ[VARIABLE]] if VARIABLE in os.environ else []
    _in_force.append(mine)
    os.environ[VARIABLE] = _told(_common(_in_force))
    try:
        yield {VARIABLE: _told(mine)}
    finally:
        _in_force.remove(mine)
        if _in_force:
            os.environ[VARIABLE] = _told(_common(_in_force))
        elif _inherited:
            os.environ[VARIABLE] = _inherited[0]
        else:
            del os.environ[VARIABLE]


def _told(beginnings: Beginnings) -> str:
    return json.dumps(beginnings)


def _common(lists: Sequence[Beginnings]) -> Beginnings:
    """What every list allows: the beginnings that have one of each list in front."""
    return tuple(
        dict.fromkeys(
            each
            for beginnings in lists
            for each in beginnings
            if all(any(each[: len(other)] == other for other in others) for others in lists)
        )
    )
