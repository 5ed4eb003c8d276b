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


@pytest.mark.parametrize("pattern", ["w", "W", "F", "Y", "o", "'open", "yyyy n"])
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


@pytest.mark.parametrize(
    ("text", "hours"), [("GMT+2:30", 2.5), ("GMT+02:30", 2.5), ("-01", -1), ("+0130", 1.5), ("UTC", 0), ("Z", 0)]
)
def test_zones_are_offsets(text: str, hours: float) -> None:
    assert compile_parse("yyyy z")(f"1970 {text}") == -hours * 3_600_000


def test_years_before_the_first_are_told() -> None:
    with pytest.raises(ValueError):
        compile_format("yyyy")(-62_135_596_800_001)
