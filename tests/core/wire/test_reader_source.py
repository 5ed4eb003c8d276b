"""The decoder's source: runs in one unpack, checks before slices"""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.wire.message_strategies import message_class, messages
from tests.core.wire.plain_codec import ROW_IDS, ROW_KINDS, as_plain, plain_functions
from tidemill.core.wire.codec import decode, encode
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemill.core.wire.primitives import DecodeError
from tidemill.core.wire.reader_source import reader_source
from tidemill.core.wire.schema import ApiSchema, load_schemas

SCHEMAS = {schema.name: schema for schema in load_schemas()}


def source(api: str, version: int) -> tuple[str, set[str]]:
    schema = SCHEMAS[api]
    structs: set[str] = set()
    lines = reader_source("read_it", schema.layout(schema.request, version), structs)
    return "\n".join(lines), structs


def test_neighbouring_numbers_and_the_length_behind_them_are_one_unpack() -> None:
    text, structs = source("Produce", 9)
    assert "hiB" in structs
    assert "s_1.acks, s_1.timeout_ms, n = _u_hiB(b, o)" in text
    text, structs = source("Produce", 3)
    assert "hii" in structs


def test_every_slice_is_preceded_by_a_check() -> None:
    for schema in SCHEMAS.values():
        for version in range(schema.versions.first, schema.versions.last + 1):
            for root in (schema.request, schema.response):
                lines = reader_source("f", schema.layout(root, version), set())
                for i, line in enumerate(lines):
                    if "[o:e]" in line and "_i_" in line:
                        size = int(lines[i - 3].rpartition(" * ")[2])
                        checks = [f"if n * {size} > end - o:", "if n > end - o:"][size == 1 :]
                        assert any(check in before for check in checks for before in lines[max(0, i - 7) : i]), line
                    elif "[o:e]" in line:
                        assert "> end:" in lines[i - 2] or "<= end:" in lines[i - 2], line
                    if "for _ in range(n):" in line and "tag" not in lines[i + 1]:
                        assert any("> end - o:" in before for before in lines[max(0, i - 14) : i]), line


def test_the_source_compiles() -> None:
    text, _ = source("Fetch", 18)
    compile(text, "read_it", "exec")


def read_plainly(name: str, kind: str, version: int, data: bytes) -> Any:
    """What the reader without rows makes of `data`; None if it refuses it."""
    try:
        return plain_functions(name, kind, version)[0](data, 0)
    except (DecodeError, struct.error, IndexError, UnicodeDecodeError):
        return None


def assert_read_the_same(schema: ApiSchema, kind: str, version: int, data: bytes) -> None:
    expected = read_plainly(schema.name, kind, version, data)
    for buffer in (data, memoryview(bytearray(data))):
        try:
            message, end = decode(message_class(schema, kind), version, buffer)
        except DecodeError:
            assert expected is None
        else:
            assert (as_plain(schema.name, message), end) == expected


@pytest.mark.parametrize(("schema", "kind"), ROW_KINDS, ids=ROW_IDS)
def test_rows_are_read_as_plain_structs_are_however_the_bytes_are_damaged(schema: ApiSchema, kind: str) -> None:
    @settings(max_examples=400)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(schema.versions.first, schema.versions.last))
        encoded = bytearray(encode(data.draw(messages(schema, kind, version)), version))
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, min(len(encoded) - 1, 200)))
            encoded[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, encoded[at] ^ 1]))
        cut = data.draw(st.sampled_from([None, None, *range(1, 40)]))
        damaged = bytes(encoded if cut is None else encoded[:-cut]) + data.draw(st.sampled_from([b"", b"\0", b"abc"]))
        assert_read_the_same(schema, kind, version, damaged)

    check()


@pytest.mark.parametrize("version", range(4, 19))
def test_every_changed_byte_of_rows_is_read_as_plain_structs_are(version: int) -> None:
    """Rows are read all at once if none of them has tags: each byte takes its turn at saying that there are some."""
    schema = SCHEMAS["Fetch"]
    partition = FetchPartition(partition=1, fetch_offset=5)
    for count in (1, 2, 3):
        frame = encode(FetchRequest(topics=(FetchTopic(partitions=(partition,) * count),)), version)
        for at in range(len(frame)):
            for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
                assert_read_the_same(schema, "request", version, frame[:at] + bytes((value,)) + frame[at + 1 :])


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("count", [0, 1, 2, 126, 127, 128, 300])
def test_many_rows_are_read_at_once(version: int, count: int) -> None:
    partitions = tuple(FetchPartition(partition=number, fetch_offset=-number) for number in range(count))
    request = FetchRequest(topics=(FetchTopic(partitions=partitions), FetchTopic(partitions=partitions)))
    encoded = encode(request, version)
    assert decode(FetchRequest, version, encoded) == (request, len(encoded))
    if version >= 17:
        tagged = (*partitions, FetchPartition(high_watermark=7), *partitions)
        request = FetchRequest(topics=(FetchTopic(partitions=tagged),))
        expected = tagged if version >= 18 else (*partitions, FetchPartition(), *partitions)
        assert decode(FetchRequest, version, encode(request, version))[0].topics[0].partitions == expected
