"""Map segments on the topic: layout, round trip, replay."""

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.mirror.formats import FormatError
from tidemill.mirror.lineage import Span
from tidemill.mirror.map_records import KEY_BYTES_SHOWN, NewerVersion, SegmentKey, SegmentValue, replay
from tidemill.mirror.offsets import Run

KEY = SegmentKey(topic="orders", partition=3, segment=2)
VALUE = SegmentValue(
    source_topic_id=uuid.UUID(int=1),
    target_topic_id=uuid.UUID(int=2),
    target_topic="A.orders",
    runs=(Run(1000, 777), Run(1300, 1076)),
)


def test_layout() -> None:
    assert KEY.encode().hex() == "0000" + "00066f7264657273" + "00000003" + "00000002"
    assert VALUE.encode().hex() == (
        "0000" + f"{1:032x}" + f"{2:032x}" + "0008412e6f7264657273" + "02" + f"{1000:016x}" + f"{777:016x}" + "ab0201"
    )
    with_spans = replace(VALUE, spans=(Span(-1, 0, 5), Span(300, 5, 9)))
    assert with_spans.encode().hex() == (
        "0001" + VALUE.encode().hex()[4:] + "0200" + f"{0:016x}{5:016x}" + "ad02" + f"{5:016x}{9:016x}"
    )
    assert SegmentValue.decode(with_spans.encode()) == with_spans
    assert SegmentKey.decode(KEY.encode()) == KEY
    assert SegmentValue.decode(VALUE.encode()) == VALUE


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**40)), max_size=127),
)
def test_round_trip(source: int, target: int, steps: list[tuple[int, int]]) -> None:
    runs = [Run(source, target)]
    for advance, skipped in steps:
        runs.append(Run(runs[-1].source + advance + skipped, runs[-1].target + advance))
    value = SegmentValue(
        source_topic_id=uuid.UUID(int=5), target_topic_id=uuid.UUID(int=6), target_topic="t", runs=tuple(runs)
    )
    assert SegmentValue.decode(value.encode()) == value


def test_damage_is_refused() -> None:
    for cut in range(len(VALUE.encode())):
        with pytest.raises(FormatError):
            SegmentValue.decode(VALUE.encode()[:cut])
    with pytest.raises(FormatError, match="newer"):
        SegmentValue.decode(b"\x00\x07" + VALUE.encode()[2:])


def test_replay_keeps_the_latest_and_honours_deletion() -> None:
    older = SegmentValue(
        source_topic_id=uuid.UUID(int=1), target_topic_id=uuid.UUID(int=2), target_topic="A.orders", runs=(Run(0, 0),)
    )
    gone = SegmentKey(topic="gone", partition=0, segment=0)
    first = SegmentKey(topic="orders", partition=3, segment=1)
    maps = replay(
        [
            (first.encode(), older.encode()),
            (gone.encode(), older.encode()),
            (KEY.encode(), older.encode()),
            (KEY.encode(), VALUE.encode()),
            (gone.encode(), None),
        ]
    )
    assert set(maps) == {("orders", 3)}
    assert maps["orders", 3].segments == {1: older.runs, 2: VALUE.runs}
    assert maps["orders", 3].target_topic == "A.orders"


def test_a_value_that_cannot_be_read_concerns_its_partition_only() -> None:
    other = SegmentKey(topic="other", partition=0, segment=0)
    maps = replay([(KEY.encode(), VALUE.encode()[:-1]), (other.encode(), VALUE.encode())])
    assert maps["orders", 3].segments == {2: ()}
    assert maps["other", 0].segments == {0: VALUE.runs}
    with pytest.raises(NewerVersion):
        replay([(KEY.encode(), b"\x00\x07" + VALUE.encode()[2:])])


@pytest.mark.parametrize(
    "raw_key", [b"note", b"", KEY.encode()[:-1], b"\0\0\0\2\xff\xff" + bytes(8), b"\0\0" + b"y" * 90]
)
def test_a_key_that_cannot_be_read_is_shown_until_its_row_is_deleted(raw_key: bytes) -> None:
    rows = [(KEY.encode(), VALUE.encode()), (raw_key, b"anything")]
    with pytest.raises(FormatError, match=f"the key {raw_key[:KEY_BYTES_SHOWN].hex()}.* is no segment's: .*null value"):
        replay(rows)
    maps = replay([rows[0], (raw_key, None)])
    assert maps["orders", 3].segments == {2: VALUE.runs}
