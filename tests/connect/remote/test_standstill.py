"""The watchdog of a process whose interpreter may stand still"""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.connect.remote.standstill import NONE, TOLD_S, Found, Watch, place

DUMP = """Timeout (0:00:12)!
Thread 0x00007f4e0c9ff6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 622 in wait

Thread 0x00007f4e0ddc5040 (most recent call first):
  File "/srv/a plugin.py", line 57 in hold
  File "/srv/a plugin.py", line 12 in poll
"""


GENERATOR = """Timeout (0:00:12)!
Thread 0x00007f4e0c9ff6c0 (most recent call first):
  File "/srv/bad.py", line 61 in hanger
  File "/lib/tidemill/connect/sdk.py", line 513 in _drive
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f4e0c9ff6c1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/lib/tidemill/connect/tasks/control.py", line 219 in wait_for_news
  File "/lib/tidemill/connect/remote/sdk.py", line 262 in _report

Thread 0x00007f4e0c9ff6c2 (most recent call first):
  File "/lib/tidemill/connect/remote/sdk.py", line 141 in _read
  File "/lib/tidemill/connect/remote/sdk.py", line 147 in _listen

Thread 0x00007f4e0ddc5040 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/lib/tidemill/connect/sdk.py", line 457 in poll
"""


def test_a_main_thread_that_waits_is_not_the_one() -> None:
    assert (
        place(GENERATOR) == "bad.py:61 in hanger, called from sdk.py:513 in _drive, called from threading.py:982 in run"
    )
    waiting = GENERATOR.partition("\n\n")[2]
    assert place(waiting) == "threading.py:331 in wait, called from sdk.py:457 in poll", "nobody else could be it"


SHARED = """Timeout (0:00:12)!
Thread 0x00007f4e0c9ff6c0 (most recent call first):
  File "/srv/bad.py", line 61 in hanger
  File "/lib/tidemill/connect/tasks/source.py", line 300 in _turn
  File "/lib/tidemill/connect/remote/shared_process.py", line 99 in _live

Thread 0x00007f4e0c9ff6c1 (most recent call first):
  File "/lib/tidemill/connect/remote/shared_process.py", line 120 in _report

Thread 0x00007f4e0ddc5040 (most recent call first):
  File "/lib/tidemill/connect/remote/link.py", line 80 in _read
  File "/lib/tidemill/connect/remote/shared_process.py", line 51 in _listen
"""


def test_the_first_thread_of_a_process_that_tasks_share_is_not_the_one() -> None:
    assert place(SHARED).startswith("bad.py:61 in hanger")


def program(text: str) -> str:
    return "from tidemill.connect.remote import standstill as s\nimport os, sys, time\n" + textwrap.dedent(text)


def test_the_main_thread_is_the_last_that_is_told() -> None:
    assert place(DUMP) == "a plugin.py:57 in hold, called from a plugin.py:12 in poll"
    assert place("") == "a place that is not told"


HOLDING = """
    watch = s.Standstill()
    def hold():
        print(watch.descriptor, flush=True)
        sum(range(300_000_000))
    hold()
    watch.beat()
    print("on", flush=True)
    sys.stdin.readline()
    watch.rest()
    print("resting", flush=True)
    sys.stdin.read()
"""


def looks(watch: Watch, pid: int, descriptor: int, times: range, *, stopped: bool = False) -> list[Found | None]:
    """One at each of these seconds."""
    return [watch.look(pid, descriptor, float(each), stopped=stopped) for each in times]


def asked_and_told(watch: Watch, pid: int, descriptor: int, at: int) -> Found | None:
    """What is found once the process has answered."""
    assert watch.look(pid, descriptor, float(at), stopped=False) is None, "it is asked first"
    until = time.monotonic() + 10
    found = None
    while (found is None or not found.text) and time.monotonic() < until:
        time.sleep(0.01)
        found = watch.look(pid, descriptor, float(at), stopped=False)
    return found


@contextmanager
def running(code: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program(code)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process, int(process.stdout.readline())
        process.stdin.close()
        process.stdout.read()
    assert process.returncode == 0


def test_a_process_tells_where_it_stands_still_and_that_it_goes_on() -> None:
    watch = Watch()
    with running(HOLDING) as (process, descriptor):
        assert process.stdin is not None and process.stdout is not None
        assert looks(watch, process.pid, descriptor, range(0, 12, 2)) == [None] * 6
        found = asked_and_told(watch, process.pid, descriptor, 12)
        assert found is not None and (found.still_s, " in hold" in place(found.text)) == (TOLD_S, True)
        assert process.stdout.readline() == "on\n"
        assert watch.look(process.pid, descriptor, 14, stopped=False) is None
        process.stdin.write("rest\n")
        process.stdin.flush()
        assert process.stdout.readline() == "resting\n"
        assert looks(watch, process.pid, descriptor, range(16, 60, 2)) == [None] * 22


def test_only_what_the_worker_has_looked_at_counts_and_nothing_of_a_stop() -> None:
    """Nobody is asked who may be running: reading the frames of threads that run can end a process."""
    watch = Watch()
    with running(HOLDING) as (process, descriptor):
        assert looks(watch, process.pid, descriptor, range(0, 8, 2)) == [None] * 4
        assert watch.look(process.pid, descriptor, 1000, stopped=False) is None, "a worker that was away for long"
        assert looks(watch, process.pid, descriptor, range(1002, 1040, 2), stopped=True) == [None] * 19
        assert looks(watch, process.pid, descriptor, range(1040, 1050, 2)) == [None] * 5
        assert process.poll() is None


def test_a_process_that_does_not_say_where_it_is_stands_still_all_the_same() -> None:
    code = """
    import signal
    watch = s.Standstill()
    signal.signal(s.ASK, signal.SIG_IGN)
    watch.beat()
    print(watch.descriptor, flush=True)
    sys.stdin.read()
    """
    watch = Watch()
    with running(code) as (process, descriptor):
        assert looks(watch, process.pid, descriptor, range(0, 14, 2)) == [None] * 7
        assert watch.look(process.pid, descriptor, 14, stopped=False) == Found(14.0, "")


def test_a_fork_in_between_ends_as_it_would_without() -> None:
    code = program(
        """
        watch = s.Standstill()
        watch.beat()
        child = os.fork()
        if child == 0:
            sys.exit(7)
        ended = os.waitpid(child, 0)[1]
        watch.beat()
        watch.rest()
        sys.exit(os.waitstatus_to_exitcode(ended))
        """
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 7


def test_a_file_that_has_taken_the_place_of_ours_is_let_be(tmp_path: Path) -> None:
    """A plugin that closes what it does not know, and opens something of its own: that is not emptied, and no dump."""
    code = f"""
        watch = s.Standstill()
        watch.beat()
        os.close(watch.descriptor)
        os.open({str(tmp_path / "precious")!r}, os.O_RDWR)
        watch.beat()
        print(watch.descriptor, flush=True)
        sys.stdin.read()
        """
    (tmp_path / "precious").write_text("data")
    with running(code) as (process, descriptor):
        assert os.readlink(f"/proc/{process.pid}/fd/{descriptor}") == str(tmp_path / "precious")
        assert looks(Watch(), process.pid, descriptor, range(0, 40, 2)) == [None] * 20
        assert process.poll() is None, "nor is it asked"
    assert (tmp_path / "precious").read_text() == "data"


def test_whoever_cannot_be_asked_tells_nothing() -> None:
    assert looks(Watch(), os.getpid(), NONE, range(0, 40, 2)) == [None] * 20
    assert looks(Watch(), 2**22 + 1, 5, range(0, 40, 2)) == [None] * 20
