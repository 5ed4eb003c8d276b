"""The process that makes tasks and all they started die with their worker

One per worker. It forks no task itself: it has nurseries do so (see `nurseries`, whose decisions it carries out) and
watches. So four promises hold, however anybody dies:

- The worker dies: the socket on standard input, whose other end only the worker has, ends. Everything is killed.
- The worker's lease is over, which others count on: its tasks are killed, be it alive, stopped or stuck. It tells how
  long the lease runs each time that it is renewed.
- A task dies: what it had started is killed, and the worker is told the task's own exit code or signal.
- The guardian is killed: the kernel kills the roots, and so nurseries and tasks, each with its parent.
  What tasks had started is killed by the worker, which finds it by a mark in its environment.

Killing means the whole tree. A task is a subreaper: what it started is below it however it daemonised, so that it can
be found and counted. When the task ends, the next subreaper is the guardian. Therefore whatever turns up among the
guardian's children and is no root of nurseries has lost its task, and is killed, child after child until there are
none left. Nobody has to know whose it was.

It does nothing that could get stuck: no threads, no locks, no network, and next to no imports. A task stuck in C code,
asleep, or with all its signals blocked is killed all the same.

Linux has all of this. Elsewhere the task's process group is killed, and the task itself watches for its parent.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Set
from typing import NoReturn

from tidemill.connect.remote import nurseries as n
from tidemill.connect.remote.orders import Facts, Line, OrderSocket, close_files
from tidemill.connect.remote.process_ties import (
    EXIT_LOST_PARENT,
    NAME_ROOM,
    adopt_orphans,
    children,
    end,
    end_trees,
    rename,
)
from tidemill.core.runtime.clock import seconds_since_boot

LIFELINE_FD = 0
STANDARD_OUTPUT = 1
NOTE_BYTES_MAX = 4096  # PIPE_BUF: a pipe that takes anything takes that much
POLL_MS = 1_000  # the longest a lost wake-up can delay anything
POLL_IN_TIME_MS = 100  # while something is waited for with a limit
READS_MAX = 1_000  # of what stands unread in a line; there is room for some hundreds, if each comes with files
SWEEP_S = 2.0  # for what has lost its task to be gone; what the kernel does not let go of by then is left behind
PAUSE_S = 0.001  # between two looks whether it is

IN_ENVIRONMENT = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[2]) if each not in sys.path]; "
    "from tidemill.connect.remote.nursery import main; main(sys.argv[1])"
)


def main() -> None:
    """Watch until the worker is gone."""
    adopt_orphans()
    rename("tidemill: guardian of tasks")
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a stop of the whole service is for the worker, which decides about tasks
    Guardian(OrderSocket(socket.socket(fileno=LIFELINE_FD))).run()


class Guardian:
    """Carries out what `Nurseries` decides."""

    def __init__(self, worker: OrderSocket) -> None:
        self._worker = worker
        self._machine = n.Nurseries()
        self._lines: dict[int, OrderSocket] = {}  # to nurseries
        self._files: dict[int, tuple[int, ...]] = {}  # of processes that are not forked yet
        self._orders: dict[int, Facts] = {}
        self._roots: dict[int, int] = {}  # processes of roots, by their numbers
        self._unsent: dict[int, deque[Line]] = {}  # orders for nurseries that there was no room for
        self._stuck: set[int] = set()  # killed, and not let go by the kernel
        self._ends: list[n.TellDied] = []
        self._notes = Notes(STANDARD_OUTPUT)
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> NoReturn:
        """Turn after turn; ends with the worker."""
        self._tell(n.Begun())
        while True:
            ready = self._wait()
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._collect()
            if self._worker.fileno() in ready:
                self._hear_worker()
            for number, line in list(self._lines.items()):
                if line.fileno() in ready:
                    self._hear_nursery(number, line)
            self._tell(n.Tick())
            self._send_rest()
            self._sweep()
            self._tell_ends()
            self._notes.catch_up()

    def _wait(self) -> set[int]:
        poll = select.poll()
        for fd in (self._wake, self._worker.fileno(), *(line.fileno() for line in self._lines.values())):
            poll.register(fd, select.POLLIN | select.POLLHUP)
        wait_ms = POLL_MS if self._machine.idle and not self._unsent else POLL_IN_TIME_MS
        lease_end = self._machine.lease_end
        if lease_end is not None:
            wait_ms = min(wait_ms, max(0, int((lease_end - seconds_since_boot()) * 1000) + 1))
        return {fd for fd, _ in poll.poll(wait_ms)}

    def _hear_worker(self) -> None:
        lines = self._worker.receive()
        if lines is None:
            self._end()
        for facts, files in lines:
            if facts["do"] == "lease":
                self._tell(n.Leased(facts["until"]))
                continue
            if facts["do"] == "let go":
                self._tell(n.Unneeded(facts["environment"]))
                continue
            number = facts["start"]
            if facts["do"] == "kill":
                self._tell(n.Unwanted(number))
                continue
            self._orders[number], self._files[number] = facts, files
            self._tell(n.Wanted(number, facts["plugin"], facts["leased"], facts["environment"]))

    def _hear_nursery(self, number: int, line: OrderSocket) -> bool:
        """Take in what has come from a nursery; whether anything has."""
        lines = line.receive()
        if lines is None:
            self._drop(number)
            self._tell(n.Lost(number))
            return False
        for facts, files in lines:
            match facts["said"]:
                case "ready":
                    self._tell(n.Ready(number))
                case "unfit":
                    self._tell(n.Unfit(number, facts["reason"]))
                case "stale":
                    self._files[facts["number"]] = files
                    self._tell(n.Stale(number, facts["number"]))
                case "killed":
                    self._tell(n.Killed(facts["number"]))
                case "died":
                    self._hear_last_words(facts["number"])
                    self._tell(n.Died(facts["number"], facts["status"], facts.get("reason", "")))
        return bool(lines)

    def _hear_last_words(self, number: int) -> None:
        """A nursery tells why it ends, and how its tasks did, on its own line, which may not have been read yet."""
        quiet = reads = 0
        while quiet < 2 and reads < READS_MAX and (line := self._lines.get(number)) is not None:
            reads += 1
            quiet = 0 if self._hear_nursery(number, line) else quiet + 1  # what came may have ended within a line

    def _tell(self, event: n.Event) -> None:
        for action in self._machine.step(event, seconds_since_boot()):
            self._do(action)

    def _do(self, action: n.Action) -> None:
        match action:
            case n.StartRoot(nursery, environment):
                self._start_root(nursery, environment)
            case n.ForkNursery(nursery, plugin, root):
                ours, theirs = socket.socketpair()
                self._lines[nursery] = _line(ours)
                self._order(root, {"do": "nursery", "number": nursery, "plugin": plugin}, (theirs.detach(),))
            case n.Fork(nursery, start):
                facts = {**self._orders[start], "do": "fork", "number": start}
                self._order(nursery, facts, self._files.pop(start))
            case n.Kill(nursery, number):
                self._order(nursery, {"do": "kill", "number": number})
            case n.KillRoot(nursery):
                if nursery in self._roots:
                    end_trees({self._roots[nursery]})
            case n.Release(nursery):
                self._drop(nursery)
            case n.TellDied():
                self._ends.append(action)
            case n.Note(text):
                self._notes.say(text)

    def _order(self, nursery: int, facts: Facts, files: tuple[int, ...] = ()) -> None:
        """Send an order, and files that are closed then; or keep it: who is busy forking reads nothing meanwhile."""
        if nursery not in self._lines:
            close_files(files)
            return
        self._unsent.setdefault(nursery, deque()).append(Line(facts, files))
        self._send(nursery)

    def _send(self, nursery: int) -> None:
        line, unsent = self._lines[nursery], self._unsent[nursery]
        with contextlib.suppress(OSError):  # no room, or it is gone, which is heard
            while unsent:
                line.send(*unsent[0])
                close_files(unsent.popleft().files)
            del self._unsent[nursery]

    def _send_rest(self) -> None:
        for nursery in list(self._unsent):
            self._send(nursery)

    def _drop(self, nursery: int) -> None:
        line = self._lines.pop(nursery, None)
        if line is not None:
            line.close()
        for order in self._unsent.pop(nursery, ()):
            close_files(order.files)
        self._roots.pop(nursery, None)  # a root without its line ends, or is ended as a stranger

    def _start_root(self, nursery: int, environment: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            python, *arguments = root_command(environment)
            given = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), LIFELINE_FD)]
            try:
                environ = root_environ(environment, os.environ)
                self._roots[nursery] = os.posix_spawn(python, [python, *arguments], environ, file_actions=given)
            except OSError as error:
                ours.close()
                self._do(n.Note(f"{python} cannot be started: {error.strerror}"))
                self._tell(n.Lost(nursery))
                return
        self._lines[nursery] = _line(ours)

    # ------------------------------------------------------------------- ends

    def _collect(self) -> None:
        """Let go of children that are dead."""
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._stuck.discard(pid)

    def _tell_ends(self) -> None:
        """Tell the worker who has ended; what they had started has been swept."""
        ends, self._ends = self._ends, []
        for told in ends:
            self._orders.pop(told.start, None)
            close_files(self._files.pop(told.start, ()))
            try:
                self._worker.send({"start": told.start, "status": told.status, "reason": told.reason})
            except OSError:
                self._end()

    def _sweep(self) -> None:
        """Kill all who have lost their task, and what they have started.

        In every turn: a nursery that dies closes its line before the kernel kills its tasks, and what they had started
        comes after that, when nothing more is told.
        """
        deadline = time.monotonic() + SWEEP_S
        ended: set[int] = set()
        while True:
            self._collect()
            strangers = children() - self._stuck - set(self._roots.values())
            if not strangers:
                return
            if time.monotonic() > deadline:
                self._stuck |= strangers & ended  # others that have come are for the next turn
                return
            _end_anew(strangers, ended)
            ended = strangers
            time.sleep(PAUSE_S)

    def _end(self) -> NoReturn:
        """The worker is gone: kill child after child, until there are none."""
        for number in list(self._lines):
            self._drop(number)  # nurseries end by that too, where /proc does not tell of children
        ended: set[int] = set()
        while True:
            found = children()
            _end_anew(found, ended)
            ended = found
            try:
                os.waitpid(-1, 0)  # what it has left of children is ours now, and killed in the next round
            except ChildProcessError:
                os._exit(EXIT_LOST_PARENT)
            self._collect()


def _end_anew(found: Set[int], ended: Set[int]) -> None:
    """Kill with all that is below them those that were not `ended` before; these once more, if they may be by now."""
    end_trees(found - ended)
    for pid in found & ended:
        end(pid)


def root_command(environment: str) -> list[str]:
    """The program of a root and its arguments.

    In an environment the worker's own packages, tidemill among them, come behind those of the environment. They are
    told at each start rather than written down in it: a worker that has moved, or was upgraded, brings its new ones.
    """
    if environment == n.WORKERS_OWN:
        return [sys.executable, "-P", "-u", "-m", "tidemill.connect.remote.nursery", NAME_ROOM]
    python = os.path.join(environment, "bin", "python")
    return [python, "-P", "-u", "-c", IN_ENVIRONMENT, environment, json.dumps(sys.path), NAME_ROOM]


def root_environ(environment: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of a root: what the worker's Python is told to import first is not for that of an environment."""
    if environment == n.WORKERS_OWN:
        return environ
    return {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


class Notes:
    """Lines for the worker's log, if there is room: a worker that stands still reads nothing, nor is it waited for.

    What found no room is counted, and told once there is some again. Whoever is forked from here prints into the same
    pipe, so it cannot be made one that never blocks.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._room = select.poll()
        self._room.register(pipe, select.POLLOUT)
        self._lost = 0

    def say(self, text: str) -> None:
        """Print a line, behind the word that others are missing."""
        self.catch_up()
        if self._lost or not self._printed(text):
            self._lost += 1

    def catch_up(self) -> None:
        """Tell how many lines are missing, if any are and there is room."""
        if self._lost and self._printed(f"lines of the guardian that found no room and are missing here: {self._lost}"):
            self._lost = 0

    def _printed(self, text: str) -> bool:
        if not self._room.poll(0):
            return False
        with contextlib.suppress(OSError):  # a worker that is gone is dealt with where that is heard
            os.write(self._pipe, text.encode("utf-8", "replace")[: NOTE_BYTES_MAX - 1] + b"\n")
        return True


def _line(ours: socket.socket) -> OrderSocket:
    ours.setblocking(False)
    return OrderSocket(ours)


if __name__ == "__main__":
    main()
