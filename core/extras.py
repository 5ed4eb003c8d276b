"""Which extra of the distribution brings a package that is missing

What a part needs beyond the common is installed by an extra of its own, `pip install 'tidemill[postgres]'`. Whoever
misses a package is told which: the distribution's metadata knows, so the answer is never a list kept by hand. Of
several it is the one that brings the least.
"""

import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, requires

DISTRIBUTION = "tidemill"

FOR_DEVELOPERS = "dev"
"""Brings nearly everything, and is nobody's way to get one package."""

_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['\"](?P<extra>[A-Za-z0-9._-]+)['\"]")


def install_hint(module: str) -> str:
    """The command that installs what brings a top-level module, empty where no extra of ours does.

    >>> install_hint("psycopg"), install_hint("no_such_package")
    ("pip install 'tidemill[postgres]'", '')
    """
    try:
        found = [_REQUIREMENT.match(each) for each in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        return ""
    brought = [(each["extra"], _plain(each["name"])) for each in found if each is not None]
    size = Counter(extra for extra, _ in brought)
    extras = [extra for extra, name in brought if name == _plain(module) and extra != FOR_DEVELOPERS]
    return f"pip install '{DISTRIBUTION}[{min(extras, key=lambda each: size[each])}]'" if extras else ""


def _plain(name: str) -> str:
    """A name as packages and their modules mostly share it."""
    return re.sub(r"[-_.]+", "-", name).lower()
