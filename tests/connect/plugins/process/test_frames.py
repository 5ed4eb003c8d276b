"""Messages behind their length, however the bytes are cut"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.plugins.process.frames import MESSAGE_BYTES_MAX, FrameError, FrameReader, frame, shown

LENGTHS = st.sampled_from([0, 1, 2, 127, 128, 129, 16_383, 16_384])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces."""
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(
    messages=st.lists(st.builds(bytes.__mul__, st.binary(min_size=1, max_size=1), LENGTHS), max_size=5),
    places=st.lists(st.integers(0, 2_000)),
    rest=st.binary(max_size=3),
)
def test_any_split_of_the_bytes_gives_the_same_messages(messages: list[bytes], places: list[int], rest: bytes) -> None:
    torn = b"\x05" + rest  # the beginning of one more
    reader = FrameReader()
    found = [each for piece in cut(b"".join(map(frame, messages)) + torn, places) for each in reader.take(piece)]
    assert found == messages
    assert reader.pending == torn


def test_byte_by_byte() -> None:
    reader = FrameReader()
    messages = [b"", b"a", b"b" * 200]
    data = b"".join(map(frame, messages))
    assert [each for byte in data for each in reader.take(bytes([byte]))] == messages
    assert reader.pending == b""


@given(st.binary(max_size=200))
def test_rubbish_is_messages_or_refused_and_never_anything_else(data: bytes) -> None:
    reader = FrameReader()
    try:
        found = list(reader.take(data))
    except FrameError:
        return
    assert sum(len(frame(each)) for each in found) <= len(data) + 3 * len(found)  # lengths may be longer than needed


def test_what_is_too_large_is_refused_by_its_length_alone() -> None:
    with pytest.raises(FrameError, match=f"a message of {MESSAGE_BYTES_MAX + 1} bytes, of {MESSAGE_BYTES_MAX} at most"):
        list(FrameReader().take(bytes.fromhex("81808020")))
    with pytest.raises(FrameError, match="a length of more than 4 bytes"):
        list(FrameReader().take(b"\x80" * 5))
    with pytest.raises(FrameError, match="at most"):
        frame(bytes(MESSAGE_BYTES_MAX + 1))


def test_what_is_shown_is_short_and_can_be_read() -> None:
    assert shown(b"Listening on port 80\n") == r"it begins with 'Listening on port 80\n'"
    assert len(shown(b"\xff" * 1_000)) < 600
