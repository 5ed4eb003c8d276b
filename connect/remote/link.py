"""The stream between a task process and its worker, seen from the process

A process says that it is there and then hears orders, one after the other. If the stream ends although nobody has said
goodbye, the worker is gone or has given the process up, which then ends at once, whatever its threads are doing.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import NoReturn

from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader, frame
from tidemill.connect.remote.messages import PROTOCOL_VERSION
from tidemill.connect.remote.standstill import Standstill
from tidemill.connect.task_spec import EXIT_LOST_WORKER
from tidemill.connect.tasks.control import TaskControl

FAREWELL_TIMEOUT_S = 2.0  # for the last words to reach the worker


class Link:
    """One process's end of the stream."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._saying = threading.Lock()
        self._closing = False
        self._ended = threading.Event()
        self.orders = self._read()
        self.standstill = Standstill()
        facts = pb.Hello(
            protocol_version=PROTOCOL_VERSION, pid=os.getpid(), standstill_fd=self.standstill.descriptor, shares=True
        )
        self.say(pb.FromTask(hello=facts))

    def first_order(self) -> pb.ToTask:
        """Wait for what to do."""
        order = next(self.orders, None)
        if order is None:
            leave()
        return order

    def over(self) -> None:
        """There are no more orders: leave, unless goodbye was said."""
        if not self._closing:
            leave()
        self._ended.set()

    def say(self, message: pb.FromTask) -> None:
        """Send a message, after those before it."""
        data = frame(message)
        with self._saying:
            try:
                self._stream.sendall(data)
            except OSError:
                leave()

    def close(self) -> None:
        """Say nothing more."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)

    def farewell(self) -> None:
        """End the stream and give the worker a moment to hear the last words; somebody else hears its orders."""
        self.close()
        self._ended.wait(FAREWELL_TIMEOUT_S)

    def _read(self) -> Iterator[pb.ToTask]:
        frames = FrameReader()
        with contextlib.suppress(OSError):
            while data := self._stream.recv(1 << 16):
                for each in frames.take(data):
                    yield pb.ToTask.FromString(each)


def pass_on(order: pb.ToTask, control: TaskControl) -> None:
    """Tell a task what the worker wants of it."""
    match order.WhichOneof("message"):
        case "stop":
            control.request_stop(order.stop.grace_ms)
        case "pause":
            control.request_pause()
        case "resume":
            control.request_resume()


def leave() -> NoReturn:
    """End now, whatever the other threads are doing."""
    os._exit(EXIT_LOST_WORKER)
