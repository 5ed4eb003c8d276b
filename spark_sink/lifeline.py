"""A job that does not outlive the program that supervises it

The kernel is asked to kill this process when its parent dies (Linux). Asking comes a moment after the start, so the
parent may be gone already; comparing its process id closes that gap. The JVM needs no such care: it reads from a pipe
that this process holds open and exits when it ends.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


class ParentGone(RuntimeError):
    """The supervisor died before the job had started."""


def die_with_parent(parent_pid: int) -> None:
    """Tie this process to its parent; raises ParentGone when that is not `parent_pid` any more."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        raise ParentGone(f"the supervising process {parent_pid} is gone")
