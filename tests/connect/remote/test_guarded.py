"""The worker's end of its guardian"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from tests.connect.conftest import PLUGINS, python_path
from tidemill.connect.remote import guarded as guarded_module
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader, frame
from tidemill.connect.remote.guarded import Guarded, Guardians, lines

pytestmark = pytest.mark.integration

PLUGIN = "task_plugins:job"


@pytest.fixture
async def guardians() -> AsyncIterator[Guardians]:
    async with asyncio.TaskGroup() as tasks:
        found = Guardians({**os.environ, "PYTHONPATH": python_path(PLUGINS)}, tasks)
        yield found
        await found.close()


async def hello(guarded: Guarded) -> int:
    """The process that says it is there."""
    frames = FrameReader()
    async with asyncio.timeout(30):
        while True:
            for each in frames.take(await guarded.reader.read(1000)):
                return int(pb.FromTask.FromString(each).hello.pid)


async def ended(guarded: Guarded) -> int | None:
    async with asyncio.timeout(30):
        await guarded.gone.wait()
    guarded.writer.close()
    return guarded.returncode


async def test_a_process_has_a_stream_an_output_and_an_end(guardians: Guardians) -> None:
    guarded = await guardians.start("check", PLUGIN)
    await hello(guarded)
    guarded.writer.write(frame(pb.ToTask(check=pb.Check(plugin=PLUGIN, config={"mode": "crash"}))))
    assert await ended(guarded) == 3
    assert [line async for line in lines(guarded.output)] == []


async def test_a_process_is_killed(guardians: Guardians) -> None:
    guarded = await guardians.start("check", PLUGIN)
    pid = await hello(guarded)
    guarded.kill()
    assert await ended(guarded) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    guarded.kill()


async def test_all_end_with_a_guardian_and_another_takes_its_place(guardians: Guardians) -> None:
    several = [await guardians.start(f"check {number}", PLUGIN) for number in range(3)]
    for each in several:
        await hello(each)
    several[0].kill_guardian()
    assert [await ended(each) for each in several] == [-signal.SIGKILL] * 3
    assert "guardian" in several[1].reason
    another = await guardians.start("check", PLUGIN)
    await hello(another)
    another.kill()
    await ended(another)


async def test_many_at_once_are_all_started_and_all_told(guardians: Guardians) -> None:
    several = await asyncio.gather(*(guardians.start(f"check {number}", PLUGIN) for number in range(40)))
    pids = [await hello(each) for each in several]
    assert len(set(pids)) == 40
    for each in several:
        each.kill()
    assert {await ended(each) for each in several} == {-signal.SIGKILL}


async def test_an_end_that_is_told_at_once_is_not_lost(guardians: Guardians, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guardian may be quicker than this process is in connecting, such as when nothing can be forked."""
    connect = asyncio.open_connection

    async def slowly(**how: Any) -> Any:
        await asyncio.sleep(0.5)
        return await connect(**how)

    guardian = await guardians.ready()
    monkeypatch.setattr(guarded_module.asyncio, "open_connection", slowly)
    starting = asyncio.create_task(guardian.start(1, {"label": "check", "plugin": PLUGIN, "leased": False}))
    await asyncio.sleep(0)
    guardian.order({"do": "kill", "start": 1})  # as it would be refused
    guarded = await starting
    guarded.kill()
    assert await ended(guarded) == -signal.SIGKILL


async def test_a_guardian_that_cannot_be_told_anything_is_replaced(guardians: Guardians) -> None:
    guarded = await guardians.start("check", PLUGIN)
    await hello(guarded)
    too_many = tuple(os.open(os.devnull, os.O_RDONLY) for _ in range(300))  # the kernel hands on 253 at most
    guarded.guardian.order({"do": "start", "start": 1000, "label": "check", "plugin": PLUGIN}, too_many)
    assert await ended(guarded) == -signal.SIGKILL
    another = await guardians.start("check", PLUGIN)
    await hello(another)
    another.kill()
    await ended(another)


async def test_a_guardian_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_module, "FAREWELL_S", 0.5)
    async with asyncio.TaskGroup() as tasks:
        guardians = Guardians(os.environ, tasks)
        guarded = await guardians.start("check", "no module: forked from the first nursery")
        _, guardian, worker, *_ = psutil.Process(await hello(guarded)).parents()
        assert worker.pid == os.getpid()
        guardian.suspend()
        await guardians.close()
        assert await ended(guarded) == -signal.SIGKILL


async def test_others_have_their_turn_while_a_flood_of_lines_is_read() -> None:
    """What is in the buffer is read without a turn of the loop, and that may be 200,000 lines."""
    output = asyncio.StreamReader()
    output.feed_data(b"\n" * 20_000)
    output.feed_eof()
    read, turns = 0, 0

    async def others() -> None:
        nonlocal turns
        while read < 20_000:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(others())
        async for _ in lines(output):
            read += 1
    assert turns >= 100
