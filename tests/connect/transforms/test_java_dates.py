"""Java's date patterns, written and read again"""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.transforms.java_dates import compile_format, compile_parse

WHOLE = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
MS = st.integers(min_value=-62_135_596_800_000, max_value=400_000_000_000_000)


@pytest.mark.parametrize(
    "pattern",
    [
        WHOLE,
        "yyyyMMddHHmmssSSS",
        "EEE, d MMMM yyyy h:mm:ss.SSS a Z",
        "D/yyyy k:m:s.S z",
        "MMM d yyyy K:mm:ss.SSS a",
        "G yyyy.M.d H-m-s-S 'o''clock'",
    ],
)
@given(ms=MS)
def test_what_is_written_is_read(pattern: str, ms: int) -> None:
    if "yyyyM" in pattern and ms >= 253_402_300_800_000:
        return  # five digits of a year run into the month
    assert compile_parse(pattern)(compile_format(pattern)(ms)) == ms


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_it_is_the_date_that_python_knows(moment: dt.datetime) -> None:
    ms = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    assert compile_format("yyyy-MM-dd'T'HH:mm:ss.SSS'000+00:00'")(ms) == moment.replace(
        microsecond=moment.microsecond // 1000 * 1000
    ).isoformat(timespec="microseconds")


@pytest.mark.parametrize("pattern", ["w", "W", "F", "Y", "o", "'open", "yyyy n", "XXXX"])
def test_what_has_no_counterpart_is_told(pattern: str) -> None:
    with pytest.raises(ValueError):
        compile_format(pattern)


def test_a_year_of_two_digits_is_written_and_not_read() -> None:
    assert compile_format("yy")(0) == "70"
    with pytest.raises(ValueError, match="century"):
        compile_parse("yy")


@pytest.mark.parametrize(
    ("pattern", "text"), [("yyyy", "x"), ("HH:mm", "1 2"), ("yyyy-MM", "-5-01"), ("X", "?"), ("'T'yyyy", "t2024")]
)
def test_a_text_that_does_not_match_is_told(pattern: str, text: str) -> None:
    with pytest.raises(ValueError):
        compile_parse(pattern)(text)


HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("pattern", "text", "ms"),
    [
        ("h a", "12 AM", 0),
        ("h a", "12 PM", 12 * HOUR),
        ("h a", "13 PM", 25 * HOUR),
        ("h", "13", 13 * HOUR),
        ("K a", "12 AM", 12 * HOUR),
        ("K a", "12 PM", DAY),
        ("k", "24", 0),
        ("k", "25", 25 * HOUR),
        ("H a", "3 PM", 3 * HOUR),
        ("a H", "PM 3", 3 * HOUR),
        ("a", "PM", 12 * HOUR),
        ("H h", "5 7", 5 * HOUR),
        ("h H", "7 5", 5 * HOUR),
        ("H h a", "5 7 PM", 19 * HOUR),
        ("h a H", "7 PM 5", 5 * HOUR),
        ("h H a", "7 5 PM", 19 * HOUR),
        ("H k", "5 7", 7 * HOUR),
        ("h 'o'a", " \t7 opm", 19 * HOUR),
    ],
)
def test_hours_are_read_as_java_reads_them(pattern: str, text: str, ms: int) -> None:
    assert compile_parse(pattern)(text) == ms


@pytest.mark.parametrize(
    ("pattern", "text", "day"),
    [
        ("yyyy M D", "1970 3 5", 4),
        ("yyyy d D", "1970 9 5", 4),
        ("yyyy D d", "1970 5 9", 8),
        ("yyyy M L", "1970 3 2", 31),
        ("EEE yyyy", "Mon 1970", 4),
        ("u yyyy", "1 1970", 4),
        ("E d MMM yyyy", "Mon 2 Jan 1970", 1),
        ("dMMMyyyy", "15Jan1970", 14),
    ],
)
def test_days_are_read_as_java_reads_them(pattern: str, text: str, day: int) -> None:
    assert compile_parse(pattern)(text) == day * DAY


@pytest.mark.parametrize(("text", "year"), [("2024", 2024), ("5", 5), ("099", 99), ("12345", 12345)])
def test_a_year_of_one_letter_is_what_it_says(text: str, year: int) -> None:
    assert compile_format("yyyy")(compile_parse("y")(text)) == f"{year:04}"


def test_two_digits_are_no_year_behind_one_letter_either() -> None:
    with pytest.raises(ValueError, match="century"):
        compile_parse("d.M.y")("1.2.24")


@pytest.mark.parametrize(
    ("pattern", "text", "hours"),
    [
        ("z", "GMT+2:30", 2.5),
        ("z", "GMT+02:30", 2.5),
        ("Z", "gmt", 0),
        ("Z", "+0130", 1.5),
        ("z", "UTC", 0),
        ("zzzz", "Coordinated Universal Time", 0),
        ("X", "Z", 0),
        ("X", "-01", -1),
        ("X", "+0130", 1),
        ("XX", "+0130", 1.5),
        ("XXX", "-01:30", -1.5),
        ("XXX", "Z", 0),
    ],
)
def test_zones_are_offsets(pattern: str, text: str, hours: float) -> None:
    assert compile_parse(f"yyyy {pattern}")(f"1970 {text}") == -hours * HOUR


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("X", "UTC"),
        ("X", "z"),
        ("XX", "+01"),
        ("XX", "+01:30"),
        ("XXX", "+0130"),
        ("X'h'", "+0130h"),
        ("X", "+24"),
        ("XX", "+0160"),
        ("z", "-01"),
        ("z", "+01:30"),
        ("z", "GMT+0130"),
        ("z", "GMT-5"),
        ("Z", "Z"),
        ("u", "0"),
    ],
)
def test_a_field_of_another_form_is_told(pattern: str, text: str) -> None:
    with pytest.raises(ValueError):
        compile_parse(pattern)(text)


def test_years_before_the_first_are_told() -> None:
    with pytest.raises(ValueError):
        compile_format("yyyy")(-62_135_596_800_001)
