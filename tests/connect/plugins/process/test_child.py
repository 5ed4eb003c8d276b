"""A program and its pipes"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tidemill.connect.plugins.process.child import CannotStart, Child

NOTHING = memoryview(b"")


def child(*command: str) -> tuple[Child, list[str]]:
    lines: list[str] = []
    return Child(command, dict(os.environ), lines.append), lines


def until_end(made: Child, data: bytes = b"") -> bytes:
    """Write all of it and read to the end."""
    unsent, found, began = memoryview(data), b"", time.monotonic()
    while True:
        sent, read = made.turn(unsent, 1.0)
        unsent = unsent[sent:]
        if not unsent:
            made.close_input()
        if read == b"":
            return found
        found += read or b""
        assert time.monotonic() - began < 60


def test_both_pipes_are_turned_at_once() -> None:
    """More than both pipes hold goes through a program that writes what it reads."""
    made, _ = child("cat")
    data = os.urandom(3_000_000)
    unsent, found = memoryview(data), bytearray()
    while len(found) < len(data):
        sent, read = made.turn(unsent, 1.0)
        unsent = unsent[sent:]
        found += read or b""
    assert bytes(found) == data
    assert made.turn(NOTHING, 0.0) == (0, None)
    made.end()


def test_a_program_that_reads_nothing_is_told_by_what_it_says() -> None:
    made, lines = child("sh", "-c", "exec <&-; echo before; echo why >&2; exit 5")
    assert until_end(made, b"x" * 1_000_000) == b"before\n"
    assert made.ending() == "has ended with exit status 5"
    assert made.last_words() == "why"
    made.end()
    assert lines == ["why"]


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither the program nor what it has started, which holds its pipes open."""
    file = tmp_path / "pid"
    made, _ = child("sh", "-c", f"sleep 600 & echo $! > {file}; trap '' TERM; echo started; wait")
    while made.turn(NOTHING, 1.0)[1] is None:
        pass
    began = time.monotonic()
    made.end()
    assert time.monotonic() - began < 30
    grandchild = int(file.read_text())
    while os.path.exists(f"/proc/{grandchild}") and "Z" not in Path(f"/proc/{grandchild}/stat").read_text().split()[2]:
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    made.end()  # which may be said twice


def test_what_has_left_its_session_ends_with_it() -> None:
    """Also where nobody would end it later: a plugin is asked to divide its work in the worker's own process."""
    made, lines = child("sh", "-c", "setsid sh -c 'sleep 600 & echo $! >&2; exec sleep 600' & exec cat")
    other, _ = child("sleep", "600")
    while not lines:
        time.sleep(0.01)
    made.end()
    began = time.monotonic()
    while runs(int(lines[0])):
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    assert runs(other.pid), "that is of another run"
    other.end()


def runs(pid: int) -> bool:
    """Whether there is such a process that is not dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_has_left_its_session_and_emptied_its_environment_holds_no_thread_and_no_pipe() -> None:
    """A daemon that it has started has its standard error, which nobody reads any more."""
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    made, lines = child("sh", "-c", "setsid env -i sleep 30 & echo $! >&2; exec cat")
    while not lines:
        time.sleep(0.01)
    made.end()
    began = time.monotonic()
    while threading.active_count() > threads or len(os.listdir("/proc/self/fd")) > files:
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    os.kill(int(lines[0]), signal.SIGKILL)


def test_its_end_is_seen_whoever_holds_its_output() -> None:
    """What it had said before is read first."""
    made, _ = child("sh", "-c", "sleep 100 & echo said; kill -9 $$")
    began = time.monotonic()
    assert until_end(made) == b"said\n"
    assert time.monotonic() - began < 30
    assert made.ending() == "was killed by SIGKILL"
    made.end()


def test_how_it_ended() -> None:
    made, _ = child("sh", "-c", "kill -9 $$")
    assert until_end(made) == b""
    assert made.ending() == "was killed by SIGKILL"
    made.end()
    made, _ = child("sh", "-c", "exec >&-; sleep 600")
    assert until_end(made) == b""
    assert made.ending() == "has closed its standard output and runs on"
    made.end()


def test_its_environment(tmp_path: Path) -> None:
    made = Child([sys.executable, "-c", "import os; print(sorted(os.environ))"], {"A": "1", "LC_ALL": "C"}, print)
    assert b"'A'" in until_end(made)
    made.end()


@pytest.mark.parametrize("command", ["no-such-program", "./no/such/program"])
def test_a_program_that_is_not_there(command: str) -> None:
    with pytest.raises(CannotStart, match=r"there is no program '.*' on this worker: install it on every worker"):
        child(command)


def test_a_program_that_may_not_be_run(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="may not be run by the worker's user"):
        child(str(tmp_path))
    with pytest.raises(CannotStart, match="cannot be run: embedded null byte"):
        child("a\0b")
