"""A broker whose event loop is watched: `-m tests.integration.watched_broker KEY=VALUE ...`

A callback every few milliseconds tells by the loop's own clock how long the turn before it took. Time in which a thread
of the broker was ready to run and the machine ran something else is not the broker's doing and is subtracted: the
loop's own, and that of every other one, which may have held the interpreter meanwhile; and so is what a machine that is
itself a guest was not given of its processors (`steal`, which no thread's account has). What is waited for otherwise (a
disk, a lock, a thread that has the interpreter and a processor) is not. The accounts are read without letting go of the
interpreter, or another thread would take it each time. On every line of standard input two figures are printed, both
since the last: the longest turn, and for how long the machine has kept it from going on in one of them at most.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import sys

import uvloop

from tests.loop_watch import Processors, keeping_the_interpreter
from tidemill.broker.config import BrokerConfig
from tidemill.broker.first_routes import load_later
from tidemill.broker.node import open_broker

TICK_S = 0.005
TICKS_BETWEEN_LOOKS = 20  # for threads that have begun
WORTH_A_LOOK_S = 0.02


class Accounts:
    """What the kernel writes down of each thread of this process."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._buffer = ctypes.create_string_buffer(100)
        self.look()

    def look(self) -> None:
        """Find threads that have begun, and forget those that have ended."""
        threads = set(os.listdir("/proc/self/task"))
        for ended in self._files.keys() - threads:
            os.close(self._files.pop(ended))
        for begun in threads - self._files.keys():
            with contextlib.suppress(OSError):  # it has ended already
                self._files[begun] = os.open(f"/proc/self/task/{begun}/schedstat", os.O_RDONLY)

    def waited_s(self) -> dict[str, float]:
        """How long each has been ready without a processor."""
        found = {thread: self._read(file).split() for thread, file in self._files.items()}
        return {thread: int(words[1]) / 1e9 for thread, words in found.items() if words}

    def _read(self, file: int) -> bytes:
        size = keeping_the_interpreter.pread(file, self._buffer, len(self._buffer), ctypes.c_long(0))
        return self._buffer[: max(0, size)]


class Watch:
    """The longest turn of a loop; made in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._accounts, self._processors = Accounts(), Processors()
        self._longest_s = self._longest_kept_s = 0.0
        self._ticks = 0
        self._due, self._waited_s = loop.time(), self._accounts.waited_s()
        self._tick()

    def _tick(self) -> None:
        now, waited_s = self._loop.time(), self._accounts.waited_s()
        stolen_s = self._processors.stolen_s()
        late_s, kept_s = now - self._due, self._kept_s(waited_s) + stolen_s
        self._ticks += 1
        if late_s - kept_s > WORTH_A_LOOK_S or self._ticks % TICKS_BETWEEN_LOOKS == 0:
            self._accounts.look()
            waited_s = self._accounts.waited_s()
            kept_s = self._kept_s(waited_s) + stolen_s
        self._longest_s = max(self._longest_s, late_s - kept_s)
        self._longest_kept_s = max(self._longest_kept_s, min(kept_s, late_s))
        self._due, self._waited_s = self._loop.time() + TICK_S, waited_s
        self._loop.call_later(TICK_S, self._tick)

    def _kept_s(self, waited_s: dict[str, float]) -> float:
        """How long the machine has kept threads waiting in this turn; those that are new, ever."""
        return sum(each - self._waited_s.get(thread, 0.0) for thread, each in waited_s.items())

    def told(self) -> str:
        """The longest turn and the longest time in which it was kept waiting, in milliseconds, since the last call."""
        told = f"{self._longest_s * 1e3:.1f} {self._longest_kept_s * 1e3:.1f}"
        self._longest_s = self._longest_kept_s = 0.0
        return told


async def serve(settings: dict[str, str]) -> None:
    """Run until standard input ends, with all code there and out of the collector's way, as in one that has begun."""
    loop = asyncio.get_running_loop()
    async with open_broker(BrokerConfig.parse(settings)) as broker:
        await asyncio.to_thread(load_later)
        gc.freeze()
        print(f"127.0.0.1:{broker.servers[0].port}", flush=True)
        watch = Watch(loop)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(watch.told(), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(dict(each.split("=", 1) for each in sys.argv[1:])))
