"""The doubts of a restart: what contradicts the stored map, how long it is waited out, what a probe shows."""

from tidemill.core.records.batch import stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record
from tidemill.mirror.passthrough import Outgoing, Relayed
from tidemill.mirror.resuming import ARRIVAL_MS, VISIBLE_MS, Resumption

PID = (1 << 62) + 7


def relayed(*barren: tuple[int, int]) -> Relayed:
    return Relayed(outgoing=(), next_source=0, verdicts=(), barren=barren)


def batch(*values: bytes, base: int = 0) -> bytes:
    records = [Record(index, 1, b"k", value) for index, value in enumerate(values)]
    built = bytearray(build_batch(records, producer_id=PID, producer_epoch=0, base_sequence=base))
    stamp(built, 0, base, 0)
    return bytes(built)


def test_a_hole_where_the_map_expects_a_record_contradicts_it() -> None:
    doubts = Resumption(0)
    assert doubts.contradicts(10, 12)
    assert not doubts.contradicts(12, 12)
    assert not doubts.contradicts(None, 12), "an empty map expects nothing"


def test_markers_and_aborted_data_contradict_nothing() -> None:
    doubts = Resumption(0)
    doubts.note(relayed((10, 13), (13, 14)), 10)
    assert not doubts.contradicts(10, 14)
    assert not doubts.contradicts(13, 14)
    assert doubts.contradicts(9, 14)
    doubts.note(relayed((20, 21)), 14)
    assert doubts.contradicts(13, 14), "what lies behind is forgotten"
    assert not doubts.contradicts(20, 21)


def test_waiting_ends_and_survives_a_clock_that_is_put_back() -> None:
    doubts = Resumption(100_000)
    assert doubts.remaining_ms(100_000) == ARRIVAL_MS
    assert doubts.remaining_ms(100_000 + ARRIVAL_MS) == 0
    assert doubts.remaining_ms(0) == ARRIVAL_MS
    assert not doubts.is_over(100_000 + ARRIVAL_MS)
    assert doubts.is_over(100_000 + VISIBLE_MS)


def test_a_new_doubt_is_waited_out_as_long_as_the_first() -> None:
    doubts = Resumption(0)
    doubts.begin_anew(4_000)
    assert doubts.remaining_ms(ARRIVAL_MS) == 4_000
    assert not doubts.is_over(VISIBLE_MS)


def test_a_probe_is_known_by_its_place_and_its_records() -> None:
    doubts = Resumption(0)
    doubts.probe = Outgoing(batch=batch(b"a", b"b"), target_offset=7, records=2, pieces=((3, 2),))
    assert doubts.probe_landed(9, batch(b"a", b"b", base=7))
    assert not doubts.probe_landed(9, batch(b"a", b"c", base=7))
    assert not doubts.probe_landed(10, batch(b"a", b"b", base=8))
    assert not doubts.probe_landed(9, b"")
