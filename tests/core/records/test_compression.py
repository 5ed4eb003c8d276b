"""The codecs: round trips, foreign framings, damage and bombs"""

import gzip
import struct
from contextlib import suppress

import cramjam
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from tidemill.core.records.compression import CODECS, codec_number, compress, decompress, decompress_into

COMPRESSED = [name for name in CODECS if name != "none"]
TEXT = b'{"id":1,"name":"user"}' * 10_000  # several blocks of any framing
NOISE = bytes((i * i * 7919 >> 8) & 0xFF for i in range(200_000))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, NOISE], ids=["empty", "one", "text", "noise"])
def test_what_goes_in_comes_out(codec: str, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed, len(data)) == data
    assert decompress(CODECS[codec], memoryview(packed), len(data) + 1) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_text_shrinks(codec: str) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 4


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_more_than_allowed_is_refused(codec: str) -> None:
    for data in (TEXT, NOISE):
        with pytest.raises(MessageTooLarge, match=f"{codec} data is larger than {len(data) - 1} bytes"):
            decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused(codec: str) -> None:
    bomb = compress(codec, bytes(20_000_000))
    assert len(bomb) < 1_100_000
    with pytest.raises(MessageTooLarge):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_damage(codec: str) -> None:
    packed = compress(codec, TEXT)
    for end in (1, 3, 10, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptMessage, match=f"{codec} data is damaged"):
            decompress(codec, packed[:end], len(TEXT))


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=40)
@given(data=st.binary(max_size=60), start=st.integers(0, 40))
def test_nonsense_raises_only_kafka_errors(codec: str, data: bytes, start: int) -> None:
    packed = compress(codec, TEXT[:200])
    for hostile in (data, packed[:start] + data):
        with suppress(CorruptMessage, MessageTooLarge):
            assert len(decompress(codec, hostile, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=60)
@given(data=st.binary(max_size=60), start=st.integers(0, 200), room=st.integers(0, 5000), large=st.booleans())
def test_into_a_room_goes_what_would_be_returned(codec: str, data: bytes, start: int, room: int, large: bool) -> None:
    """Damaged or not, too large or not: the same bytes or the same error."""
    packed = compress(codec, TEXT if large else TEXT[:3000])
    room = len(TEXT) + room - 2500 if large else room
    for sent in (packed, packed[:start] + data):
        filled = memoryview(bytearray(room))
        try:
            expected: bytes | type = decompress(codec, sent, room)
        except (CorruptMessage, MessageTooLarge) as error:
            expected = type(error)
        try:
            found: bytes | type = bytes(filled[: decompress_into(codec, sent, filled)])
        except (CorruptMessage, MessageTooLarge) as error:
            found = type(error)
        assert found == expected


def test_many_empty_gzip_members_may_be_there_too() -> None:
    members = gzip.compress(b"", mtime=0) * 50_000
    assert decompress("gzip", members, 10) == b""


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
def test_another_implementation_reads_ours_and_we_read_theirs(codec: str, data: bytes) -> None:
    theirs = pyarrow.Codec(codec)
    assert theirs.decompress(compress(codec, data), len(data), asbytes=True) == data
    assert decompress(codec, theirs.compress(data, asbytes=True), len(data)) == data


def test_snappy_is_framed_as_xerial_does_and_read_raw_too() -> None:
    packed = compress("snappy", TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    size = struct.unpack_from(">i", packed, 16)[0]
    block = packed[20 : 20 + size]
    assert pyarrow.Codec("snappy").decompress(block, 32 * 1024, asbytes=True) == TEXT[: 32 * 1024]
    assert decompress("snappy", pyarrow.Codec("snappy").compress(TEXT, asbytes=True), len(TEXT)) == TEXT


def test_a_snappy_block_may_not_claim_more_than_it_can_hold() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"abc"
    with pytest.raises(CorruptMessage, match="8 bytes cannot hold 4294967295"):
        decompress("snappy", claims_4_gib, 2**40)
    header = compress("snappy", b"")
    with pytest.raises(CorruptMessage, match="block of 100 bytes, 0 are left"):
        decompress("snappy", header + struct.pack(">i", 100), 1000)
    with pytest.raises(CorruptMessage, match="block of -1 bytes"):
        decompress("snappy", header + struct.pack(">i", -1), 1000)


def test_lz4_frames_have_independent_blocks_of_64_kib() -> None:
    packed = compress("lz4", TEXT)
    assert packed[:7].hex() == "04224d18" + "60" + "40" + "82"
    assert bytes(cramjam.lz4.decompress(packed)) == TEXT
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert linked[4] & 0x20 == 0
    assert decompress("lz4", linked, len(TEXT)) == TEXT


def test_gzip_members_may_follow_one_another() -> None:
    both = gzip.compress(b"one ", mtime=0) + gzip.compress(b"two", mtime=0)
    assert decompress("gzip", both, 7) == b"one two"
    with pytest.raises(MessageTooLarge):
        decompress("gzip", both, 6)
    with pytest.raises(CorruptMessage):
        decompress("gzip", both + b"\0", 7)


@pytest.mark.parametrize("codec", ["lzma", 5, -1])
def test_unknown_codecs_are_named(codec: str | int) -> None:
    with pytest.raises(UnsupportedCompressionType, match="none, gzip, snappy, lz4, zstd"):
        codec_number(codec)
