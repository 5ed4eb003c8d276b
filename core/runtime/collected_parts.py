"""Parts of a scrape that prometheus_client writes

For processes that count little: a part is a function that yields prometheus_client's metrics. `metric_parts` says what
becomes of one that fails.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tidemill.core.runtime.metric_parts import MetricParts

Collect = Callable[[], Iterator[Metric]]


class CollectedParts:
    """The metrics of one process; `parts` says how each of them is read."""

    def __init__(self, parts: Mapping[str, Collect]) -> None:
        self._parts = dict(parts)
        self._guard = MetricParts(*self._parts)

    def text(self) -> bytes:
        """Prometheus' text exposition of all parts, and how often each of them failed."""
        pieces = [
            self._guard.written(name, partial(generate_latest, _Part(collect))) for name, collect in self._parts.items()
        ]
        return b"".join([*pieces, self._guard.text()])


class _Part(Collector):
    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()
