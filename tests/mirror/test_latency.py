"""Latencies of batches, by a clock that is told"""

from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.mirror.latency import Latency, Spread

NOW = 1_700_000_000_000


def batch(*timestamps: int) -> bytes:
    return bytes(build_batch([NewRecord(timestamp=each, key=None, value=b"v") for each in timestamps]))


def test_a_batch_counts_by_its_newest_record() -> None:
    latency = Latency()
    assert (latency.last_ms, latency.spread(NOW)) == (None, None)
    latency.arrived(batch(NOW - 500, NOW - 20, NOW - 70), NOW)
    assert latency.last_ms == 20
    latency.arrived(memoryview(batch(NOW - 100)), NOW)
    assert latency.spread(NOW) == Spread(least=20, greatest=100, average=60)


def test_what_is_old_is_forgotten_but_for_the_latest() -> None:
    latency = Latency()
    latency.arrived(batch(NOW - 10), NOW)
    latency.arrived(batch(NOW + 31_000 - 30), NOW + 31_000)
    assert latency.spread(NOW + 31_000) == Spread(least=10, greatest=30, average=20)
    assert latency.spread(NOW + 61_000) == Spread(least=30, greatest=30, average=30)
    assert latency.spread(NOW + 91_000) is None
    latency.arrived(batch(NOW + 200_000), NOW + 200_000)
    assert latency.spread(NOW + 200_000) == Spread(least=0, greatest=0, average=0)
    assert latency.last_ms == 0


def test_timestamps_ahead_and_none_at_all() -> None:
    latency = Latency()
    latency.arrived(batch(NOW + 5_000), NOW)
    assert latency.last_ms == 0
    latency.arrived(batch(-1), NOW)
    assert latency.spread(NOW) == Spread(least=0, greatest=0, average=0)


def test_a_clock_that_is_put_back_begins_anew() -> None:
    latency = Latency()
    latency.arrived(batch(NOW - 10), NOW)
    latency.arrived(batch(NOW - 90_000), NOW - 60_000)
    assert latency.spread(NOW - 60_000) == Spread(least=30_000, greatest=30_000, average=30_000)
