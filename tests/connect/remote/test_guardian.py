"""A task never outlives its worker, however the worker dies"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.conftest import python_path
from tests.connect.remote.held_processes import held
from tidemill.connect.remote.guardian import Notes
from tidemill.connect.remote.orders import OrderSocket
from tidemill.connect.remote.process_ties import EXIT_LOST_PARENT, NAME_ROOM, end
from tidemill.core.runtime.clock import seconds_since_boot

HERE = Path(__file__).parent
DEADLINE_S = 20.0  # far beyond what it takes, for a loaded machine
FOLDER = {"PYTHONPATH": python_path(HERE)}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.crash,
    pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal and subreapers are Linux's"),
]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[list[subprocess.Popen[bytes]], Path]]:
    """Workers to kill; whatever a test leaves is killed by process group."""
    started: list[subprocess.Popen[bytes]] = []
    yield started, tmp_path / "pids"
    for each in started:
        each.kill()
        each.wait()


def start(
    worker: tuple[list[subprocess.Popen[bytes]], Path], mode: str, *more: str
) -> tuple[subprocess.Popen[bytes], list[int]]:
    started, pid_file = worker
    command = [sys.executable, str(HERE / "worker_program.py"), mode, str(pid_file), *more]
    process = subprocess.Popen(command, env={**os.environ, **FOLDER}, stdout=subprocess.DEVNULL)
    started.append(process)
    until(pid_file.exists)
    return process, [int(each) for each in pid_file.read_text(encoding="ascii").split()]


def until(condition: object) -> float:
    """Wait for a condition; how long it took."""
    begun = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert time.monotonic() - begun < DEADLINE_S, "it did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - begun


def alive(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


@pytest.mark.parametrize("mode", ["family", "sleep", "hold_the_interpreter", "deaf"])
def test_everything_dies_with_a_killed_worker(worker: tuple[list[subprocess.Popen[bytes]], Path], mode: str) -> None:
    process, pids = start(worker, mode)
    assert all(alive(pid) for pid in pids)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(alive(pid) for pid in pids))


def test_everything_dies_with_a_stopped_worker(worker: tuple[list[subprocess.Popen[bytes]], Path]) -> None:
    process, pids = start(worker, "family")
    process.send_signal(signal.SIGINT)
    process.wait(DEADLINE_S)
    until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.parametrize("mode", ["family", "hold_the_interpreter"])
def test_tasks_end_with_the_lease_of_a_worker_that_stands_still(
    worker: tuple[list[subprocess.Popen[bytes]], Path], mode: str
) -> None:
    process, pids = start(worker, mode, "2.0")
    begun = time.monotonic()
    until(lambda: time.monotonic() > begun + 3.0)
    assert all(alive(pid) for pid in pids), "the worker renews its lease"
    process.send_signal(signal.SIGSTOP)
    took_s = until(lambda: not any(alive(pid) for pid in pids))
    assert took_s > 1.0, "not before its end"
    process.send_signal(signal.SIGCONT)
    assert process.poll() is None


def test_a_signal_to_the_whole_service_is_left_to_the_worker(
    worker: tuple[list[subprocess.Popen[bytes]], Path],
) -> None:
    process, (task, child, daemon) = start(worker, "family")
    os.kill(task, signal.SIGTERM)
    os.kill(task, signal.SIGHUP)
    os.kill(child, signal.SIGTERM)  # a program that a task started has the ordinary handlers
    until(lambda: not alive(child))
    assert alive(task)
    assert alive(daemon)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not alive(task) and not alive(daemon))


def test_what_a_task_had_started_dies_with_a_killed_nursery(
    worker: tuple[list[subprocess.Popen[bytes]], Path],
) -> None:
    """The kernel kills the task after the nursery has closed its line, and its children are nobody's after that."""
    process, (task, child, daemon) = start(worker, "family")
    os.kill(parent(task), signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in (task, child, daemon)))
    assert process.poll() is None


def test_what_a_task_had_started_dies_with_a_killed_guardian(
    worker: tuple[list[subprocess.Popen[bytes]], Path],
) -> None:
    """The kernel kills tasks, but not what they had started; the worker does."""
    process, pids = start(worker, "family")
    os.kill(parent(parent(parent(pids[0]))), signal.SIGKILL)
    try:
        until(lambda: not any(alive(pid) for pid in pids))
        assert process.poll() is None
    finally:
        for pid in pids:
            end(pid)


def test_a_guardian_without_a_worker_ends() -> None:
    """The worker died before it had asked for anything."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tidemill.connect.remote.guardian"]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs)
    ours.close()
    assert process.wait(DEADLINE_S) == EXIT_LOST_PARENT


def test_the_lease_ends_although_nobody_reads_what_the_guardian_has_to_say() -> None:
    """A worker that stands still reads nothing, and a plugin that prints at import has filled the pipe."""
    with guardian_to_read() as (worker, _, output):
        stream = ask_for(worker, 1, "task_plugins:job")
        stream.settimeout(DEADLINE_S)
        assert stream.recv(1), "the task says hello"
        fill(output)
        ask_for(worker, 2, "no_such_module:job")  # of which there is something to say
        time.sleep(1.0)
        worker.send({"do": "lease", "until": seconds_since_boot()})
        assert 1 in {**ended(worker), **ended(worker)}


def test_a_line_that_found_no_room_is_told_of_once_there_is_some() -> None:
    with guardian_to_read() as (worker, unread, output):
        fill(output)
        ask_for(worker, 1, "no_such_module:job")
        assert ended(worker).keys() == {1}, "of which there was something to say"
        assert drained(unread).strip() == b""
        told = b""

        def is_told() -> bool:
            nonlocal told
            told += drained(unread)
            return MISSING + b"1\n" in told

        until(is_told)


def test_why_a_plugin_is_not_imported_ahead_is_told_by_a_guardian_that_was_late() -> None:
    """It hears what the nursery has to say in the turn in which its root tells of its end."""
    with guardian_to_read() as (worker, unread, _):
        ask_for(worker, 1, "halting_plugin:job")
        told = b""

        def is_told() -> bool:
            nonlocal told
            told += drained(unread)
            return b"plugin halting_plugin:job is not imported ahead: ImportError: not today, nor" in told

        until(is_told)


@pytest.mark.parametrize("asked_meanwhile", [False, True])
def test_how_a_task_ended_is_told_though_its_nursery_has_ended_since(asked_meanwhile: bool) -> None:
    """The guardian was late, and the first that it does is to send the nursery another order."""
    with guardian_to_read() as (worker, _, _):
        stream = ask_for(worker, 1, "task_plugins:job")
        stream.settimeout(DEADLINE_S)
        assert stream.recv(1), "the task says hello"
        guardian = only_child(os.getpid(), "guardian")
        nursery = only_child(only_child(guardian))
        task = only_child(nursery)
        os.kill(guardian, signal.SIGSTOP)
        stream.close()
        until(lambda: not Path(f"/proc/{task}").exists() and asleep(nursery))  # so it has said what it has seen
        os.kill(nursery, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{nursery}").exists())
        if asked_meanwhile:
            ask_for(worker, 2, "task_plugins:job")
        os.kill(guardian, signal.SIGCONT)
        statuses: dict[int, int] = {}
        while len(statuses) < 1 + asked_meanwhile:
            statuses |= ended(worker)
    assert statuses[1] == EXIT_LOST_PARENT << 8


def begun(worker: OrderSocket) -> tuple[socket.socket, int, int, int]:
    """The stream to the first task, which lives as long as that is kept; its root, its nursery and itself."""
    stream = ask_for(worker, 1, "task_plugins:job")
    stream.settimeout(DEADLINE_S)
    assert stream.recv(1)
    root = only_child(only_child(os.getpid(), "guardian"))
    nursery = only_child(root)
    return stream, root, nursery, only_child(nursery)


@pytest.mark.parametrize("root_too", [False, True])
def test_no_task_is_called_dead_that_is_alive(root_too: bool) -> None:
    """Its nursery stands still, and perhaps the root, which would have killed that."""
    with guardian_to_read() as (worker, _, _):
        _stream, root, nursery, task = begun(worker)
        for each in (nursery, root) if root_too else (nursery,):
            os.kill(each, signal.SIGSTOP)
        worker.send({"do": "kill", "start": 1})
        assert ended(worker) == {1: signal.SIGKILL}
        assert not alive(task) and not alive(nursery)


def test_nor_is_one_that_the_kernel_leaves_behind() -> None:
    """It holds the nursery, and the root; both stand still, and are killed. Neither's end kills what it has forked."""
    with guardian_to_read() as (worker, _, _):
        _stream, root, nursery, task = begun(worker)
        with held(nursery), held(root):
            for each in (nursery, root):
                os.kill(each, signal.SIGSTOP)
            worker.send({"do": "kill", "start": 1})
            assert ended(worker) == {1: signal.SIGKILL}
            assert not alive(task)
            assert alive(nursery) and alive(root)


def test_who_is_busy_forking_takes_the_rest_of_its_orders_later() -> None:
    """More than there is room for in a line."""
    with guardian_to_read() as (worker, _, _):
        _stream, _, nursery, task = begun(worker)
        os.kill(nursery, signal.SIGSTOP)
        numbers = range(2, 402)
        for number in numbers:
            ask_for(worker, number, "task_plugins:job").close()
        ask_for(worker, 500, "no_such_module:job")
        assert ended(worker).keys() == {500}, "so all orders before have been given"
        os.kill(nursery, signal.SIGCONT)
        statuses: dict[int, int] = {}
        while len(statuses) < len(numbers):
            statuses |= ended(worker)
        assert statuses == dict.fromkeys(numbers, EXIT_LOST_PARENT << 8)
        assert alive(task)


def test_lines_without_room_are_counted_in_front_of_those_that_follow() -> None:
    unread, output = os.pipe()
    try:
        notes = Notes(output)
        notes.say("first")
        notes.catch_up()
        fill(output)
        for _ in range(3):
            notes.say("lost")
        notes.catch_up()
        assert drained(unread).strip() == b"first"
        notes.say("next")
        notes.catch_up()
        assert drained(unread) == MISSING + b"3\nnext\n"
    finally:
        os.close(unread)
        os.close(output)


MISSING = b"lines of the guardian that found no room and are missing here: "


@contextlib.contextmanager
def guardian_to_read() -> Iterator[tuple[OrderSocket, int, int]]:
    """A guardian: how to ask it, and both ends of the pipe that it prints into."""
    ours, theirs = socket.socketpair()
    unread, output = os.pipe()
    command = [sys.executable, "-m", "tidemill.connect.remote.guardian", NAME_ROOM]
    environ = {**os.environ, **FOLDER}
    with theirs:
        process = subprocess.Popen(command, stdin=theirs, stdout=output, stderr=output, env=environ)
    ours.settimeout(DEADLINE_S)
    try:
        yield OrderSocket(ours), unread, output
    finally:
        process.kill()
        process.wait()
        for each in (unread, output):
            os.close(each)
        ours.close()


def only_child(process: int, named: str = "") -> int:
    """Of a process: its child, or the only one with such a word in its command."""
    children = map(int, Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split())
    (found,) = [each for each in children if named.encode() in Path(f"/proc/{each}/cmdline").read_bytes()]
    return found


def asleep(process: int) -> bool:
    """Whether it waits for something."""
    stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    return stat.rpartition(")")[2].split()[0] == "S"


def ended(worker: OrderSocket) -> dict[int, int]:
    """Who has ended, and how, as far as it is there; waits for the first."""
    lines = worker.receive()
    assert lines is not None, "the guardian is gone"
    return {line.facts["start"]: line.facts["status"] for line in lines}


def drained(pipe: int) -> bytes:
    """What stands in a pipe."""
    found = b""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            found += os.read(pipe, 1 << 16)
    return found


def fill(pipe: int) -> None:
    """Write into a pipe that nobody reads until it takes no more."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n" * 4096)
    os.set_blocking(pipe, True)


def ask_for(worker: OrderSocket, number: int, plugin: str) -> socket.socket:
    """The stream of a process that a guardian is asked for; its output is nobody's."""
    stream, its_end = socket.socketpair()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    facts = {"do": "start", "start": number, "label": f"t-{number}", "plugin": plugin, "leased": True}
    with its_end:
        worker.send({**facts, "environment": ""}, (nowhere, its_end.fileno()))
    os.close(nowhere)
    return stream
