"""Dates, times, timestamps and intervals

A timestamp without zone is a number since 1970 as if its clock showed UTC; with zone it is ISO text in UTC, padded to
the column's precision. What the number counts follows `time.precision.mode`.

PostgreSQL's range is wider than Python's: years before Christ and after 9999, and infinity. Those take a slow path
that computes with the proleptic Gregorian calendar, as Java does. The fast path looks up the minute: timestamps of a
table cluster, and a dictionary beats every parser.
"""

import re
from collections.abc import Callable
from typing import Final

from tidemill.connect.api import SchemaType
from tidemill.connect.plugins.postgres.types.conversion import Conversion, Modes, plain

INFINITY_US: Final = 9_223_372_036_825_200_000
"""How Debezium writes `infinity`: the largest instant of PostgreSQL's Java driver."""
MINUS_INFINITY_US: Final = -9_223_372_036_832_400_000
INFINITY_DAYS: Final = 2**31 - 1
MINUS_INFINITY_DAYS: Final = -(2**31)
INT64_MAX: Final = 2**63 - 1

DAY_US: Final = 86_400_000_000
DAYS_PER_MONTH: Final = 365.25 / 12
MEMO_SIZE_MAX: Final = 65_536
"""Entries a dictionary of recent dates or minutes may have: 10 MB at most, 45 days of every minute."""

_HYPHEN: Final = 45  # after the four digits of a year before 10000

_DATE = re.compile(rb"(\d{4,})-(\d\d)-(\d\d)")
_TIME = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_OFFSET = re.compile(rb"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$")
_INTERVAL = re.compile(
    rb"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?$"
)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC."""
    year -= month <= 2
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


class _Days(dict[bytes, int]):
    """Days since 1970 of four-digit-year dates, remembered."""

    def __missing__(self, text: bytes) -> int:
        if len(text) != 10:
            raise ValueError("not a plain date")
        if len(self) >= MEMO_SIZE_MAX:
            self.clear()
        days = self[text] = days_from_civil(int(text[:4]), int(text[5:7]), int(text[8:10]))
        return days


class _Minutes(dict[bytes, int]):
    """Microseconds since 1970 of `2026-02-03 04:05`, remembered."""

    def __missing__(self, text: bytes) -> int:
        if len(text) != 16 or text[10] != 32 or text[13] != 58:
            raise ValueError("not a plain timestamp")
        if len(self) >= MEMO_SIZE_MAX:
            self.clear()
        clock_us = (int(text[11:13]) * 60 + int(text[14:16])) * 60_000_000
        minute = self[text] = _DAYS[text[:10]] * DAY_US + clock_us
        return minute


_DAYS: Final = _Days()
_MINUTES: Final = _Minutes()


def timestamp_us(text: bytes) -> int:
    """Return microseconds since 1970 of a timestamp without zone."""
    try:
        if len(text) == 19:
            return _MINUTES[text[:16]] + int(text[17:]) * 1_000_000
        return _MINUTES[text[:16]] + int(text[17:19]) * 1_000_000 + int(text[20:].ljust(6, b"0"))
    except ValueError:
        return _unusual_timestamp_us(text)


def _unusual_timestamp_us(text: bytes) -> int:
    if text == b"infinity":
        return INFINITY_US
    if text == b"-infinity":
        return MINUS_INFINITY_US
    date, _, clock = text.removesuffix(b" BC").partition(b" ")
    return days(date + b" BC" if text.endswith(b" BC") else date) * DAY_US + time_us(clock)


def days(text: bytes) -> int:
    """Return days since 1970."""
    try:
        return _DAYS[text]
    except ValueError:
        if text == b"infinity":
            return INFINITY_DAYS
        if text == b"-infinity":
            return MINUS_INFINITY_DAYS
        year, month, day = civil(text)
        return days_from_civil(year, month, day)


def civil(text: bytes) -> tuple[int, int, int]:
    """Return year, month and day; 1 BC is year 0."""
    match = _DATE.match(text)
    if match is None:
        raise ValueError("not a date")
    year, month, day = (int(part) for part in match.groups())
    return (1 - year if text.endswith(b" BC") else year), month, day


def time_us(text: bytes) -> int:
    """Return microseconds since midnight; 24:00:00 is a full day."""
    match = _TIME.match(text)
    if match is None:
        raise ValueError("not a time")
    hours, minutes, seconds, fraction = match.groups()
    clock_s = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return clock_s * 1_000_000 + (int(fraction.ljust(6, b"0")) if fraction else 0)


def timestamp(modifier: int, modes: Modes) -> Conversion:
    """timestamp without time zone."""
    precise = modifier < 0 or modifier > 3
    match modes.time:
        case "isostring":
            return _text("io.debezium.time.IsoTimestamp", iso_timestamp, "1970-01-01T00:00:00Z")
        case "nanoseconds":
            return _number(SchemaType.INT64, "io.debezium.time.NanoTimestamp", _nanoseconds(timestamp_us))
        case "microseconds":
            return _micro_timestamp()
        case "connect":
            return _number(SchemaType.INT64, "org.apache.kafka.connect.data.Timestamp", _milliseconds(timestamp_us))
        case _ if precise:
            return _micro_timestamp()
        case _:
            return _number(SchemaType.INT64, "io.debezium.time.Timestamp", _milliseconds(timestamp_us))


def _micro_timestamp() -> Conversion:
    """Microseconds in 64 bits end in the year 294247, timestamps 29 years later; what is beyond stays at the end."""
    return Conversion(
        schema=plain(SchemaType.INT64, "io.debezium.time.MicroTimestamp"),
        expression=f"b'%d' % (count(x) if x[4] == {_HYPHEN} else min({INT64_MAX}, count(x)))",
        names={"count": timestamp_us},
        zero=b"0",
    )


def time(modifier: int, modes: Modes) -> Conversion:
    """time without time zone."""
    precise = modifier < 0 or modifier > 3
    match modes.time:
        case "isostring":
            return _text("io.debezium.time.IsoTime", iso_time, "00:00:00Z")
        case "nanoseconds":
            return _number(SchemaType.INT64, "io.debezium.time.NanoTime", _nanoseconds(time_us))
        case "microseconds" | "adaptive_time_microseconds":
            return _number(SchemaType.INT64, "io.debezium.time.MicroTime", time_us)
        case "connect":
            return _number(SchemaType.INT32, "org.apache.kafka.connect.data.Time", _milliseconds(time_us))
        case _ if precise:
            return _number(SchemaType.INT64, "io.debezium.time.MicroTime", time_us)
        case _:
            return _number(SchemaType.INT32, "io.debezium.time.Time", _milliseconds(time_us))


def date(modes: Modes) -> Conversion:
    """date."""
    if modes.time == "isostring":
        return _text("io.debezium.time.IsoDate", iso_date, "1970-01-01Z")
    name = "org.apache.kafka.connect.data.Date" if modes.time == "connect" else "io.debezium.time.Date"
    return _number(SchemaType.INT32, name, days)


def _number(kind: SchemaType, name: str, count: Callable[[bytes], int]) -> Conversion:
    return Conversion(schema=plain(kind, name), expression="b'%d' % count(x)", names={"count": count}, zero=b"0")


def _text(name: str, write: Callable[[bytes], str], zero: str) -> Conversion:
    return Conversion(
        schema=plain(SchemaType.STRING, name),
        expression="b'\"%b\"' % write(x).encode()",
        names={"write": write},
        zero=b'"%b"' % zero.encode(),
    )


def _milliseconds(count_us: Callable[[bytes], int]) -> Callable[[bytes], int]:
    return lambda text: count_us(text) // 1_000


def _nanoseconds(count_us: Callable[[bytes], int]) -> Callable[[bytes], int]:
    """Nanoseconds in 64 bits end in the years 1677 and 2262; what is beyond stays at the end."""
    return lambda text: max(-INT64_MAX - 1, min(INT64_MAX, count_us(text) * 1_000))


def iso_year(year: int) -> str:
    """Return a year as ISO 8601 and Java write it: four digits, more with a sign."""
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"{'-' if year < 0 else '+'}{abs(year):04d}"


def iso_date(text: bytes) -> str:
    """Return `2026-02-03Z`."""
    if text.endswith(b"infinity"):
        return "+292278994-08-16Z" if text[0] == 105 else "-292275055-05-16Z"
    year, month, day = civil(text)
    return f"{iso_year(year)}-{month:02d}-{day:02d}Z"


def iso_time(text: bytes) -> str:
    """Return `04:05:06.789Z`; midnight at the end of the day is that at its start."""
    return ("00:00:00" if text.startswith(b"24:") else text.decode()) + "Z"


def iso_timestamp(text: bytes) -> str:
    """Return `2026-02-03T04:05:06.789Z`."""
    if text.endswith(b"infinity"):
        return "+294247-01-10T04:00:25.2Z" if text[0] == 105 else "-290308-12-21T19:59:27.6Z"
    day, _, clock = text.removesuffix(b" BC").partition(b" ")
    if not clock:
        raise ValueError("not a timestamp")
    return f"{iso_date(day + b' BC' if text.endswith(b' BC') else day)[:-1]}T{clock.decode()}Z"


def zoned_timestamp(modifier: int) -> Conversion:
    """timestamp with time zone: ISO text in UTC with as many digits as the column has."""
    digits = 6 if modifier < 0 else modifier
    zeros = "." + "0" * digits if digits else ""
    endings = {22: f'{zeros}Z"'} | {23 + given: "0" * (digits - given) + 'Z"' for given in range(1, digits + 1)}
    return Conversion(
        schema=plain(SchemaType.STRING, "io.debezium.time.ZonedTimestamp"),
        expression=(
            "(b'\"' + x[:-3].replace(b' ', b'T') + ends[len(x)] if x[-3] == 43 and x[10] == 32 else unusual(x))"
        ),
        names={
            "ends": {length: ending.encode() for length, ending in endings.items()},
            "unusual": lambda text: b'"%b"' % _unusual_zoned_timestamp(text, digits).encode(),
        },
        zero=f'"1970-01-01T00:00:00{zeros}Z"'.encode(),
    )


def _unusual_zoned_timestamp(text: bytes, digits: int) -> str:
    if text.endswith(b"infinity"):
        return text.decode()
    before_christ = text.endswith(b" BC")
    plain = text.removesuffix(b" BC")
    if not plain.endswith(b"+00"):
        raise ValueError("not a timestamp in UTC")
    day, _, clock = plain[:-3].partition(b" ")
    year, month, day_of_month = civil(day + b" BC" if before_christ else day)
    whole, _, fraction = clock.decode().partition(".")
    padded = "." + fraction.ljust(digits, "0") if digits else ""
    return f"{iso_year(year)}-{month:02d}-{day_of_month:02d}T{whole}{padded}Z"


def zoned_time() -> Conversion:
    """time with time zone, shifted to UTC."""
    return _text("io.debezium.time.ZonedTime", zoned_time_utc, "00:00:00Z")


def zoned_time_utc(text: bytes) -> str:
    """Return `02:05:06.789Z` for `04:05:06.789+02`."""
    match = _OFFSET.search(text)
    if match is None:
        raise ValueError("not a time with a zone")
    sign, hours, minutes, seconds = match.groups()
    offset_s = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    clock = text[: match.start()]
    fraction = clock.partition(b".")[2].decode()
    moment_s = (time_us(clock) // 1_000_000 - (offset_s if sign == b"+" else -offset_s)) % 86_400
    hour, minute, second = moment_s // 3600, moment_s // 60 % 60, moment_s % 60
    return f"{hour:02d}:{minute:02d}:{second:02d}{'.' + fraction if fraction else ''}Z"


def interval(modes: Modes) -> Conversion:
    """interval, sent in the ISO 8601 style."""
    if modes.interval == "string":
        return _text("io.debezium.time.Interval", interval_text, "P0Y0M0DT0H0M0S")
    return _number(SchemaType.INT64, "io.debezium.time.MicroDuration", interval_us)


def _interval_parts(text: bytes) -> tuple[int, int, int, int, int, int]:
    """Return years, months, days, hours, minutes and microseconds."""
    match = _INTERVAL.match(text)
    if match is None:
        raise ValueError("not an interval")
    years, months, day_count, hours, minutes, sign, seconds, fraction = match.groups()
    clock_us = int(seconds or 0) * 1_000_000 + int((fraction or b"").ljust(6, b"0"))
    return (
        int(years or 0),
        int(months or 0),
        int(day_count or 0),
        int(hours or 0),
        int(minutes or 0),
        -clock_us if sign else clock_us,
    )


def interval_us(text: bytes) -> int:
    """Return microseconds, with a month of 365.25 / 12 days."""
    if text.endswith(b"infinity"):  # since PostgreSQL 17
        return INT64_MAX if text[0] == 105 else -INT64_MAX - 1
    years, months, day_count, hours, minutes, clock_us = _interval_parts(text)
    calendar_days = (years * 12 + months) * DAYS_PER_MONTH + day_count
    exact = round(calendar_days * DAY_US) + (hours * 60 + minutes) * 60_000_000 + clock_us
    return max(-INT64_MAX - 1, min(INT64_MAX, exact))


def interval_text(text: bytes) -> str:
    """Return the interval with every part spelled out: `P1Y2M3DT4H5M6.789S`."""
    if text.endswith(b"infinity"):
        return text.decode()
    years, months, day_count, hours, minutes, clock_us = _interval_parts(text)
    seconds, fraction = divmod(abs(clock_us), 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"P{years}Y{months}M{day_count}DT{hours}H{minutes}M{'-' if clock_us < 0 else ''}{seconds}{tail}S"
