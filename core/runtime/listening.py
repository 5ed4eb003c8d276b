"""Listening sockets, for who accepts connections itself"""

import asyncio
import socket


async def open_listening(host: str, port: int, backlog: int) -> list[socket.socket]:
    """A socket for each address of `host`, all of one port; no host is every interface, port 0 takes a free one.

    Raises OSError, with no socket left open.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            listening = _opened(family)
            if listening is None:
                continue
            sockets.append(listening)
            listening.bind((address[0], port, *address[2:]))
            listening.listen(backlog)
            port = port or listening.getsockname()[1]
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _opened(family: int) -> socket.socket | None:
    """None if the machine has no such addresses."""
    try:
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return listening
