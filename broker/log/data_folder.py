"""The claim on a data folder, for one process and one node

Both are made sure of before anything in it is read: the lock is held until the process ends, and `meta.properties` is
the first file of a folder. Whatever is in the way is told in one line that says what to do.
"""

import errno
import os
import uuid

from tidemill.core.runtime.disk import DISK_FULL, Directory, OsDirectory, lock_directory, raise_open_files_limit

from .identity import META, FolderIdentity, FolderRefused, claim_folder
from .partition_folders import parse_partition_folder


def lock_folder(path: str) -> tuple[OsDirectory, int]:
    """The folder `path`, made if missing, and the descriptor that locks it; raises FolderRefused."""
    raise_open_files_limit()
    try:
        directory = OsDirectory(path)
        return directory, lock_directory(directory)
    except BlockingIOError:
        raise FolderRefused(f"{path} is in use by another process: stop it or use another data folder") from None
    except OSError as error:
        raise _cannot_write(path, error) from error


def claim(directory: Directory, node_id: int, cluster_id: str | None, fresh_id: uuid.UUID) -> FolderIdentity:
    """Whose data the folder holds, which is this node's; raises FolderRefused."""
    try:
        if not directory.exists(META) and any(map(parse_partition_folder, directory.list())):
            raise FolderRefused(  # without its first file nobody knows whose data this is
                f"{directory.path} holds partitions and no {META}: restore that file or use another folder"
            )
        return claim_folder(directory, node_id, cluster_id, fresh_id)
    except OSError as error:
        raise _cannot_write(directory.path, error) from error


def cannot_use(path: str, error: OSError) -> FolderRefused:
    """Why a folder that is locked and claimed cannot be brought up: a file in it, or its disk, refuses."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else path
    if error.errno in DISK_FULL:
        advice = "make room"
    elif error.errno == errno.EIO:
        advice = "repair the disk"
    else:
        advice = f"everything in {path} has to belong to the broker's user: correct owner and mode, or restore it"
    return FolderRefused(f"cannot use {where}: {error.strerror or error}; {advice}")


def _cannot_write(path: str, error: OSError) -> FolderRefused:
    return FolderRefused(f"cannot write to {path}: {error.strerror}; give the broker a writable folder")
