"""Ports that a part keeps over its restarts

A port that the system gives away by itself (port 0, and the near end of every connection that is made) may be somebody
else's by the time that the part is started, or started again. So these are taken from below those.
"""

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

HOST = "127.0.0.1"
GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_GIVEN_AWAY = 32_768
"""Where the system does not tell; it is Linux's own default."""

FIRST, LAST = 10_240, 65_535
"""Below live the ports that are known by name: databases, brokers."""

TRIES = 10_000


def free_ports(count: int) -> list[int]:
    """So many ports of this machine that nobody uses now, all different; raises OSError if they cannot be found."""
    with ExitStack() as stack:
        found: list[int] = []
        for port in _candidates():
            probe = stack.enter_context(socket.socket())  # open until all are found: so they are different
            try:
                probe.bind((HOST, port))
            except OSError:
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
