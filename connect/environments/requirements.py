"""What is to be installed into a plugin environment, to the byte

A requirement names one version of one package and the hashes of the files that may be taken for it, as in the files
that pip and its companions write: `web-orders==1.2.0 --hash=sha256:…`. Nothing else is taken. No range and no missing
hash, since what was looked at must be what is installed. No address and no option of pip's, since where packages come
from is for whoever set up the machine to say, not for whoever asks.

Everything is listed, dependencies too, and nothing is resolved; tidemill and what it brings are there already.

Pure: lines in, requirements or one error that names every problem out.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

OWN: Final = "tidemill"

ANY: Final = "*"
"""Among the packages that are allowed: all there are."""

REQUIREMENTS_MAX: Final = 1_000
"""In one environment; the largest applications have some hundreds."""

LINE_CHARACTERS_MAX: Final = 50_000
"""Of one requirement: a package with a wheel for each platform has some hundreds of hashes."""

_HASH: Final = re.compile(r"\s--hash=(\S*)")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_EXAMPLE: Final = "write NAME==VERSION --hash=sha256:…, as 'pip hash' and 'pip-compile --generate-hashes' print it"


class BadRequirements(ValueError):
    """Requirements that are refused; one line per problem."""


class Pinned(NamedTuple):
    """One version of one package."""

    name: str  # as it is compared
    version: str
    hashes: tuple[str, ...]
    text: str  # the requirement without its hashes

    @property
    def line(self) -> str:
        """As pip reads it."""
        return " ".join([self.text, *(f"--hash={each}" for each in self.hashes)])


def parse(text: str) -> tuple[Pinned, ...]:
    """Read requirements, one a line, comments and continued lines as in pip's files; raises BadRequirements."""
    found: dict[str, Pinned] = {}
    problems: list[str] = []
    lines = list(_lines(text))
    if len(lines) > REQUIREMENTS_MAX:
        raise BadRequirements(f"{len(lines)} packages are listed, {REQUIREMENTS_MAX} at most are taken")
    for line in lines:
        if len(line) > LINE_CHARACTERS_MAX:
            problems.append(f"{line[:80]}…: longer than {LINE_CHARACTERS_MAX} characters")
            continue
        try:
            pinned = _pinned(line)
        except BadRequirements as error:
            problems.append(str(error))
            continue
        if pinned.name in found:
            problems.append(f"{pinned.name} is listed twice")
        found[pinned.name] = pinned
    if not found and not problems:
        problems.append(f"nothing is listed: {_EXAMPLE}")
    if problems:
        raise BadRequirements("\n".join(problems))
    return tuple(found.values())


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


def _pinned(line: str) -> Pinned:
    if line.startswith("-"):
        raise BadRequirements(f"{line}: options are not taken, where packages come from is said in pip's own settings")
    hashes = tuple(_HASH.findall(line))
    text = _HASH.sub("", line).strip()
    if re.search(r"\s--?[a-z]", text):
        raise BadRequirements(f"{line}: no option but --hash is taken")
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise BadRequirements(f"{line}: not a requirement: {_EXAMPLE}") from None
    if requirement.url is not None:
        raise BadRequirements(f"{line}: an address is not taken: {_EXAMPLE}")
    pins = list(requirement.specifier)
    if len(pins) != 1 or pins[0].operator != "==" or pins[0].version.endswith(".*"):
        raise BadRequirements(f"{line}: not pinned to one version: {_EXAMPLE}")
    if not hashes:
        raise BadRequirements(f"{line}: without a hash: {_EXAMPLE}")
    for each in hashes:
        if not _DIGEST.fullmatch(each):
            raise BadRequirements(
                f"{line}: {each or 'nothing'} is no hash: sha256:, sha384: or sha512: and its digits are"
            )
    name = canonicalize_name(requirement.name)
    if name == OWN:
        raise BadRequirements(f"{line}: {OWN} comes from the worker that uses the environment: leave it out")
    return Pinned(name, pins[0].version, hashes, text)
