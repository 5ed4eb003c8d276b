"""Work that is done every so many seconds, under a name

A program adds its jobs and starts them; whoever looks after it can see what runs when (`names`) and have
one done at once. A job that still runs when its time comes again is not begun a second time, and a job that is late is
done once, however often it was missed.

`ScheduledJobs` are APScheduler's. A simulated world has its own, which tick with its clock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from apscheduler.schedulers.asyncio import AsyncIOScheduler

Work: TypeAlias = Callable[[], Awaitable[None]]


class Jobs(Protocol):
    """What a program does from time to time."""

    def add(self, name: str, seconds: float, work: Work) -> None:
        """Do `work` every so many seconds, the first time when as many have passed."""
        ...

    def names(self) -> list[str]:
        """Every job."""
        ...

    def run_now(self, name: str) -> None:
        """Do that one at once; raises KeyError when there is none of that name."""
        ...

    def start(self) -> None:
        """Begin to count."""
        ...

    def stop(self) -> None:
        """End all of them, cancelling what runs; once."""
        ...


class ScheduledJobs:
    """Jobs of APScheduler on the running event loop."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )

    def add(self, name: str, seconds: float, work: Work) -> None:
        """Do `work` every so many seconds, the first time when as many have passed."""
        self._scheduler.add_job(_quiet_end(work), "interval", seconds=seconds, id=name, name=name)

    def names(self) -> list[str]:
        """Every job, in the order in which they are due once they are started."""
        return [str(job.id) for job in self._scheduler.get_jobs()]

    def run_now(self, name: str) -> None:
        """Do that one at once; raises KeyError when there is none of that name."""
        self._scheduler.modify_job(name, next_run_time=datetime.now(UTC))

    def start(self) -> None:
        """Begin to count."""
        self._scheduler.start()

    def stop(self) -> None:
        """End all of them, cancelling what runs; once."""
        self._scheduler.shutdown(wait=False)


def _quiet_end(work: Work) -> Work:
    """`work` for the scheduler, which cancels it when it stops and would report that as a failure."""

    async def run() -> None:
        with suppress(asyncio.CancelledError):
            await work()

    return run
