"""Task processes, from the worker's side"""

import asyncio
import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from tests.connect.conftest import PLUGINS, python_path
from tidemill.connect.api import InvalidConfig, PluginKind
from tidemill.connect.failure import Failure
from tidemill.connect.remote import host as host_module
from tidemill.connect.remote.host import TaskHost, parse_line
from tidemill.connect.remote.process_ties import Remains
from tidemill.connect.task_spec import (
    InitialState,
    TaskEvent,
    TaskExited,
    TaskFailed,
    TaskPaused,
    TaskReport,
    TaskResumed,
    TaskSpec,
    TaskStarted,
)

pytestmark = pytest.mark.integration

Make = Callable[..., TaskSpec]

AFTER_IT_FAILED = "ended with code 1 after it failed"


def job(spec: Make, mode: str, **more: Any) -> TaskSpec:
    config = {"mode": mode, **more.pop("config", {})}
    return spec("task_plugins:job", config, kind=PluginKind.SINK, **more)


async def test_a_task_starts_reports_and_stops(running: Any, spec: Make) -> None:
    task = await running.start(job(spec, "wait", incarnation=7))
    started = await running.events.wait(TaskStarted)
    assert (started.task, started.incarnation) == (task, 7)
    report = await running.events.wait(
        TaskReport, lambda event: {"waiting", "process-rss-bytes", "process-cpu-seconds"} <= event.facts.keys()
    )
    assert report.facts["waiting"] is True
    assert report.facts["process-rss-bytes"] > 1 << 20
    await running.host.stop_task(task, 10)
    exited = await running.ended(task)
    assert (exited.incarnation, exited.returncode, exited.reason) == (7, 0, "ended by itself")
    assert running.events.failures() == []
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)


async def test_the_same_task_runs_once_at_a_time(running: Any, spec: Make) -> None:
    first = job(spec, "wait")
    await running.start(first)
    with pytest.raises(ValueError, match="still running"):
        await running.start(first)
    await running.host.stop_task(first.task, 10)
    await running.start(first)
    await running.host.stop_task(first.task, 10)


async def test_pause_and_resume(running: Any, spec: Make) -> None:
    task = await running.start(job(spec, "wait", initial_state=InitialState.PAUSED))
    await running.events.wait(TaskStarted)
    await running.events.wait(TaskPaused)
    await running.host.resume_task(task)
    await running.events.wait(TaskResumed)
    await running.events.wait(TaskReport, lambda event: event.facts.get("waiting") is True)
    await running.host.pause_task(task)
    await running.host.stop_task(task, 10)
    assert (await running.ended(task)).returncode == 0


@pytest.mark.parametrize("mode", ["sleep", "hold_the_interpreter", "deaf"])
async def test_a_stuck_task_is_killed_after_its_grace(running: Any, spec: Make, mode: str, tmp_path: Path) -> None:
    task = await running.start(job(spec, mode, config={"pid.file": str(tmp_path / "pids")}))
    await pids(tmp_path / "pids")
    await running.host.stop_task(task, 0.3)
    exited = await running.ended(task)
    assert "did not stop within its grace period" in exited.reason


async def test_a_task_that_ended_in_order_is_not_called_killed_because_it_was_told_of_late(
    running: Any, spec: Make
) -> None:
    await running.start(job(spec, "wait"))
    started = await running.events.wait(TaskStarted)
    guardian = parent_of(started.pid)
    os.kill(guardian, signal.SIGSTOP)  # it sees neither that its task has ended nor that the worker has given up
    stopping = asyncio.create_task(running.host.stop_task(started.task, 0.5))
    try:
        while alive(started.pid):  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.7)
    finally:
        os.kill(guardian, signal.SIGCONT)
    await stopping
    exited = await running.ended(started.task)
    assert (exited.returncode, exited.reason) == (0, "ended by itself")


async def test_the_worker_goes_first_where_there_is_too_little_of_something(
    running: Any, spec: Make, tmp_path: Path
) -> None:
    """Of processors and, when the kernel has to end somebody, of memory; also before what a task has started."""
    await running.start(job(spec, "family", config={"pid.file": str(tmp_path / "pids")}))
    family = await pids(tmp_path / "pids")
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in family} == {min(19, mine + 5)}
    assert {int(Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii")) for pid in family} == {500}
    watching = [each.pid for each in psutil.Process(family[0]).parents()[:3]]
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in watching} == {mine}, "they have to kill it"


async def test_a_task_takes_its_family_with_it(running: Any, spec: Make, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    task = await running.start(job(spec, "family", config={"pid.file": str(pid_file)}))
    family = await pids(pid_file)
    assert len(family) == 3
    assert all(alive(pid) for pid in family)
    os.kill(family[0], signal.SIGKILL)  # the task itself
    exited = await running.ended(task)
    assert exited.returncode == -signal.SIGKILL
    assert exited.reason == "killed by SIGKILL"
    assert not any(alive(pid) for pid in family)


async def test_a_task_dies_with_its_guardian(running: Any, spec: Make, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    task = await running.start(job(spec, "hold_the_interpreter", config={"pid.file": str(pid_file)}))
    (pid,) = await pids(pid_file)
    nursery = parent_of(pid)
    guardian = parent_of(parent_of(nursery))
    assert parent_of(guardian) == os.getpid()
    os.kill(guardian, signal.SIGKILL)
    ended = await running.ended(task)
    assert ended.killed and "guardian" in ended.reason
    await gone([pid, nursery])
    await running.start(job(spec, "wait"))  # under another one
    await running.events.wait(TaskStarted)


async def test_the_daemons_of_a_task_die_with_it_and_no_others(running: Any, spec: Make, tmp_path: Path) -> None:
    """When a task is gone nobody knows whose its daemon was; those of living tasks are below them."""
    files = tmp_path / "one", tmp_path / "two"
    for file in files:
        await running.start(job(spec, "family", config={"pid.file": str(file)}))
    dying, living = [await pids(file) for file in files]
    os.kill(dying[0], signal.SIGKILL)
    await running.events.wait(TaskExited)
    assert not any(alive(pid) for pid in dying)
    assert all(alive(pid) for pid in living)


@pytest.mark.parametrize(
    "text",
    [
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import threading, time; threading.Thread(target=time.sleep, args=[600], daemon=True).start()",
        "import signal; [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGCHLD)]",
        "import sys; sys.exit('no')",
        "print('x' * 1_000_000)",
        "import os; os.close(0); os.close(1); os.close(2)",
    ],
)
async def test_what_a_plugin_does_at_import_harms_no_other(running: Any, spec: Make, tmp_path: Path, text: str) -> None:
    (tmp_path / "odd_plugin.py").write_text(f"from task_plugins import job\n{text}\n")
    odd = await running.start(spec("odd_plugin:job", {"mode": "leave"}, kind=PluginKind.SINK))
    other = await running.start(job(spec, "wait"))
    await running.events.wait(TaskStarted, lambda event: event.task == other)
    await running.ended(odd)
    assert await running.host.validate("task_plugins:job", {"mode": "wait"}) == ()
    await running.host.stop_task(other, 10)
    assert (await running.ended(other)).reason == "ended by itself"


async def test_a_plugin_that_was_edited_runs_as_it_is_now(running: Any, spec: Make, tmp_path: Path) -> None:
    """Whoever writes a plugin edits it and restarts its task."""
    file = tmp_path / "edited_plugin.py"
    plugin = "import task_plugins\nclass Job(task_plugins.Job):\n    def leave(self, context):\n"
    make = "\njob = task_plugins.Plugin(name='job', kind=task_plugins.PluginKind.SINK, version='1', "
    make += "config=task_plugins.JobSettings, task=Job)\n"
    for incarnation in (1, 2):
        file.write_text(f"{plugin}        raise task_plugins.Fatal('version {incarnation}')\n{'#' * incarnation}{make}")
        await running.ended(await running.start(spec("edited_plugin:job", {"mode": "leave"}, kind=PluginKind.SINK)))
    assert running.events.failures() == ["version 1", "version 2"]


@pytest.mark.parametrize(
    ("mode", "returncode", "reason", "trace", "failure"),
    [
        ("die", -9, "killed by SIGKILL", None, Failure.KILLED),
        ("crash", 3, "ended with code 3 without saying why; its last output:\n", None, Failure.BUG),
        ("fail", 1, AFTER_IT_FAILED, "the disk is full: make room on it", Failure.CONFIGURATION),
        ("leave", 1, AFTER_IT_FAILED, "the job ended although nobody had asked it to", Failure.BUG),
        ("bug", 1, AFTER_IT_FAILED, "ZeroDivisionError: a bug in the plugin", Failure.BUG),
        ("quit", 1, AFTER_IT_FAILED, "SystemExit: 0", Failure.BUG),
    ],
)
async def test_how_a_task_ended_is_told(
    running: Any, spec: Make, mode: str, returncode: int, reason: str, trace: str | None, failure: Failure
) -> None:
    task = await running.start(job(spec, mode))
    exited = await running.ended(task)
    assert exited.returncode == returncode
    assert exited.reason.startswith(reason)
    assert exited.killed == (failure is Failure.KILLED)
    if mode == "crash":
        assert "the last words" in exited.reason
    if trace is not None:
        failed = await running.events.wait(TaskFailed)
        assert trace in failed.trace and failed.failure is failure
        assert running.events.seen.index(failed) < running.events.seen.index(exited)
        if mode == "bug":
            assert "task_plugins.py" in failed.trace
    await asyncio.sleep(0)
    assert running.events.seen[-1] == exited


async def test_a_task_that_cannot_be_loaded_says_why(running: Any, spec: Make) -> None:
    task = await running.start(spec("no_such_module:plugin"))
    await running.ended(task)
    assert "No module named 'no_such_module'" in running.events.failures()[0]


async def test_a_task_with_bad_settings_says_which(running: Any, spec: Make) -> None:
    task = await running.start(spec("task_plugins:numbers", {"count": "many"}))
    await running.ended(task)
    (trace,) = running.events.failures()
    assert trace.startswith("the configuration is not valid: topic: Field required; count:")


async def test_absence_is_reported_and_retried(running: Any, spec: Make) -> None:
    task = await running.start(job(spec, "absent"))
    told = await running.events.wait(TaskReport, lambda event: event.problem is not None)
    assert told.problem is not None and told.problem.message == "nobody is there" and told.problem.attempts >= 1
    await running.host.stop_task(task, 10)
    assert (await running.ended(task)).returncode == 0


@pytest.mark.parametrize("mode", ["hoard", "hoard_in_a_child", "hoard_in_many"])
async def test_a_task_that_uses_too_much_memory_is_killed(running: Any, spec: Make, mode: str) -> None:
    task = await running.start(job(spec, mode, config={"task.memory.max.bytes": str(200 << 20)}))
    exited = await running.ended(task)
    assert "more than task.memory.max.bytes" in exited.reason
    assert exited.killed, "it is started again, as whatever is killed"


@pytest.mark.parametrize("mode", ["hoard", "hoard_in_a_child", "hoard_in_many"])
async def test_a_control_group_that_is_too_large_is_told_as_such(running_in_groups: Any, spec: Make, mode: str) -> None:
    running = running_in_groups
    task = await running.start(job(spec, mode, config={"task.memory.max.bytes": str(200 << 20)}))
    exited = await running.ended(task)
    assert exited.reason == (
        "killed: it used more memory than task.memory.max.bytes=209715200: raise the limit, or have the task hold less "
        "at a time"
    )
    assert exited.killed


async def test_a_task_has_no_more_of_the_processors_than_it_may(running_in_groups: Any, spec: Make) -> None:
    running = running_in_groups
    task = await running.start(job(spec, "spin", config={"task.cpu.max.cores": "0.2"}))
    told = await running.events.wait(
        TaskReport, lambda event: event.facts.get("process-cpu-throttled-seconds", 0) > 1, timeout_s=60
    )
    assert told.facts["process-cpu-seconds"] < 2
    await running.host.stop_task(task, 0.1)
    assert "did not stop" in (await running.ended(task)).reason


async def test_a_limit_that_nobody_would_keep_is_refused(running: Any, spec: Make) -> None:
    with pytest.raises(InvalidConfig, match=r"task\.cpu\.max\.cores cannot be kept by worker .* Delegate="):
        await running.start(job(spec, "wait", config={"task.cpu.max.cores": "0.5"}))
    await running.host.stop_task(await running.start(job(spec, "wait", config={"task.cpu.max.cores": "0"})), 10)


async def test_memory_that_is_shared_counts_once(running: Any, spec: Make) -> None:
    """Children made by a fork cost little until they write."""
    task = await running.start(job(spec, "share", config={"task.memory.max.bytes": str(300 << 20)}))
    await running.events.wait(TaskReport, lambda event: event.facts.get("process-rss-bytes", 0) > 400 << 20)
    await running.events.wait(TaskReport, lambda event: event.facts.get("waiting") is True)
    await running.host.stop_task(task, 10)
    assert (await running.ended(task)).reason == "ended by itself"


async def test_a_task_that_hangs_in_c_is_shown_with_its_place_and_killed_in_the_end(
    running: Any, spec: Make, tmp_path: Path
) -> None:
    """None of its own threads can tell, or obey; `faulthandler` answers a signal without the interpreter."""
    config = {"pid.file": str(tmp_path / "pid"), "task.hang.max.ms": "13000"}
    with capture_logs() as lines:
        task = await running.start(job(spec, "hold_the_interpreter", config=config))
        told = await running.events.wait(TaskReport, lambda event: event.problem is not None)
        exited = await running.ended(task)
    assert told.problem.message.startswith("nothing of the task runs: code of C keeps the interpreter, or ")
    assert re.search(r"it is at task_plugins\.py:\d+ in hold_the_interpreter, called from", told.problem.message)
    assert re.match(
        r"killed: nothing of it had run for 1\d s, longer than task\.hang\.max\.ms=13000 allows; "
        r"it was at task_plugins\.py:\d+ in hold_the_interpreter",
        exited.reason,
    )
    assert exited.killed
    (line,) = [line for line in lines if line["event"] == "task stands still"]
    assert 'task_plugins.py", line' in line["exception"]


async def test_a_task_that_somebody_has_stopped_is_told_as_such_until_it_goes_on(running: Any, spec: Make) -> None:
    await running.start(job(spec, "wait"))
    started = await running.events.wait(TaskStarted)
    os.kill(started.pid, signal.SIGSTOP)
    try:
        told = await running.events.wait(TaskReport, lambda event: event.problem is not None)
    finally:
        os.kill(started.pid, signal.SIGCONT)
    stopped = "nothing of the task runs: somebody has stopped its process (SIGSTOP)"
    assert told.problem.message == f"{stopped}; `kill -CONT {started.pid}` lets it go on"
    seen = len(running.events.seen)
    await running.events.wait(
        TaskReport, lambda event: event.problem is None and running.events.seen.index(event) >= seen - 1
    )


async def test_a_source_that_spins_is_ended_once_it_has_for_too_long(
    running: Any, spec: Make, bootstrap: str, unique: Callable[[str], str]
) -> None:
    config = {"topic": "t", "task.call.max.ms": "1000"}
    offsets = unique("offsets")
    task = await running.start(spec("task_plugins:spinner", config, bootstrap=bootstrap, offsets_topic=offsets))
    exited = await running.ended(task)
    assert re.match(
        r"killed: the generator of the plugin had given no record after \d+ s, it was at .*"
        r"task_plugins\.py:\d+ in spinner, .*, longer than task\.call\.max\.ms allows",
        exited.reason,
    )
    assert exited.killed


async def test_endless_output_lines_do_no_harm(running: Any, spec: Make) -> None:
    with capture_logs() as lines:
        task = await running.start(job(spec, "chatter"))
        await running.events.wait(TaskStarted)
        await running.host.stop_task(task, 10)
    assert {"event": "still here", "task": str(task), "log_level": "info"} in lines


async def test_what_a_task_logs_keeps_its_level_and_its_facts(running: Any, spec: Make) -> None:
    with capture_logs() as lines:
        task = await running.start(job(spec, "absent"))
        await running.events.wait(TaskReport, lambda event: event.problem is not None)
        await running.host.stop_task(task, 10)
    (line, *_) = [line for line in lines if line["event"] == "job interrupted"]
    assert line["log_level"] == "warning"
    assert (line["task"], line["error"], line["retry_s"]) == (str(task), "nobody is there", 1.0)


async def test_what_a_plugin_logs_by_the_standard_library_keeps_its_level_too(running: Any, spec: Make) -> None:
    with capture_logs() as lines:
        task = await running.start(job(spec, "log_by_logging"))
        await running.events.wait(TaskReport, lambda event: event.facts.get("waiting"))
        await running.host.stop_task(task, 10)
    told = [line for line in lines if line.get("logger") in ("task_plugins.part", "library")]
    assert [(line["log_level"], line["event"]) for line in told] == [
        ("info", "read 7 rows"),
        ("error", "passed over"),
        ("warning", "slow"),
    ]
    assert told[1]["exception"].endswith("ValueError: no such row")
    assert not [line for line in lines if "ValueError" in line["event"]]  # a stack is one line with its event


async def test_a_task_may_log_facts_of_any_name(running: Any, spec: Make) -> None:
    with capture_logs() as lines:
        task = await running.start(job(spec, "log_like_others"))
        await running.events.wait(TaskReport, lambda event: event.facts.get("waiting"))
        await running.host.stop_task(task, 10)
    assert not [line for line in lines if line["event"] == "supervision failed"]
    (line,) = [line for line in lines if line["event"] == "fact method_name"]
    assert (line["method_name"], line["log_level"]) == ("true", "warning")


async def test_what_cannot_be_told_keeps_nothing_else_from_being_told(running: Any, spec: Make) -> None:
    task = await running.start(job(spec, "unspeakable"))
    told = await running.events.wait(TaskReport, lambda event: event.problem is not None)
    assert told.problem.message == "cannot read caf?"
    assert (told.facts["good"], told.facts["numbers"]) == (1, {"1": 2})
    assert "large" not in told.facts and "odd" not in told.facts
    await running.host.stop_task(task, 10)
    await running.ended(await running.start(job(spec, "unspeakable_end", task=1)))
    assert running.events.failures() == ["cannot read caf?"]


async def test_a_limit_that_is_no_number_is_refused(running: Any, spec: Make) -> None:
    """It may come from a topic that somebody else has written."""
    with pytest.raises(InvalidConfig, match=r"task\.memory\.max\.bytes is a number of bytes, not '1 GB'"):
        await running.host.start_task(job(spec, "wait", config={"task.memory.max.bytes": "1 GB"}))
    await running.host.stop_task(await running.start(job(spec, "wait")), 10)


async def test_a_failure_is_told_to_the_worker_and_not_logged_beside_that(running: Any, spec: Make) -> None:
    with capture_logs() as lines:
        await running.ended(await running.start(job(spec, "fail")))
    assert running.events.failures() == ["the disk is full: make room on it"]
    assert not [line for line in lines if "the disk is full" in str(line)]


@pytest.mark.parametrize(
    "line", ["{", '{"a": 1}', '{"event": 1, "level": "info"}', '{"event": "e", "level": "loud"}', "[]", ""]
)
def test_a_line_of_anybody_else_is_text(line: str) -> None:
    assert parse_line(line) == (logging.INFO, line, {})


async def test_a_very_long_trace_is_cut(running: Any, spec: Make) -> None:
    """It has to fit into a record of the status topic."""
    await running.ended(await running.start(job(spec, "quote")))
    (trace,) = running.events.failures()
    assert len(trace) < 100_000
    assert trace.startswith("Traceback") and trace.endswith("the end\n")


async def test_stopping_what_does_not_run_is_nothing(running: Any, spec: Make) -> None:
    await running.host.stop_task(job(spec, "wait").task, 1)
    await running.host.pause_task(job(spec, "wait").task)


async def test_stop_before_the_process_has_called_back(running: Any, spec: Make) -> None:
    task = await running.start(job(spec, "wait"))
    await running.host.stop_task(task, 10)
    exited = await running.ended(task)
    assert exited.reason == "killed: it was stopped before it had started"


async def test_what_takes_its_time_to_die_with_the_guardian_is_waited_for(
    running: Any, spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed is not gone, where there is no processor to die on."""
    sweeps: list[bool] = []

    class Slow(Remains):
        def end(self) -> bool:
            sweeps.append(super().end())
            return len(sweeps) > 3 and sweeps[-1]

    monkeypatch.setattr("tidemill.connect.remote.guarded.Remains", Slow)
    task = await running.start(job(spec, "wait"))
    started = await running.events.wait(TaskStarted)
    psutil.Process(started.pid).parents()[2].kill()  # the guardian
    await running.ended(task)
    assert len(sweeps) > 3


async def test_a_fault_of_the_supervision_ends_the_task_and_is_told_when_it_has(
    running: Any, spec: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever hears of it may start the task again."""
    pid_file = tmp_path / "pid"

    async def faulty(process: Any) -> None:
        while not pid_file.exists():  # noqa: ASYNC110  (written by another process)
            await asyncio.sleep(0.01)
        psutil.Process(process.pid).parents()[2].suspend()  # the guardian: nothing is killed quickly
        raise ZeroDivisionError("a bug in the worker")

    monkeypatch.setattr(host_module, "KILL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(running.host, "_relay_output", faulty)
    task = await running.start(job(spec, "hold_the_interpreter", config={"pid.file": str(pid_file)}))
    exited = await running.ended(task)
    assert exited.reason == "killed: the worker lost control of it"
    assert not alive(int(pid_file.read_text(encoding="ascii")))


def test_it_works_on_uvloop(spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's own event loop."""
    uvloop = pytest.importorskip("uvloop")
    monkeypatch.setenv("PYTHONPATH", python_path(PLUGINS))

    async def scene() -> list[TaskEvent]:
        seen: list[TaskEvent] = []
        async with TaskHost() as host:
            await host.start_task(job(spec, "wait", name="u"))
            async for event in host.events():
                seen.append(event)
                if isinstance(event, TaskStarted):
                    break
            await host.stop_task(event.task, 10)
        return [*seen, *[event async for event in host.events()]]

    events = uvloop.run(scene())
    assert isinstance(events[-1], TaskExited)
    assert events[-1].returncode == 0


# ------------------------------------------------------------------ preflight


@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        ({"mode": "refused"}, "mode", "mode refused is not allowed. Use wait."),
        ({"mode": "bug"}, "", "ZeroDivisionError: a bug in the preflight"),
        ({"mode": "crash"}, "", "the preflight of task_plugins:job ended without an answer: ended with code 3"),
    ],
)
async def test_a_preflight_tells_its_problems(running: Any, config: dict[str, str], name: str, message: str) -> None:
    (problem,) = await running.host.validate("task_plugins:job", config)
    assert problem.name == name
    assert problem.message.startswith(message)


async def test_a_preflight_without_problems_is_silent(running: Any) -> None:
    assert await running.host.validate("task_plugins:job", {"mode": "wait"}) == ()


async def test_a_slow_preflight_is_cut_off(running: Any) -> None:
    (problem,) = await running.host.validate("task_plugins:job", {"mode": "slow"}, timeout_s=2)
    assert "no answer within 2 s" in problem.message


# ---------------------------------------------------------------------- tools


async def pids(file: Path) -> list[int]:
    """The process ids a task has written."""
    async with asyncio.timeout(30):
        while not file.exists():  # noqa: ASYNC110  (another process makes it)
            await asyncio.sleep(0.02)
    return [int(each) for each in file.read_text(encoding="ascii").split()]


async def gone(processes: list[int]) -> None:
    """Return once none of them lives."""
    async with asyncio.timeout(10):
        while any(alive(pid) for pid in processes):  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and only not yet collected does not."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1])


async def test_a_signal_without_a_name_ends_its_task_alone(running: Any, spec: Make) -> None:
    other = await running.start(job(spec, "wait"))
    await running.events.wait(TaskReport, lambda event: event.facts.get("waiting") is True)
    task = await running.start(job(spec, "die_of_a_signal_without_a_name"))
    exited = await running.ended(task)
    assert (exited.returncode, exited.reason) == (-(signal.SIGRTMIN + 6), f"killed by signal {signal.SIGRTMIN + 6}")
    await running.host.stop_task(other, 10)
    assert (await running.ended(other)).reason == "ended by itself"


@pytest.mark.parametrize("mode", ["fail_and_stay", "become_another_program"])
async def test_a_process_that_is_no_task_any_more_is_ended(
    running: Any, spec: Make, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "END_TIMEOUT_S", 0.5)
    exited = await running.ended(await running.start(job(spec, mode)))
    assert "closed its stream" in exited.reason


async def test_a_child_that_a_plugin_forks_does_not_speak_for_the_task(running: Any, spec: Make) -> None:
    task = await running.start(job(spec, "fork"))
    report = await running.events.wait(TaskReport, lambda event: "child" in event.facts)
    assert report.facts["child"] == 7
    assert running.events.failures() == []
    await running.host.stop_task(task, 10)
    assert (await running.ended(task)).returncode == 0


async def test_a_preflight_that_leaves_a_thread_behind_has_answered(running: Any) -> None:
    assert await running.host.validate("task_plugins:job", {"mode": "thread"}, timeout_s=20) == ()
