"""A process and the tasks in it, as the worker knows them"""

import asyncio
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tidemill.connect.problem import Problem
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader
from tidemill.connect.remote.guarded import Guarded
from tidemill.connect.remote.process_facts import FamilyFacts
from tidemill.connect.remote.task_process import Seat, TaskProcess
from tidemill.connect.task_limits import TaskLimits
from tidemill.connect.task_spec import TaskSpec

FAMILY = FamilyFacts(pids=(7,), rss_bytes=(50 << 20) + 4096, cpu_s=1.2345)


class Killed:
    """A guardian that only listens."""

    def __init__(self) -> None:
        self.orders: list[dict[str, object]] = []

    def order(self, facts: dict[str, object]) -> None:
        self.orders.append(facts)


async def a_process(*, shared: int = 0) -> tuple[TaskProcess, socket.socket, Killed]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    guardian: Any = Killed()
    guarded = Guarded(asyncio.StreamReader(), reader, writer, guardian, 1)
    process = TaskProcess("label", pb.ToTask(), guarded, TaskLimits(), shared=shared)
    return process, theirs, guardian


def seat(process: TaskProcess, spec: TaskSpec, number: int = 0) -> Seat:
    process.seats[number] = found = Seat(spec, process, number)
    return found


@pytest.mark.parametrize(
    ("status", "explained", "reason"),
    [
        (0, False, "ended by itself"),
        (signal.SIGKILL, False, "killed by SIGKILL"),
        (1 << 8, True, "ended with code 1 after it failed"),
        (3 << 8, False, "ended with code 3 without saying why; its last output:\n  the last words"),
        (75 << 8, False, "ended because it had lost its worker"),
    ],
)
async def test_how_a_process_of_one_task_ended(
    spec: Callable[..., TaskSpec], status: int, explained: bool, reason: str
) -> None:
    process, theirs, _ = await a_process()
    with theirs:
        one = seat(process, spec("p"))
        one.explained = explained
        process.tail.append("the last words")
        process.process.ended(status)
        assert process.reason(one) == reason
        process.process.writer.close()


async def test_of_a_shared_process_it_is_said_that_it_was(spec: Callable[..., TaskSpec]) -> None:
    process, theirs, _ = await a_process(shared=1)
    with theirs:
        one = seat(process, spec("p"), 1)
        process.process.ended(0)
        assert process.reason(one) == "its process ended without saying why"
        seat(process, spec("p"), 2)
        assert process.reason(one) == "its process ended without saying why (a process that 2 tasks shared)"
        process.process.writer.close()


async def test_only_the_first_reason_of_a_kill_counts() -> None:
    process, theirs, guardian = await a_process(shared=1)
    told = []
    process.closing = lambda: told.append("closing")
    with theirs:
        process.kill("it was in the way", blameless=True)
        process.kill("it did not hear")
        assert guardian.orders == [{"do": "kill", "start": 1}]
        assert told == ["closing"]
        assert process.blameless
        process.process.ended(signal.SIGKILL)
        assert process.reason() == "killed: it was in the way"
        process.process.writer.close()


async def test_what_its_tasks_report_of_it(spec: Callable[..., TaskSpec]) -> None:
    alone, theirs, _ = await a_process()
    shared, others, _ = await a_process(shared=1)
    with theirs, others:
        assert alone.facts(FAMILY) == {"process-rss-bytes": FAMILY.rss_bytes, "process-cpu-seconds": 1.23}
        for number in range(1, 11):
            seat(shared, spec("p"), number)
        told = {"process-rss-bytes": 50 << 20, "process-cpu-seconds": 1.23, "process-tasks": 10}
        assert shared.facts(FAMILY) == told
        for cpu_s, seconds in ((1.32, 1.23), (1.33, 1.23), (1.34, 1.34)):
            assert shared.facts(replace(FAMILY, cpu_s=cpu_s))["process-cpu-seconds"] == seconds, "in steps"
        one = shared.seats[1]
        one.facts["lines"] = 1
        one.problem = Problem(message="the file is away", since_ms=1)
        assert one.report.facts == {"lines": 1} and one.report.problem == one.problem
        shared.standing_still = Problem(message="it stands still", since_ms=2)
        assert one.report.problem == shared.standing_still
        for each in (alone, shared):
            each.process.writer.close()


async def test_time_does_not_go_back_when_another_task_comes(spec: Callable[..., TaskSpec]) -> None:
    """Of a number that has gone back, who draws rates takes it that a process has begun anew."""
    shared, theirs, _ = await a_process(shared=1)
    with theirs:
        told = []
        for number in range(1, 17):
            seat(shared, spec("p"), number)
            told.append(shared.facts(replace(FAMILY, cpu_s=100 + number / 1000))["process-cpu-seconds"])
        assert told == sorted(told)
        shared.process.writer.close()


async def test_commands_go_out_in_their_order_and_none_when_it_is_gone(spec: Callable[..., TaskSpec]) -> None:
    process, theirs, _ = await a_process(shared=1)
    with theirs:
        process.send(seat(process, spec("p", name="c"), 5).order)
        process.send(pb.ToTask(seat=5, stop=pb.Stop()))
        process.gone.set()
        process.send(pb.ToTask(seat=5, pause=pb.Pause()))
        process.process.writer.close()
        await process.process.writer.wait_closed()
        data = theirs.recv(1 << 16)
        orders = [pb.ToTask.FromString(each) for each in FrameReader().take(data)]
    assert [(each.seat, each.WhichOneof("message")) for each in orders] == [(5, "start"), (5, "stop")]
    assert orders[0].start.connector == "c"
