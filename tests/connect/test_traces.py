"""Error texts of any length and spelling"""

import pytest

from tidemill.connect.traces import TRACE_CHARS_MAX, abridged


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
