"""The event loop of a process, and an end that nothing holds up

When the work of a process is done it ends. By themselves an event loop and an interpreter wait, as they close, for
every name look-up that a thread of theirs has begun, and the resolver may take half a minute for the name of a cluster
that was stopped together with its clients: longer than most supervisors wait before they kill.
"""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

CLOSE_TIMEOUT_S = 2.0
"""How long the loop may take to close once the work is done; without a look-up it takes milliseconds."""

FAILED = 1
"""Exit status of a process whose work raised."""


def run_process(main: Coroutine[Any, Any, int]) -> int:
    """Run the work of this process on an event loop of its own; returns its exit status.

    Raises what `main` raises. Where the loop cannot be closed in time, the process ends here with the same status, and
    with the traceback of what was raised.
    """
    runner = asyncio.Runner(loop_factory=_new_loop)
    try:
        status = runner.run(main)
    except BaseException:
        with _in_time(FAILED, traceback.format_exc()):
            runner.close()
        raise
    with _in_time(status):
        runner.close()
    return status


def _new_loop() -> asyncio.AbstractEventLoop:
    """Of uvloop; of the standard library where there is none (Windows)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@contextmanager
def _in_time(status: int, last_words: str = "") -> Iterator[None]:
    """End the process where this takes too long: an orderly end would wait for the same threads."""

    def end() -> None:
        sys.stderr.write(last_words)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    watch = threading.Timer(CLOSE_TIMEOUT_S, end)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
