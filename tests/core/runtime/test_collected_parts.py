"""prometheus_client's metrics, of which one part cannot be read or written."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from tidemill.core.runtime.collected_parts import CollectedParts
from tidemill.core.runtime.metric_parts import ERRORS


def well() -> Iterator[Metric]:
    yield GaugeMetricFamily("a", "a", value=1)


def unreadable() -> Iterator[Metric]:
    yield GaugeMetricFamily("half", "half of a part", value=1)
    raise LookupError("no more")


def unwritable() -> Iterator[Metric]:
    yield GaugeMetricFamily("huge", "no number that fits", value=10**400)


def test_a_part_that_cannot_be_read_or_written_is_left_out() -> None:
    lines = CollectedParts({"x": unreadable, "y": well, "z": unwritable}).text().decode().splitlines()
    assert lines == [
        "# HELP a a",
        "# TYPE a gauge",
        "a 1.0",
        f"# HELP {ERRORS} scrapes that lack a part, which failed",
        f"# TYPE {ERRORS} counter",
        f'{ERRORS}{{part="x"}} 1',
        f'{ERRORS}{{part="y"}} 0',
        f'{ERRORS}{{part="z"}} 1',
    ]
