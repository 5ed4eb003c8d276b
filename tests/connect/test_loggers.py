"""Levels of loggers"""

import io
import logging
import sys

import pytest
import structlog

from tidemill.connect.loggers import LEVELS, LoggerLevels, configure_levels
from tidemill.core.runtime.clock import ManualClock

NAMESPACE = "tidemill.test_loggers"


@pytest.fixture
def levels() -> LoggerLevels:
    for name in ("", ".a", ".a.b", ".ab"):
        logging.getLogger(NAMESPACE + name).setLevel(logging.NOTSET)
    return LoggerLevels(ManualClock(now_ms=1_000))


def test_a_level_holds_for_everything_below(levels: LoggerLevels) -> None:
    assert levels.set(f"{NAMESPACE}.a", "DEBUG") == [f"{NAMESPACE}.a", f"{NAMESPACE}.a.b"]
    info = levels.get(f"{NAMESPACE}.a.b")
    assert info is not None and (info.level, info.last_modified) == ("DEBUG", 1_000)
    other = levels.get(f"{NAMESPACE}.ab")
    assert other is not None and other.last_modified is None


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_comes_back(levels: LoggerLevels, level: str) -> None:
    levels.set(NAMESPACE, level)
    info = levels.get(NAMESPACE)
    assert info is not None and info.level == level


def test_a_logger_nobody_has_made_is_unknown_until_it_has_a_level(levels: LoggerLevels) -> None:
    name = f"{NAMESPACE}.later"
    assert levels.get(name) is None
    assert levels.set(name, "ERROR") == [name]
    assert name in levels.every() and "root" in levels.every()


def test_a_level_from_elsewhere_that_does_not_exist_changes_nothing(levels: LoggerLevels) -> None:
    levels.set(NAMESPACE, "WARN")
    levels.set_level(NAMESPACE, "LOUD")
    info = levels.get(NAMESPACE)
    assert info is not None and info.level == "WARN"


def test_lines_obey_levels_that_change(monkeypatch: pytest.MonkeyPatch, levels: LoggerLevels) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    try:
        configure_levels("json", "info")
        log = structlog.get_logger(f"{NAMESPACE}.a")
        log.debug("first")
        levels.set(NAMESPACE, "DEBUG")
        log.debug("second", key="value")
        levels.set("root", "INFO")
    finally:
        structlog.reset_defaults()
        root.handlers[:] = before
        root.setLevel(logging.WARNING)
        logging.getLogger("tidemill").setLevel(logging.NOTSET)
    assert "first" not in stream.getvalue()
    assert '"event": "second"' in stream.getvalue() and '"key": "value"' in stream.getvalue()


@pytest.mark.parametrize(("log_format", "level"), [("xml", "info"), ("text", "loud")])
def test_formats_and_levels_that_do_not_exist(log_format: str, level: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        configure_levels(log_format, level)
