"""Records, and reading them out of a batch

The few places that want all of a record (the internal topics, clients, the mirror where it has to rebuild a batch) get
it as a tuple. Who looks at many records for one thing of each asks for columns instead.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

from ..errors import CorruptMessage
from ..types import new_tuple
from .batch import MAGIC_V2, BatchView
from .columns import ColumnReader, Headers
from .compression import decompress

DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024  # a hundred times the default batch limit, as large as a request may be

_EVERYTHING = ColumnReader("offsets", "timestamps", "keys", "values", "headers")


class Record(NamedTuple):
    """A record as it stands in a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordLike: TypeAlias = Record | NewRecord

_new_record = partial(new_tuple, Record)  # half the time of Record's own constructors


def decode_records(view: BatchView, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Return the records of a batch, decompressed to at most `max_bytes`."""
    if view.magic != MAGIC_V2:
        raise CorruptMessage(f"record batch with magic {view.magic}; only 2 can be read")
    data = decompress(view.codec, view.records_bytes(), max_bytes)
    c = _EVERYTHING.read(view, data)
    return list(map(_new_record, zip(c.offsets, c.timestamps, c.keys, c.values, c.headers, strict=False)))
