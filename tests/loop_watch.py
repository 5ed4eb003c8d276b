"""How long an event loop is away, and how much of that is this process' own doing

A test that demands short turns must not fail because the machine runs something else. So besides the time on the
clock it is told what is left of it without the time in which the loop's thread was ready and got no processor, without
that in which a machine that is itself a guest was not given a processor (`steal`, which no thread's account has, and in
which a thread seems to run), and never more than the processor time that all threads of the process used meanwhile: a
thread of ours that keeps the interpreter to itself counts, one that is itself kept from running does not. What
was on the heap before (in a test run that is much) is kept out of the collector's way, as a broker does itself.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

TICK_S = 0.001
HERTZ = os.sysconf("SC_CLK_TCK")

keeping_the_interpreter = ctypes.PyDLL(None, use_errno=True)
"""To read an account without letting go of the interpreter, which another thread would take each time."""


@dataclass(slots=True)
class LoopWatch:
    """The longest time between two turns of the event loop."""

    longest_ms: float = 0.0
    """As the clock on the wall has it: everything that kept others waiting, the machine's other work too."""

    longest_busy_ms: float = 0.0
    """As the loop's own thread was at work meanwhile."""

    longest_own_ms: float = 0.0
    """As this process kept the loop away, with whichever of its threads."""


class _Kept:
    """How long this thread has been ready to run without a processor; 0 where the system does not tell."""

    def __init__(self) -> None:
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    def seconds(self) -> float:
        return int(os.pread(self._file, 100, 0).split()[1]) / 1e9 if self._file >= 0 else 0.0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class Processors:
    """The machine's account of each processor, where the system keeps one."""

    def __init__(self, account: Path = Path("/proc/stat")) -> None:
        self._buffer = ctypes.create_string_buffer(16_384)  # the lines of two hundred processors
        try:
            self._file = os.open(account, os.O_RDONLY)
        except OSError:
            self._file = -1
        self._stolen_s = self._read()

    def stolen_s(self) -> float:
        """How long the processor that was away longest was somebody else's since the last call, in hundredths."""
        before, self._stolen_s = self._stolen_s, self._read()
        return max((now - then for then, now in zip(before, self._stolen_s, strict=False)), default=0.0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _read(self) -> list[float]:
        size = keeping_the_interpreter.pread(self._file, self._buffer, len(self._buffer), ctypes.c_long(0))
        lines = (line.split() for line in self._buffer[: max(0, size)].splitlines())
        return [int(words[8]) / HERTZ for words in lines if len(words) > 8 and words[0][3:].isdigit()]


@asynccontextmanager
async def watched_loop() -> AsyncIterator[LoopWatch]:
    """Tick every millisecond while the block runs."""
    watch = LoopWatch()
    kept, processors = _Kept(), Processors()
    gc.collect()
    gc.freeze()

    async def tick() -> None:
        before = time.perf_counter(), time.thread_time(), time.process_time(), kept.seconds()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter(), time.thread_time(), time.process_time(), kept.seconds()
            wall, busy, process, ready = (1000 * (b - a) for a, b in zip(before, now, strict=True))
            watch.longest_ms = max(watch.longest_ms, wall)
            watch.longest_busy_ms = max(watch.longest_busy_ms, busy)
            stolen = 1000 * processors.stolen_s()
            watch.longest_own_ms = max(watch.longest_own_ms, min(wall - ready - stolen, process))
            before = now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0.005)
    watch.longest_ms = watch.longest_busy_ms = watch.longest_own_ms = 0.0
    try:
        yield watch
        await asyncio.sleep(0.002)  # the turn that ended the block counts as well
    finally:
        gc.unfreeze()
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
        kept.close()
        processors.close()
