"""A process that dies with its parent"""

import os
import signal
import subprocess
import sys

import pytest

from tests.spark_sink.conftest import poll
from tidemill.spark_sink.lifeline import ParentGone, die_with_parent

CHILD = """
import os, sys, time
from tidemill.spark_sink.lifeline import die_with_parent
die_with_parent(int(sys.argv[1]))
print("tied", os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())]).wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_killing_the_parent_kills_the_child() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        word, pid = parent.stdout.readline().split()
        assert word == "tied"
        parent.send_signal(signal.SIGKILL)
        poll(lambda: not alive(int(pid)), "the child's end", 10)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_parent_that_is_gone_already() -> None:
    script = (
        "from tidemill.spark_sink.lifeline import *\n"
        "try: die_with_parent(1234567)\n"
        "except ParentGone as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "the supervising process 1234567 is gone\n"
    assert issubclass(ParentGone, RuntimeError)
    assert callable(die_with_parent)
    assert os.getppid() != 1234567
