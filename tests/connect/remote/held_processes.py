"""Processes that the kernel holds on their way out, as a file system that does not answer would hold them

A debugger does it here: a process that is killed stops when it is about to end, with its files open still, and those
that it forked are not told. They are still its own: where the kernel holds a process later, it has handed them over.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LIBC = ctypes.CDLL(None)
LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
LIBC.ptrace.restype = ctypes.c_long
PTRACE_CONT, PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 7, 0x4206, 0x40
WAIT_ALL = 0x40000000  # __WALL: also for who is not a child


@contextmanager
def held(pid: int) -> Iterator[None]:
    """If the process is killed meanwhile it stays until the end of this; then it is killed."""
    if LIBC.ptrace(PTRACE_SEIZE, pid, None, PTRACE_O_TRACEEXIT):
        pytest.skip("no process may be traced here")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        while os.WIFSTOPPED(os.waitpid(pid, WAIT_ALL)[1]):  # each stop on its way is to be let go by itself
            LIBC.ptrace(PTRACE_CONT, pid, None, None)
