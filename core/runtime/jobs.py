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
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import structlog

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

log = structlog.get_logger("tidemill.jobs")

BEHIND_START_S: Final = 0.1
"""How long what is started with the jobs has the interpreter to itself."""

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
    """Jobs of APScheduler on the running event loop.

    The library is loaded on a thread behind the start: it takes a tenth of a broker's, and nothing is due for seconds.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[float, Work]] = {}
        self._at_once: set[str] = set()  # asked for before there was a scheduler
        self._scheduler: AsyncIOScheduler | None = None
        self._loading: asyncio.Task[None] | None = None

    def add(self, name: str, seconds: float, work: Work) -> None:
        """Do `work` every so many seconds, the first time when as many have passed; before `start`."""
        self._jobs[name] = seconds, work

    def names(self) -> list[str]:
        """Every job, by how often it is done."""
        return sorted(self._jobs, key=lambda name: self._jobs[name][0])

    def run_now(self, name: str) -> None:
        """Do that one at once; raises KeyError when there is none of that name."""
        if name not in self._jobs:
            raise KeyError(name)
        if self._scheduler is None:
            self._at_once.add(name)
        else:
            self._scheduler.modify_job(name, next_run_time=datetime.now(UTC))

    def start(self) -> None:
        """Begin to count."""
        self._loading = asyncio.get_running_loop().create_task(self._begin())

    async def _begin(self) -> None:
        await asyncio.sleep(BEHIND_START_S)
        try:
            scheduler = await asyncio.to_thread(_scheduler)
        except Exception:
            log.exception("scheduled jobs are not done: restart this process", jobs=self.names())
            return
        for name, (seconds, work) in self._jobs.items():
            scheduler.add_job(_quiet_end(work), "interval", seconds=seconds, id=name, name=name)
        scheduler.start()
        self._scheduler = scheduler
        for name in self._at_once:
            self.run_now(name)

    def stop(self) -> None:
        """End all of them, cancelling what runs; once."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
        elif self._loading is not None:
            self._loading.cancel()


def _scheduler() -> "AsyncIOScheduler":
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    return AsyncIOScheduler(job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None})


def _quiet_end(work: Work) -> Work:
    """`work` for the scheduler, which cancels it when it stops and would report that as a failure."""

    async def run() -> None:
        with suppress(asyncio.CancelledError):
            await work()

    return run
