"""Log levels that change while the worker runs

The loggers of this process under the names and levels of Connect's `/admin/loggers`. A level set on a name holds for
every logger below it, as the dots say. Java's levels are mapped to Python's; `root` is Python's root logger.
"""

import logging
import sys
from collections.abc import Mapping

import structlog

from tidemill.connect.entities import LoggerLevelInfo
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.log_lines import FORMATS

LEVELS: Mapping[str, int] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
"""Connect's levels."""

ROOT = "root"


class LoggerLevels:
    """Reads and sets levels; remembers when each was last set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._modified_ms: dict[str, int] = {}

    def every(self) -> dict[str, LoggerLevelInfo]:
        """Every logger there is, by name."""
        return {name: self._info(name) for name in sorted([ROOT, *self._names()])}

    def get(self, name: str) -> LoggerLevelInfo | None:
        """One logger, None if there is none of that name."""
        return self._info(name) if name in (ROOT, *self._names()) else None

    def set(self, namespace: str, level: str) -> list[str]:
        """Set `level` on `namespace` and all below it; the names it changed, sorted."""
        if namespace == ROOT:
            below = [ROOT, *self._names()]
        else:
            logging.getLogger(namespace)  # made if it does not exist yet, so that the level waits for it
            below = [name for name in self._names() if name == namespace or name.startswith(f"{namespace}.")]
        for name in below:
            _logger(name).setLevel(LEVELS[level])
            self._modified_ms[name] = self._clock.now_ms()
        return sorted(below)

    def set_level(self, namespace: str, level: str) -> None:
        """The same for a level another worker asked for; one that does not exist is left alone."""
        if level in LEVELS:
            self.set(namespace, level)

    def _names(self) -> list[str]:
        return [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]

    def _info(self, name: str) -> LoggerLevelInfo:
        number = _logger(name).getEffectiveLevel()
        level = [text for text, bound in LEVELS.items() if number >= bound or text == "TRACE"][-1]
        return LoggerLevelInfo(level=level, last_modified=self._modified_ms.get(name))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def configure_levels(log_format: str = "text", level: str = "info") -> None:
    """Send all log lines to standard error through the standard library's loggers, whose levels can change.

    Raises ValueError for a format or level that does not exist.
    """
    if log_format not in FORMATS:
        raise ValueError(f"log format {log_format!r} is not one of {', '.join(FORMATS)}")
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error, critical")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)
    logging.getLogger("tidemill").setLevel(threshold)
