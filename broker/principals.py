r"""Principals: what a client is called, by the name in its certificate

Rules as `ssl.principal.mapping.rules` has them in Kafka (KIP-371): a list, of which the first rule that matches the
whole distinguished name decides. `RULE:pattern/replacement/` with `$1` for groups; an `L` or `U` behind it puts the
result in lower or upper case; `DEFAULT` leaves the name as it is. A slash in a pattern stands behind a backslash.

A client that has shown no certificate is `User:ANONYMOUS`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_RULE_TEXT = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE_TEXT})\s*(?:,\s*|$)", re.DOTALL)
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class Principal(NamedTuple):
    """Who a connection belongs to, in Kafka's words: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


USER = "User"
ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever has not said who they are."""


class NoRuleMatches(ValueError):
    """No rule is about this name, so its owner is nobody."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule; no pattern is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What becomes of `name`; None if the rule is not about it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expand, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expand(self, match: re.Match[str]) -> str:
        """The replacement with groups filled in; a number that no group has stands for itself."""
        groups = match.re.groups

        def fill(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            digits = reference[2]
            while digits and int(digits) > groups:  # as Java: the longest number that is a group's
                digits = digits[:-1]
            if not digits:
                return reference[0]
            return (match[int(digits)] or "") + reference[2][len(digits) :]

        return _REFERENCE.sub(fill, self.replacement)


DEFAULT_RULES = (MappingRule(),)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Rules as the setting has them; raises ValueError with what is wrong."""
    rules = []
    for rule in (match[1] for match in _SPLITTER.finditer(text.strip())):
        if not rule:
            continue
        found = _RULE.match(rule)
        if found is None:
            raise ValueError(f"Invalid rule: `{rule}`")
        if found.end() != len(rule):
            raise ValueError(f"Invalid rule: `{rule}`, unmatched substring: `{rule[found.end() :]}`")
        if found[1] is not None:
            rules.append(MappingRule())
            continue
        try:
            pattern = re.compile(found[2])
        except re.error as error:
            raise ValueError(f"Invalid rule: `{rule}`, its pattern is none: {error}") from None
        rules.append(MappingRule(pattern, found[3], found[4]))
    return tuple(rules) or DEFAULT_RULES


def principal_of(distinguished_name: str, rules: Sequence[MappingRule]) -> Principal:
    """Who the owner of a certificate is; raises NoRuleMatches."""
    for rule in rules:
        name = rule.apply(distinguished_name)
        if name is not None:
            return Principal(USER, name)
    raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules is about {distinguished_name!r}")
