"""Whether processes run in a plugin environment

Who runs in one holds a shared lock on the file that describes it; a process that is forked has it from its parent, and
the kernel lets go of it with the last of them, however they end. Who wants to remove the environment asks for the lock
alone. So it can be told on the machine, without a worker that answers.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

DESCRIPTION = "tidemill-plugin.json"
"""The file in an environment that says what is in it; it is written last."""


def hold(environment: str) -> int:
    """Use an environment until the returned file is closed, in this process and all that are forked from it."""
    while True:
        file = os.open(os.path.join(environment, DESCRIPTION), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_SH)
        if is_still(file, environment):
            return file
        os.close(file)  # it was removed before the lock was there


def is_still(file: int, environment: str) -> bool:
    """Whether what is held is what is there now: it may have been removed by force, and another put in its place."""
    try:
        there = os.stat(os.path.join(environment, DESCRIPTION))
    except OSError:
        return False
    return os.path.samestat(os.fstat(file), there)


@contextlib.contextmanager
def alone(environment: str) -> Iterator[bool]:
    """Whether nobody uses it, and if so, nobody begins to before the context is left; as nobody does what is not there.

    Who comes meanwhile waits, and then finds what has become of it.
    """
    try:
        file = os.open(os.path.join(environment, DESCRIPTION), os.O_RDWR | os.O_CLOEXEC)  # NFS asks for that
    except FileNotFoundError:
        yield True
        return
    try:
        yield _locked(file)
    finally:
        os.close(file)


def is_held(environment: str) -> bool:
    """Whether anybody uses it."""
    with alone(environment) as nobody:
        return not nobody


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
