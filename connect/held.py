"""What a plugin's function works with: opened once, closed at the end

    def database(settings: Settings) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(settings.database)
        yield connection
        connection.close()

    @sink("SqliteTable", version="1.0", setup=database)
    def table(settings: Settings, connection: sqlite3.Connection, batch: list[Record]) -> None: ...

A setup is a generator that yields once, as a fixture of pytest does: what stands after the `yield` runs however the
task ends, without a `try` around it. What it yields arrives in the parameter annotated with the type that the setup
says it yields. Everything about a setup that can be wrong is told when the plugin's module is imported.

An error in closing is the task's only if there is none before it: whose connection was lost cannot close it either.
"""

import collections.abc
import contextlib
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

log = structlog.get_logger("tidemill.connect.held")

_SYNCHRONOUS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)
_ASYNCHRONOUS = (collections.abc.AsyncIterator, collections.abc.AsyncIterable, collections.abc.AsyncGenerator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A generator function that yields one thing."""

    function: Callable[..., Any]
    yields: Any  # the type, as it is annotated
    asynchronous: bool


def setup_of(function: Callable[..., Any]) -> Setup:
    """Look at a setup, a bare generator or one that contextlib has made a context manager; raises TypeError."""
    bare = inspect.unwrap(function)
    name = getattr(bare, "__name__", repr(bare))
    asynchronous = inspect.isasyncgenfunction(bare)
    if not asynchronous and not inspect.isgeneratorfunction(bare):
        raise TypeError(f"setup {name}: it must be a generator, which yields once what the plugin works with")
    hint = typing.get_type_hints(bare).get("return")
    if typing.get_origin(hint) not in (_ASYNCHRONOUS if asynchronous else _SYNCHRONOUS):
        kind = "AsyncIterator" if asynchronous else "Iterator"
        raise TypeError(f"setup {name}: annotate what it yields, for example '-> {kind}[Connection]'")
    return Setup(function=bare, yields=typing.get_args(hint)[0], asynchronous=asynchronous)


@contextlib.contextmanager
def held(setup: Setup | None, arguments: Mapping[str, Any]) -> Iterator[Any]:
    """What the setup yields, until the end of the block; None without a setup."""
    if setup is None:
        yield None
        return
    manager = contextlib.contextmanager(setup.function)(**arguments)
    found = manager.__enter__()
    try:
        yield found
    except BaseException:
        with _told_only():
            manager.__exit__(None, None, None)
        raise
    manager.__exit__(None, None, None)


@contextlib.asynccontextmanager
async def held_async(setup: Setup | None, arguments: Mapping[str, Any]) -> AsyncIterator[Any]:
    """The same on an event loop; the setup may be of either kind."""
    if setup is None or not setup.asynchronous:
        with held(setup, arguments) as found:
            yield found
        return
    manager = contextlib.asynccontextmanager(setup.function)(**arguments)
    found = await manager.__aenter__()
    try:
        yield found
    except BaseException:
        with _told_only():
            await manager.__aexit__(None, None, None)
        raise
    await manager.__aexit__(None, None, None)


@contextlib.contextmanager
def _told_only() -> Iterator[None]:
    try:
        yield
    except Exception:
        log.warning("what the plugin works with could not be closed after a failure", exc_info=True)
