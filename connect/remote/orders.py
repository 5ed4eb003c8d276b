"""Orders between worker, guardian and nurseries: lines with open files

A process is started by somebody who has never seen the worker, so what connects it to the worker, its output and its
stream, has to be handed on: over a Unix socket, beside a line that says what it is for. A line that announces files is
sent together with them; the kernel delivers both in order, so the next files that have not been taken are its own.
"""

import array
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

READ_BYTES = 1 << 16
FILES_MAX = 64  # that come with one read
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

Facts: TypeAlias = dict[str, Any]


class Line(NamedTuple):
    """One order or answer."""

    facts: Facts
    files: tuple[int, ...] = ()


def encode(facts: Facts, files: Sequence[int] = ()) -> bytes:
    """Write a line; `files` are only counted here."""
    told = {**facts, "files": len(files)} if files else facts
    return json.dumps(told).encode() + b"\n"


class LineReader:
    """Lines out of bytes, however they were cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._files: list[int] = []

    def take(self, data: bytes, files: Sequence[int] = ()) -> Iterator[Line]:
        """Yield the lines that are complete."""
        self._files += files
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            count = facts.pop("files", 0)
            own, self._files = tuple(self._files[:count]), self._files[count:]
            yield Line(facts, own)


class OrderSocket:
    """One end of a socket for lines; for processes of one thread."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._reader = LineReader()

    def fileno(self) -> int:
        """For polling."""
        return self.end.fileno()

    def send(self, facts: Facts, files: Sequence[int] = ()) -> None:
        """Send a line; raises OSError when the other end is gone, BlockingIOError when it does not read."""
        data = encode(facts, files)
        if files:
            sent = self.end.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
            data = data[sent:]
        if data:
            self.end.sendall(data)

    def receive(self) -> list[Line] | None:
        """The lines that are there; None when the other end is gone."""
        space = socket.CMSG_LEN(FILES_MAX * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self.end.recvmsg(READ_BYTES, space, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        files = [
            each
            for level, kind, content in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for each in array.array("i", content[: len(content) // 4 * 4])
        ]
        if not data:
            return None
        return list(self._reader.take(data, files))

    def close(self) -> None:
        """Close this end."""
        self.end.close()


def close_files(files: Sequence[int]) -> None:
    """Close what somebody else has been given."""
    for each in files:
        os.close(each)
