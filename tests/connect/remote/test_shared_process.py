"""Tasks that share a process, from the worker's side"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from structlog.testing import capture_logs

from tests.connect.remote.test_host import alive, gone, parent_of
from tidemill.connect.api import InvalidConfig, PluginKind
from tidemill.connect.failure import Failure
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader, frame
from tidemill.connect.remote.messages import spec_to_message
from tidemill.connect.task_spec import (
    TaskExited,
    TaskFailed,
    TaskId,
    TaskPaused,
    TaskReport,
    TaskResumed,
    TaskSpec,
    TaskStarted,
)
from tidemill.core.runtime.clock import seconds_since_boot

pytestmark = pytest.mark.integration

Make = Callable[..., TaskSpec]


@pytest.fixture
def sharing(spec: Make, bootstrap: str, unique: Callable[[str], str]) -> Make:
    """Make a specification of a task that shares its process: `sharing("fail", begin=…)`."""
    offsets = unique("offsets")

    def make(
        mode: str = "wait", *, begin: Path | None = None, plugin: str = "task_plugins:neighbour", **more: Any
    ) -> TaskSpec:
        config = {
            "mode": mode,
            "begin": str(begin or ""),
            "tidemill.task.isolation": "shared",
            **more.pop("config", {}),
        }
        return spec(plugin, config, bootstrap=bootstrap, offsets_topic=offsets, **more)

    return make


async def started(running: Any, spec: TaskSpec) -> int:
    """Start a task; its process."""
    task = await running.start(spec)
    event = await running.events.wait(
        TaskStarted, lambda event: (event.task, event.incarnation) == (task, spec.incarnation)
    )
    return int(event.pid)


async def polls_on(running: Any, task: TaskId) -> None:
    """Return once the task has polled after this call."""
    seen = len(running.events.seen)
    await running.events.wait(TaskReport, lambda event: event.task == task and running.events.seen.index(event) >= seen)


def of(running: Any, task: TaskId) -> list[str]:
    """What was said of a task, but for its reports."""
    return [type(each).__name__ for each in running.events.seen if each.task == task and type(each) is not TaskReport]


async def test_tasks_of_one_plugin_share_a_process_and_have_threads_of_their_own(
    running: Any, sharing: Make, spec: Make
) -> None:
    specs = [sharing() for _ in range(3)]
    pids = {await started(running, each) for each in specs}
    assert len(pids) == 1
    reports = [
        await running.events.wait(
            TaskReport,
            lambda event, task=each.task: event.task == task and {"thread", "process-tasks"} <= event.facts.keys(),
        )
        for each in specs
    ]
    assert len({each.facts["thread"] for each in reports}) == 3
    name = Path(f"/proc/{min(pids)}/cmdline").read_bytes().rstrip(b"\0").decode()
    assert name == "tidemill: tasks 1 of task_plugins:neighbour"
    for each in specs:
        await running.host.stop_task(each.task, 10)
        exited = await running.ended(each.task)
        assert (exited.returncode, exited.reason, exited.killed) == (0, "ended by itself", False)
    await gone(list(pids))
    assert running.events.failures() == []


async def test_a_process_takes_no_more_than_it_may(running_in_threes: Any, sharing: Make) -> None:
    pids = [await started(running_in_threes, sharing()) for _ in range(4)]
    assert pids[0] == pids[1] == pids[2] != pids[3]


async def test_what_does_not_ask_for_it_has_a_process_of_its_own(running: Any, sharing: Make) -> None:
    shared = await started(running, sharing())
    assert await started(running, sharing(config={"tidemill.task.isolation": "process"})) != shared
    assert await started(running, sharing()) == shared


@pytest.mark.parametrize(("mode", "trace"), [("fail", "told to fail"), ("quit", "SystemExit: 0")])
async def test_a_task_that_fails_does_not_touch_its_neighbours(
    running: Any, sharing: Make, tmp_path: Path, mode: str, trace: str
) -> None:
    neighbour, failing = sharing(), sharing(mode, begin=tmp_path / "begin", incarnation=1)
    pid = await started(running, neighbour)
    assert await started(running, failing) == pid
    (tmp_path / "begin").touch()
    exited = await running.ended(failing.task)
    assert (exited.returncode, exited.reason, exited.killed) == (1, "ended with code 1 after it failed", False)
    failed = await running.events.wait(TaskFailed)
    assert failed.task == failing.task and trace in failed.trace
    assert of(running, failing.task) == ["TaskStarted", "TaskFailed", "TaskExited"]
    again = sharing("wait", name=failing.task.connector, incarnation=2)
    assert await started(running, again) == pid
    await polls_on(running, neighbour.task)
    assert of(running, neighbour.task) == ["TaskStarted"]


@pytest.mark.parametrize("mode", ["fail_without_words", "fail_without_a_class"])
async def test_a_task_whose_error_cannot_be_told_has_ended_all_the_same(
    running: Any, sharing: Make, tmp_path: Path, mode: str
) -> None:
    neighbour, failing = sharing(), sharing(mode, begin=tmp_path / "begin")
    pid = await started(running, neighbour)
    assert await started(running, failing) == pid
    (tmp_path / "begin").touch()
    exited = await running.ended(failing.task)
    assert (exited.returncode, exited.killed) == (1, False)
    await polls_on(running, neighbour.task)


async def test_pause_and_resume_are_for_one_of_them(running: Any, sharing: Make) -> None:
    one, other = sharing(), sharing()
    for each in (one, other):
        await started(running, each)
    await running.host.pause_task(one.task)
    await running.events.wait(TaskPaused)
    await polls_on(running, other.task)
    await running.host.resume_task(one.task)
    await running.events.wait(TaskResumed)
    await polls_on(running, one.task)
    assert of(running, one.task) == ["TaskStarted", "TaskPaused", "TaskResumed"]
    assert of(running, other.task) == ["TaskStarted"]


async def test_stop_is_for_one_of_them(running: Any, sharing: Make) -> None:
    one, other = sharing(), sharing()
    pid = await started(running, one)
    await started(running, other)
    await running.host.stop_task(one.task, 10)
    assert (await running.ended(one.task)).returncode == 0
    await polls_on(running, other.task)
    assert alive(pid) and of(running, other.task) == ["TaskStarted"]


async def test_one_that_does_not_stop_in_its_grace_takes_its_neighbours_along(
    running: Any, sharing: Make, tmp_path: Path
) -> None:
    hanging, neighbour = sharing("sleep", begin=tmp_path / "begin"), sharing()
    pid = await started(running, hanging)
    await started(running, neighbour)
    (tmp_path / "begin").touch()
    await asyncio.sleep(0.3)
    await running.host.stop_task(hanging.task, 0.5)
    assert not alive(pid)
    for each in (hanging, neighbour):
        exited = await running.ended(each.task)
        assert exited.reason == (
            f"killed: task {hanging.task} did not stop within its grace period (a process that 2 tasks shared)"
        )
        assert exited.killed, "so it is started again"
    assert await started(running, sharing(name=neighbour.task.connector, incarnation=2)) != pid


async def test_a_process_that_is_killed_takes_its_tasks_along_and_each_comes_back(running: Any, sharing: Make) -> None:
    specs = [sharing() for _ in range(3)]
    pid, *_ = [await started(running, each) for each in specs]
    os.kill(pid, signal.SIGKILL)
    for each in specs:
        exited = await running.ended(each.task)
        assert exited.reason == "killed by SIGKILL (a process that 3 tasks shared)"
        assert (exited.returncode, exited.killed, exited.with_others) == (-signal.SIGKILL, True, True)
    again = {await started(running, sharing(name=each.task.connector, incarnation=2)) for each in specs}
    assert len(again) == 1 and pid not in again


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("crash", "ended with code 3 without saying why"), ("leave", "its process ended without saying why")],
)
async def test_whoever_ends_the_process_is_not_found_out_at_once_but_sits_alone_in_the_end(
    running: Any, sharing: Make, tmp_path: Path, mode: str, reason: str
) -> None:
    names = [sharing().task.connector for _ in range(3)]
    for incarnation in (1, 2):
        begin = tmp_path / str(incarnation)
        pids = {
            await started(
                running, sharing(mode if name == names[0] else "wait", begin=begin, name=name, incarnation=incarnation)
            )
            for name in names
        }
        assert len(pids) == 1
        begin.touch()
        for name in names:
            exited = await running.events.wait(
                TaskExited, lambda event, now=(name, incarnation): (event.task.connector, event.incarnation) == now
            )
            assert reason in exited.reason and "(a process that 3 tasks shared)" in exited.reason
            assert exited.killed, "none is taken for broken"
    pids = {await started(running, sharing(name=name, incarnation=3)) for name in names}
    assert len(pids) == 3


async def test_they_die_with_their_guardian_and_at_the_end_of_their_lease(running: Any, sharing: Make) -> None:
    one, other = sharing(), sharing()
    pid = await started(running, one)
    await started(running, other)
    os.kill(parent_of(parent_of(parent_of(pid))), signal.SIGKILL)
    for each in (one, other):
        assert "guardian" in (await running.ended(each.task)).reason
    later = [sharing(name=each.task.connector, incarnation=2) for each in (one, other)]
    pids = {await started(running, each) for each in later}
    assert len(pids) == 1
    running.host.lease(seconds_since_boot() + 0.1)
    for each in later:
        exited = await running.events.wait(
            TaskExited, lambda event, task=each.task: (event.task, event.incarnation) == (task, 2)
        )
        assert "lost its place in the group" in exited.reason
    running.host.lease(seconds_since_boot() + 600)
    assert len({await started(running, sharing(name=each.task.connector, incarnation=3)) for each in (one, other)}) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("task.memory.max.bytes", "100000000"),
        ("task.cpu.max.cores", "0.5"),
        ("task.call.max.ms", "60000"),
        ("task.hang.max.ms", "60000"),
    ],
)
async def test_a_limit_of_a_process_is_refused_by_name(
    running_in_threes: Any, sharing: Make, name: str, text: str
) -> None:
    """The configuration may come from a topic that somebody else has written."""
    with pytest.raises(InvalidConfig) as refused:
        await running_in_threes.start(sharing(config={name: text}))
    assert refused.value.field_name == name


async def test_a_job_says_that_it_needs_a_process_of_its_own(running: Any, sharing: Make) -> None:
    task = await running.start(sharing(plugin="task_plugins:job", kind=PluginKind.SINK))
    await running.ended(task)
    failed = await running.events.wait(TaskFailed)
    assert failed.trace == (
        "job runs a job, which needs a process of its own. Remove it, or set tidemill.task.isolation=process."
    )
    assert failed.failure is Failure.CONFIGURATION


async def test_a_task_that_is_stopped_before_its_process_is_there_never_runs(running: Any, sharing: Make) -> None:
    one, other = sharing(), sharing()
    await running.start(one)
    await running.start(other)
    await running.host.stop_task(one.task, 10)
    assert "before it had started" in (await running.ended(one.task)).reason
    await running.events.wait(TaskStarted, lambda event: event.task == other.task)
    await running.host.stop_task(other.task, 10)
    last = sharing()
    await running.start(last)
    await running.host.stop_task(last.task, 10)
    await running.ended(last.task)
    assert of(running, last.task) == of(running, one.task) == ["TaskExited"]


async def test_a_stop_right_behind_a_start_is_obeyed(running: Any, sharing: Make) -> None:
    await started(running, sharing())
    for incarnation in range(5):
        one = sharing(name="one", incarnation=incarnation)
        await running.start(one)
        await running.host.stop_task(one.task, 10)
    exits = [each for each in running.events.seen if isinstance(each, TaskExited)]
    assert [each.returncode for each in exits] == [0] * 5


@pytest.mark.parametrize("mode", ["wait", "fail"])
async def test_a_task_that_comes_and_goes_leaves_nothing_in_its_process(
    running: Any, sharing: Make, tmp_path: Path, mode: str
) -> None:
    """Neither threads, of its clients either, nor files: the process may live for months."""
    process = psutil.Process(await started(running, sharing()))

    def held() -> tuple[int, int]:
        return process.num_threads(), process.num_fds()

    counts = []
    for incarnation in range(8):
        begin = tmp_path / str(incarnation)
        one = sharing(mode, name="one", incarnation=incarnation, begin=begin)
        assert await started(running, one) == process.pid
        begin.touch()
        if mode == "wait":
            await running.host.stop_task(one.task, 10)
        await running.events.wait(
            TaskExited, lambda event, now=(one.task, incarnation): (event.task, event.incarnation) == now
        )
        await asyncio.sleep(0.2)  # what closes behind it
        counts.append(held())
    threads, files = (max(each) for each in zip(*counts[:3], strict=True))
    for _ in range(300):  # the last may still be closing
        left = held()
        if left[0] <= threads and left[1] <= files:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{left} after {counts}")


async def test_the_same_task_runs_once_at_a_time(running: Any, sharing: Make) -> None:
    one = sharing()
    await running.start(one)
    with pytest.raises(ValueError, match="still running"):
        await running.start(one)


async def test_what_a_task_logs_has_its_name_and_what_it_prints_that_of_its_process(
    running: Any, sharing: Make
) -> None:
    with capture_logs() as lines:
        talking, _ = specs = sharing("talk"), sharing()
        for each in specs:
            await started(running, each)
        await running.host.stop_task(talking.task, 10)
    told = {line["event"]: line["task"] for line in lines if line["event"] in ("logged", "printed", "begun")}
    process = "tasks 1 of task_plugins:neighbour"
    assert told == {"logged": str(talking.task), "printed": process, "begun": process}


async def test_what_a_generator_logs_has_its_name_too(running: Any, sharing: Make) -> None:
    with capture_logs() as lines:
        specs = [sharing(plugin="task_plugins:talker", config={"topic": f"t{number}"}) for number in range(2)]
        for each in specs:
            await started(running, each)
            await polls_on(running, each.task)
    told = [line["task"] for line in lines if line["event"] == "logged by a generator"]
    assert told == [str(each.task) for each in specs]


FORKING = """
import os, socket, sys
from tidemill.connect.remote.link import Link
from tidemill.connect.remote.shared_process import SharedProcess

def work(spec, control):
    for code in (7, 1):
        child = os.fork()
        if child == 0 and code == 7:
            sys.exit(7)
        if child == 0:
            raise ZeroDivisionError("a bug in the child")
        control.report({f"child {code}": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})
    control.announce_start()
    while not control.stopping:
        control.wait(10)

link = Link(socket.socket(fileno=int(sys.argv[1])))
link.first_order()
sys.exit(SharedProcess(link, work).run())
"""


def test_children_that_a_plugin_forks_do_not_speak_for_its_task(spec: Make) -> None:
    worker, stream = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", FORKING, str(stream.fileno())], pass_fds=[stream.fileno()])
    stream.close()
    worker.settimeout(30)
    start = pb.ToTask(seat=4, start=spec_to_message(spec("p")))
    for order in (pb.ToTask(share=pb.Share()), start, pb.ToTask(seat=9, pause=pb.Pause())):
        worker.sendall(frame(order))
    frames, heard = FrameReader(), list[pb.FromTask]()
    while data := worker.recv(1 << 16):
        heard += map(pb.FromTask.FromString, frames.take(data))
        if heard[-1].WhichOneof("message") == "started":
            worker.sendall(frame(pb.ToTask(seat=4, stop=pb.Stop())))
        if heard[-1].WhichOneof("message") == "ended":
            worker.sendall(frame(pb.ToTask(stop=pb.Stop())))
    worker.close()
    assert child.wait(30) == 0
    assert [each.WhichOneof("message") for each in heard if each.seat] == ["started", "report", "ended"]
    assert orjson.loads(heard[-2].report.facts_json) == {"child 7": 7, "child 1": 1}


async def test_who_has_stopped_their_process_is_told_by_all(running: Any, sharing: Make) -> None:
    specs = [sharing(), sharing()]
    pid, *_ = [await started(running, each) for each in specs]
    os.kill(pid, signal.SIGSTOP)
    try:
        for each in specs:
            told = await running.events.wait(
                TaskReport, lambda event, task=each.task: event.task == task and event.problem is not None
            )
            assert "somebody has stopped its process" in told.problem.message
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_process_that_hears_nothing_holds_nobody_up(running: Any, sharing: Make) -> None:
    """Whatever it is told: a configuration may be larger than the stream to it."""
    neighbour, large, other = sharing(), sharing(config={"filler": "x" * (1 << 20)}), sharing()
    pid = await started(running, neighbour)
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(10):
        for each in (large, other):
            await running.start(each)
        await running.host.stop_task(large.task, 0.5)
    assert not alive(pid)
    for each in (neighbour, large, other):
        assert f"task {large.task} did not stop within its grace period" in (await running.ended(each.task)).reason


async def test_nobody_joins_those_whose_process_stands_still(running: Any, sharing: Make) -> None:
    still = sharing()
    pid = await started(running, still)
    os.kill(pid, signal.SIGSTOP)
    try:
        await running.events.wait(TaskReport, lambda event: event.problem is not None)
        other = await started(running, sharing())
        assert other != pid
    finally:
        os.kill(pid, signal.SIGCONT)
    await running.events.wait(
        TaskReport, lambda event: event is running.events.seen[-1] and event.task == still.task and not event.problem
    )
    assert await started(running, sharing()) == other, "the one that has stood still runs empty"


async def test_a_plugin_whose_environment_knows_nothing_of_it_says_so(
    running: Any, sharing: Make, tmp_path: Path
) -> None:
    """It may bring a tidemill that is older than its worker's."""
    (tmp_path / "old_plugin.py").write_text(
        "from task_plugins import neighbour\n"
        "from tidemill.connect.remote import plugin_pb2 as pb\n"
        "new = pb.Hello\n"
        "pb.Hello = lambda shares, **facts: new(**facts)\n"
    )
    task = await running.start(sharing(plugin="old_plugin:neighbour"))
    await running.ended(task)
    failed = await running.events.wait(TaskFailed)
    assert failed.trace.endswith("upgrade it there, or set tidemill.task.isolation=process")
    assert failed.failure is Failure.CONFIGURATION
