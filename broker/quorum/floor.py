"""How much of the metadata log this node has once had on its disk

What a member of the quorum has synced it has told its leader, and others have counted on it. A crash may leave a log
that ends in a sector which was never written; a disk that loses a sector of what was synced leaves one that looks the
same. So the end of what is durable is written down beside the log, in two places. What is in one of them is synced, and
only the other one is written to until that is synced too, so that a crash damages one at most. A log that ends below
what is written down is one of which something is gone.

It is written whenever the log was synced, before that is told, and synced itself by the owner, now and then: what was
written down since may be gone after a power cut. It goes down only where the leader wants the log cut, and before that.

A node that has no room for the file has no floor until there is some.
"""

import contextlib
import struct
import threading
from typing import Final

from tidemill.core.records.crc import crc32c
from tidemill.core.runtime.disk import DISK_FULL, Directory, File

DURABLE_END: Final = "durable-end"

_PLACE: Final = struct.Struct(">IQQ")  # CRC of what follows, a number that counts up, the offset
_PLACE_BYTES: Final = 4096  # a write that is cut off damages no more of a disk

UNREADABLE: Final = 2**63 - 1
"""Where both places are damaged: more than any log has."""


class DurableFloor:
    """Mutable: `offset` is what is written down. `sync` may be called beside the others; all raise OSError."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._file: File | None = None
        self._guard = threading.Lock()  # what is written while the file is synced may be on the disk or not
        self._number = self._place = 0  # what was written last; where the next one goes
        self._synced = True
        self.offset = 0

    def load(self) -> int:
        """The offset that was written down last, 0 if none was."""
        if self._directory.exists(DURABLE_END):
            self._file = self._directory.open(DURABLE_END)
        data = b"" if self._file is None else self._file.read_at(0, 2 * _PLACE_BYTES)
        found = [
            (*each, place)
            for place in (0, 1)
            if (each := _read(data[place * _PLACE_BYTES : (place + 1) * _PLACE_BYTES])) is not None
        ]
        if found and self._file is not None:
            self._file.sync()  # a process that was killed may not have come to this
            self._number, self.offset, durable = max(found)
            self._place = 1 - durable
        elif len(data) == 2 * _PLACE_BYTES and any(data):
            self.offset = UNREADABLE
        else:
            self._create()
        return self.offset

    def _create(self) -> None:
        """With room for both places, so that a full disk takes them, and with one that can be read."""
        try:
            self._file = self._file or self._directory.create(DURABLE_END)
            self._file.write_at(0, bytes(2 * _PLACE_BYTES))
            self._synced = False
            self._write(0)
            self.sync()
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
            with self._guard:
                self._write(offset)
                self._synced = False

    def sync(self) -> None:
        """Return once what was noted survives a power cut. Callable from another thread."""
        with self._guard:
            if not self._synced and self._file is not None:
                self._file.sync()
                self._synced, self._place = True, 1 - self._place

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
        self._file.write_at(self._place * _PLACE_BYTES, crc32c(body).to_bytes(4, "big") + body)
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
