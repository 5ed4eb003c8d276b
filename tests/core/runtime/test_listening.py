"""Sockets that listen"""

import socket

import pytest

from tidemill.core.runtime.listening import open_listening


async def test_a_free_port_is_the_same_for_all_addresses() -> None:
    sockets = await open_listening("", 0, 5)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        assert socket.AF_INET in {each.family for each in sockets}
        assert not any(each.getblocking() for each in sockets)
    finally:
        for each in sockets:
            each.close()


async def test_a_port_that_is_taken_is_an_error() -> None:
    (taken,) = await open_listening("127.0.0.1", 0, 5)
    with taken, pytest.raises(OSError, match="in use"):
        await open_listening("127.0.0.1", taken.getsockname()[1], 5)
