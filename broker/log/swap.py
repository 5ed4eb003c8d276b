"""The replacement of segment files, safe at every step

The cleaner writes a segment under names that end in `.cleaned`. To put it in the place of one or more old ones:

1. rename the indexes and then the log from `.cleaned` to `.swap`, and sync the folder. With the name `….log.swap` the
   replacement is decided: before it a start removes the new files, after it a start finishes the work;
2. rename the old files to `.deleted`, or remove them where a full disk has no room for a name;
3. rename the indexes and then the log from `.swap` to their final names, and sync the folder.

The names are Apache Kafka's, so either broker can finish what the other began. What `recover` has to guess is which
old segments a `.swap` stands for: those that begin within its offsets. One that the cleaner emptied to its last record
may be left over; that is harmless, as its records are only older versions of what is kept or tombstones, and the next
cleaning removes it again.
"""

import contextlib
import errno
from collections.abc import Sequence

import structlog

from tidemill.core.runtime.disk import Directory

from .scan import BadBatch, walk
from .segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    retire,
    segment_name,
)

log = structlog.get_logger("tidemill.broker.log")

SWAP_SUFFIX = ".swap"
_REPLACED_SUFFIXES = (*INDEX_SUFFIXES, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)  # the log last: its name decides


def exchange(directory: Directory, base_offset: int, old_offsets: Sequence[int]) -> None:
    """All three steps. A disk that is full before anything is decided leaves everything as it was."""
    try:
        decide(directory, base_offset)
    except OSError:
        discard(directory, base_offset)
        raise
    try:
        finish(directory, base_offset, old_offsets)
    except OSError as error:  # it cannot be taken back any more, whatever the reason
        raise OSError(errno.EIO, f"segments half replaced: {error.strerror}") from error


def decide(directory: Directory, base_offset: int) -> None:
    """Step 1; after an OSError nothing has been decided if `discard` succeeds."""
    for suffix in _REPLACED_SUFFIXES:
        name = segment_name(base_offset, suffix)
        _rename_if_there(directory, name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
    directory.sync()


def finish(directory: Directory, base_offset: int, old_offsets: Sequence[int]) -> None:
    """Steps 2 and 3; the old files are left under names that end in `.deleted`."""
    for old_offset in old_offsets:
        for suffix in SEGMENT_SUFFIXES:
            if suffix == SNAPSHOT_SUFFIX and old_offset == base_offset:
                continue  # the producers before the segment are the same as ever
            retire(directory, segment_name(old_offset, suffix))
    _take_final_names(directory, base_offset)
    directory.sync()


def discard(directory: Directory, base_offset: int) -> None:
    """Remove a segment that will not replace anything, whatever names its files have, short of final ones."""
    for suffix in reversed(_REPLACED_SUFFIXES):
        for state in (SWAP_SUFFIX, CLEANED_SUFFIX):
            directory.remove(segment_name(base_offset, suffix) + state)
    directory.sync()


def remove_replaced(directory: Directory, base_offset: int, old_offsets: Sequence[int]) -> None:
    """Remove the old files that `finish` left."""
    for old_offset in old_offsets:
        for suffix in SEGMENT_SUFFIXES:
            if suffix != SNAPSHOT_SUFFIX or old_offset != base_offset:
                directory.remove(segment_name(old_offset, suffix) + DELETED_SUFFIX)


def recover(directory: Directory) -> list[str]:
    """At start: finish every replacement that was decided and remove what is left of the others.

    Returns the names of all that is there now: many folders are opened at a start, and each is listed once for this.
    """
    names = directory.list()
    decided = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and name.partition(".")[0].isdigit()]
    for name in decided:
        base_offset = int(name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
        end = _end_offset(directory, name, base_offset)
        old_offsets = [offset for offset in _log_offsets(names) if base_offset < offset < end]  # base is renamed over
        log.info("finishing the replacement of segments", folder=directory.path, new=base_offset, old=old_offsets)
        finish(directory, base_offset, old_offsets)
        remove_replaced(directory, base_offset, old_offsets)
    if decided:
        names = directory.list()
    left_over = [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    for name in left_over:
        directory.remove(name)
    if decided or left_over:
        directory.sync()
        names = directory.list()
    return names


def _end_offset(directory: Directory, name: str, base_offset: int) -> int:
    """Offset behind the last batch of a log file; its base offset if there is none."""
    end = base_offset
    file = directory.open(name)
    try:
        with contextlib.suppress(BadBatch):  # damage is found and told of when the segment is opened
            for _, batch in walk(file, 0, file.size(), verify=False, due=base_offset, dense=False):
                end = batch.last_offset + 1
    finally:
        file.close()
    return end


def _log_offsets(names: Sequence[str]) -> list[int]:
    return [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX) and name[:-4].isdigit()]


def _take_final_names(directory: Directory, base_offset: int) -> None:
    for suffix in _REPLACED_SUFFIXES:
        name = segment_name(base_offset, suffix)
        _rename_if_there(directory, name + SWAP_SUFFIX, name)


def _rename_if_there(directory: Directory, old: str, new: str) -> None:
    if directory.exists(old):
        directory.rename(old, new)
