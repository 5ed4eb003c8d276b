"""What the kernel does for processes that are tied together"""

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.connect.remote.held_processes import held
from tidemill.connect.remote import process_ties as ties

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers and /proc are Linux's")

DEADLINE_S = 20.0


def run(program: str, *arguments: str) -> str:
    """What a program prints that may tie itself to others."""
    command = [sys.executable, "-c", f"from tidemill.connect.remote import process_ties as ties\n{program}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_was_started_with_a_mark_is_found_by_it() -> None:
    environ = {**os.environ, "TIDEMILL_MARK": "mark-of-this-test"}
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, env=environ) as shell:
        assert shell.stdout is not None
        started = {shell.pid, int(shell.stdout.readline())}
        assert set(ties.marked("TIDEMILL_MARK=mark-of-this-test")) == started
        assert not set(ties.marked("TIDEMILL_MARK=mark-of-this"))
        for pid in started:
            os.kill(pid, signal.SIGKILL)
    until(lambda: not set(ties.marked("TIDEMILL_MARK=mark-of-this-test")))


FAMILY = """
import os, subprocess, threading, time
def start():
    child = subprocess.Popen(["sh", "-c", "echo $$; (setsid sh -c 'echo $$; sleep 60'); wait"], start_new_session=True)
    child.wait()
start_too = threading.Thread(target=start)
start_too.start()
start()
"""


@pytest.fixture(params=["children are listed", "all are asked for their parents"])
def lists_children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ties, "LISTS_CHILDREN", request.param == "children are listed" and ties.LISTS_CHILDREN)


@contextmanager
def killed_at_last(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("lists_children")
def test_all_that_is_below_a_process_is_killed_though_the_kernel_holds_it() -> None:
    """Whichever thread has started it, and whatever group it is in."""
    with (
        killed_at_last(subprocess.Popen(["sleep", "60"])) as other,
        killed_at_last(subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)) as top,
    ):
        assert top.stdout is not None
        below = {int(top.stdout.readline()) for _ in range(4)}
        children = ties.children_of({top.pid})
        assert len(children) == 2 and children < below
        with held(top.pid):
            ties.end_trees({top.pid})
            until(lambda: all(map(is_dead, below)))
            assert not is_dead(top.pid) and not is_dead(other.pid)


FORKS_ONCE_MORE = """
import os, subprocess
os.read(0, 1)
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
os.read(0, 1)
"""


@pytest.mark.usefixtures("lists_children")
def test_what_is_forked_between_the_look_and_the_kill_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = subprocess.PIPE
    with killed_at_last(subprocess.Popen([sys.executable, "-c", FORKS_ONCE_MORE], stdin=pipe, stdout=pipe)) as top:
        assert top.stdin is not None and top.stdout is not None
        stdin, stdout = top.stdin, top.stdout
        late: list[int] = []
        end = ties.end

        def forked_and_killed(pid: int) -> None:
            if not late:
                stdin.write(b"x")
                stdin.flush()
                late.append(int(stdout.readline()))
            end(pid)

        monkeypatch.setattr(ties, "end", forked_and_killed)
        with held(top.pid):
            ties.end_trees({top.pid})
            until(lambda: is_dead(late[0]))
            assert not is_dead(top.pid)


def test_who_begets_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the child of a process that may not be killed, which forks."""
    numbers = itertools.count(1)
    monkeypatch.setattr(ties, "TREES_S", 0.05)
    monkeypatch.setattr(ties, "end", lambda pid: None)
    monkeypatch.setattr(ties, "children_of", lambda processes: {next(numbers)})
    ties.end_trees({os.getpid()})
    assert next(numbers) > 2


HOLDER = """
import ctypes, fcntl, sys, threading, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
memory = bytearray(b"x") * 500_000_000  # takes the kernel its time, before it lets go of the file
threading.Thread(target=time.sleep, args=(60,)).start()
print("held", flush=True)
if sys.argv[2] == "another thread":
    ctypes.CDLL(None).pthread_exit(None)
time.sleep(60)
"""


@pytest.mark.parametrize("last", ["the first thread", "another thread"])
def test_what_is_gone_holds_nothing_any_more(tmp_path: Path, last: str) -> None:
    """Of a process with several threads the first may end before the others, which hold what it has."""
    file = tmp_path / "lock"
    file.touch()
    environ = {**os.environ, "TIDEMILL_MARK": "holder-of-this-test"}
    command = [sys.executable, "-c", HOLDER, str(file), last]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as holder, file.open() as ours:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
            if last == "another thread":
                until(lambda: psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE)
            remains = ties.Remains("TIDEMILL_MARK=holder-of-this-test")
            assert not remains.end()
            until(remains.end)
            fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            holder.kill()


def test_a_process_of_another_user_is_let_be() -> None:
    assert run("import os\nos.getuid() or os.setuid(65534)\nties.end(1)\nprint('still here')") == "still here\n"


def test_children_are_found_and_no_grandchildren() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        found = ties.children()
        os.kill(grandchild, signal.SIGKILL)
    assert shell.pid in found and grandchild not in found


DAEMONS = """
import os, subprocess, time
ties.adopt_orphans()
read, write = os.pipe()
middle = os.fork()
if middle == 0:
    os.setsid()
    daemon = os.fork()
    if daemon == 0:
        os.read(read, 1)
    else:
        os.write(1, f"{daemon} ".encode())
    os._exit(0)
os.waitpid(middle, 0)
(daemon,) = ties.children()
ours = subprocess.Popen(["true"], start_new_session=True)
os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
ties.collect_adopted()
print(daemon, sorted(ties.children()) == sorted([daemon, ours.pid]))
os.write(write, b"x")
while daemon in ties.children():
    ties.collect_adopted()
    time.sleep(0.01)
print(list(ties.children()) == [ours.pid], ours.wait())
ties.collect_adopted()
"""


def test_daemons_are_adopted_and_let_go_when_they_end() -> None:
    """What the process started itself is left to whoever waits for it."""
    told, adopted, both, ours, status = run(DAEMONS).split()
    assert adopted == told
    assert (both, ours, status) == ("True", "True", "0")


def test_a_name_shows_in_lists_of_processes(tmp_path: Path) -> None:
    program = (
        "ties.rename('tidemill: task a-0')\n"
        "print(open('/proc/self/cmdline').read().rstrip(chr(0)), open('/proc/self/comm').read(), sep='|')\n"
        "ties.rename('x' * 5000)\nprint(open('/proc/self/cmdline').read().count('x'))"
    )
    shown, _, rest = run(program, ties.NAME_ROOM).partition("|")
    assert shown == "tidemill: task a-0"
    assert rest.startswith("tidemill: task ")
    assert 100 < int(rest.split()[-1]) < 5000, "as much as there is room"


def test_a_process_dies_with_its_parent() -> None:
    program = (
        "import os, time\nparent = os.getpid()\nchild = os.fork()\n"
        "if child == 0:\n    ties.die_with_parent(parent)\n    time.sleep(600)\n"
        "print(child, flush=True)\ntime.sleep(0.5)\nos._exit(0)"
    )
    child = int(run(program))
    until(lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text())


def test_whose_parent_is_gone_already_does_not_begin() -> None:
    program = "import os\nprint('here', flush=True)\nties.die_with_parent(os.getppid() + 1)\nprint('never')"
    command = [sys.executable, "-c", f"from tidemill.connect.remote import process_ties as ties\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (ties.EXIT_LOST_PARENT, "here\n")


def test_threads_are_counted() -> None:
    program = "import threading\nprint(ties.threads())\nwait = threading.Event().wait\n"
    program += "threading.Thread(target=wait, daemon=True).start()\n"
    assert run(program + "print(ties.threads())").split() == ["1", "2"]
