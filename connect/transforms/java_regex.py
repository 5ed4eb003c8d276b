"""Java's regular expressions in Python's

What people wrote for Java's `Pattern` is translated piece by piece: most of it is spelled alike. What Java means and
Python has no counterpart for (Unicode properties, unions of character classes, flags in the middle) is a ValueError
that names it: an expression that matches something else would send records elsewhere in silence.

Letters, digits and word characters are ASCII here, as they are in Java unless told otherwise.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

Replacement: TypeAlias = Callable[[re.Match[str]], str]

_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": "\\x20-~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": " \\t\\n\\x0b\\f\\r",
}
_HORIZONTAL: Final = " \\t\\xa0\\u1680\\u180e\\u2000-\\u200a\\u202f\\u205f\\u3000"
_VERTICAL: Final = "\\n\\x0b\\f\\r\\x85\\u2028\\u2029"
_CLASSES: Final = {"h": _HORIZONTAL, "v": _VERTICAL}
_ALIKE: Final = frozenset("dDwWsSbBAtnrfa")
_SETS: Final = frozenset("dDwWsSpPhvHV")
_FLAGS: Final = frozenset("imsx-")
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile an expression; a ValueError says what is wrong with it."""
    try:
        return re.compile(translate(pattern), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from None


def translate(pattern: str) -> str:
    """An expression of Java's in Python's spelling.

    >>> translate(r"(?<db>[^.]++)\\.\\p{Lower}+")
    '(?P<db>[^.]++)\\\\.[a-z]+'
    """
    return _Translation(pattern).whole()


class _Translation:
    """One walk over an expression."""

    def __init__(self, pattern: str) -> None:
        self._text = _QUOTED.sub(_unquoted, pattern)
        self._at = 0

    def whole(self) -> str:
        out = []
        while self._at < len(self._text):
            out.append(self._piece())
        return "".join(out)

    def _piece(self) -> str:
        letter = self._take()
        if letter == "\\":
            return self._escape(in_class=False)
        if letter == "[":
            return self._class()
        if letter == "(" and self._peek() == "?":
            return self._group()
        return letter

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise ValueError("the regular expression ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise ValueError(f"the regular expression lacks a {end}")
        text, self._at = self._text[self._at : found], found + len(end)
        return text

    def _group(self) -> str:
        self._at += 1
        ahead = self._text[self._at : self._at + 2]
        if ahead[:1] in (":", "=", "!", ">") or ahead in ("<=", "<!"):
            return "(?"
        if ahead[:1] == "<":
            self._at += 1
            name = self._until(">")
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a group")
            return f"(?P<{name}>"
        start = self._at
        while self._peek() and self._peek() in _FLAGS:
            self._at += 1
        flags, end = self._text[start : self._at], self._take()
        if end == ")" and (start != 2 or "-" in flags):
            raise ValueError(f"(?{flags}) is understood at the beginning only; write (?{flags}:...) instead")
        if end not in (":", ")"):
            raise ValueError(f"(?{flags}{end} has no counterpart in Python")
        return f"(?{flags}{end}"

    def _class(self) -> str:
        opening = "["
        if self._peek() == "^":
            opening += self._take()
        out: list[str] = []
        while self._peek() != "]":
            out.append(self._members())
        if not out:
            raise ValueError("an empty character class")
        return "".join([opening, *out, self._take()])

    def _members(self) -> str:
        """A letter, a range of them, or what an escape such as `\\w` stands for, behind which a hyphen is a letter."""
        first, single = self._member()
        if not single or self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", "["):
            return first
        self._at += 1
        last, single = self._member()
        if not single:
            raise ValueError(f"a range in a character class ends with a letter, not with {last}")
        return f"{first}-{last}"

    def _member(self) -> tuple[str, bool]:
        """One of a class, and whether it is a single letter."""
        letter = self._take()
        if letter == "\\":
            if self._text.startswith("v-", self._at):
                raise ValueError(
                    "\\v- in a character class is a range from \\x0b on in Java: write that, or \\v at the end"
                )
            single = self._peek() not in _SETS
            return self._escape(in_class=True), single
        if letter == "[" or (letter == "&" and self._peek() == "&"):
            raise ValueError("classes inside of character classes and && have no counterpart in Python")
        return re.escape(letter), True

    def _escape(self, *, in_class: bool) -> str:
        letter = self._take()
        if letter in "pP":
            return self._property(letter, in_class=in_class)
        if letter in "hvHV":
            members = _CLASSES[letter.lower()]
            if letter.isupper() and in_class:
                raise ValueError(f"\\{letter} inside of a character class has no counterpart in Python")
            return members if in_class else f"[{'^' if letter.isupper() else ''}{members}]"
        if letter in _ALIKE and not (in_class and letter in "bBA"):
            return "\\" + letter
        if letter.isdigit() and letter != "0" and not in_class:
            return "\\" + letter
        if not letter.isalnum():
            return re.escape(letter)
        return self._rare(letter, in_class=in_class)

    def _rare(self, letter: str, *, in_class: bool) -> str:
        if letter in "ux":
            return self._character(letter)
        if letter == "0":
            digits = re.match("[0-3]?[0-7]{1,2}", self._text[self._at :])
            if digits is not None:
                self._at += digits.end()
                return re.escape(chr(int(digits[0], 8)))
        if letter == "e":
            return "\\x1b"
        if letter == "c":
            return re.escape(chr(ord(self._take()) ^ 64))
        if not in_class:
            if letter in "zZ":
                return "\\Z" if letter == "z" else "(?=\\n?\\Z)"
            if letter == "R":
                return f"(?:\\r\\n|[{_VERTICAL}])"
            if letter == "k" and self._take() == "<":
                return f"(?P={self._until('>')})"
        raise ValueError(f"\\{letter} has no counterpart in Python")

    def _character(self, letter: str) -> str:
        if letter == "x" and self._peek() == "{":
            self._at += 1
            digits = self._until("}")
        else:
            count = 4 if letter == "u" else 2
            digits, self._at = self._text[self._at : self._at + count], self._at + count
        try:
            return re.escape(chr(int(digits, 16)))
        except (ValueError, OverflowError):
            raise ValueError(f"\\{letter}{digits} is not a character") from None

    def _property(self, letter: str, *, in_class: bool) -> str:
        name = self._take()
        if name == "{":
            name = self._until("}")
        members = _POSIX.get(name)
        if members is None or (letter == "P" and in_class):
            raise ValueError(f"\\{letter}{{{name}}} has no counterpart in Python")
        if in_class:
            return members
        return f"[{'^' if letter == 'P' else ''}{members}]"


def _unquoted(found: re.Match[str]) -> str:
    """The letters between `\\Q` and `\\E` as escapes, each for itself: in a class one may begin or end a range."""
    if found[1] is None:
        return found[0]
    return "".join(map(_quoted, found[1]))


def _quoted(letter: str) -> str:
    if letter in "0123456789":
        return f"\\x3{letter}"  # behind a backslash it would be a group
    return f"\\{letter}" if letter.isascii() and not letter.isalpha() else letter


def compile_replacement(replacement: str, pattern: re.Pattern[str]) -> Replacement:
    """What is put in place of a match: `$1` and `${name}` are groups, a backslash takes the next letter as it is."""
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        letter = replacement[at]
        at += 1
        if letter == "\\":
            if at == len(replacement):
                raise ValueError("the replacement ends with a backslash")
            parts.append(replacement[at])
            at += 1
        elif letter == "$":
            group, at = _group_at(replacement, at, pattern)
            parts.append(group)
        else:
            parts.append(letter)
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _group_at(replacement: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The group that is meant, and where its name ends; of several digits as many as name a group that exists."""
    if replacement[at : at + 1] == "{":
        end = replacement.find("}", at)
        name = replacement[at + 1 : end]
        if end < 0 or name not in pattern.groupindex:
            raise ValueError(f"the regular expression has no group with the name {name!r}")
        return pattern.groupindex[name], end + 1
    digit = replacement[at : at + 1]
    if not digit.isdecimal():
        raise ValueError("a $ in the replacement stands before a group: write \\$ for the sign itself")
    group = int(digit)
    if group > pattern.groups:
        raise ValueError(f"the regular expression has no group {group}")
    at += 1
    while replacement[at : at + 1].isdecimal() and group * 10 + int(replacement[at]) <= pattern.groups:
        group = group * 10 + int(replacement[at])
        at += 1
    return group, at
