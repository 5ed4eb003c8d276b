"""A disk that forgets what was not synced

Implements the seam of `tidemill.core.runtime.disk` in memory. `crash` does to it what a power cut does: file contents
fall back to what was synced, except that of everything written since any sector may or may not have reached the platter
(the end of the very last write up to any byte) and the file may have any length in between; names fall back to what the
directory last synced, except that a prefix of the changes since (they are journaled in order) may have happened.
`capacity_bytes` makes it full (a new name needs room too, unless a name went from its folder before), `fail_sync` makes
fsync fail (and with `forgets_after_failed_sync` the sectors that it was to write count as written afterwards, as Linux
takes them: a later fsync does not write them), `flip_bit` damages a file, `cut_power_in` lets only so many more changes
happen and then raises PowerCut from within whatever the program is doing, and from everything it tries afterwards.
With `syncs_everything` it has one sync for all files and folders, and with `whole_sync_lies` that one does nothing and
says nothing where a file's own fails, as on a file system that the kernel has made read-only.
"""

import errno
import random
from collections.abc import Callable, Sequence

from tidemill.core.runtime.disk import ByteBuffer, Syncable, sync_each
from tidemill.core.runtime.file_system_sync import Sync

SECTOR_BYTES = 512
NAME_BYTES = 64
"""Room that a folder needs to grow by a name, as file systems want a block for it."""


class PowerCut(BaseException):
    """The machine is off; no error that a program may handle."""


class SimulatedDisk:
    """All files of one machine; `root` is the directory to hand out."""

    def __init__(self, *, capacity_bytes: int | None = None, syncs_everything: bool = False) -> None:
        self.capacity_bytes = capacity_bytes
        self.syncs_everything = syncs_everything
        self.cut_power_in: int | None = None
        self.written_last: _Inode | None = None
        self.fail_sync: OSError | None = None
        self.forgets_after_failed_sync = False
        self.whole_sync_lies = False
        self.syncs = 0
        self.root = SimulatedDirectory(self, "/disk")

    def used_bytes(self) -> int:
        """Bytes of all files."""
        return self.root.used_bytes()

    def crash(self, rng: random.Random) -> None:
        """Cut the power, and turn it on again."""
        self.cut_power_in = None
        if self.written_last is not None:
            self.written_last.tear_at_byte = rng.random() < 0.5
            self.written_last = None
        self.root.crash(rng)

    def kill(self) -> None:
        """End the process, not the machine: nothing is lost yet, and what was not synced still may be."""
        self.cut_power_in = None

    def flip_bit(self, rng: random.Random, suffixes: tuple[str, ...]) -> str | None:
        """Let the platter forget a bit of one of the files whose names end so; returns its path, None without any."""
        files = [each for each in self.root.files() if each[0].endswith(suffixes) and each[1].written]
        if not files:
            return None
        path, inode = rng.choice(files)
        at, bit = rng.randrange(len(inode.written)), 1 << rng.randrange(8)
        inode.written[at] ^= bit
        if at < len(inode.durable):
            inode.durable = inode.durable[:at] + bytes([inode.durable[at] ^ bit]) + inode.durable[at + 1 :]
        return path

    def change(self) -> None:
        """What every change and every sync does first."""
        if self.cut_power_in is not None:
            if self.cut_power_in <= 0:
                raise PowerCut
            self.cut_power_in -= 1

    def sync(self) -> None:
        """What every sync of this disk does first."""
        self.change()
        self.syncs += 1
        if self.fail_sync is not None:
            raise self.fail_sync


class _Inode:
    """The bytes of one file: as written, and as they are sure to be after a power cut."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.durable = b""
        self.dirty: set[int] = set()  # sectors written since the last sync
        self.tear_at_byte = False
        self.room_end = 0  # what was set aside lies before this position

    @property
    def used_bytes(self) -> int:
        return max(len(self.written), self.room_end)

    def fill_to(self, size_bytes: int) -> None:
        """Zeros up to there, if the file is shorter."""
        before = len(self.written)
        if size_bytes > before:
            self.written.extend(bytes(size_bytes - before))
            self.dirty.update(range(before // SECTOR_BYTES, (size_bytes - 1) // SECTOR_BYTES + 1))

    def sync(self) -> None:
        """Everything but what a failed sync has forgotten."""
        durable = bytearray(self.durable[: len(self.written)].ljust(len(self.written), b"\0"))
        for sector in self.dirty:
            start = sector * SECTOR_BYTES
            durable[start : start + SECTOR_BYTES] = self.written[start : start + SECTOR_BYTES]
        self.durable = bytes(durable)
        self.dirty.clear()

    def crash(self, rng: random.Random) -> None:
        low, high = sorted((len(self.durable), len(self.written)))
        length = rng.choice((low, high, rng.randint(low, high)))
        after = bytearray(self.durable[:length].ljust(length, b"\0"))
        last = max(self.dirty, default=-1)
        for sector in sorted(self.dirty):
            if rng.random() < 0.5:
                start = sector * SECTOR_BYTES
                piece = self.written[start : start + SECTOR_BYTES][: max(0, length - start)]
                if sector == last and self.tear_at_byte:
                    piece = piece[: rng.randrange(SECTOR_BYTES)]
                after[start : start + len(piece)] = piece
        self.written = after
        self.durable = bytes(after)
        self.dirty.clear()
        self.tear_at_byte = False


class SimulatedFile:
    """An open file."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.closed = False

    def size(self) -> int:
        self._check()
        return len(self._inode.written)

    def write_at(self, position: int, data: ByteBuffer) -> None:
        self._check()
        self._disk.change()
        data = bytes(data)
        written = self._inode.written
        room = self._room(max(0, position + len(data) - self._inode.used_bytes))
        short = data[: max(0, len(data) - room)] if room else data
        self._inode.fill_to(position)
        written[position : position + len(short)] = short
        if short:
            first, last = position // SECTOR_BYTES, (position + len(short) - 1) // SECTOR_BYTES
            self._inode.dirty.update(range(first, last + 1))
            self._disk.written_last = self._inode
        if room:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _room(self, growth: int) -> int:
        """How many bytes too many `growth` more would be."""
        if self._disk.capacity_bytes is None:
            return 0
        return max(0, self._disk.used_bytes() + growth - self._disk.capacity_bytes)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check()
        return bytes(self._inode.written[position : position + size_bytes])

    def view_at(self, position: int, size_bytes: int) -> bytes:
        return self.read_at(position, size_bytes)

    def release_views(self) -> bool:
        return True

    def is_cached(self, position: int, size_bytes: int) -> bool:
        return True

    def prefetch(self, position: int, size_bytes: int) -> None:
        self._check()

    def set_aside(self, position: int, size_bytes: int) -> bool:
        self._check()
        self._disk.change()
        if self._room(max(0, position + size_bytes - self._inode.used_bytes)):
            return False
        self._inode.room_end = max(self._inode.room_end, position + size_bytes)
        return True

    def truncate(self, size_bytes: int) -> None:
        self._check()
        self._disk.change()
        self._inode.room_end = 0
        del self._inode.written[size_bytes:]
        self._inode.fill_to(size_bytes)

    def sync(self) -> None:
        self._check()
        try:
            self._disk.sync()
        except OSError:
            if self._disk.forgets_after_failed_sync:
                self._inode.dirty.clear()
            raise
        self._inode.sync()
        if self._disk.written_last is self._inode:
            self._disk.written_last = None

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "Bad file descriptor")


class SimulatedDirectory:
    """One folder."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._entries: dict[str, _Inode | SimulatedDirectory] = {}
        self._journal: list[dict[str, _Inode | SimulatedDirectory]] = [{}]  # the state after every change since sync
        self._slots_free = 0  # where names were that are gone

    @property
    def path(self) -> str:
        return self._path

    def files(self) -> "list[tuple[str, _Inode]]":
        """Every file in it and below, by its path, in the order of the paths."""
        found = []
        for name, entry in sorted(self._entries.items()):
            found += entry.files() if isinstance(entry, SimulatedDirectory) else [(f"{self._path}/{name}", entry)]
        return found

    def used_bytes(self) -> int:
        return sum(
            entry.used_bytes() if isinstance(entry, SimulatedDirectory) else entry.used_bytes
            for entry in self._entries.values()
        )

    def crash(self, rng: random.Random) -> None:
        self._entries = dict(rng.choice(self._journal))
        self._journal = [dict(self._entries)]
        self._slots_free = 0
        for _, entry in sorted(self._entries.items()):
            entry.crash(rng)

    def _changed(self) -> None:
        self._journal.append(dict(self._entries))

    def _take_slot(self, name: str) -> None:
        """Find a place for a name, or raise."""
        capacity_bytes = self._disk.capacity_bytes
        if name in self._entries or capacity_bytes is None:
            return
        if self._slots_free:
            self._slots_free -= 1
        elif self._disk.used_bytes() + NAME_BYTES > capacity_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _inode(self, name: str) -> _Inode:
        entry = self._entries.get(name)
        if not isinstance(entry, _Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        return entry

    def list(self) -> list[str]:
        return sorted(self._entries)

    def exists(self, name: str) -> bool:
        return name in self._entries

    def is_directory(self, name: str) -> bool:
        return isinstance(self._entries.get(name), SimulatedDirectory)

    def modified_ms(self, name: str) -> int:
        return 0

    def open(self, name: str) -> SimulatedFile:
        return SimulatedFile(self._disk, self._inode(name))

    def create(self, name: str) -> SimulatedFile:
        self._disk.change()
        self._take_slot(name)
        self._entries[name] = _Inode()
        self._changed()
        return SimulatedFile(self._disk, self._inode(name))

    def read(self, name: str) -> bytes:
        return bytes(self._inode(name).written)

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        inode = _Inode()
        self._take_slot(name + ".tmp")
        SimulatedFile(self._disk, inode).write_at(0, data)
        self._disk.sync()
        inode.durable = bytes(data)
        inode.dirty.clear()
        self._entries[name] = inode
        self._changed()
        if sync_name:
            self.sync()

    def rename(self, old: str, new: str) -> None:
        if old not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such file", old)
        self._disk.change()
        self._take_slot(new)
        self._entries[new] = self._entries.pop(old)
        self._slots_free += 1
        self._changed()

    def remove(self, name: str) -> None:
        self._disk.change()
        if self._entries.pop(name, None) is not None:
            self._slots_free += 1
            self._changed()

    def remove_tree(self, name: str) -> None:
        self.remove(name)

    def subdirectory(self, name: str) -> "SimulatedDirectory":
        entry = self._entries.get(name)
        if not isinstance(entry, SimulatedDirectory):
            self._disk.change()
            self._take_slot(name)
            entry = self._entries[name] = SimulatedDirectory(self._disk, f"{self._path}/{name}")
            self._changed()
        return entry

    def sync(self) -> None:
        self._disk.sync()
        self._journal = [dict(self._entries)]

    def file_system_sync(self) -> Callable[[Sync], None] | None:
        return self._sync_everything if self._disk.syncs_everything else None

    def files_sync(self) -> Callable[[Sequence[Syncable]], None]:
        return sync_each

    def _sync_everything(self, sync_one: Sync) -> None:
        if self._disk.fail_sync is None or not self._disk.whole_sync_lies:
            self._sync_all()
        sync_one()

    def _sync_all(self) -> None:
        try:
            self._disk.sync()
        except OSError:
            if self._disk.forgets_after_failed_sync:
                for _, inode in self._disk.root.files():
                    inode.dirty.clear()
            raise
        self._disk.root.keep()

    def keep(self) -> None:
        """All that is in it and below survives."""
        self._journal = [dict(self._entries)]
        for entry in self._entries.values():
            if isinstance(entry, SimulatedDirectory):
                entry.keep()
            else:
                entry.sync()
