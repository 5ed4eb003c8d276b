"""A task never outlives its worker, however the worker dies"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.connect.conftest import python_path
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
        ended = {line.facts["start"] for _ in range(2) for line in worker.receive() or []}
        assert 1 in ended


def test_a_line_that_found_no_room_is_told_of_once_there_is_some() -> None:
    with guardian_to_read() as (worker, unread, output):
        fill(output)
        ask_for(worker, 1, "no_such_module:job")
        lines = worker.receive()
        assert lines is not None and lines[0].facts["start"] == 1, "it has ended, of which there was something to say"
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
        until(lambda: not Path(f"/proc/{task}").exists())
        os.kill(nursery, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{nursery}").exists())
        if asked_meanwhile:
            ask_for(worker, 2, "task_plugins:job")
        os.kill(guardian, signal.SIGCONT)
        ended: dict[int, int] = {}
        while len(ended) < 1 + asked_meanwhile:
            ended |= {line.facts["start"]: line.facts["status"] for line in worker.receive() or []}
    assert ended[1] == EXIT_LOST_PARENT << 8


def test_a_nursery_that_takes_no_more_orders_is_killed_with_its_tasks() -> None:
    """It stands still, and as many orders are unread as there is room for."""
    with guardian_to_read() as (worker, _, _):
        stream = ask_for(worker, 1, "task_plugins:job")
        stream.settimeout(DEADLINE_S)
        assert stream.recv(1), "the task says hello"
        nursery = only_child(only_child(only_child(os.getpid(), "guardian")))
        task = only_child(nursery)
        os.kill(nursery, signal.SIGSTOP)
        numbers = count(2)
        while not select.select([worker], [], [], 0.005)[0]:
            ask_for(worker, next(numbers), "task_plugins:job").close()
        ended: set[int] = set()
        while 1 not in ended:
            ended |= {line.facts["start"] for line in worker.receive() or []}
        until(lambda: not alive(task) and not alive(nursery))


def test_an_order_that_came_too_late_is_not_held_against_the_next_root(tmp_path: Path) -> None:
    """Its number is that of the one before, whose end is heard in the same turn."""
    plugin = tmp_path / "changing_plugin.py"
    plugin.write_text("from task_plugins import job\n", encoding="ascii")
    with guardian_to_read(tmp_path) as (worker, _, _):
        stream = ask_for(worker, 1, "changing_plugin:job")
        stream.settimeout(DEADLINE_S)
        assert stream.recv(1), "the task says hello"
        guardian = only_child(os.getpid(), "guardian")
        root = only_child(guardian)
        nursery = only_child(root)
        os.kill(nursery, signal.SIGSTOP)
        plugin.write_text("from task_plugins import job  # anew\n", encoding="ascii")
        placed_anew = ask_for(worker, 2, "changing_plugin:job")
        placed_anew.settimeout(DEADLINE_S)
        ask_for(worker, 3, "no_such_module:job")
        told = worker.receive()
        assert told is not None and told[0].facts["start"] == 3, "so the order before has been given"
        os.kill(guardian, signal.SIGSTOP)
        sleeps = times_asleep(nursery)
        os.kill(nursery, signal.SIGCONT)
        until(lambda: times_asleep(nursery) > sleeps)  # it has said that its plugin has changed
        os.kill(root, signal.SIGKILL)
        until(lambda: not alive(root) and not alive(nursery))
        ask_for(worker, 4, "no_such_module:job")  # which its root would have forked
        os.kill(guardian, signal.SIGCONT)
        assert placed_anew.recv(1), "the next root does"


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
def guardian_to_read(folder: Path = HERE) -> Iterator[tuple[OrderSocket, int, int]]:
    """A guardian: how to ask it, and both ends of the pipe that it prints into."""
    ours, theirs = socket.socketpair()
    unread, output = os.pipe()
    command = [sys.executable, "-m", "tidemill.connect.remote.guardian", NAME_ROOM]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), python_path(HERE)))}
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


def times_asleep(process: int) -> int:
    """How often it has begun to wait for something."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


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
