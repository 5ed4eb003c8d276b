"""Work that the node does again and again

A job waits its interval, does its work and waits again, so it never runs twice at a time. One that fails is reported
and tried again at its next turn: what it could not do now (a full disk) may be possible then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger("tidemill.broker.jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work, by name."""

    name: str
    interval_s: float
    work: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Do it at every interval until cancelled."""
        while True:
            await asyncio.sleep(self.interval_s)
            try:
                await self.work()
            except Exception as error:
                log.exception("job failed", job=self.name, reason=str(error))
