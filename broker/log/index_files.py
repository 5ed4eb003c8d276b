"""Bisection of index files on the disk, without loading them

A look-up by time wants one entry of an index, and of a segment that nobody has read lately neither index is in memory.
Loading them takes a while for a large segment, and a look-up is made in another thread, where nothing of a segment may
change. So the files are searched by bisection, a dozen reads of one entry each. What is found is a hint, as all that
indexes say: files that are missing or make no sense say "from the start", those that are being written anew
say what is in them by then.
"""

import struct
from collections.abc import Callable

from tidemill.core.runtime.disk import Directory, File

from .index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qi")


def time_before(directory: Directory, name: str, timestamp: int) -> int:
    """Relative offset such that every batch with a time of `timestamp` or later ends after it, or 0."""
    entry = _search(directory, name, TIME_ENTRY_BYTES, lambda entry: _time(entry)[0] < timestamp)
    return 0 if entry is None else max(0, _time(entry)[1])


def batch_before(directory: Directory, name: str, offset: int) -> tuple[int, int] | None:
    """(position, relative last offset) of the last indexed batch that ends before the relative `offset`."""
    entry = _search(directory, name, OFFSET_ENTRY_BYTES, lambda entry: _batch(entry)[1] < offset)
    return None if entry is None else _batch(entry)


def _time(entry: bytes) -> tuple[int, int]:
    timestamp, offset = _TIME_ENTRY.unpack(entry)
    return timestamp, offset


def _batch(entry: bytes) -> tuple[int, int]:
    offset, position = _OFFSET_ENTRY.unpack(entry)
    return position, offset


def _search(directory: Directory, name: str, entry_bytes: int, is_before: Callable[[bytes], bool]) -> bytes | None:
    """The last entry for which `is_before`, which holds for the entries up to some point and for none beyond."""
    if not directory.exists(name):
        return None
    file = directory.open(name)
    try:
        return _bisect(file, entry_bytes, is_before)
    finally:
        file.close()


def _bisect(file: File, entry_bytes: int, is_before: Callable[[bytes], bool]) -> bytes | None:
    first, end = 0, file.size() // entry_bytes
    found = None
    while first < end:
        middle = (first + end) // 2
        entry = file.read_at(middle * entry_bytes, entry_bytes)
        if len(entry) == entry_bytes and is_before(entry):
            first, found = middle + 1, entry
        else:
            end = middle
    return found
