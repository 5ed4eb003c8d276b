"""Ports that a part keeps over its restarts

A port that the system gives away by itself (port 0, and the near end of every connection that is made) may be somebody
else's by the time that the part is started, or started again. So these are taken from below those. Nor does anybody
listen at them before that, or while the part is away: each is locked, a byte of a file that all processes of a user
have in common (POSIX record locks, fcntl(2)), and no other process is given it while the one that was given it lives.
"""

import fcntl
import os
import secrets
import socket
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_GIVEN_AWAY = 32_768
"""Where the system does not tell; it is Linux's own default."""

FIRST, LAST = 10_240, 65_535
"""Below live the ports that are known by name: databases, brokers."""

TRIES = 10_000
KEPT = 4_096
"""Ports that one process keeps; given more, it lets the oldest go, so that it cannot run out of them."""


_one_at_a_time = threading.Lock()
"""Threads of one process share its locks: `Reserved` keeps them apart only if they come one after the other."""


class Reserved:
    """The ports that this process was given: neither it nor another that looks into the same file is given them again.

    A record lock is of a process, not of a thread, and a fork does not inherit it: the child asks for its own.
    """

    def __init__(self, path: Path, keep: int = KEPT) -> None:
        self._keep = keep
        self._held: OrderedDict[int, None] = OrderedDict()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)  # never closed: any close in this process would let all of them go

    def take(self, port: int) -> bool:
        """Whether it is this process's from now on; not if it was before, or is that of another that lives."""
        if port in self._held:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: another has it
            return False
        self._held[port] = None
        if len(self._held) > self._keep:
            self.let_go(next(iter(self._held)))
        return True

    def let_go(self, port: int) -> None:
        """Anybody may be given it."""
        del self._held[port]
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, port)


def free_ports(count: int) -> list[int]:
    """So many ports of this machine that nobody uses now and nobody else is given, all different.

    Raises OSError if they cannot be found.
    """
    with _one_at_a_time, ExitStack() as stack:
        reserved = _reserved()
        found: list[int] = []
        for port in _candidates():
            if not reserved.take(port):  # first: a look at what is another's would be in its way
                continue
            probe = stack.enter_context(socket.socket())  # open until all are found: nobody is given them by the system
            try:
                probe.bind((HOST, port))
            except OSError:
                probe.close()
                reserved.let_go(port)
                continue
            found.append(port)
            if len(found) == count:
                return found
        raise OSError(f"no {count} free ports among {TRIES} of {HOST} that were tried")


def free_port() -> int:
    """One of them."""
    (port,) = free_ports(1)
    return port


def _candidates() -> Iterator[int]:
    first_given_away, last = _given_away()
    low, high = (FIRST, first_given_away - 1) if first_given_away > FIRST + TRIES else (last + 1, LAST)
    if high - low < TRIES:  # somebody has given nearly all away
        low, high = FIRST, LAST
    for _ in range(TRIES):
        yield low + secrets.randbelow(high - low + 1)


def _given_away() -> tuple[int, int]:
    try:
        first, last = map(int, GIVEN_AWAY.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return FIRST_GIVEN_AWAY, LAST
    return first, last


@cache
def _reserved() -> Reserved:
    return Reserved(Path(tempfile.gettempdir(), f"tidemill-ports-{os.getuid()}"))
