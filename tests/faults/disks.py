"""A small disk for each node: a file system in a file, that can be filled and made to stand still

A full disk is one where nothing is left for anybody; one that stands still (`fsfreeze`) has every write and every fsync
wait, as a controller that hangs does, and lets go of all of them later.
"""

import contextlib
import os
from pathlib import Path

from tests.faults.hosts import command

FILLER = "filler"
STEP = 1 << 20


class Disk:
    """One of them; `data` is the folder that the node gets."""

    def __init__(self, folder: Path, mb: int) -> None:
        self.mount = folder
        self.data = folder / "data"
        self._image = folder.with_suffix(".image")
        self._mb = mb

    def make(self) -> None:
        """Make and mount it; the file is sparse."""
        self.mount.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(self._mb << 20)
        command("mkfs.ext4", "-q", "-m", "0", str(self._image))
        command("mount", "-o", "loop", str(self._image), str(self.mount))

    def fill(self) -> None:
        """Leave nothing."""
        with (self.mount / FILLER).open("ab", buffering=0) as file:
            size = STEP * 64
            while size >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.tell(), size)
                    file.seek(0, os.SEEK_END)
                except OSError:
                    size //= 2

    def empty(self) -> None:
        """The end of a `fill`."""
        (self.mount / FILLER).unlink(missing_ok=True)

    def freeze(self) -> None:
        """Whoever writes or syncs waits from now on."""
        command("fsfreeze", "-f", str(self.mount))

    def thaw(self) -> None:
        """The end of a `freeze`."""
        with contextlib.suppress(Exception):  # it was not frozen
            command("fsfreeze", "-u", str(self.mount))

    def fills_up(self) -> bool:
        """Whether a run that goes on as before will come to its end by itself."""
        there = os.statvfs(self.mount)
        return there.f_bavail < there.f_blocks // 10
