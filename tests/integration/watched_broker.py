"""A broker whose event loop is watched: `watched_broker.py KEY=VALUE ...`

A callback every few milliseconds tells by the loop's own clock how long the turn before it took. Time in which one of
the broker's threads was ready to run and the machine ran something else is not the broker's doing and is subtracted:
the loop may have waited for the interpreter that this thread held. What it waits for otherwise (a disk, a lock, a
thread that computes) is not. On every line of standard input the longest turn since the last is printed.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

import uvloop

from tidemill.broker.config import BrokerConfig
from tidemill.broker.node import open_broker

TICK_S = 0.005


def waited_s() -> dict[str, float]:
    """How long each thread of this process has been ready without a processor."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return found


class Watch:
    """The longest turn of a loop, in milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._longest_s = 0.0
        self._due, self._waited = loop.time(), waited_s()
        self._tick()

    def _tick(self) -> None:
        now, waited = self._loop.time(), waited_s()
        without_processor_s = max(waited[thread] - self._waited.get(thread, waited[thread]) for thread in waited)
        self._longest_s = max(self._longest_s, now - self._due - without_processor_s)
        self._due, self._waited = self._loop.time() + TICK_S, waited
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
