"""Which clients of librdkafka this process has: those that nobody let go of take threads and connections"""

import contextlib
import os
import time
from pathlib import Path


def clients() -> set[str]:
    """The main thread of each, by its number (Linux)."""
    found = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/self/task/{thread}/comm").read_text().startswith("rdk:main"):
                found.add(thread)
    return found


def no_more_than(before: set[str], timeout_s: float = 20) -> bool:
    """Wait until all others have gone, at most that long; whether they have."""
    until = time.monotonic() + timeout_s
    while clients() - before and time.monotonic() < until:
        time.sleep(0.02)
    return not clients() - before
