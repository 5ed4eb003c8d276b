"""Error texts, short enough to be kept

What a plugin says when it fails is text of any length: a driver's message may quote the statement of 2 MB that failed.
Statuses, answers and log lines carry such texts, and the topic behind the statuses takes records of a megabyte at
most, so every text passes through here on its way in. The beginning says where it happened, the end what it was: both
are kept.
"""

import re

TRACE_CHARS_MAX = 64_000
"""A long chain of Java's or Python's exceptions has a few thousand; even if every character takes six bytes as JSON the
record stays well below what a Kafka topic takes by default."""


def abridged(text: str, chars_max: int = TRACE_CHARS_MAX) -> str:
    """The text with its middle left out if it is longer than `chars_max`; always text that UTF-8 can spell.

    >>> abridged("a" * 50 + "b" * 50, 10)
    'aa\\n… 90 characters left out …\\nbbbbbbbb'
    """
    left_out = len(text) - chars_max
    if left_out > 0:
        head = chars_max // 4
        tail = chars_max - head
        text = f"{text[:head]}\n… {left_out} characters left out …\n{text[-tail:]}"
    return text.encode("utf-8", "replace").decode()


HEADLINE_CHARS_MAX = 300
"""A line that fits a terminal twice over; the trace has the rest."""

_PYTHON_TRACE = "Traceback (most recent call last):"
_GROUP_TRACE = f"Exception Group {_PYTHON_TRACE}"
_MARGIN = re.compile(r" *[|+] ")  # of what belongs to a group


def headline(text: str) -> str:
    """The one line that says what it was: of Python's traces the error, else the first.

    >>> headline("Traceback (most recent call last):\\n  File 'a.py', line 1\\nValueError: no\\nof all things")
    'ValueError: no'
    """
    lines = text.strip().splitlines()
    if any(line.lstrip() == f"+ {_GROUP_TRACE}" for line in lines):
        lines = [line[margin.end() :] if (margin := _MARGIN.match(line)) else line for line in lines]
    heads = [number for number, line in enumerate(lines) if line in (_PYTHON_TRACE, _GROUP_TRACE)]
    if heads:  # the last of a chain or group; the error stands behind the calls, which are indented
        lines = lines[heads[-1] + 1 :]
        lines = [line for line in lines if line and not line.startswith(" ")] or [_PYTHON_TRACE]
    line = lines[0].strip() if lines else ""
    return line if len(line) <= HEADLINE_CHARS_MAX else line[: HEADLINE_CHARS_MAX - 1] + "…"
