"""What the kernel says of a file's pages"""

import ctypes
import os

import pytest

_CACHESTAT = 451  # Linux 6.5, on every machine


def dirty_pages(descriptor: int) -> int:
    """Pages of a file that are not on the disk yet."""
    all_of_it, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    call = ctypes.CDLL(None, use_errno=True).syscall
    if call(ctypes.c_long(_CACHESTAT), ctypes.c_int(descriptor), all_of_it, found, ctypes.c_uint(0)) != 0:
        pytest.skip(f"needs cachestat, of Linux 6.5: {os.strerror(ctypes.get_errno())}")
    return int(found[1] + found[2])
