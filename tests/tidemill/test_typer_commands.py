"""Help in words."""

import pytest

from tidemill.typer_commands import in_words


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ("<str>", "TEXT"),
        ("<list[str]>", "TEXT"),
        ("<list[str]>...", "TEXT"),
        ("<int>", "NUMBER"),
        ("<path>", "PATH"),
        ("<bool>", ""),
        ("<text|json>", "text|json"),
        ("<int range>", "NUMBER"),
        ("HOST:PORT", "HOST:PORT"),
        (None, ""),
    ],
)
def test_a_type_becomes_a_word(shown: str | None, words: str) -> None:
    assert in_words(shown) == words
