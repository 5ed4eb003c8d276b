"""Which versions of a plugin a configuration means

`connector.plugin.version` reads as in Kafka since 4.1 (KIP-891): a version that stands alone means itself and nothing
else, brackets make a range (`[1.0,2.0)`: from 1.0, below 2.0; `(,1.5]`; `[1.0]`; several joined by commas), and
`latest`, as nothing at all, means whatever is newest. Versions are compared as Python packages' are (PEP 440), so 1.0
and 1.0.0 are one version and 2.0rc1 comes before 2.0. A plugin whose author calls its version something else has no
place in any range, is older than all others, and is meant by its very name only.

Pure: texts in, an order and a yes or no out.
"""

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from packaging.version import InvalidVersion, Version

LATEST: Final = "latest"

Rank: TypeAlias = tuple[int, Version, str]

_NONE: Final = Version("0")
_RANGE: Final = re.compile(r"\s*([\[(])\s*([^,()\[\]]*?)\s*(?:(,)\s*([^,()\[\]]*?)\s*)?([\])])\s*")


class BadVersion(ValueError):
    """A text that is neither a version nor a range; says what is."""


class _Interval(NamedTuple):
    low: Version | None
    low_included: bool
    high: Version | None
    high_included: bool

    def contains(self, version: Version) -> bool:
        above = self.low is None or self.low < version or (self.low_included and self.low == version)
        below = self.high is None or version < self.high or (self.high_included and self.high == version)
        return above and below


class Wanted(NamedTuple):
    """Versions that somebody means."""

    text: str
    intervals: tuple[_Interval, ...] | None = None  # None: see `exact`
    exact: str | None = None  # None: all

    def contains(self, version: str) -> bool:
        """Whether a plugin's version is among them."""
        parsed = _parsed(version)
        if self.intervals is not None:
            return parsed is not None and any(each.contains(parsed) for each in self.intervals)
        if self.exact is None:
            return True
        return version == self.exact or (parsed is not None and parsed == _parsed(self.exact))


@functools.lru_cache(maxsize=1024)
def wanted(text: str) -> Wanted:
    """Read a setting; raises BadVersion.

    >>> [wanted(each).contains("1.5") for each in ("1.5.0", "[1.0,2.0)", "(,1.5)", "[1.0],[1.4,)", "latest", "")]
    [True, True, False, True, True, True]
    """
    text = text.strip()
    if text in ("", LATEST):
        return Wanted(LATEST)
    if text[0] not in "[(":
        if any(letter in text for letter in ",()[] "):
            raise BadVersion(_what_is(text))
        return Wanted(text, exact=text)
    intervals = []
    at = 0
    while True:
        found = _RANGE.match(text, at)
        if found is None:
            raise BadVersion(_what_is(text))
        intervals.append(_interval(text, *found.groups()))
        at = found.end()
        if at == len(text):
            return Wanted(text, tuple(intervals))
        if text[at] != ",":
            raise BadVersion(_what_is(text))
        at += 1


def rank(version: str) -> Rank:
    """What versions are sorted by, the newest last."""
    parsed = _parsed(version)
    return (0, _NONE, version) if parsed is None else (1, parsed, "")


def shown(versions: Iterable[str]) -> str:
    """Versions for a sentence, the oldest first.

    >>> shown(["2.0", "1.10", "1.9"])
    '1.9, 1.10, 2.0'
    """
    return ", ".join(sorted(set(versions), key=rank))


def _interval(text: str, opening: str, low: str, comma: str | None, high: str | None, closing: str) -> _Interval:
    if comma is None:  # [1.0]
        if not low or (opening, closing) != ("[", "]"):
            raise BadVersion(_what_is(text))
        return _Interval(_bound(text, low), True, _bound(text, low), True)
    found = _Interval(_bound(text, low), opening == "[", _bound(text, high or ""), closing == "]")
    if found.low is not None and found.high is not None and found.low > found.high:
        raise BadVersion(_what_is(text))
    return found


def _bound(text: str, bound: str) -> Version | None:
    if not bound:
        return None
    parsed = _parsed(bound)
    if parsed is None:
        raise BadVersion(_what_is(text))
    return parsed


@functools.lru_cache(maxsize=1024)  # a list of all connectors asks for each
def _parsed(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def _what_is(text: str) -> str:
    return f"{text!r} is neither a version nor a range of versions: 1.2.3, [1.0,2.0), [1.0,), (,2.0] and latest are"
