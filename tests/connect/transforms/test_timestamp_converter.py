"""TimestampConverter: beyond what Kafka was asked (see test_registry)"""

import datetime as dt

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig, Json


@pytest.mark.parametrize(("target", "form"), [("string", ""), ("string", "ww"), ("unix", "Y")])
def test_a_format_that_makes_no_sense_is_told(target: str, form: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        made("TimestampConverter$Value", target_type=target, format=form)
    assert caught.value.field_name == "format"


def test_a_format_that_can_only_be_written_is_enough_to_write() -> None:
    convert = made("TimestampConverter$Value", target_type="string", format="yy")
    assert applied(convert, 0).value == "70"
    with pytest.raises(ValueError, match="century"):
        applied(convert, "70")


def test_a_text_without_a_format_is_an_error_of_its_record() -> None:
    convert = made("TimestampConverter$Value", target_type="unix")
    with pytest.raises(ValueError, match="format"):
        applied(convert, "2024")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("Timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4000, dt.UTC)),
        ("Date", dt.date(2024, 2, 29)),
        ("Time", dt.time(1, 2, 3, 4000)),
        ("unix", 1_709_168_523_004),
    ],
)
def test_without_a_schema_they_are_pythons(target: str, expected: Json) -> None:
    convert = made("TimestampConverter$Value", target_type=target)
    assert applied(convert, 1_709_168_523_004).value == expected
    assert applied(convert, dt.datetime(2024, 2, 29, 1, 2, 3, 4000)).value == expected


def test_what_is_no_time_is_an_error() -> None:
    for value in (True, 1.5, []):
        with pytest.raises(ValueError, match="no point in time"):
            applied(made("TimestampConverter$Value", target_type="unix"), value)
