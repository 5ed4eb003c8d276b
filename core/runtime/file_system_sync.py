"""A whole file system made durable by one call, if it tells of every error

`syncfs` costs one wait for the disk however many files there are. What it must not do is to say that all is well when
it is not, and it does: in the kernels before 5.17 (a file system's own error is dropped), on overlayfs (errors stay
with the file system below it) and on FUSE (nobody asks the server). So it is used where it is known to be honest, and
only if the whole folder is in the one file system.

One lie is left there: of a file system that its own error has made read-only the kernel believes that there is nothing
to sync (ext4 with errors=remount-ro, seen with Linux 6.1; writes into the page cache go on succeeding). A single file's
sync tells of that, so one of those that were changed is synced by itself after every sync of all.
"""

import ctypes
import os
import platform
import re
from collections.abc import Callable

Sync = Callable[[], None]
"""Of one file or folder: return once it survives a power cut; OSError if it does not."""

KERNEL_MIN = (5, 17)
"""Linux; it hands on what the file system itself says of a sync since then."""

HONEST = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}
"""Types of `statfs(2)`."""


class FileSystemSync:
    """`syncfs` on a descriptor that stays open: the kernel reports every write-back error since it was opened."""

    def __init__(self, path: str, syncfs: Callable[[int], int]) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._syncfs = syncfs

    def __call__(self, sync_one: Sync) -> None:
        """Return once everything in the file system survives a power cut; OSError if something does not.

        `sync_one` is the sync of something in it that was changed.
        """
        if self._syncfs(self._descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        sync_one()

    def __del__(self) -> None:
        os.close(self._descriptor)


def file_system_sync(path: str) -> FileSystemSync | None:
    """That of the folder `path`; None where it may miss some of it, or an error."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None or not _is_honest_kernel() or file_system_type(path) not in HONEST or not _is_all_in_one(path):
        return None
    return FileSystemSync(path, syncfs)


def file_system_type(path: str) -> int:
    """The number that `statfs(2)` has for the file system of `path`, on Linux."""
    answer = (ctypes.c_long * 64)()  # struct statfs has some 120 bytes, and the type comes first
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), answer) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
    return answer[0] & 0xFFFFFFFF


def _is_honest_kernel() -> bool:
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return platform.system() == "Linux" and release is not None and tuple(map(int, release.groups())) >= KERNEL_MIN


def _is_all_in_one(path: str) -> bool:
    """Whether no folder in this one is a link into another file system, or a place where one is mounted."""
    device = os.stat(path).st_dev
    with os.scandir(path) as entries:
        return all(entry.stat().st_dev == device for entry in entries if entry.is_dir())
