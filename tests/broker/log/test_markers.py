"""Transaction markers in Kafka's bytes"""

import pytest

from tests.broker.log.log_world import batch
from tidemill.broker.log.markers import UNREADABLE, Marker, decode, decode_any, encode
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records


@pytest.mark.parametrize("marker", [Marker(True, 0), Marker(False, 7)])
def test_a_marker_comes_back(marker: Marker) -> None:
    view = BatchView(encode(marker, producer_id=5, producer_epoch=3, now_ms=1000))
    assert decode(view) == marker
    assert (view.is_control, view.is_transactional, view.producer_id, view.producer_epoch) == (True, True, 5, 3)
    assert (view.base_sequence, view.max_timestamp) == (-1, 1000)
    (record,) = decode_records(view)
    assert record.key == b"\0\0" + (b"\0\1" if marker.commit else b"\0\0")
    assert record.value == b"\0\0" + marker.coordinator_epoch.to_bytes(4, "big")


def test_other_control_records_are_no_markers() -> None:
    assert decode(BatchView(build_batch([NewRecord(0, b"\0\0\0\2", b"leader change")], control=True))) is None
    assert decode(BatchView(batch(1))) is None


def test_one_that_says_too_little_is_refused_or_counts_as_an_abort() -> None:
    unreadable = BatchView(build_batch([NewRecord(0, b"\0\0\0\1", b"")], control=True))
    with pytest.raises(CorruptMessage):
        decode(unreadable)
    assert (decode_any(unreadable), UNREADABLE.commit) == (UNREADABLE, False)
    assert decode_any(BatchView(batch(1))) is None
