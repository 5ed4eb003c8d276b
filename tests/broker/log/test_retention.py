"""Retention decisions as a table"""

from itertools import accumulate

import pytest

from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.retention import Fate, active_may_be_due, age_needs_proof, fate, too_old

NOW = 1_000_000
STAYS, GOES, AGE = Fate.STAYS, Fate.GOES, Fate.DEPENDS_ON_AGE


@pytest.mark.parametrize(
    ("config", "log_start", "durable", "expected"),
    [
        (LogConfig(retention_ms=500), 0, 30, [AGE, AGE]),
        (LogConfig(retention_ms=-1), 0, 30, [STAYS, STAYS]),
        (LogConfig(retention_ms=500), 0, 15, [AGE, STAYS]),  # the second is not durable yet
        (LogConfig(retention_ms=500, cleanup_policy=("compact",)), 0, 30, [STAYS, STAYS]),
        (LogConfig(retention_ms=500, cleanup_policy=("compact", "delete")), 0, 30, [AGE, AGE]),
        (LogConfig(retention_ms=-1, retention_bytes=200), 0, 30, [GOES, STAYS]),
        (LogConfig(retention_ms=-1, retention_bytes=201), 0, 30, [STAYS, STAYS]),
        (LogConfig(retention_ms=500, retention_bytes=201), 0, 30, [AGE, AGE]),
        (LogConfig(retention_ms=-1, retention_bytes=0), 0, 30, [GOES, GOES]),
        (LogConfig(retention_ms=500, retention_bytes=200), 0, 30, [GOES, AGE]),
        (LogConfig(retention_ms=-1), 20, 30, [GOES, GOES]),  # below the log start
        (LogConfig(retention_ms=-1), 19, 30, [GOES, STAYS]),
        (LogConfig(retention_ms=-1), 20, 15, [GOES, STAYS]),
        (LogConfig(retention_ms=-1, cleanup_policy=("compact",)), 20, 30, [GOES, GOES]),
    ],
)
def test_the_fate_of_the_oldest_of_three_segments_and_of_the_next(
    config: LogConfig, log_start: int, durable: int, expected: list[Fate]
) -> None:
    """Segments of ten offsets and a hundred bytes each, the third one active."""
    surplus = [300 - removed - config.retention_bytes for removed in accumulate((100, 100))]
    found = [
        fate(10 * number + 10, left, config, log_start_offset=log_start, durable_offset=durable)
        for number, left in enumerate(surplus)
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("age_ms", "retention_ms", "old", "needs_proof"),
    [
        (501, 500, True, True),
        (500, 500, False, False),
        (1, 0, True, True),
        (10**6, -1, False, False),
        (-1, 500, False, True),  # from the future
        (0, 500, False, False),
    ],
)
def test_an_age_that_decides_needs_proof(age_ms: int, retention_ms: int, old: bool, needs_proof: bool) -> None:
    config = LogConfig(retention_ms=retention_ms)
    assert too_old(NOW - age_ms, config, NOW) is old
    assert age_needs_proof(NOW - age_ms, config, NOW) is needs_proof


@pytest.mark.parametrize(
    ("size_bytes", "config", "expected"),
    [
        (100, LogConfig(retention_ms=500), True),
        (0, LogConfig(retention_ms=500), False),
        (100, LogConfig(retention_ms=-1), False),
        (100, LogConfig(retention_ms=500, cleanup_policy=("compact",)), False),
    ],
)
def test_the_active_segment_may_be_rolled_to_be_removed(size_bytes: int, config: LogConfig, expected: bool) -> None:
    assert active_may_be_due(size_bytes, config) is expected
