"""What a process of tasks logs, in a process of its own: it changes what all of it logs"""

import json
import subprocess
import sys
from typing import Any

HEAD = """
import logging, sys
from tidemill.connect.remote import log_lines
"""


def said(program: str) -> list[Any]:
    """The lines of JSON that a program with `log_lines` writes, the text of what is none."""
    run = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) if line.startswith("{") else line for line in run.stderr.splitlines()]


def test_the_plugins_package_is_heard_earlier_than_its_libraries() -> None:
    lines = said(
        "log_lines.configure(sys.stderr)\n"
        "log_lines.tell_more_of('mine.inner:plugin')\n"
        "for name in ('mine.other', 'theirs'):\n"
        "    logging.getLogger(name).info('info of %s', name)\n"
        "    logging.getLogger(name).warning('warning of %s', name)\n"
    )
    assert lines == [
        {"event": "info of mine.other", "level": "info", "logger": "mine.other"},
        {"event": "warning of mine.other", "level": "warning", "logger": "mine.other"},
        {"event": "warning of theirs", "level": "warning", "logger": "theirs"},
    ]


def test_a_level_that_the_plugin_has_set_is_kept() -> None:
    assert not said(
        "logging.getLogger('mine').setLevel(logging.ERROR)\n"
        "log_lines.configure(sys.stderr)\n"
        "log_lines.tell_more_of('mine:plugin')\n"
        "logging.getLogger('mine').warning('quiet')\n"
    )


def test_a_plugin_that_set_up_logging_has_it_its_own_way() -> None:
    assert said(
        "logging.basicConfig(format='mine: %(message)s')\nlog_lines.configure(sys.stderr)\nlogging.warning('hello')\n"
    ) == ["mine: hello"]


def test_what_is_bound_to_the_context_stands_beside_it_and_a_stack_is_part_of_the_line() -> None:
    (line,) = said(
        "import structlog\n"
        "log_lines.configure(sys.stderr)\n"
        "structlog.contextvars.bind_contextvars(task='lines-0')\n"
        "try:\n"
        "    1 / 0\n"
        "except ZeroDivisionError:\n"
        "    logging.exception('it failed')\n"
    )
    assert (line["event"], line["level"], line["task"]) == ("it failed", "error", "lines-0")
    assert line["exception"].endswith("ZeroDivisionError: division by zero")
