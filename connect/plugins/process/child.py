"""A program and its three pipes

Both pipes of the protocol are turned at the same time: a program that writes before it has read everything, or reads
slowly, blocks nobody. Its standard error is read on a thread of its own, for as long as it lives, because a program
whose prints nobody reads stops in the middle of one.

It is over when its process is, whoever else may still hold its pipes. It is the leader of a session, so that whatever
it starts ends with it. What has left the session is known by a mark of its own in the environment, and ends as well;
only what has emptied that, too, gets away. And all of them have the mark of the worker's guardian in their environment,
which ends them when the task itself is killed.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tidemill.connect.plugins.process.output_lines import OutputLines

READ_BYTES = 1 << 18
WRITE_BYTES = 1 << 16  # a pipe's room
LAST_OUTPUT_S = 0.5  # for what was printed before an end to be read
ENDING_S = 1.0  # for a process that has closed its output to end, too


MARK = "TIDEMILL_PLUGIN_RUN"
SWEEPS = 10  # through all processes: what begets faster than it is killed is let be
PAUSE_S = 0.005  # between them


class CannotStart(Exception):
    """There is no such program, or it may not be run."""


class Child:
    """One run of a program; `heed` is given its lines, on another thread."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], heed: Callable[[str], object]) -> None:
        self._heed = heed
        self._lines = OutputLines()
        run = uuid.uuid4().hex
        self._mark = f"{MARK}={run}"
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env={**environment, MARK: run},
            )
        except FileNotFoundError:
            raise CannotStart(
                f"there is no program {command[0]!r} on this worker: install it on every worker, or name its whole path"
            ) from None
        except PermissionError:
            raise CannotStart(
                f"{command[0]!r} may not be run by the worker's user: is it a program (chmod +x)?"
            ) from None
        except (OSError, ValueError) as error:
            raise CannotStart(f"{command[0]!r} cannot be run: {error}") from error
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._out, select.POLLIN)
        self._writable.register(self._out, select.POLLIN)
        self._writable.register(self._in, select.POLLOUT)
        self._released, self._release = os.pipe()  # the end of this one ends the reader
        self._reader = threading.Thread(target=self._relay, args=(process.stderr.fileno(),), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def turn(self, unsent: memoryview, wait_s: float) -> tuple[int, bytes | None]:
        """Write what there is room for and read what is there, waiting for either.

        How many bytes were written, and those that were read: None for nothing yet, empty at the end.
        """
        over = self._process.poll() is not None  # asked first: what it said before its end is still read
        ready = dict((self._writable if unsent else self._readable).poll(0 if over else max(0.0, wait_s) * 1000))
        sent = 0
        if ready.get(self._in):
            try:
                sent = os.write(self._in, unsent[:WRITE_BYTES])
            except BlockingIOError:
                pass
            except OSError:  # it reads no more: what it says, or its end, tells why
                sent = len(unsent)
        if not ready.get(self._out):
            return sent, b"" if over else None  # something that it has started may hold its output for ever
        try:
            return sent, os.read(self._out, READ_BYTES)
        except BlockingIOError:
            return sent, None

    def close_input(self) -> None:
        """Nothing more is asked: a program that waits for the next request sees the end."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def ended_within(self, seconds: float) -> bool:
        """Whether the process is gone, waiting for that."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """Leave nothing behind: neither the program nor what it had started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end_escaped()
        self.close_input()
        self.ended_within(ENDING_S)  # all but always at once; one that has changed its user cannot be killed
        self._reader.join(LAST_OUTPUT_S)
        if self._release >= 0:  # whoever has left the session may hold its standard error for ever
            os.close(self._release)
            self._release = -1
            self._reader.join(LAST_OUTPUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._process.stderr is not None and not self._reader.is_alive():
            self._process.stderr.close()

    def _end_escaped(self) -> None:
        """Kill what it has started that is in another session."""
        for _ in range(SWEEPS):
            escaped = [pid for pid in _started_with(self._mark) if pid != self.pid]
            for pid in escaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not escaped:
                return
            time.sleep(PAUSE_S)

    def last_words(self) -> str:
        """The end of what it has printed, once that is read."""
        self._reader.join(LAST_OUTPUT_S)
        return self._lines.last_words()

    def ending(self) -> str:
        """How it has ended."""
        if not self.ended_within(ENDING_S):
            return "has closed its standard output and runs on"
        code = self._process.returncode
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
            return f"was killed by signal {-code}"
        return f"has ended with exit status {code}"

    def _relay(self, pipe: int) -> None:
        with contextlib.suppress(OSError):
            for data in self._printed(pipe):
                self._say(self._lines.take(data, time.monotonic()))
        os.close(self._released)
        self._say(self._lines.end(time.monotonic()))

    def _printed(self, pipe: int) -> Iterator[bytes]:
        """What comes until the end of it, or until nobody wants it any more."""
        readable = select.poll()
        readable.register(pipe, select.POLLIN)
        readable.register(self._released, select.POLLIN)
        while self._released not in dict(readable.poll()) and (data := os.read(pipe, READ_BYTES)):
            yield data

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            with contextlib.suppress(OSError, ValueError):  # nobody reads the task's output any more
                self._heed(line)


def _started_with(mark: str) -> Iterator[int]:
    """Processes that have the mark in their environment, where /proc tells; those that are dead have none."""
    wanted = mark.encode()
    with contextlib.suppress(OSError):  # there is no /proc
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
                if name.isdigit() and wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    yield int(name)
