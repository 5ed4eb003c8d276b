"""Golden vectors written by MirrorMaker 2's own classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.mirror.formats import Checkpoint, FormatError, Heartbeat, OffsetSync, Reader, pack_string

SYNC = OffsetSync(topic="orders", partition=3, upstream_offset=1000, offset=777)
CHECKPOINT = Checkpoint(group="grp", topic="A.orders", partition=3, upstream_offset=1000, offset=777)
HEARTBEAT = Heartbeat(source_alias="A", target_alias="B", timestamp_ms=1_700_000_000_000)

GOLDEN = [
    (SYNC, "00066f726465727300000003", "00000000000003e80000000000000309"),
    (
        CHECKPOINT,
        "00036772700008412e6f726465727300000003",
        "000000000000000003e800000000000003090000",
    ),
    (HEARTBEAT, "000141000142", "00000000018bcfe56800"),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_golden_bytes(record: OffsetSync | Checkpoint | Heartbeat, key: str, value: str) -> None:
    assert record.key().hex() == key
    assert record.value().hex() == value
    assert type(record).decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_truncated_bytes_are_refused(record: OffsetSync | Checkpoint | Heartbeat, key: str, value: str) -> None:
    for cut in range(len(key) // 2):
        with pytest.raises(FormatError):
            type(record).decode(bytes.fromhex(key)[:cut], bytes.fromhex(value))
    for cut in range(len(value) // 2):
        with pytest.raises(FormatError):
            type(record).decode(bytes.fromhex(key), bytes.fromhex(value)[:cut])


@given(st.text(max_size=200), st.text(max_size=50), st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1))
def test_checkpoint_round_trip(group: str, topic: str, partition: int, offset: int) -> None:
    record = Checkpoint(
        group=group, topic=topic, partition=partition, upstream_offset=offset, offset=offset, metadata=topic
    )
    assert Checkpoint.decode(record.key(), record.value()) == record


def test_unreadable_strings_are_refused() -> None:
    with pytest.raises(FormatError, match="int16"):
        pack_string("x" * 40_000)
    with pytest.raises(FormatError, match="UTF-8"):
        Reader(b"\x00\x01\xff").string()
    with pytest.raises(FormatError, match="varint"):
        Reader(b"\xff" * 11).varint()
