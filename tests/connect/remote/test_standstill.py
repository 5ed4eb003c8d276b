"""The watchdog of a process whose interpreter may stand still"""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tidemill.connect.remote.standstill import NONE, look, place

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


def program(text: str) -> str:
    return "from tidemill.connect.remote import standstill as s\nimport os, sys, time, ctypes\n" + textwrap.dedent(text)


def test_the_main_thread_is_the_last_that_is_told() -> None:
    assert place(DUMP) == "a plugin.py:57 in hold, called from a plugin.py:12 in poll"
    assert place("") == "a place that is not told"


def test_a_process_tells_where_it_stands_still_and_that_it_goes_on(tmp_path: Path) -> None:
    code = program(
        """
        s.TOLD_S = 0.2
        watch = s.Standstill()
        watch.put_off()
        print(watch.descriptor, flush=True)
        def hold():
            ctypes.PyDLL(None).usleep(1_500_000)
        hold()
        watch.put_off()
        print("on", flush=True)
        sys.stdin.read()
        """
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        descriptor = int(process.stdout.readline())
        until = time.monotonic() + 10
        while (found := look(process.pid, descriptor)) is None and time.monotonic() < until:
            time.sleep(0.01)
        assert found is not None and " in hold" in place(found.text)
        assert process.stdout.readline() == "on\n"
        assert look(process.pid, descriptor) is None
        process.stdin.close()
    assert process.returncode == 0


def test_a_fork_in_between_ends_as_it_would_without() -> None:
    """The child has no watchdog to wait for; the parent's goes on."""
    code = program(
        """
        watch = s.Standstill()
        watch.put_off()
        child = os.fork()
        if child == 0:
            sys.exit(7)
        ended = os.waitpid(child, 0)[1]
        watch.rest()
        sys.exit(os.waitstatus_to_exitcode(ended))
        """
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 7


def test_a_file_that_has_taken_the_place_of_ours_is_let_be(tmp_path: Path) -> None:
    """A plugin that closes what it does not know, and opens something of its own: that is not emptied, and no dump."""
    code = program(
        f"""
        watch = s.Standstill()
        watch.put_off()
        os.close(watch.descriptor)
        os.open({str(tmp_path / "precious")!r}, os.O_RDWR)
        watch.put_off()
        print(watch.descriptor, flush=True)
        sys.stdin.read()
        """
    )
    (tmp_path / "precious").write_text("data")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        descriptor = int(process.stdout.readline())
        assert os.readlink(f"/proc/{process.pid}/fd/{descriptor}") == str(tmp_path / "precious")
        assert look(process.pid, descriptor) is None
        process.stdin.close()
    assert (tmp_path / "precious").read_text() == "data"


def test_whoever_cannot_be_asked_tells_nothing() -> None:
    assert look(os.getpid(), NONE) is None
    assert look(2**22 + 1, 5) is None
