"""A broker whose event loop is watched: `watched_broker.py KEY=VALUE ...`

A callback every few milliseconds tells by the loop's own clock how long the turn before it took. Time in which the
loop's thread was ready to run and the machine ran something else is not the broker's doing and is subtracted; what it
waits for (a disk, a lock, the interpreter) is not. Looking at more than that would disturb what is looked at, since
every call into the system lets other threads have the interpreter. On every line of standard input the longest turn
since the last is printed.
"""

import asyncio
import os
import sys
import threading

import uvloop

from tidemill.broker.config import BrokerConfig
from tidemill.broker.node import open_broker

TICK_S = 0.005


class Watch:
    """The longest turn of a loop, in milliseconds; made in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._accounting = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._longest_s = 0.0
        self._due, self._kept_waiting_s = loop.time(), self._waited_s()
        self._tick()

    def _waited_s(self) -> float:
        """How long the thread has been ready without a processor."""
        return int(os.pread(self._accounting, 100, 0).split()[1]) / 1e9

    def _tick(self) -> None:
        now, kept_waiting_s = self._loop.time(), self._waited_s()
        late_s = now - self._due - (kept_waiting_s - self._kept_waiting_s)
        self._longest_s = max(self._longest_s, late_s)
        self._due, self._kept_waiting_s = self._loop.time() + TICK_S, kept_waiting_s
        self._loop.call_later(TICK_S, self._tick)

    def longest_ms(self) -> float:
        """Since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1e3


async def serve(settings: dict[str, str]) -> None:
    """Run until standard input ends."""
    loop = asyncio.get_running_loop()
    async with open_broker(BrokerConfig.parse(settings)) as broker:
        print(f"127.0.0.1:{broker.servers[0].port}", flush=True)
        watch = Watch(loop)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(watch.longest_ms(), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(dict(each.split("=", 1) for each in sys.argv[1:])))
