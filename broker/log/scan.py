"""A walk over the batches of a log file, from one header to the next

The only chain through a log file is the length in each header, so one wrong length hides everything behind it. The
walk therefore stops at the first batch it cannot believe and says where and why; `resync` finds the next one that is
whole, recognised by magic, CRC and an offset that fits. Nothing here decides what a bad batch means: that is
`recovery` at start and `partition` when reading.
"""

from collections.abc import Iterator

from tidemill.core.records.batch import HEADER_BYTES, BatchHeader, crc_matches, plausible_size, read_header
from tidemill.core.runtime.disk import File

_HEADERS_CHUNK_BYTES = 32 * 1024  # small batches share a read
_SMALL_BATCH_BYTES = 4 * 1024  # of larger ones only the header is read
_VERIFY_CHUNK_BYTES = 1024 * 1024
_MAGIC_AT = 16


class BadBatch(Exception):
    """The bytes at `position`, where the batch with offset `due` was due (-1: unknown), are not that batch."""

    def __init__(self, position: int, reason: str, due: int = -1) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.reason = reason
        self.due = due


def walk(
    file: File, position: int, end: int, *, verify: bool, due: int = -1, dense: bool = True
) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch in `[position, end)` with its position; raises BadBatch at the first that cannot be believed.

    With `verify` the CRC of every batch is checked. The first batch must have the offset `due` unless that is -1. A
    `dense` log has no gaps between offsets: the CRC does not cover the offset of a batch, but its neighbours tell.
    """
    chunk, chunk_start = b"", position
    chunk_bytes = _VERIFY_CHUNK_BYTES if verify else _HEADERS_CHUNK_BYTES
    before: tuple[int, int, BatchHeader] | None = None
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            large = before is not None and not verify and before[2].size_bytes > _SMALL_BATCH_BYTES
            size_bytes = min(HEADER_BYTES if large else chunk_bytes, end - position)
            chunk, chunk_start, at = file.read_at(position, size_bytes), position, 0
            if len(chunk) < HEADER_BYTES:
                raise BadBatch(position, f"only {end - position} bytes of a batch", due)
        header = read_header(chunk, at)
        try:
            _check(header, position, end, due, dense)
        except BadBatch:
            if before is not None and not verify and not _is_whole(file, before[0], before[2]):
                # It was the header before that led here: its length or its last offset is wrong.
                raise BadBatch(before[0], "a batch that does not match its CRC", before[1]) from None
            raise
        if verify:
            if at + header.size_bytes > len(chunk):
                size_bytes = min(max(chunk_bytes, header.size_bytes), end - position)
                chunk, chunk_start, at = file.read_at(position, size_bytes), position, 0
            if len(chunk) - at < header.size_bytes or not crc_matches(chunk, at, header):
                raise BadBatch(position, "a batch that does not match its CRC", due)
        yield position, header
        before = (position, due, header)
        due = header.last_offset + 1
        position += header.size_bytes


def walk_bytes(data: bytes, position: int, *, due: int = -1, dense: bool = True) -> Iterator[tuple[int, BatchHeader]]:
    """As `walk` with `verify`, over bytes in hand that were read from `position` of the file."""
    start, end = position, position + len(data)
    while position < end:
        if end - position < HEADER_BYTES:
            raise BadBatch(position, f"only {end - position} bytes of a batch", due)
        header = read_header(data, position - start)
        _check(header, position, end, due, dense)
        if not crc_matches(data, position - start, header):
            raise BadBatch(position, "a batch that does not match its CRC", due)
        yield position, header
        due = header.last_offset + 1
        position += header.size_bytes


def resync(file: File, position: int, end: int, offset_min: int, offset_end: int) -> tuple[int, BatchHeader] | None:
    """The first whole batch at or after `position` with offsets in `[offset_min, offset_end)`, wherever it starts."""
    while position + HEADER_BYTES <= end:
        window = file.read_at(position, min(_VERIFY_CHUNK_BYTES, end - position))
        at = window.find(b"\x02", _MAGIC_AT)
        while 0 <= at <= len(window) - HEADER_BYTES + _MAGIC_AT:
            start = at - _MAGIC_AT
            header = read_header(window, start)
            if (
                offset_min <= header.base_offset
                and plausible_size(header)
                and header.last_offset < offset_end
                and position + start + header.size_bytes <= end
                and _is_whole(file, position + start, header)
            ):
                return position + start, header
            at = window.find(b"\x02", at + 1)
        position += max(len(window) - HEADER_BYTES + 1, 1)
    return None


def _is_whole(file: File, position: int, header: BatchHeader) -> bool:
    data = file.read_at(position, header.size_bytes)
    return len(data) == header.size_bytes and crc_matches(data, 0, header)


def _check(header: BatchHeader, position: int, end: int, due: int, dense: bool) -> None:
    if not plausible_size(header):
        raise BadBatch(position, "no batch header", due)
    if position + header.size_bytes > end:
        raise BadBatch(position, f"{end - position} of {header.size_bytes} bytes of a batch", due)
    if due >= 0 and (header.base_offset < due or (dense and header.base_offset != due)):
        raise BadBatch(position, f"a batch with offset {header.base_offset} where {due} was due", due)
