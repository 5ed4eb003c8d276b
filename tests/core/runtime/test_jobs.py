"""Work that is done every so many seconds, under a name"""

import asyncio
import sys

import pytest
import structlog

from tidemill.core.runtime.jobs import ScheduledJobs


async def test_jobs_have_names_and_are_done_when_asked_for() -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    jobs = ScheduledJobs()
    jobs.add("seldom", 3600, work)
    jobs.add("more often", 1800, work)
    jobs.start()
    assert jobs.names() == ["more often", "seldom"]
    for _ in range(2):  # before there is a scheduler, and then
        jobs.run_now("seldom")
        await asyncio.wait_for(done.wait(), 20)
        done.clear()
    with pytest.raises(LookupError):
        jobs.run_now("never")
    jobs.stop()


async def test_jobs_can_be_stopped_at_once_and_are_not_done_then() -> None:
    done = []

    async def work() -> None:
        done.append(1)

    jobs = ScheduledJobs()
    jobs.add("now", 3600, work)
    jobs.start()
    jobs.run_now("now")
    jobs.stop()
    await asyncio.sleep(0.2)
    assert not done


async def test_jobs_that_cannot_be_scheduled_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apscheduler.schedulers.asyncio", None)
    jobs = ScheduledJobs()
    with structlog.testing.capture_logs() as lines:
        jobs.start()
        for _ in range(2000):
            if lines:
                break
            await asyncio.sleep(0.01)
    assert lines[0]["event"] == "scheduled jobs are not done: restart this process"
    jobs.stop()
