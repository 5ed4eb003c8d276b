"""Ports that nobody else is given"""

import itertools
import secrets
import socket
from pathlib import Path

import pytest

from tidemill import free_ports as module
from tidemill.free_ports import FIRST, GIVEN_AWAY, LAST, free_port, free_ports


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


def test_one_that_is_used_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVEN_AWAY", tmp_path / "none")  # so they are sought from FIRST on
    used, free = free_ports(2)
    drawn = itertools.cycle([used - FIRST, free - FIRST])
    monkeypatch.setattr(secrets, "randbelow", lambda _below: next(drawn))
    with socket.create_server(("127.0.0.1", used)):
        assert free_port() == free
    with pytest.raises(OSError, match="no 3 free ports"):
        free_ports(3)
