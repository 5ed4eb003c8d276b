"""The disk as a constructor argument

A `Directory` is one folder of one disk, a `File` an open file in it. What matters about a disk is what survives a power
cut, and the seam says it: written bytes survive once `File.sync` has returned; a created, renamed or removed name
survives once `Directory.sync` has; `Directory.replace` does both, so a small file is seen whole or not at all. A
simulator may implement the same two protocols and lose everything that was not synced.

Errors are the operating system's own `OSError`: whether a full disk is worth waiting for is the caller's decision.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import shutil
import stat
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from tidemill.core.runtime.file_system_sync import Sync, file_system_sync
from tidemill.core.runtime.joint_sync import joint_sync

ByteBuffer: TypeAlias = bytes | bytearray | memoryview

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers that say there is no room now: nothing is lost, and what was refused may be tried again."""

MAPPED_READ_BYTES_MIN = 64 * 1024
"""Reads from here up come from a memory map: a small `pread` is cheaper than the page-table work of a map."""

RESERVED_FROM_BYTES = 4 * 1024 * 1024
"""A file that has grown to this much probably goes on growing: from here on room is set aside before it is written."""

RESERVED_BYTES_MAX = 8 * 1024 * 1024
"""Room set aside at a time, and never more than a quarter of the file. Allocating a page at a time as it is written
costs a fifth of the time of a 16 KiB write and a third of that of a 1 MiB write (ext4); larger steps gain no more."""

_PREFETCH_BYTES = 1024 * 1024
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux


class Syncable(Protocol):
    """An open file."""

    def sync(self) -> None:
        """Return once everything written so far survives a power cut."""
        ...


def sync_each(files: Sequence[Syncable]) -> None:
    """One after the other."""
    for file in files:
        file.sync()


class File(Protocol):
    """An open file, addressed by position."""

    def size(self) -> int:
        """Length in bytes."""
        ...

    def write_at(self, position: int, data: ByteBuffer) -> None:
        """Write all of `data` at `position`, or raise; after an error the bytes from `position` on are undefined."""
        ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; shorter at the end of the file only."""
        ...

    def view_at(self, position: int, size_bytes: int) -> bytes | memoryview:
        """The same bytes, possibly without a copy; the file must never be truncated below them while in use."""
        ...

    def release_views(self) -> bool:
        """Let go of what `view_at` handed out; False while somebody still uses some of it."""
        ...

    def is_cached(self, position: int, size_bytes: int) -> bool:
        """Whether reading these bytes would most likely not wait for the disk."""
        ...

    def prefetch(self, position: int, size_bytes: int) -> None:
        """Wait for the disk until these bytes are in memory. Callable from another thread."""
        ...

    def set_aside(self, position: int, size_bytes: int) -> bool:
        """Keep room for writes from `position` on, so that a full disk takes them; False if there is none."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, and give back what was set aside for its growth."""
        ...

    def sync(self) -> None:
        """Return once everything written so far survives a power cut. Callable from another thread."""
        ...

    def close(self) -> None:
        """Give the file back; bytes handed out by `view_at` stay valid."""
        ...


class Directory(Protocol):
    """One folder; names are plain file names inside it."""

    @property
    def path(self) -> str:
        """The path to show to people."""
        ...

    def list(self) -> "list[str]":
        """Names of everything in it, sorted."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""
        ...

    def modified_ms(self, name: str) -> int:
        """When the file was last written, wall-clock milliseconds."""
        ...

    def open(self, name: str) -> File:
        """Open an existing file for reading and writing."""
        ...

    def create(self, name: str) -> File:
        """Make an empty file (emptying one that is there) and open it."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        ...

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        """Put `data` under `name` atomically and durably; without `sync_name` durable only after the next `sync`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder inside this folder."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; no error if it is gone."""
        ...

    def remove_tree(self, name: str) -> None:
        """Remove a folder and everything in it."""
        ...

    def subdirectory(self, name: str) -> "Directory":
        """The folder `name` inside this one, made if missing."""
        ...

    def is_directory(self, name: str) -> bool:
        """Whether `name` is a folder."""
        ...

    def sync(self) -> None:
        """Return once every created, renamed and removed name survives a power cut. Callable from another thread."""
        ...

    def file_system_sync(self) -> Callable[[Sync], None] | None:
        """A call that makes everything in this folder durable, if the system has one that tells of every error.

        It takes the sync of one file or folder of those that were changed, and calls it.
        """
        ...

    def files_sync(self) -> Callable[[Sequence[Syncable]], None]:
        """A call that does `File.sync` for several open files of this folder, or one below it."""
        ...


def _find_fallocate() -> Callable[..., int] | None:
    """Linux's call; where there is none, files grow as they are written."""
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), "fallocate", None)
    return found if platform.system() == "Linux" else None


fallocate = _find_fallocate()
"""Sets room aside for a file; None where there is no such call."""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_map", "_maps", "_reserved")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reserved = RESERVED_FROM_BYTES  # no room is set aside for writes that end below
        self._map: mmap.mmap | None = None
        self._maps: weakref.WeakSet[mmap.mmap] | None = None  # all that live; earlier ones as long as views of them

    @property
    def descriptor(self) -> int:
        """Its number while it is open; -1 then."""
        return self._descriptor

    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._descriptor).st_size

    def write_at(self, position: int, data: ByteBuffer) -> None:
        """Write all of `data` at `position`, or raise; after an error the bytes from `position` on are undefined."""
        end = position + len(data)
        if end > self._reserved:
            self._reserve(end)
        written = os.pwrite(self._descriptor, data, position)
        if position + written != end:
            rest = memoryview(data)[written:]
            while rest:
                position += written
                written = os.pwrite(self._descriptor, rest, position)
                if written == 0:
                    raise OSError(errno.EIO, "the file takes no more bytes")
                rest = rest[written:]

    def _reserve(self, end: int) -> None:
        """Set room aside behind `end`; nobody is told when there is none, the write itself will find out."""
        ahead = min(RESERVED_BYTES_MAX, end // 4)
        self._reserved = end + ahead
        self.set_aside(end, ahead)

    def set_aside(self, position: int, size_bytes: int) -> bool:
        """Keep room for writes from `position` on, so that a full disk takes them; False if there is none."""
        if fallocate is None:
            return False
        return fallocate(self._descriptor, _KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(size_bytes)) == 0

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; shorter at the end of the file only."""
        data = os.pread(self._descriptor, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size_bytes:
            data = os.pread(self._descriptor, size_bytes - got, position + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def view_at(self, position: int, size_bytes: int) -> bytes | memoryview:
        """The same bytes, possibly without a copy; the file must never be truncated below them while in use."""
        if size_bytes < MAPPED_READ_BYTES_MIN:
            return self.read_at(position, size_bytes)
        if self._map is None or position + size_bytes > len(self._map):
            self._map = mmap.mmap(self._descriptor, self.size(), access=mmap.ACCESS_READ)
            if self._maps is None:
                self._maps = weakref.WeakSet()
            self._maps.add(self._map)
        return memoryview(self._map)[position : position + size_bytes]

    def release_views(self) -> bool:
        """Let go of what `view_at` handed out; False while somebody still uses some of it.

        Who touches a page of a map behind the end of its file is killed (SIGBUS): no error that could be caught.
        """
        self._map = None
        return not self._maps  # None, or all of them gone

    def is_cached(self, position: int, size_bytes: int) -> bool:
        """Whether reading these bytes would most likely not wait for the disk: the first and the last are there."""
        if _NO_WAIT == 0:
            return True
        probe = bytearray(1)
        try:
            for at in (position, position + size_bytes - 1):
                os.preadv(self._descriptor, [probe], at, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # this file system cannot tell
                raise
        return True

    def prefetch(self, position: int, size_bytes: int) -> None:
        """Wait for the disk until these bytes are in memory. Callable from another thread."""
        end = position + size_bytes
        while position < end:
            data = os.pread(self._descriptor, min(_PREFETCH_BYTES, end - position), position)
            if not data:
                break
            position += len(data)

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, and give back what was set aside for its growth."""
        os.ftruncate(self._descriptor, size_bytes)
        self._reserved = max(RESERVED_FROM_BYTES, size_bytes)

    def sync(self) -> None:
        """Return once everything written so far survives a power cut. Callable from another thread."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give the file back; bytes handed out by `view_at` stay valid."""
        self._map = None
        descriptor, self._descriptor = self._descriptor, -1  # first: while it closes, its number may be another file's
        if descriptor >= 0:
            os.close(descriptor)


class OsDirectory:
    """A folder of the operating system, made with its parents if missing."""

    __slots__ = ("_path",)

    def __init__(self, path: str | Path) -> None:
        text = os.fspath(path)  # and names are joined as text: many small files are asked for at a start
        self._path = text.rstrip("/") or text or "."
        if not stat.S_ISDIR(_mode_of(self._path)):
            Path(self._path).mkdir(parents=True, exist_ok=True)

    @property
    def path(self) -> str:
        """The path to show to people."""
        return self._path

    def list(self) -> "list[str]":
        """Names of everything in it, sorted."""
        return sorted(os.listdir(self._path))

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""
        return _mode_of(f"{self._path}/{name}") != 0

    def is_directory(self, name: str) -> bool:
        """Whether `name` is a folder."""
        return stat.S_ISDIR(_mode_of(f"{self._path}/{name}"))

    def modified_ms(self, name: str) -> int:
        """When the file was last written, wall-clock milliseconds."""
        return os.stat(f"{self._path}/{name}").st_mtime_ns // 1_000_000

    def open(self, name: str) -> OsFile:
        """Open an existing file for reading and writing."""
        return OsFile(os.open(f"{self._path}/{name}", os.O_RDWR | os.O_CLOEXEC))

    def create(self, name: str) -> OsFile:
        """Make an empty file (emptying one that is there) and open it."""
        return OsFile(os.open(f"{self._path}/{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def read(self, name: str) -> bytes:
        """All bytes of a file; an OSError names it, as one of opening does."""
        path = f"{self._path}/{name}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size_bytes = os.fstat(descriptor).st_size
            data = os.read(descriptor, size_bytes)
            while len(data) < size_bytes and (piece := os.read(descriptor, size_bytes - len(data))):
                data += piece
            return data
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        """Put `data` under `name` atomically and durably; without `sync_name` durable only after the next `sync`."""
        temporary = name + ".tmp"
        try:
            file = self.create(temporary)
            try:
                file.write_at(0, data)
                os.fsync(file._descriptor)
            finally:
                file.close()
            os.replace(f"{self._path}/{temporary}", f"{self._path}/{name}")
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(temporary)  # on a full disk it would keep the room that what follows may still find
            raise
        if sync_name:
            self.sync()

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder inside this folder."""
        os.replace(f"{self._path}/{old}", f"{self._path}/{new}")

    def remove(self, name: str) -> None:
        """Remove a file; no error if it is gone."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._path}/{name}")

    def remove_tree(self, name: str) -> None:
        """Remove a folder and everything in it."""
        shutil.rmtree(f"{self._path}/{name}")

    def subdirectory(self, name: str) -> "OsDirectory":
        """The folder `name` inside this one, made if missing."""
        return OsDirectory(f"{self._path}/{name}")

    def file_system_sync(self) -> Callable[[Sync], None] | None:
        """A call that makes everything in this folder durable, if the system has one that tells of every error.

        It takes the sync of one file or folder of those that were changed, and calls it.
        It is asked for once: a folder that becomes a link into another file system later is not in it.
        """
        return file_system_sync(self._path)

    def files_sync(self) -> Callable[[Sequence[Syncable]], None]:
        """A call that does `File.sync` for several open files of this folder, or one below it."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            joint = joint_sync(descriptor)
        finally:
            os.close(descriptor)

        def sync(files: Sequence[Syncable]) -> None:
            joint([file.descriptor for file in cast("Sequence[OsFile]", files)])

        return sync

    def sync(self) -> None:
        """Return once every created, renamed and removed name survives a power cut. Callable from another thread."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _mode_of(path: str) -> int:
    """Of a file or folder; 0 if there is none. Any other trouble is none of "it is not there"."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def raise_open_files_limit() -> int:
    """Allow this process as many open files as the system lets it have: a log has one per segment; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def lock_directory(directory: OsDirectory, name: str = ".lock") -> int:
    """Take the folder for this process alone until it ends; raises BlockingIOError when another process has it.

    The lock is the kernel's (`flock`), so it is never left behind by a crash. Returns the descriptor that holds it.
    """
    descriptor = os.open(Path(directory.path) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: str | Path, name: str = ".lock") -> bool:
    """Whether a process has the folder `path` locked; nothing is changed by asking.

    Both kinds of lock are looked for: ours (`flock`) and that of a JVM, which is Apache Kafka's (POSIX).
    """
    try:
        descriptor = os.open(Path(path) / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # never locked, or not ours to know
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # POSIX lets a system say either
        return True
    finally:
        os.close(descriptor)
    return False
