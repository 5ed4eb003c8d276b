"""Whether processes run in a plugin environment

Who runs in one holds a shared lock on the file that describes it; a process that is forked has it from its parent, and
the kernel lets go of it with the last of them, however they end. Who wants to remove the environment asks for the lock
alone. So it can be told on the machine, without a worker that answers.
"""

import fcntl
import os

DESCRIPTION = "tidemill-plugin.json"
"""The file in an environment that says what is in it; it is written last."""


def hold(environment: str) -> int:
    """Use an environment until the returned file is closed, in this process and all that are forked from it."""
    file = os.open(os.path.join(environment, DESCRIPTION), os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def is_held(environment: str) -> bool:
    """Whether anybody uses it."""
    file = os.open(os.path.join(environment, DESCRIPTION), os.O_RDWR | os.O_CLOEXEC)  # NFS asks for that
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
