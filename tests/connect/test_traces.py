"""Error texts of any length and spelling"""

import traceback

import pytest

from tidemill.connect.traces import HEADLINE_CHARS_MAX, TRACE_CHARS_MAX, abridged, headline


@pytest.mark.parametrize("text", ["", "short", "ü" * TRACE_CHARS_MAX])
def test_what_is_short_enough_is_left_alone(text: str) -> None:
    assert abridged(text) == text


def test_both_ends_of_a_huge_text_are_kept() -> None:
    text = "Traceback" + "x" * 2_000_000 + "ValueError: the reason"
    short = abridged(text)
    assert short.startswith("Traceback") and short.endswith("ValueError: the reason")
    assert len(short) < TRACE_CHARS_MAX + 100
    assert f"{len(text) - TRACE_CHARS_MAX} characters left out" in short


def test_what_utf_8_cannot_spell_is_replaced() -> None:
    """File names that are not text reach error messages as lone surrogates."""
    assert abridged("no file \udcff").encode() == b"no file ?"


def raised() -> str:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("no good\nof all things") from None
    except ValueError:
        return traceback.format_exc()


def chained() -> str:
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("no good") from error
    except ValueError:
        return traceback.format_exc()


def grouped(*others: Exception) -> str:
    try:
        raise ExceptionGroup("of tasks", [*others, ValueError("no")])
    except ExceptionGroup:
        return traceback.format_exc()


def caught() -> KeyError:
    try:
        raise KeyError("first")
    except KeyError as error:
        return error


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("  make room on the disk  \n", "make room on the disk"),
        ("ended with code 3; its last output:\n  a\n  b", "ended with code 3; its last output:"),
        (raised(), "ValueError: no good"),
        (chained(), "ValueError: no good"),
        (grouped(caught()), "KeyError: 'first'"),
        (grouped(), "ExceptionGroup: of tasks (1 sub-exception)"),
        ("+ more\n| of it", "+ more"),
        ("Traceback (most recent call last):\n  cut off", "Traceback (most recent call last):"),
        ("java.lang.Exception: no\n\tat A.b(A.java:1)", "java.lang.Exception: no"),
    ],
)
def test_the_line_that_says_what_it_was(text: str, line: str) -> None:
    assert headline(text) == line


def test_that_line_is_short() -> None:
    assert len(headline("x" * 10_000)) == HEADLINE_CHARS_MAX
