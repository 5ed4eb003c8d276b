"""The compiled loops, where there are any

A small C library beside this file, called through ctypes: no Python headers to build it, one for all versions of
Python, loaded in less than a millisecond, nothing to compile or cache in a Python worker, nothing that minds a fork;
and the interpreter is free for the fetching thread while it works. Where it was not built, or was built from other
source (`kernel_build`), `load` gives None and the same is done with NumPy (`columns`).

The memory it writes to is allocated here for the most that the spans can hold, and the library checks every position
before it reads.
"""

import ctypes
import functools
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.spark_sink.columns import Columns, Malformed, Span, table_of

LIBRARY = Path(__file__).with_name("libkernel.so")
COMPILED, NOT_BUILT, OTHER_SOURCE = "compiled", "not built", "built from other source"


class _Out(ctypes.Structure):
    """`columns` of the C source: addresses."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            "offset",
            "timestamp",
            "kind",
            "key_at",
            "value_at",
            "key_edge",
            "value_edge",
            "key_bits",
            "value_bits",
            "rest_at",
            "rest_end",
        )
    ]


class Kernel:
    """The library's functions with their Python types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._scan, self._gather = library.tidemill_scan, library.tidemill_gather
        self._project = library.tidemill_project
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._scan.argtypes = [pointer, pointer, number, number, number, ctypes.POINTER(_Out), pointer]
        self._scan.restype = number
        self._gather.argtypes = [pointer, pointer, pointer, number, pointer]
        self._gather.restype = None
        self._project.argtypes = [pointer, pointer, number, pointer, pointer, number, pointer, pointer]
        self._project.restype = number

    def columns_of(self, data: memoryview, spans: list[Span], first: int, last: int, rest: bool = False) -> Columns:
        """As `columns.columns_of`."""
        table = table_of(spans)
        room = int(table[:, 2].sum())
        offset, timestamp, kind = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
        key, value = _Pieces(room), _Pieces(room)
        rests = (np.empty(room, np.int64), np.empty(room, np.int64)) if rest else None
        out = _Out(
            offset=offset.ctypes.data,
            timestamp=timestamp.ctypes.data,
            kind=kind.ctypes.data,
            key_at=key.at.ctypes.data,
            value_at=value.at.ctypes.data,
            key_edge=key.edge.ctypes.data,
            value_edge=value.edge.ctypes.data,
            key_bits=key.bits.ctypes.data,
            value_bits=value.bits.ctypes.data,
            rest_at=rests[0].ctypes.data if rests else None,
            rest_end=rests[1].ctypes.data if rests else None,
        )
        raw = np.frombuffer(data, np.uint8)
        nulls = np.zeros(2, np.int64)
        count = self._scan(raw.ctypes.data, table.ctypes.data, len(table), first, last, out, nulls.ctypes.data)
        if count < 0:
            raise Malformed
        return Columns(
            key=self._binary(raw, key, count, int(nulls[0])),
            value=self._binary(raw, value, count, int(nulls[1])),
            offset=pa.array(offset[:count]),
            timestamp_ms=pa.array(timestamp[:count]),
            timestamp_type=pa.array(kind[:count]),
            rest=(rests[0][:count], rests[1][:count]) if rests else None,
        )

    def project(self, documents: pa.Array, names: tuple[str, ...]) -> pa.Array | None:
        """JSON objects reduced to members, a line feed behind each; None where one is not for the short way.

        `documents` is a binary array without nulls. A document that is no JSON object is not for the short way, nor is
        one that names a member twice or with escapes, or one that is nested very deeply.
        """
        _, edges, data = documents.buffers()
        count = len(documents)
        if not count or data is None:
            return None
        edge = np.frombuffer(edges, np.int32)[documents.offset : documents.offset + count + 1]
        words = [name.encode() for name in names]
        name_edge = np.cumsum([0, *map(len, words)], dtype=np.int64)
        out, out_edge = np.empty(int(edge[-1]) - int(edge[0]) + count, np.uint8), np.empty(count + 1, np.int32)
        written = self._project(
            data.address,
            edge.ctypes.data,
            count,
            b"".join(words),
            name_edge.ctypes.data,
            len(words),
            out.ctypes.data,
            out_edge.ctypes.data,
        )
        if written < 0:
            return None
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(out_edge), pa.py_buffer(out[:written])])

    def _binary(self, raw: npt.NDArray[np.uint8], pieces: "_Pieces", count: int, nulls: int) -> pa.Array:
        if nulls == count:
            return pa.nulls(count, pa.binary())
        data = pa.allocate_buffer(int(pieces.edge[count]))
        self._gather(raw.ctypes.data, pieces.at.ctypes.data, pieces.edge.ctypes.data, count, data.address)
        bits = pa.py_buffer(pieces.bits) if nulls else None
        edges = pa.py_buffer(pieces.edge[: count + 1])
        return pa.Array.from_buffers(pa.binary(), count, [bits, edges, data], null_count=nulls)


class _Pieces:
    """Where keys or values lie, as `tidemill_scan` finds them."""

    def __init__(self, room: int) -> None:
        self.at = np.empty(room, np.int64)
        self.edge = np.empty(room + 1, np.int32)
        self.bits = np.zeros(room // 8 + 1, np.uint8)


def load(library: Path = LIBRARY) -> tuple[Kernel | None, str]:
    """The kernel, or None, and which of the three cases it is."""
    try:
        found = ctypes.CDLL(str(library))
        found.tidemill_source.restype = ctypes.c_uint32
        if found.tidemill_source() != zlib.crc32(Path(__file__).with_name("kernel.c").read_bytes()):
            return None, OTHER_SOURCE
    except (OSError, AttributeError):
        return None, NOT_BUILT
    return Kernel(found), COMPILED


@functools.cache
def kernel() -> tuple[Kernel | None, str]:
    """What this process uses."""
    return load()
