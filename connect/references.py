"""References to secrets that are kept elsewhere

Connect's configurations may say `${provider:path:key}` or `${provider:key}` where a secret is to be put in by a config
provider. Nothing here resolves them yet, so they are found and refused: as they are written they would be sent to a
database as its password.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Problem(NamedTuple):
    """A setting and what is wrong with it."""

    setting: str
    text: str


def references(config: Mapping[str, str]) -> Iterator[Problem]:
    """Settings whose value holds a reference.

    >>> [problem.setting for problem in references({"password": "${file:/run/secrets:pw}", "topic": "${topic}"})]
    ['password']
    """
    for name, value in config.items():
        provider = _provider(value)
        if provider is not None:
            text = (
                f"'{name}' refers to the config provider '{provider}': references are not supported yet and would be "
                "used as they are written; write the value itself"
            )
            yield Problem(name, text)


def _provider(value: str) -> str | None:
    """The provider of the first reference; every character is looked at once, whatever the value looks like."""
    start = value.find("${")
    while start >= 0:
        end = value.find("}", start)
        if end < 0:
            return None
        provider, colon, _ = value[start + 2 : end].partition(":")
        if colon:
            return provider
        start = value.find("${", end)
    return None
