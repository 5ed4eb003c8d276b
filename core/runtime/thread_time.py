"""How long a thread of this process has had a processor

The kernel's figure in /proc, which a thread that has ended simply no longer has; to ask for its clock would be a fault
of memory then. Linux; elsewhere nobody knows, and every thread seems to wait.
"""

import os

NANOSECONDS = 1_000_000_000


def cpu_s(native_id: int) -> float:
    """Seconds; 0 for a thread that is gone, or where nobody knows."""
    try:
        file = os.open(f"/proc/self/task/{native_id}/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        return int(os.read(file, 128).split()[0]) / NANOSECONDS
    except (OSError, ValueError, IndexError):
        return 0.0
    finally:
        os.close(file)
