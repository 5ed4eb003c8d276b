"""A scrape in parts, of which one that fails costs its own metrics only

What a process counts comes from many places, and a mistake in one of them must not blind whoever watches the others. So
each part is read and written by itself. One that raises is left out of that scrape, `ERRORS` counts it under its name,
and the log has its traceback the first time it happens in that place.

Not here: what the parts are; a process names its own.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from tidemill.core.runtime.exposition import Family, labels, write

log = structlog.get_logger("tidemill.metrics")

ERRORS: Final = "tidemill_metrics_part_errors_total"
"""How many scrapes a part was left out of, by its name."""


class MetricParts:
    """The parts of one process, by name, and how often each of them failed."""

    def __init__(self, *names: str) -> None:
        self.errors = dict.fromkeys(names, 0)
        self._told: set[tuple[str, str, int]] = set()

    @contextmanager
    def part(self, name: str, failed: set[str] | None = None) -> Iterator[None]:
        """What is done within belongs to that part; if it raises, that goes no further and `failed` has its name."""
        try:
            yield
        except Exception as error:
            self.errors[name] += 1
            if failed is not None:
                failed.add(name)
            self._tell(name, error)

    def written(self, name: str, text: Callable[[], bytes]) -> bytes:
        """The text of that part, empty if it cannot be written."""
        with self.part(name):
            return text()
        return b""

    def text(self) -> bytes:
        """How often each part failed, in Prometheus' text format."""
        samples = [(labels(part=name), count) for name, count in self.errors.items()]
        return write([Family(ERRORS, "counter", "scrapes that lack a part, which failed", samples)])

    def _tell(self, name: str, error: Exception) -> None:
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        where = (name, frame.f_code.co_filename, line)
        if where not in self._told:
            self._told.add(where)
            note = "these metrics are left out, the others are there; said once"
            log.error("metrics of a part cannot be told", part=name, note=note, exc_info=error)
