"""The files of one segment and their names

A segment is a `.log` with two indexes beside it, and sometimes an index of transactions and a snapshot of the
producers. All are named after the segment's base offset, in twenty digits, as Apache Kafka names them. A further suffix
says that a file is not part of the log: `.deleted` is about to be removed, `.cleaned` is not finished yet.
"""

from tidemill.core.runtime.disk import DISK_FULL, Directory

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SPARSE = "offset-gaps"  # of a partition: between its batches offsets may be missing anywhere
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


def segment_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """The file name of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{suffix}"


def name_gaps(directory: Directory) -> None:
    """From now on a start takes no gap between offsets for a sign of damage."""
    directory.create(SPARSE).close()
    directory.sync()


def retire(directory: Directory, name: str) -> None:
    """Give a file, if it is there, a name that no start takes up; it goes at once where a full disk takes no name."""
    if not directory.exists(name):
        return
    try:
        directory.rename(name, name + DELETED_SUFFIX)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        directory.remove(name)


def retire_segment(directory: Directory, base_offset: int) -> None:
    """Rename all files of a segment so that no start ever takes them up again."""
    for suffix in SEGMENT_SUFFIXES:
        retire(directory, segment_name(base_offset, suffix))


def remove_retired_segment(directory: Directory, base_offset: int) -> None:
    """Remove the files that `retire_segment` renamed."""
    for suffix in SEGMENT_SUFFIXES:
        directory.remove(segment_name(base_offset, suffix) + DELETED_SUFFIX)
