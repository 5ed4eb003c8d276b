"""The events of tasks, in order for one reader

Of the reports of a task only the newest waits: a reader that is slow is told less often, and nothing piles up.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from tidemill.connect.task_spec import TaskEvent, TaskId, TaskReport


class EventFeed:
    """What was said and not read yet."""

    def __init__(self) -> None:
        self._waiting: deque[TaskEvent | None] = deque()  # bounded: few events per start, one report per task
        self._reports: dict[TaskId, TaskReport] = {}
        self._news = asyncio.Event()

    def put(self, event: TaskEvent) -> None:
        """Add an event; a report replaces one of the same task that was not read yet."""
        if isinstance(event, TaskReport):
            waiting = event.task in self._reports
            self._reports[event.task] = event
            if waiting:
                return
        self._waiting.append(event)
        self._news.set()

    def close(self) -> None:
        """End the reader's iteration after what is waiting."""
        self._waiting.append(None)
        self._news.set()

    async def read(self) -> AsyncIterator[TaskEvent]:
        """Yield events until closed."""
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            event = self._waiting.popleft()
            if event is None:
                return
            if isinstance(event, TaskReport):
                event = self._reports.pop(event.task)
            yield event
