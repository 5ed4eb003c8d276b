"""Tasks that end together

A node's own work goes on beside what its opener does with it. When one of these tasks fails the others end and so does
the node; a single failure is raised as what it is, not as a group of one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Start = Callable[[Coroutine[Any, Any, None]], None]
"""Begins one more task."""


@asynccontextmanager
async def working() -> AsyncIterator[Start]:
    """What is started runs until exit, which cancels it."""
    running: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            try:
                yield lambda work: running.append(tasks.create_task(work))
            finally:
                for task in reversed(running):
                    task.cancel()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        raise failures.exceptions[0] from None
