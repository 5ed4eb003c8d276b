"""How much room a file system has

Asked of the operating system each time, because others write to the same disk. The call can hang with a network file
system that hangs, so ask from a worker thread.
"""

import os
from typing import NamedTuple


class DiskSpace(NamedTuple):
    """Bytes of a file system: all of them, and those that this process may still fill."""

    total_bytes: int
    usable_bytes: int


def disk_space(path: str) -> DiskSpace:
    """The room on the file system that holds `path`; raises OSError."""
    facts = os.statvfs(path)
    return DiskSpace(total_bytes=facts.f_blocks * facts.f_frsize, usable_bytes=facts.f_bavail * facts.f_frsize)
