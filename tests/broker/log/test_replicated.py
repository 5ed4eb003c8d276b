"""Batches as a leader sends them, whole and broken in every way that a network can break them"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.log.log_world import batch
from tidemill.broker.log.replicated import check_replicated
from tidemill.core.errors import CorruptMessage, KafkaError, OffsetOutOfRange
from tidemill.core.records.batch import BatchView, stamp


def stamped(offset: int, epoch: int = 0, count: int = 1) -> bytes:
    data = bytearray(batch(count))
    stamp(data, 0, offset, epoch)
    return bytes(data)


SENT = stamped(10, 1, 3) + stamped(13, 1) + stamped(20, 2, 2)


def test_batches_that_go_on_are_found_with_gaps_between_them() -> None:
    found = check_replicated(SENT, 10, 1)
    assert [(header.base_offset, header.last_offset, header.leader_epoch) for _, header in found] == [
        (10, 12, 1),
        (13, 13, 1),
        (20, 21, 2),
    ]
    assert [position for position, _ in found] == [0, len(stamped(10, 1, 3)), len(SENT) - len(stamped(20, 2, 2))]
    assert check_replicated(b"", 10, 1) == []


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (stamped(9), OffsetOutOfRange),
        (stamped(10) + stamped(10), OffsetOutOfRange),
        (stamped(10 + 2**31), OffsetOutOfRange),
        (stamped(10, -1), CorruptMessage),
        (stamped(10, 2) + stamped(11, 1), CorruptMessage),
        (SENT[:-1], CorruptMessage),
        (SENT + b"\0", CorruptMessage),
        (b"\0" * 100, CorruptMessage),
    ],
)
def test_what_does_not_go_on_is_refused(data: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        check_replicated(data, 10, 0)


@given(st.integers(0, len(SENT) - 1), st.integers(0, 7))
def test_no_changed_bit_passes_where_the_leader_did_not_write_it(at: int, bit: int) -> None:
    """Offset and epoch lie outside the checksum: there only what does not follow is noticed."""
    data = bytearray(SENT)
    data[at] ^= 1 << bit
    try:
        found = check_replicated(bytes(data), 10, 1)
    except KafkaError:
        return
    for position, header in found:
        sent = BatchView(SENT, position)
        assert header.crc == sent.crc
        assert header[5:] == sent[5:]
