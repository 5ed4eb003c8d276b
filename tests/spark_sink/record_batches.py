"""Batches for the record readers' tests: any, damaged, and lying about their lengths

`READERS` are the ways to read them that there are here, NumPy's and the compiled one; tests hold for each.
"""

from typing import Any

import pytest
from hypothesis import strategies as st

from tests.spark_sink.compiled import COMPILED
from tidemill.core.records.batch import stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.spark_sink.columns import columns_of

READERS = {"numpy": columns_of} | ({"compiled": COMPILED.columns_of} if COMPILED is not None else {})
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())

texts = st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
records = st.builds(
    NewRecord,
    timestamp=st.integers(0, 2**45),
    key=st.none() | texts,
    value=st.none() | texts | st.just(b"x" * 20_000),
    headers=headers,
)
batches = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=20),
        st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
        st.integers(0, 5),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=5,
)


def log_of(parts: list[Any], base_offset: int = 100) -> bytes:
    """Batches one behind the other, with the gaps that compaction leaves."""
    data = b""
    for items, codec, gap, timestamp_type in parts:
        base_offset += gap
        batch = bytearray(build_batch(items, codec=codec, timestamp_type=timestamp_type))
        stamp(batch, 0, base_offset, 0)
        data += batch
        base_offset += len(items)
    return data


def with_records(records: bytes, count: int) -> bytes:
    """A batch that claims `count` records and holds these bytes."""
    batch = bytearray(build_batch([NewRecord(0, b"k", b"v")])[:61] + records)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    return bytes(batch)


def varint(value: int) -> bytes:
    """A zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def record(key_length: int, value_length: int, rest: bytes = b"") -> bytes:
    """A record whose lengths need not be true."""
    body = b"\0" + varint(0) + varint(0) + varint(key_length) + varint(value_length) + rest
    return varint(len(body)) + body
