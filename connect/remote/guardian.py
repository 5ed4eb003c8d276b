"""The process that makes a task and all it started die together

The worker starts this small program, not the task itself. It forks: the child becomes the task, the parent stays
behind and does nothing but watch. So three promises hold, however anybody dies:

- The worker dies: the pipe on standard input, held open by the worker alone, ends. The guardian kills the task.
- The task dies: the guardian kills whatever the task had started and ends the way the task ended, so the worker sees
  the task's own exit code or signal.
- The guardian is killed: the kernel kills the task (parent-death signal).

Killing means the whole tree. The guardian is a subreaper, so a grandchild whose parent is gone becomes its child
however it daemonised; it kills its children until there are none left. It does nothing that could get stuck: no
threads, no locks, no network. A task stuck in C code, asleep, or with all its signals blocked is killed all the same.

Linux has all of this. Elsewhere the task's process group is killed, and the task itself watches for its parent.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

LIFELINE_FD = 0
POLL_MS = 1_000  # how often orphans are reaped, and the longest a lost wake-up can delay anything

EXIT_LOST_PARENT = 75  # as task_spec.EXIT_LOST_WORKER, which is not imported: the guardian stays small


def main() -> None:
    """Read the hand-over line, fork, watch."""
    # Text that needs no parser: the guardian must not import more than it has to.
    socket_path, _, token = _read_line(LIFELINE_FD).rpartition(" ")
    if not socket_path:
        raise SystemExit(EXIT_LOST_PARENT)
    guardian = os.getpid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    task = os.fork()
    if task == 0:
        _become_task(guardian)
        from tidemill.core.runtime import lean_structlog

        lean_structlog.load()  # before all else that a task imports
        from tidemill.connect.remote.sdk import run

        raise SystemExit(run(socket_path, token))
    _watch(task)


def _read_line(fd: int) -> str:
    """Read one line byte by byte, so that nothing behind it is taken from the pipe."""
    line = bytearray()
    while (byte := os.read(fd, 1)) not in (b"\n", b""):
        line += byte
    return line.decode()


def _become_task(guardian: int) -> None:
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guardian:  # it died before the line above
        os._exit(EXIT_LOST_PARENT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, LIFELINE_FD)
    os.close(nothing)
    # A stop of the whole service signals every process of it; the worker alone then decides when a task stops. A
    # handler, unlike SIG_IGN, is not passed on to programs that the task starts.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, _leave_it_to_the_worker)


def _leave_it_to_the_worker(signal_number: int, frame: FrameType | None) -> None:
    """A signal that is meant for the worker."""


def _watch(task: int) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(LIFELINE_FD, select.POLLIN | select.POLLHUP)
    poll.register(wake_read, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll(POLL_MS)}
        if wake_read in ready:
            os.read(wake_read, 4096)
        status = _reap(task)
        if status is not None:
            kill_children(task)
            _end_like(status)
        if LIFELINE_FD in ready and not os.read(LIFELINE_FD, 4096):
            kill_children(task)
            os._exit(EXIT_LOST_PARENT)


def _reap(task: int) -> int | None:
    """Collect the dead; the wait status of the task once it is among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return None
            if pid == task:
                return status
    return None


def kill_children(group: int) -> None:
    """Kill the process group of the task, then child after child, until this process has none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)  # its children become ours now, and are killed in the next round
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    """The children of this process, where /proc tells."""
    me = os.getpid()
    try:
        entries = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return
    for name in entries:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command's name, in brackets, may hold anything; state and parent follow the last bracket.
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile
        if parent == me:
            yield int(name)


def _end_like(status: int) -> None:
    """End with the same exit code or by the same signal as the task."""
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the task has dumped its own core, if any
    number = os.WTERMSIG(status)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


if __name__ == "__main__":
    main()
