"""Processes that are forked elsewhere, for the worker

The worker's end of its guardian: it asks for processes and is told how they ended. Each is connected to the worker by
a pipe with what it prints and by a stream for messages; both are made here and handed on. What the guardian promises
is said there. If it is gone itself, so are all it had forked, and another takes its place when one is needed. The
kernel sees to that, but not to what tasks had started, which is then killed from here: all below a guardian have its
mark in their environment.
"""

import array
import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from tidemill.connect.remote.orders import LineReader, encode
from tidemill.connect.remote.process_ties import NAME_ROOM, Remains

log = structlog.get_logger("tidemill.connect.host")

OUTPUT_LINE_MAX = 64 * 1024  # longer lines are cut, as journald does
BUSY_S = 0.005  # before an order is tried again that the guardian had no room for
LINES_AT_ONCE = 100  # before others have their turn: what is there already is read without one
LAST_OUTPUT_S = 1.0  # for what was printed before an end to be read
MARK = "TIDEMILL_GUARDIAN"
FAREWELL_S = 5.0  # for the guardian to end after the last process it looked after

# -P: modules in the folder that the worker was started in are not the standard library's
_PROGRAM = ("-P", "-u", "-m", "tidemill.connect.remote.guardian", NAME_ROOM)


@dataclass(slots=True, eq=False)
class Guarded:
    """A process that was asked for."""

    output: asyncio.StreamReader
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    guardian: "_Guardian"
    number: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    returncode: int | None = None  # as `subprocess` has it
    reason: str = ""  # why it ended, where the guardian knows more than the kernel

    def kill(self) -> None:
        """Have it killed, with all it started."""
        if not self.gone.is_set():
            self.guardian.order({"do": "kill", "start": self.number})

    def kill_guardian(self) -> None:
        """When it does not do its work: the kernel then kills all that it had forked."""
        self.guardian.kill()

    def ended(self, status: int, reason: str = "") -> None:
        """It is gone."""
        self.returncode, self.reason = os.waitstatus_to_exitcode(status), reason
        self.gone.set()


class Guardians:
    """The guardian of a worker, and its successor when it dies."""

    def __init__(self, environ: Mapping[str, str], tasks: asyncio.TaskGroup, inherited: Sequence[int] = ()) -> None:
        self._environ = environ
        self._tasks = tasks
        self._inherited = tuple(inherited)  # files that are open for as long as anything runs
        self._lease_until_s: float | None = None
        self._current: _Guardian | None = None
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def start(self, label: str, plugin: str, *, leased: bool = False, environment: str = "") -> Guarded:
        """Ask for a process; one that is leased does not outlive the lease. No environment is the worker's own."""
        guardian = await self.ready()
        facts = {"label": label, "plugin": plugin, "leased": leased, "environment": environment}
        return await guardian.start(next(self._numbers), facts)

    def lease(self, until_s: float) -> None:
        """When all that is leased has to be gone, in seconds since boot; a later word moves it."""
        self._lease_until_s = until_s
        if self._current is not None:
            self._current.lease(until_s)

    def let_go(self, environment: str) -> None:
        """Have nothing stay ready in an environment for processes that will not be wanted."""
        if self._current is not None:
            self._current.order({"do": "let go", "environment": environment})

    async def ready(self) -> "_Guardian":
        """The guardian, started if there is none."""
        async with self._starting:
            if self._current is None or self._current.gone.is_set():
                self._current = await _Guardian.open(self._environ, self._tasks, self._inherited)
                if self._lease_until_s is not None:
                    self._current.lease(self._lease_until_s)
            return self._current

    async def close(self) -> None:
        """Let go of it; nothing it has forked lives on."""
        if self._current is not None:
            await self._current.close()


class _Guardian:
    """One guardian process."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket, mark: str) -> None:
        self.gone = asyncio.Event()
        self._mark = mark
        self._process = process
        self._end = end
        self._guarded: dict[int, Guarded] = {}
        self._orders: asyncio.Queue[tuple[bytes, tuple[int, ...]]] = asyncio.Queue()  # two for each process

    @classmethod
    async def open(cls, environ: Mapping[str, str], tasks: asyncio.TaskGroup, inherited: Sequence[int]) -> "_Guardian":
        ours, theirs = socket.socketpair()
        mark = secrets.token_hex(16)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_PROGRAM,
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the worker's terminal is for the worker
                env={**environ, MARK: mark},
                pass_fds=inherited,
                limit=OUTPUT_LINE_MAX,
            )
        ours.setblocking(False)
        guardian = cls(process, ours, f"{MARK}={mark}")
        tasks.create_task(guardian._run(), name="guardian")
        return guardian

    def lease(self, until_s: float) -> None:
        """Tell it when all that is leased has to be gone."""
        self.order({"do": "lease", "until": until_s})

    async def start(self, number: int, facts: Mapping[str, object]) -> Guarded:
        """Ask for a process and connect to it."""
        output, output_end = os.pipe()
        stream, stream_end = socket.socketpair()
        files = (output_end, stream_end.detach())
        try:
            reader, writer = await asyncio.open_connection(sock=stream)
            guarded = Guarded(await _read_pipe(output), reader, writer, self, number)
        except BaseException:
            _close(files)
            raise
        self._guarded[number] = guarded  # before it is ordered: its end may be told at once
        self.order({**facts, "do": "start", "start": number}, files)
        if self.gone.is_set():
            guarded.ended(signal.SIGKILL)
        return guarded

    def order(self, facts: Mapping[str, object], files: tuple[int, ...] = ()) -> None:
        """Send an order, after those before it; nobody is left to obey one that comes too late."""
        if self.gone.is_set():
            _close(files)
        else:
            self._orders.put_nowait((encode(dict(facts), files), files))

    def kill(self) -> None:
        """End the process itself."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """End the guardian, and with it whatever it has forked."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self.gone.wait()
        except TimeoutError:
            self.kill()
            await self.gone.wait()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as work:
                helpers = [work.create_task(self._send_orders()), work.create_task(self._relay_output())]
                await self._hear()
                await self._process.wait()
                await asyncio.wait(helpers[1:], timeout=LAST_OUTPUT_S)
                for helper in helpers:
                    helper.cancel()
        finally:
            self.kill()
            self._end.close()
            await self._end_what_is_left()
            self.gone.set()
            while not self._orders.empty():
                _close(self._orders.get_nowait()[1])
            for guarded in self._guarded.values():
                guarded.ended(signal.SIGKILL, "killed by SIGKILL together with the guardian of all tasks")
            self._guarded.clear()

    async def _end_what_is_left(self) -> None:
        """Kill all that was ever started below it, and wait until it is gone: whoever hears so may start it again."""
        remains, until_s = Remains(self._mark), time.monotonic() + FAREWELL_S
        while not remains.end() and time.monotonic() < until_s:  # noqa: ASYNC110  (only the kernel knows)
            await asyncio.sleep(BUSY_S)  # one that is killed while there is no processor for it takes its time to die

    async def _send_orders(self) -> None:
        while True:
            data, files = await self._orders.get()
            try:
                await self._send(data, files)
            except OSError:
                self.kill()  # it is gone, or there is no way to tell it anything any more; its end shows
                return
            finally:
                _close(files)

    async def _send(self, data: bytes, files: tuple[int, ...]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        while data:
            try:
                data = data[self._end.sendmsg([data], rights) :]
                rights = []
            except BlockingIOError:
                await asyncio.sleep(BUSY_S)

    async def _hear(self) -> None:
        reader = LineReader()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while data := await loop.sock_recv(self._end, 1 << 16):
                for facts, _ in reader.take(data):
                    guarded = self._guarded.pop(facts["start"], None)
                    if guarded is not None:
                        guarded.ended(facts["status"], facts["reason"])

    async def _relay_output(self) -> None:
        """What is printed by processes that are no tasks, such as plugins at import."""
        assert self._process.stdout is not None
        async for line in lines(self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                log.info("output outside of tasks", line=line)


async def lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of an output."""
    for number in itertools.count(1):
        if number % LINES_AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit; the reader has dropped it
            line = b"(a line that is too long was left out)\n"
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip()


async def _read_pipe(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=OUTPUT_LINE_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader


def _close(files: tuple[int, ...]) -> None:
    for each in files:
        os.close(each)
