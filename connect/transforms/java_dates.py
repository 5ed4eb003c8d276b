"""Java's date patterns: SimpleDateFormat in UTC, in English

A pattern is a list of fields and texts; each field knows how to write itself and how to read itself. Reading is lenient
as Java's is: month 13 is January of the next year, text behind the last field is not looked at. `S` counts
milliseconds, whatever its length: that is Java's, and surprises people there too.

Years of more than four digits are written and read, years before the first are not. Weeks, two-digit years to be read
and names of time zones other than UTC and GMT have no counterpart here: a ValueError names them.
"""

import datetime as dt
import re
from collections.abc import Callable
from typing import Final, NamedTuple

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DAY_MS: Final = 86_400_000
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
"""The calendar repeats itself after that: years beyond Python's are moved into its own by whole cycles."""

_NUMBERS: Final = frozenset("yMdDuHkKhmsSL")
_LETTERS: Final = _NUMBERS | frozenset("GEazZX")


class _Moment(NamedTuple):
    """A point in time, taken apart."""

    year: int
    month: int
    day: int
    day_of_year: int
    weekday: int  # Monday is 0
    ms: int  # of the day

    @classmethod
    def of(cls, ms: int) -> "_Moment":
        days, rest = divmod(ms, DAY_MS)
        cycles, ordinal = divmod(days + _EPOCH_DAY - 1, _CYCLE_DAYS)
        date = dt.date.fromordinal(ordinal + 1)
        year = date.year + cycles * _CYCLE_YEARS
        if year < 1:
            raise ValueError(f"{ms} ms is before the first year")
        return cls(year, date.month, date.day, date.timetuple().tm_yday, date.weekday(), rest)


class _Field(NamedTuple):
    """A letter so many times, or a text between fields."""

    letter: str
    times: int
    text: str = ""


def _fields(pattern: str) -> list[_Field]:
    found: list[_Field] = []
    for piece in re.finditer(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|'|[^a-zA-Z']+", pattern):
        letter = piece[2]
        if letter is not None:
            if letter not in _LETTERS:
                raise ValueError(f"{letter!r} in {pattern!r} has no counterpart here")
            found.append(_Field(letter, len(piece[0])))
        elif piece[0] == "'":
            raise ValueError(f"{pattern!r} lacks a closing quote")
        elif piece[1] is not None:
            found.append(_Field("", 0, piece[1].replace("''", "'") if piece[1] else "'"))
        else:
            found.append(_Field("", 0, piece[0]))
    return found


# -------------------------------------------------------------------- writing


def compile_format(pattern: str) -> Callable[[int], str]:
    """Make the function that writes milliseconds since 1970."""
    fields = _fields(pattern)

    def write(ms: int) -> str:
        moment = _Moment.of(ms)
        return "".join(_written(field, moment) for field in fields)

    return write


def _written(field: _Field, moment: _Moment) -> str:
    letter, count, text = field
    if letter == "":
        return text
    if letter in _NUMBERS and not (letter in "ML" and count > 2):
        if letter == "y" and count == 2:
            return f"{moment.year % 100:02}"
        return str(_number(letter, moment)).rjust(count, "0")
    if letter in "ML":
        return _name(MONTHS[moment.month - 1], count)
    if letter == "E":
        return _name(DAYS[moment.weekday], count)
    if letter == "z":
        return "UTC" if count < 4 else "Coordinated Universal Time"
    return {"G": "AD", "a": "AM" if moment.ms < DAY_MS // 2 else "PM", "Z": "+0000", "X": "Z"}[letter]


def _name(name: str, count: int) -> str:
    return name if count > 3 else name[:3]


def _number(letter: str, moment: _Moment) -> int:
    hour = moment.ms // 3_600_000
    return {
        "y": moment.year,
        "M": moment.month,
        "L": moment.month,
        "d": moment.day,
        "D": moment.day_of_year,
        "u": moment.weekday + 1,
        "H": hour,
        "k": hour or 24,
        "K": hour % 12,
        "h": hour % 12 or 12,
        "m": moment.ms // 60_000 % 60,
        "s": moment.ms // 1000 % 60,
        "S": moment.ms % 1000,
    }[letter]


# -------------------------------------------------------------------- reading


def compile_parse(pattern: str) -> Callable[[str], int]:
    """Make the function that reads a text as milliseconds since 1970; a ValueError says that it does not match."""
    fields = _fields(pattern)
    if any(field.letter == "y" and field.times == 2 for field in fields):
        raise ValueError(f"{pattern!r} has years of two digits, and nothing says of which century: write yyyy")
    readers = [_reader(field, fields[place + 1 : place + 2]) for place, field in enumerate(fields)]
    expression = re.compile("".join(readers), re.IGNORECASE | re.ASCII)
    letters = [field.letter for field in fields if field.letter]

    def read(text: str) -> int:
        match = expression.match(text)
        if match is None:
            raise ValueError(f"{text!r} does not match the pattern {pattern!r}")
        given = dict(zip(letters, match.groups(), strict=True))
        return _milliseconds({letter: _value(letter, each) for letter, each in given.items()})

    return read


_ZONE: Final = r"(Z|UTC|GMT(?:[+-]\d{1,2}:?\d{2})?|[+-]\d{2}(?::?\d{2})?)"


def _reader(field: _Field, following: list[_Field]) -> str:
    letter, count, text = field
    if letter == "":
        return f"(?-i:{re.escape(text)})"
    if letter in _NUMBERS and not (letter in "ML" and count > 2):
        abuts = bool(following) and following[0].letter in _NUMBERS
        return rf"\s*(\d{{{count}}})" if abuts else r"\s*(-?\d+)"
    names = {"M": MONTHS, "L": MONTHS, "E": DAYS, "G": ("AD",), "a": ("AM", "PM")}.get(letter)
    if names is None:
        return _ZONE
    return "(" + "|".join(f"{each}|{each[:3]}" for each in names) + ")"


def _value(letter: str, text: str) -> int:
    if letter in "zZX":
        return _zone_ms(text.upper())
    if letter in "EGa" or (letter in "ML" and text[0].isalpha()):
        names = {"E": DAYS, "G": ("AD",), "a": ("AM", "PM")}.get(letter, MONTHS)
        return next(place for place, name in enumerate(names) if name[:3].lower() == text[:3].lower()) + (
            letter in "ML"
        )
    return int(text)


def _zone_ms(text: str) -> int:
    digits = re.sub(r"[^0-9]", "", text)
    if not digits:
        return 0
    if len(digits) in (1, 3):
        digits = "0" + digits
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return (-minutes if "-" in text else minutes) * 60_000


def _milliseconds(given: dict[str, int]) -> int:
    year = given.get("y", 1970)
    if year < 1:
        raise ValueError(f"the year {year} is before the first")
    if "D" in given and not given.keys() & {"M", "L", "d"}:
        days = _day(year, 1) + given["D"] - 1
    else:
        days = _day(year, given.get("M", given.get("L", 1))) + given.get("d", 1) - 1
    if "H" in given:
        hour = given["H"]
    elif "k" in given:
        hour = given["k"] % 24
    else:
        hour = given.get("h", given.get("K", 0)) % 12 + 12 * given.get("a", 0)
    minutes = hour * 60 + given.get("m", 0)
    ms = (minutes * 60 + given.get("s", 0)) * 1000 + given.get("S", 0)
    zone = next((given[letter] for letter in "XZz" if letter in given), 0)
    return days * DAY_MS + ms - zone


def _day(year: int, month: int) -> int:
    """Days since 1970 of the first of a month, which may be any number."""
    years, month = divmod(month - 1, 12)
    cycles, year = divmod(year + years - 1, _CYCLE_YEARS)
    return dt.date(year + 1, month + 1, 1).toordinal() - _EPOCH_DAY + cycles * _CYCLE_DAYS
