"""Log lines as a process writes them, in a process of its own because the setting is global."""

import json
import os
import subprocess
import sys

import pytest

from tidemill.core.runtime.log_lines import configure_log

PROGRAM = """
import structlog
from tidemill.core.runtime.log_lines import configure_log
configure_log({form!r}, {level!r})
log = structlog.get_logger("tidemill.test")
log.debug("hidden")
log.info("hello", answer=42)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken")
"""


def run(form: str, level: str = "info") -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form=form, level=level)], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_text_is_for_people_and_goes_to_standard_error() -> None:
    out, err = run("text")
    assert out == ""
    first = err.splitlines()[0]
    assert "hello" in first
    assert "answer=42" in first
    assert "hidden" not in err
    assert "ZeroDivisionError" in err


def test_json_is_one_object_per_line() -> None:
    _, err = run("json", "debug")
    lines = [json.loads(line) for line in err.splitlines()]
    assert [line["event"] for line in lines] == ["hidden", "hello", "broken"]
    assert lines[1]["answer"] == 42
    assert lines[1]["level"] == "info"
    assert "ZeroDivisionError" in lines[2]["exception"]


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("text", "loud")])
def test_what_does_not_exist_is_refused(form: str, level: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        configure_log(form, level)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_names_places_and_no_values(form: str) -> None:
    program = PROGRAM.replace("    1 / 0", "    password = 'sec' + 'ret'\n    1 / 0").format(form=form, level="info")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "ZeroDivisionError" in done.stderr
    assert "secret" not in done.stderr
    assert len(done.stderr) < 1000


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(form: str) -> None:
    """The disk that standard error goes to is full; the program goes on, also where it logs in an error's handler."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(form=form, level="info") + "print('went on')"],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert done.stdout == "went on\n"


def test_nobody_reads_standard_error_any_more() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form="text", level="info") + "print('went on')"],
        stdout=subprocess.PIPE,
        stderr=write_end,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert done.stdout == "went on\n"
