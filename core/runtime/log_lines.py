"""How the log lines of a process look

One call at start-up, the same in every program of ours: lines go to standard error (standard output belongs to the
readiness line and to results), as text for people or as one JSON object per line for machines. Code logs through
`structlog.get_logger("tidemill.<part>")` and never cares. A traceback names places, not values: to draw the local
variables of every frame takes half a second of the event loop, and shows records and passwords to whoever reads logs.

A line that cannot be written, because the disk behind standard error is full or nobody reads the pipe any more, is
lost. Whoever logs does so in the middle of something else, often of handling a failure, and goes on.
"""

import logging
import sys
from typing import Final, TextIO, cast

import structlog

FORMATS: Final = ("text", "json")


class _Lossy:
    """A text file as far as `print` needs one, without its errors."""

    __slots__ = ("__weakref__", "_file")

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write `text` if that can be done."""
        try:
            self._file.write(text)
        except (OSError, ValueError):  # ValueError: it is closed
            return

    def flush(self) -> None:
        """Let what was written leave if it can."""
        try:
            self._file.flush()
        except (OSError, ValueError):
            return


def configure_log(log_format: str = "text", level: str = "info") -> None:
    """Set the format and the least level that is shown; raises ValueError for one that does not exist."""
    if log_format not in FORMATS:
        raise ValueError(f"log format {log_format!r} is not one of {', '.join(FORMATS)}")
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error, critical")
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([structlog.processors.format_exc_info] if log_format == "json" else []),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Lossy(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        stream=sys.stderr, level=max(threshold, logging.WARNING), format="%(levelname)s %(name)s: %(message)s"
    )
