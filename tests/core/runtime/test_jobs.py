"""Work that is done every so many seconds, under a name"""

import asyncio

import pytest

from tidemill.core.runtime.jobs import ScheduledJobs


async def test_jobs_have_names_and_are_done_when_asked_for() -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    jobs = ScheduledJobs()
    jobs.add("seldom", 3600, work)
    jobs.start()
    assert jobs.names() == ["seldom"]
    jobs.run_now("seldom")
    await asyncio.wait_for(done.wait(), 20)
    with pytest.raises(LookupError):
        jobs.run_now("never")
    jobs.stop()
