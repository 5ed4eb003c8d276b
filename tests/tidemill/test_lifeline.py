"""A process with a lifeline dies when the pipe ends, one without keeps its standard input"""

import os
import signal
import subprocess
import sys

from tidemill import lifeline

PROGRAM = (
    "import os, sys, time\n"
    "from tidemill import lifeline\n"
    "lifeline.hold()\n"
    "print(os.environ.get(lifeline.VARIABLE), flush=True)\n"
    "if sys.argv[1:] == ['reads']: print(sys.stdin.read())\n"
    "else: time.sleep(600)\n"
)


def start(*arguments: str, tied: bool) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, lifeline.VARIABLE: "1"} if tied else dict(os.environ)
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)


def test_the_end_of_the_pipe_ends_the_process() -> None:
    with start(tied=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"None\n"  # nothing is left for the processes it starts
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(30) == -signal.SIGKILL


def test_without_a_lifeline_standard_input_is_input() -> None:
    with start("reads", tied=False) as process:
        output, _ = process.communicate(b"some lines", timeout=30)
    assert (process.returncode, output) == (0, b"None\nsome lines\n")
