"""Java's date patterns: SimpleDateFormat in UTC, in English

A pattern is a list of fields and texts; each field knows how to write itself and how to read itself. Reading is lenient
as Java's is: month 13 is January of the next year, text behind the last field is not looked at. `S` counts
milliseconds, whatever its length: that is Java's, and surprises people there too.

Years of more than four digits are written and read, years before the first are not. Weeks, two-digit years to be read
(Java takes them for the century around the day of the reading) and names of time zones other than UTC and GMT have no
counterpart here: a ValueError names them.
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
_EPOCH_WEEKDAY: Final = dt.date(1970, 1, 1).weekday()
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
            if letter not in _LETTERS or (letter == "X" and len(piece[0]) > 3):
                raise ValueError(f"{piece[0]!r} in {pattern!r} has no counterpart here")
            found.append(_Field(letter, len(piece[0])))
        elif piece[0] == "'":
            raise ValueError(f"{pattern!r} lacks a closing quote")
        elif piece[1] is not None:
            found.append(_Field("", 0, piece[1].replace("''", "'") if piece[1] else "'"))
        else:
            found.append(_Field("", 0, piece[0]))
    return found


def _is_number(field: _Field) -> bool:
    return field.letter in _NUMBERS and not (field.letter in "ML" and field.times > 2)


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
    if _is_number(field):
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
        raise ValueError(f"{pattern!r} has years of two digits, and {_CENTURY}: write yyyy")
    readers = [_reader(field, fields[place + 1 : place + 2]) for place, field in enumerate(fields)]
    expression = re.compile("".join(readers), re.IGNORECASE | re.ASCII)
    read_fields = [field for field in fields if field.letter]

    def read(text: str) -> int:
        match = expression.match(text)
        if match is None:
            raise ValueError(f"{text!r} does not match the pattern {pattern!r}")
        given: dict[str, int] = {}
        for field, each in zip(read_fields, match.groups(), strict=True):
            member = _MEMBERS.get(field.letter, field.letter)
            given.pop(member, None)  # of two the later one counts, and it counts as later than what is between them
            given[member] = _value(field, each)
        return _milliseconds(given)

    return read


_CENTURY: Final = "nothing says of which century"
_MEMBERS: Final = {"L": "M", "k": "H", "K": "h", "u": "E", "Z": "X", "z": "X"}
"""Letters that mean the same part of a date as another."""

_ISO_ZONES: Final = {1: r"[+-]\d{2}", 2: r"[+-]\d{4}", 3: r"[+-]\d{2}:\d{2}"}
_ZONE: Final = r"(UTC|Coordinated Universal Time|GMT(?![+-])|GMT[+-]\d{1,2}:\d{2}|[+-]\d{4})"


def _reader(field: _Field, following: list[_Field]) -> str:
    letter, count, text = field
    if letter == "":
        return f"(?-i:{re.escape(text)})"
    if _is_number(field):
        abuts = bool(following) and _is_number(following[0])
        return rf"(\d{{{count}}})" if abuts else r"[ \t]*(-?\d+)"
    if letter == "X":
        return rf"[ \t]*((?-i:Z)|{_ISO_ZONES[count]})"
    names = {"M": MONTHS, "L": MONTHS, "E": DAYS, "G": ("AD",), "a": ("AM", "PM")}.get(letter)
    if names is None:
        return _ZONE
    return "(" + "|".join(f"{each}|{each[:3]}" for each in names) + ")"


def _value(field: _Field, text: str) -> int:
    letter = field.letter
    if letter in "zZX":
        return _zone_ms(text)
    if letter in "EGa" or (letter in "ML" and text[0].isalpha()):
        names = {"E": DAYS, "G": ("AD",), "a": ("AM", "PM")}.get(letter, MONTHS)
        return next(place for place, name in enumerate(names) if name[:3].lower() == text[:3].lower()) + (
            letter in "ML"
        )
    if letter == "y" and field.times == 1 and len(text) == 2 and text.isdigit():
        raise ValueError(f"{text!r} is a year of two digits, and {_CENTURY}")
    number = int(text)
    if letter == "u":
        if not 1 <= number <= 7:
            raise ValueError(f"{number} is no day of the week")
        return number - 1
    return 0 if number == _BEGINS_ANEW.get(letter) else number


_BEGINS_ANEW: Final = {"h": 12, "k": 24}
"""Hours that are written for 0; larger ones run into the next half of the day, or the next day."""


def _zone_ms(text: str) -> int:
    sign = "-" if "-" in text else "+"
    digits = text.partition(sign)[2].replace(":", "")
    if not digits:
        return 0
    hours, minutes = (int(digits), 0) if len(digits) == 2 else (int(digits[:-2]), int(digits[-2:]))
    if hours > 23 or minutes > 59:
        raise ValueError(f"{text!r} is no time zone")
    return int(f"{sign}1") * (hours * 60 + minutes) * 60_000


def _milliseconds(given: dict[str, int]) -> int:
    """A point in time from its parts, which are in the order in which they were read."""
    year = given.get("y", 1970)
    if year < 1:
        raise ValueError(f"the year {year} is before the first")
    minutes = _hour(given) * 60 + given.get("m", 0)
    ms = (minutes * 60 + given.get("s", 0)) * 1000 + given.get("S", 0)
    return _days(given, year) * DAY_MS + ms - given.get("X", 0)


def _days(given: dict[str, int], year: int) -> int:
    order = list(given)
    if "D" in given and ("d" not in given or order.index("D") > order.index("d")):
        return _day(year, 1) + given["D"] - 1
    first = _day(year, given.get("M", 1))
    if "E" in given and "d" not in given:
        return first + (given["E"] - first - _EPOCH_WEEKDAY) % 7  # the first such day of the month
    return first + given.get("d", 1) - 1


def _hour(given: dict[str, int]) -> int:
    """The hour of the day, or of its half, whichever is told later; a half needs to be told to count against a day."""
    order = list(given)
    halved = "h" in given and "a" in given
    if "H" in given and not (halved and max(order.index("h"), order.index("a")) > order.index("H")):
        return given["H"]
    return given.get("h", 0) + 12 * given.get("a", 0)


def _day(year: int, month: int) -> int:
    """Days since 1970 of the first of a month, which may be any number."""
    years, month = divmod(month - 1, 12)
    cycles, year = divmod(year + years - 1, _CYCLE_YEARS)
    return dt.date(year + 1, month + 1, 1).toordinal() - _EPOCH_DAY + cycles * _CYCLE_DAYS
