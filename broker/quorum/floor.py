"""How much of the metadata log this node has once had on its disk

What a member of the quorum has synced it has told its leader, and others have counted on it. A crash may leave a log
that ends in a sector which was never written; a disk that loses a sector of what was synced leaves one that looks the
same. So the end of what is durable is written down beside the log, in two places in turn, of which a crash damages one
at most. A log that ends below that is one of which something is gone.

It is written whenever the log was synced, before that is told, and synced itself by the owner, now and then: what was
written down since may be gone after a power cut. It goes down only where the leader wants the log cut, and before that.

A node that has no room for the file has no floor until there is some.
"""

import contextlib
import struct
from typing import Final

from tidemill.core.records.crc import crc32c
from tidemill.core.runtime.disk import DISK_FULL, Directory, File

DURABLE_END: Final = "durable-end"

_PLACE: Final = struct.Struct(">IQQ")  # CRC of what follows, a number that counts up, the offset
_PLACE_BYTES: Final = 512  # what a disk writes as a whole

UNREADABLE: Final = 2**63 - 1
"""Where both places are damaged: more than any log has."""


class DurableFloor:
    """Mutable: `offset` is what is written down. One caller at a time; every method raises OSError."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._file: File | None = None
        self._number = 0
        self._synced = True
        self.offset = 0

    def load(self) -> int:
        """The offset that was written down last, 0 if none was."""
        if self._directory.exists(DURABLE_END):
            self._file = self._directory.open(DURABLE_END)
        else:
            self._create()
        data = b"" if self._file is None else self._file.read_at(0, 2 * _PLACE_BYTES)
        found = [each for each in map(_read, (data[:_PLACE_BYTES], data[_PLACE_BYTES:])) if each is not None]
        self._number, self.offset = max(found, default=(0, UNREADABLE if any(data) else 0))
        return self.offset

    def _create(self) -> None:
        """With room for both places, so that a full disk takes them."""
        try:
            self._file = self._directory.create(DURABLE_END)
            self._file.write_at(0, bytes(2 * _PLACE_BYTES))
            self._file.sync()
            self._directory.sync()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.close()
            with contextlib.suppress(OSError):
                self._directory.remove(DURABLE_END)

    def note(self, offset: int) -> None:
        """All below `offset` is on the disk."""
        if offset != self.offset:
            self._synced = False
            self._write(offset)

    def sync(self) -> None:
        """Return once what was noted survives a power cut. Callable from another thread."""
        if not self._synced and self._file is not None:
            self._synced = True
            self._file.sync()

    def lower(self, offset: int) -> None:
        """Nothing from `offset` on is promised any more; durable when it returns."""
        if offset < self.offset:
            self.note(offset)
            self.sync()

    def _write(self, offset: int) -> None:
        if self._file is None:
            return
        self._number += 1
        body = _PLACE.pack(0, self._number, offset)[4:]
        self._file.write_at(self._number % 2 * _PLACE_BYTES, crc32c(body).to_bytes(4, "big") + body)
        self.offset = offset

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _read(place: bytes) -> tuple[int, int] | None:
    """Number and offset; None where nothing was written or it is damaged."""
    if len(place) < _PLACE.size:
        return None
    crc, number, offset = _PLACE.unpack_from(place)
    return (number, offset) if number and crc == crc32c(place[4 : _PLACE.size]) else None
