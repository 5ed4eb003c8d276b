"""How long a thread of this process has been at work

At work is who has a processor or waits for one; who waits for anything else is not. So a thread that computes is told
from one at rest also on a machine where it hardly ever has its turn. The kernel's figures stand in /proc, where a
thread that has ended simply has none; to ask for its clock would be a fault of memory then. Linux; elsewhere nobody
knows, and every thread seems to rest.
"""

import os

NANOSECONDS = 1_000_000_000


def busy_s(native_id: int) -> float:
    """Seconds; 0 for a thread that is gone, or where nobody knows."""
    try:
        file = os.open(f"/proc/self/task/{native_id}/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        has, wants = os.read(file, 128).split()[:2]
        return (int(has) + int(wants)) / NANOSECONDS
    except (OSError, ValueError):
        return 0.0
    finally:
        os.close(file)
