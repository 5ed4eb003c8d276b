"""What is to be installed into a plugin environment, to the byte

A requirement names one version of one package and the hashes of the files that may be taken for it, as in the files
that pip and its companions write: `web-orders==1.2.0 --hash=sha256:…`. Nothing else is taken. No range and no missing
hash, since what was looked at must be what is installed. No address and no option of pip's, since where packages come
from is for whoever set up the machine to say, not for whoever asks.

Everything is listed, dependencies too, and nothing is resolved; tidemill and what it brings are there already.

Markers are judged here, for the Python that this is, and pip is given a name, a version and hashes, written anew from
what was understood. In a requirement as it came pip would put the value of a variable for ${ITS_NAME}, and tell it to
whoever asked.

Lines in, requirements or one error that names every problem out.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN: Final = "tidemill"

ANY: Final = "*"
"""Among the packages that are allowed: all there are."""

REQUIREMENTS_MAX: Final = 1_000
"""In one environment; the largest applications have some hundreds."""

LINE_CHARACTERS_MAX: Final = 50_000
"""Of one requirement: a package with a wheel for each platform has some hundreds of hashes."""

BARE_CHARACTERS_MAX: Final = 1_000
"""Of one requirement without its hashes; markers that tools write have some dozens."""

LINES_MAX: Final = 50_000
"""As they are in a file, where each hash may have its own."""

QUOTED_CHARACTERS_MAX: Final = 80
"""Of what is wrong, in the sentence that says so."""

_HASH: Final = re.compile(r"\s--hash=(\S*)")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_EXAMPLE: Final = "write NAME==VERSION --hash=sha256:…, as 'pip hash' and 'pip-compile --generate-hashes' print it"
_OWN_IS_THERE: Final = f"{OWN} comes from the worker that uses the environment: leave it out"


class BadRequirements(ValueError):
    """Requirements that are refused; one line per problem."""


class Pinned(NamedTuple):
    """One version of one package."""

    name: str  # as it is compared
    version: str
    hashes: tuple[str, ...]
    text: str  # without its hashes, as pip reads it

    @property
    def line(self) -> str:
        """As pip reads it."""
        return " ".join([self.text, *(f"--hash={each}" for each in self.hashes)])


def parse(text: str) -> tuple[Pinned, ...]:
    """Read requirements, one a line, comments and continued lines as in pip's files; raises BadRequirements.

    What is not for this Python is left out.
    """
    if text.count("\n") > LINES_MAX:
        raise BadRequirements(f"these are more than {LINES_MAX} lines")
    lines = list(itertools.islice(_lines(text), REQUIREMENTS_MAX + 1))
    if len(lines) > REQUIREMENTS_MAX:
        raise BadRequirements(f"more than {REQUIREMENTS_MAX} packages are listed")
    found: list[Pinned] = []
    problems: list[str] = []
    for line in lines:
        try:
            pinned = _pinned(line)
        except BadRequirements as error:
            problems.append(f"{_quoted(line)}: {error}")
            continue
        if pinned is not None:
            found.append(pinned)
    problems += _together(found)
    if not found and not problems:
        problems.append(f"nothing is listed: {_EXAMPLE}")
    if problems:
        raise BadRequirements("\n".join(problems))
    return tuple(found)


def together(pinned: Iterable[Pinned]) -> tuple[Pinned, ...]:
    """What goes into one environment, wherever each was read; raises BadRequirements."""
    found = tuple(pinned)
    problems = [*(f"{each.text}: {_OWN_IS_THERE}" for each in found if each.name == OWN), *_together(found)]
    if problems:
        raise BadRequirements("\n".join(problems))
    return found


def unlisted(names: Iterable[str], allowed: Collection[str]) -> list[str]:
    """Names of packages that are not among those that are allowed; `*` allows all.

    >>> unlisted(["Web_Orders", "left-pad"], ["web-orders"]), unlisted(["left-pad"], ["*"])
    (['left-pad'], [])
    """
    if ANY in allowed:
        return []
    listed = {canonicalize_name(each) for each in allowed}
    return [each for each in names if canonicalize_name(each) not in listed]


def _lines(text: str) -> Iterator[str]:
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        bare = re.sub(r"(^|\s)#.*$", "", line).strip()
        if bare:
            yield bare


def _together(pinned: Iterable[Pinned]) -> Iterator[str]:
    seen: set[str] = set()
    for each in pinned:
        if each.name in seen:
            yield f"{each.name} is listed twice"
        seen.add(each.name)


def _pinned(line: str) -> Pinned | None:
    """What a line asks for; None if it is not for this Python."""
    if line.startswith("-"):
        raise BadRequirements("options are not taken, where packages come from is said in pip's own settings")
    if len(line) > LINE_CHARACTERS_MAX:
        raise BadRequirements(f"longer than {LINE_CHARACTERS_MAX} characters")
    hashes = tuple(_HASH.findall(line))
    text = _HASH.sub("", line).strip()
    if len(text) > BARE_CHARACTERS_MAX:
        raise BadRequirements(f"longer than {BARE_CHARACTERS_MAX} characters without its hashes")
    if "$" in text or not text.isascii():
        raise BadRequirements("nothing but ASCII, and no $, is taken")
    if re.search(r"\s--?[a-z]", text):
        raise BadRequirements("no option but --hash is taken")
    try:
        requirement = Requirement(text)
        wanted = requirement.marker is None or requirement.marker.evaluate()
    except (ValueError, RecursionError):  # of a requirement, of a marker, of a version in it
        raise BadRequirements(f"not a requirement: {_EXAMPLE}") from None
    if requirement.url is not None:
        raise BadRequirements(f"an address is not taken: {_EXAMPLE}")
    pins = list(requirement.specifier)
    if len(pins) != 1 or pins[0].operator != "==" or pins[0].version.endswith(".*"):
        raise BadRequirements(f"not pinned to one version: {_EXAMPLE}")
    if not hashes:
        raise BadRequirements(f"without a hash: {_EXAMPLE}")
    for each in hashes:
        if not _DIGEST.fullmatch(each):
            shown = _quoted(each) or "nothing"
            raise BadRequirements(f"{shown} is no hash: sha256:, sha384: or sha512: and its digits are")
    name, version = canonicalize_name(requirement.name), pins[0].version
    if name == OWN:
        raise BadRequirements(_OWN_IS_THERE)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return Pinned(name, version, hashes, f"{requirement.name}{extras}=={version}") if wanted else None


def _quoted(text: str) -> str:
    return text if len(text) <= QUOTED_CHARACTERS_MAX else f"{text[:QUOTED_CHARACTERS_MAX]}…"
