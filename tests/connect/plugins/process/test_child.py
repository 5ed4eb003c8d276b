"""A program and its pipes"""

import os
import sys
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
    unsent, found = memoryview(data), b""
    while True:
        sent, read = made.turn(unsent, 1.0)
        unsent = unsent[sent:]
        if not unsent:
            made.close_input()
        if read == b"":
            return found
        found += read or b""


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
