"""Retention decisions as a table"""

import pytest

from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.retention import SegmentFacts, active_is_due, removable

NOW = 1_000_000


def segments(*rows: tuple[int, int]) -> list[SegmentFacts]:
    """Segments of ten offsets each: (bytes, age of the newest record in ms)."""
    return [
        SegmentFacts(base_offset=10 * n, end_offset=10 * n + 10, size_bytes=size, newest_ms=NOW - age)
        for n, (size, age) in enumerate(rows)
    ]


OLD_OLD_NEW = segments((100, 900), (100, 600), (100, 100))


@pytest.mark.parametrize(
    ("facts", "config", "log_start", "durable", "expected"),
    [
        (OLD_OLD_NEW, LogConfig(retention_ms=500), 0, 30, 2),
        (OLD_OLD_NEW, LogConfig(retention_ms=600), 0, 30, 1),
        (OLD_OLD_NEW, LogConfig(retention_ms=-1), 0, 30, 0),
        (OLD_OLD_NEW, LogConfig(retention_ms=500), 0, 15, 1),  # the second is not durable yet
        (OLD_OLD_NEW, LogConfig(retention_ms=0), 0, 30, 2),  # never the active one
        (OLD_OLD_NEW, LogConfig(retention_ms=500, cleanup_policy=("compact",)), 0, 30, 0),
        (OLD_OLD_NEW, LogConfig(retention_ms=500, cleanup_policy=("compact", "delete")), 0, 30, 2),
        (OLD_OLD_NEW, LogConfig(retention_ms=-1, retention_bytes=200), 0, 30, 1),
        (OLD_OLD_NEW, LogConfig(retention_ms=-1, retention_bytes=201), 0, 30, 0),
        (OLD_OLD_NEW, LogConfig(retention_ms=-1, retention_bytes=0), 0, 30, 2),
        (OLD_OLD_NEW, LogConfig(retention_ms=-1), 20, 30, 2),  # below the log start
        (OLD_OLD_NEW, LogConfig(retention_ms=-1), 19, 30, 1),
        (OLD_OLD_NEW, LogConfig(retention_ms=-1, cleanup_policy=("compact",)), 20, 30, 2),
        (segments((100, 100), (100, 900), (100, 0)), LogConfig(retention_ms=500), 0, 30, 0),  # no holes
        (segments((100, 900)), LogConfig(retention_ms=1), 0, 10, 0),
    ],
)
def test_removable(facts: list[SegmentFacts], config: LogConfig, log_start: int, durable: int, expected: int) -> None:
    assert removable(facts, config, NOW, log_start, durable) == expected


@pytest.mark.parametrize(
    ("row", "config", "expected"),
    [
        ((100, 600), LogConfig(retention_ms=500), True),
        ((100, 500), LogConfig(retention_ms=500), False),
        ((0, 600), LogConfig(retention_ms=500), False),
        ((100, 600), LogConfig(retention_ms=-1), False),
        ((100, 600), LogConfig(retention_ms=500, cleanup_policy=("compact",)), False),
    ],
)
def test_the_active_segment_is_rolled_when_all_of_it_is_too_old(
    row: tuple[int, int], config: LogConfig, expected: bool
) -> None:
    assert active_is_due(segments(row)[0], config, NOW) is expected
