"""Ports that nobody else is given"""

import os
import secrets
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidemill import free_ports as module
from tidemill.free_ports import FIRST, GIVEN_AWAY, LAST, Reserved, free_port, free_ports

TAKE = "import sys; from tidemill.free_ports import *; from pathlib import Path; held = Reserved(Path(sys.argv[1]))"
"""Of another process; ports are named by its lines."""


def in_another_process(path: Path) -> subprocess.Popen[str]:
    """Takes the ports it is told, and says whether it could, until its input ends."""
    program = f"{TAKE}\nfor line in sys.stdin: print(held.take(int(line)), flush=True)"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def asked(other: subprocess.Popen[str], port: int) -> str:
    assert other.stdin is not None
    assert other.stdout is not None
    print(port, file=other.stdin, flush=True)
    return other.stdout.readline().strip()


def test_they_are_different_and_can_be_listened_on() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    for port in found:
        with socket.create_server(("127.0.0.1", port)) as listening:
            assert listening.getsockname()[1] == port


@pytest.mark.skipif(not GIVEN_AWAY.exists(), reason="the system does not tell which ports it gives away: not Linux")
def test_the_system_gives_none_of_them_to_whoever_asks_for_any() -> None:
    first, last = map(int, GIVEN_AWAY.read_text().split())
    assert not any(first <= port <= last for port in free_ports(200))


@pytest.mark.parametrize(
    ("told", "low", "high"),
    [
        ("32768\t60999\n", FIRST, 32_767),
        ("9000 40000", 40_001, LAST),
        ("1024 65535", FIRST, LAST),  # all are given away: then any
        ("", FIRST, 32_767),
        (None, FIRST, 32_767),
    ],
)
def test_where_they_are_sought(
    told: str | None, low: int, high: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told is not None:
        (tmp_path / "range").write_text(told)
    monkeypatch.setattr(module, "GIVEN_AWAY", tmp_path / "range")
    assert all(low <= port <= high for port in free_ports(100))


def test_what_one_process_was_given_no_other_is_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "ports"
    with in_another_process(path) as first, in_another_process(path) as second:
        assert asked(first, 20_000) == "True"
        assert asked(second, 20_000) == "False"
        assert asked(first, 20_000) == "False", "nor itself twice"
        assert asked(second, 20_001) == "True"
        first.kill()
        first.wait()
        assert asked(second, 20_000) == "True", "a process that is killed leaves nothing behind"


def test_a_process_that_is_forked_takes_none_of_its_parents(tmp_path: Path) -> None:
    held = Reserved(tmp_path / "ports")
    assert held.take(20_000)
    if (child := os.fork()) == 0:
        os._exit(2 * held.take(20_000) + held.take(20_001))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert held.take(20_001), "the child's end let it go"
    with in_another_process(tmp_path / "ports") as other:
        assert asked(other, 20_000) == "False", "what the child's end left alone"


def test_whoever_is_given_ports_without_end_lets_the_oldest_go(tmp_path: Path) -> None:
    held = Reserved(tmp_path / "ports", keep=2)
    assert all(held.take(port) for port in (20_000, 20_001, 20_002))
    with in_another_process(tmp_path / "ports") as other:
        assert [asked(other, port) for port in (20_000, 20_001, 20_002)] == ["True", "False", "False"]
    assert held.take(20_000)


def drawn_first(monkeypatch: pytest.MonkeyPatch, path: Path, port: int) -> None:
    """The next draw falls on this port, what comes behind it where it will."""
    draw, first = secrets.randbelow, iter([port - FIRST])
    monkeypatch.setattr(module, "GIVEN_AWAY", path / "none")  # so they are sought from FIRST on
    monkeypatch.setattr(secrets, "randbelow", lambda below: next(first, None) or draw(below))


def test_one_that_was_given_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = free_port()
    drawn_first(monkeypatch, tmp_path, given)
    assert free_port() != given


def test_one_that_is_used_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        used = listener.getsockname()[1]
        drawn_first(monkeypatch, tmp_path, used)
        assert free_port() != used


def test_one_that_was_given_is_not_even_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may be about to listen on it."""
    given, bound = free_port(), list[int]()
    monkeypatch.setattr(socket.socket, "bind", lambda _socket, address: bound.append(address[1]))
    drawn_first(monkeypatch, tmp_path, given)
    assert bound == [free_port()]


def test_threads_are_given_different_ones() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = [port for ports in pool.map(free_ports, [3] * 64) for port in ports]
    assert len(set(found)) == 192


def test_none_that_is_free_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda _below: 7)
    with pytest.raises(OSError, match="no 3 free ports"):
        free_ports(3)
