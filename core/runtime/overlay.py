"""A folder that can be changed without touching the disk

An `OverlayDirectory` shows a folder of the disk and keeps every change to it in memory. Code written against
`tidemill.core.runtime.disk.Directory` (recovery, say) runs over it as over the real folder, and afterwards `changes`
says what it would have done: a plan that a person can read before anything happens. Files are opened for reading only,
so it also serves who must not write at all.

Only small files are meant to be written; of a large one nothing but its new length is remembered when it is cut.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .disk import ByteBuffer, Syncable, sync_each
from .file_system_sync import Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The file ends at `size_bytes`; it has `cut_bytes` more on the disk."""

    name: str
    size_bytes: int
    cut_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The file has new contents."""

    name: str
    data: bytes
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The file is there no more."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """The file `old` is called `name`; `replaced_bytes` is the size of the one that was called so, -1 if none was."""

    name: str
    old: str
    replaced_bytes: int


Change: TypeAlias = Cut | Written | Removed | Renamed


class _Content:
    """What a name stands for: `size_bytes` of a file on the disk, or bytes in memory."""

    __slots__ = ("data", "path", "size_bytes")

    def __init__(self, path: Path | None, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.data: bytearray | None = bytearray() if path is None else None

    def old_name(self, name: str) -> str | None:
        """The name on the disk, if that is not `name`; None for what is in memory."""
        return None if self.data is not None or self.path is None or self.path.name == name else self.path.name

    def in_memory(self) -> bytearray:
        if self.data is None:
            assert self.path is not None
            self.data = bytearray(self.path.read_bytes()[: self.size_bytes])
        return self.data


class OverlayFile:
    """An open file of an overlay."""

    __slots__ = ("_content", "_descriptor")

    def __init__(self, content: _Content) -> None:
        self._content = content
        self._descriptor = -1
        if content.data is None and content.path is not None:
            self._descriptor = os.open(content.path, os.O_RDONLY | os.O_CLOEXEC)

    def size(self) -> int:
        """Length in bytes."""
        return self._content.size_bytes if self._content.data is None else len(self._content.data)

    def write_at(self, position: int, data: ByteBuffer) -> None:
        """Write to the copy in memory; what is there already changes nothing."""
        if self._content.data is None and self.read_at(position, len(data)) == data:
            return
        content = self._content.in_memory()
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; shorter at the end of the file only."""
        if self._content.data is not None:
            return bytes(self._content.data[position : position + size_bytes])
        size_bytes = min(size_bytes, self._content.size_bytes - position)
        pieces: list[bytes] = []
        while size_bytes > 0 and (data := os.pread(self._descriptor, size_bytes, position)):
            pieces.append(data)
            position += len(data)
            size_bytes -= len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def view_at(self, position: int, size_bytes: int) -> bytes | memoryview:
        """The same as `read_at`."""
        return self.read_at(position, size_bytes)

    def release_views(self) -> bool:
        """Nothing to do: what was handed out are copies."""
        return True

    def is_cached(self, _position: int, _size_bytes: int) -> bool:
        """Always: nobody waits for an overlay."""
        return True

    def prefetch(self, position: int, size_bytes: int) -> None:
        """Nothing to do."""

    def set_aside(self, _position: int, _size_bytes: int) -> bool:
        """Nothing to do: memory is not kept."""
        return True

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, in memory."""
        if self._content.data is not None:
            del self._content.data[size_bytes:]
        else:
            self._content.size_bytes = min(self._content.size_bytes, size_bytes)

    def sync(self) -> None:
        """Nothing to do: nothing here survives."""

    def close(self) -> None:
        """Give the file back."""
        descriptor, self._descriptor = self._descriptor, -1  # first: while it closes, its number may be another file's
        if descriptor >= 0:
            os.close(descriptor)


class OverlayDirectory:
    """One folder of the disk and the changes to it that are in memory; raises OSError if it cannot be read."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        with os.scandir(self._path) as entries:
            self._files = {
                entry.name: _Content(Path(entry.path), entry.stat().st_size) for entry in entries if entry.is_file()
            }
        self._on_disk = {name: content.size_bytes for name, content in self._files.items()}
        self._folders: dict[str, OverlayDirectory | None] = {
            name: None for name in os.listdir(self._path) if (self._path / name).is_dir()
        }

    @property
    def path(self) -> str:
        """The path to show to people."""
        return str(self._path)

    def changes(self) -> list[Change]:
        """How the files of this folder (not of those in it) differ from what is on the disk, by name."""
        found: list[Change] = []
        renamed = {content.old_name(name) for name, content in self._files.items()} - {None}
        for name in sorted(self._on_disk.keys() | self._files.keys()):
            content = self._files.get(name)
            size_bytes = self._on_disk.get(name, -1)
            if content is not None:
                found += self._changes_of(name, content, size_bytes)
            elif name not in renamed:
                found.append(Removed(name=name, size_bytes=size_bytes))
        return found

    def _changes_of(self, name: str, content: _Content, size_bytes: int) -> Iterator[Change]:
        """How a file that is here differs from the one of `size_bytes` on the disk, -1 if there is none."""
        if content.data is not None:
            data = bytes(content.data)
            if size_bytes < 0 or data != (self._path / name).read_bytes():
                yield Written(name=name, data=data, is_new=size_bytes < 0)
            return
        old = content.old_name(name)
        if old is not None:
            yield Renamed(name=name, old=old, replaced_bytes=size_bytes)
            size_bytes = self._on_disk[old]
        if content.size_bytes < size_bytes:
            yield Cut(name=name, size_bytes=content.size_bytes, cut_bytes=size_bytes - content.size_bytes)

    def list(self) -> "list[str]":
        """Names of everything in it, sorted."""
        return sorted([*self._files, *self._folders])

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""
        return name in self._files or name in self._folders

    def is_directory(self, name: str) -> bool:
        """Whether `name` is a folder."""
        return name in self._folders

    def modified_ms(self, name: str) -> int:
        """When the file on the disk was last written, wall-clock milliseconds."""
        path = self._content(name).path
        return 0 if path is None else path.stat().st_mtime_ns // 1_000_000

    def open(self, name: str) -> OverlayFile:
        """Open an existing file."""
        return OverlayFile(self._content(name))

    def create(self, name: str) -> OverlayFile:
        """Make an empty file, in memory."""
        self._files[name] = _Content(None, 0)
        return OverlayFile(self._files[name])

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        file = self.open(name)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        """Put `data` under `name`, in memory."""
        self.create(name).write_at(0, data)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, in memory."""
        if old in self._folders:
            self._folders[new] = self._folders.pop(old)
        else:
            self._files[new] = self._content(old)
            del self._files[old]

    def remove(self, name: str) -> None:
        """Remove a file, in memory; no error if it is gone."""
        self._files.pop(name, None)

    def remove_tree(self, name: str) -> None:
        """Remove a folder and everything in it, in memory."""
        del self._folders[name]

    def subdirectory(self, name: str) -> "OverlayDirectory":
        """The folder `name` inside this one, which must be there."""
        found = self._folders.get(name)
        if found is None:
            found = self._folders[name] = OverlayDirectory(self._path / name)
        return found

    def sync(self) -> None:
        """Nothing to do: nothing here survives."""

    def file_system_sync(self) -> Callable[[Sync], None] | None:
        """None."""
        return None

    def files_sync(self) -> Callable[[Sequence[Syncable]], None]:
        """Nothing to do either."""
        return sync_each

    def _content(self, name: str) -> _Content:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(2, "no such file", f"{self._path}/{name}") from None
