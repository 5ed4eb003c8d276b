"""The simulated disk as one life of a node sees it

When the life is over, whatever is left of the program finds nothing to write to any more, while the next life has the
same disk. A power cut that comes in the middle of a change ends the life there and then. What a file reads may be slow
or fail.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.sim.disk import PowerCut, SimulatedDirectory, SimulatedFile
from tidemill.core.runtime.disk import ByteBuffer, Syncable, sync_each
from tidemill.core.runtime.file_system_sync import Sync


class LifeOfDisk:
    """Whether the disk is still there for this life; `power_failed` is told when it goes by itself.

    `before_read` is called with the path of a folder before one of its files is read, and may raise OSError.
    """

    def __init__(self, power_failed: Callable[[], None], before_read: Callable[[str], None]) -> None:
        self.over = False
        self.before_read = before_read
        self._power_failed = power_failed

    def call(self, operation: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Do it if the life goes on."""
        if self.over:
            raise PowerCut
        try:
            return operation(*args, **named)
        except PowerCut:
            self.over = True
            self._power_failed()
            raise


class GuardedFile:
    """A file of one life."""

    def __init__(self, file: SimulatedFile, life: LifeOfDisk, folder: str) -> None:
        self._file = file
        self._life = life
        self._folder = folder

    def size(self) -> int:
        return int(self._life.call(self._file.size))

    def write_at(self, position: int, data: ByteBuffer) -> None:
        self._life.call(self._file.write_at, position, data)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._life.before_read(self._folder)
        return bytes(self._life.call(self._file.read_at, position, size_bytes))

    def view_at(self, position: int, size_bytes: int) -> bytes:
        return self.read_at(position, size_bytes)

    def release_views(self) -> bool:
        return True

    def is_cached(self, position: int, size_bytes: int) -> bool:
        return True

    def prefetch(self, position: int, size_bytes: int) -> None:
        self._life.call(self._file.prefetch, position, size_bytes)

    def set_aside(self, position: int, size_bytes: int) -> bool:
        return bool(self._life.call(self._file.set_aside, position, size_bytes))

    def truncate(self, size_bytes: int) -> None:
        self._life.call(self._file.truncate, size_bytes)

    def sync(self) -> None:
        self._life.call(self._file.sync)

    def close(self) -> None:
        self._file.close()


class GuardedDirectory:
    """A folder of one life."""

    def __init__(self, folder: SimulatedDirectory, life: LifeOfDisk) -> None:
        self._folder = folder
        self._life = life

    @property
    def path(self) -> str:
        return self._folder.path

    def list(self) -> "list[str]":
        return list(self._life.call(self._folder.list))

    def exists(self, name: str) -> bool:
        return bool(self._life.call(self._folder.exists, name))

    def is_directory(self, name: str) -> bool:
        return bool(self._life.call(self._folder.is_directory, name))

    def modified_ms(self, name: str) -> int:
        return 0

    def open(self, name: str) -> GuardedFile:
        return GuardedFile(self._life.call(self._folder.open, name), self._life, self.path)

    def create(self, name: str) -> GuardedFile:
        return GuardedFile(self._life.call(self._folder.create, name), self._life, self.path)

    def read(self, name: str) -> bytes:
        return bytes(self._life.call(self._folder.read, name))

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        self._life.call(self._folder.replace, name, data, sync_name=sync_name)

    def rename(self, old: str, new: str) -> None:
        self._life.call(self._folder.rename, old, new)

    def remove(self, name: str) -> None:
        self._life.call(self._folder.remove, name)

    def remove_tree(self, name: str) -> None:
        self._life.call(self._folder.remove_tree, name)

    def subdirectory(self, name: str) -> "GuardedDirectory":
        return GuardedDirectory(self._life.call(self._folder.subdirectory, name), self._life)

    def sync(self) -> None:
        self._life.call(self._folder.sync)

    def file_system_sync(self) -> Callable[[Sync], None] | None:
        sync = self._folder.file_system_sync()
        return None if sync is None else partial(self._life.call, sync)

    def files_sync(self) -> Callable[[Sequence[Syncable]], None]:
        return sync_each


def copy_of(folder: SimulatedDirectory, into: SimulatedDirectory) -> None:
    """The same files and folders, as they read now."""
    for name in folder.list():
        if folder.is_directory(name):
            copy_of(folder.subdirectory(name), into.subdirectory(name))
        else:
            into.create(name).write_at(0, folder.read(name))
