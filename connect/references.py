"""References to secrets that are kept elsewhere

Connect's configurations may say `${provider:path:key}` or `${provider:key}` where a secret is to be put in by a config
provider. Nothing here resolves them yet, so they are found and refused: as they are written they would be sent to a
database as its password.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_REFERENCE = re.compile(r"\$\{([^}:]*):[^}]*\}")


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
        found = _REFERENCE.search(value)
        if found:
            text = (
                f"'{name}' refers to the config provider '{found[1]}': references are not supported yet and would be "
                "used as they are written; write the value itself"
            )
            yield Problem(name, text)
