"""A process whose work is done ends, with its status and all it has said, whatever its threads still wait for"""

import subprocess
import sys

import pytest

from tidemill.core.runtime.main_loop import run_process

STUCK_S = 60
PROGRAM = f"""
import asyncio, sys, time
from tidemill.core.runtime.main_loop import run_process

async def work():
    if "stuck" in sys.argv:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, {STUCK_S})
    print("done", end="")
    if "fails" in sys.argv:
        raise ValueError("this went wrong")
    return 7

sys.exit(run_process(work()))
"""


def run(*arguments: str) -> tuple[int, str, str]:
    """Status, output and errors of the program."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STUCK_S / 2, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("how", [(), ("stuck",)], ids=["at ease", "stuck"])
def test_the_status_is_that_of_the_work(how: tuple[str, ...]) -> None:
    assert run(*how) == (7, "done", "")


@pytest.mark.parametrize("how", [(), ("stuck",)], ids=["at ease", "stuck"])
def test_what_the_work_raises_is_shown(how: tuple[str, ...]) -> None:
    status, output, errors = run("fails", *how)
    assert (status, output) == (1, "done")
    assert errors.endswith("ValueError: this went wrong\n")


def test_the_caller_goes_on() -> None:
    async def work() -> int:
        return 3

    assert run_process(work()) == 3
