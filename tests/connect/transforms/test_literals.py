"""Literals, against what Kafka 4.3.1 on Java 25 writes of them into a header"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.transforms.literals import literal_text


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (" 007 ", "7"),
        ("+3", "3"),
        ("-0.0", "0"),
        ("1.0", "1"),
        ("-5.", "-5"),
        ("1e3", "1000"),
        ("1.5e10", "15000000000"),
        ("0.0e400", "0"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("9" * 5000, "9" * 5000),
        ("1.50", "1.5"),
        ("-.5", "-0.5"),
        (".5", ".5"),
        ("0.0001", "1.0E-4"),
        ("3.14159265358979", "3.1415927"),
        ("123456789.123", "1.2345679E8"),
        ("123456789012345678901234567890.5", "1.2345679E29"),
        ("8388608.5", "8388608.0"),
        ("3.4028235e38", "3.4028235E38"),
        ("3.4028236e38", "3.4028236E38"),
        ("1.4e-45", "1.4E-45"),
        ("1e-45", "1.4E-45"),
        ("1e40", "1.0E40"),
        ("1.5e400", "1.5E+400"),
        ("1e99999", "1E+99999"),
        ("1e-99999", "0.0"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1f", "1f"),
        ("NaN", "NaN"),
        ("1.2.3", "1.2.3"),
        ("true", "true"),
        (" x ", "x"),
        ("", ""),
        ("2019-08-23", "2019-08-23"),
        ("[]", "[]"),
        ("[open", "[open"),
        ("[1, 2]", "[1,2]"),
        ("[1.0, 2]", "[1,2]"),
        ("[1, 2.5]", "[1.0,2.5]"),
        ("[1.123456789]", "[1.1234568]"),
        ('[1.5, "a", 2]', '[1.5,"a",2]'),
        ("[1.1, 1.5e39]", "[1.100000023841858,1.5E39]"),
        ("[9007199254740993, 1.5]", "[9.007199E15,1.5]"),
        ("[9007199254740993, 1.5e39]", "[9.007199254740992E15,1.5E39]"),
        ("[1.5, 9223372036854775808]", "[1.5,9223372036854775808]"),
        ("[1e400, 1]", "[1E+400,1]"),
        ("[[1, 2.5],[3]]", "[[1.0,2.5],[3]]"),
        ("[true, 1.5, 1]", "[true,1.5,1]"),
        ("[null, null]", "[null,null]"),
        ("[1.5,null]", "[1.5,null]"),
        ("[1, null]", "[1, null]"),
        ('{"a": [1, "b"]}', '{"a":[1,"b"]}'),
        ('{"a" : 1, "b": 2.123456789012}', '{"a":1.0,"b":2.1234567}'),
        ('{"a":{"x":1},"b":{"x":2.5}}', '{"a":{"x":1},"b":{"x":2.5}}'),
        ('{"a": true, "b": null}', '{"a": true, "b": null}'),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_literals_are_written_as_connect_writes_them(literal: str, text: str) -> None:
    assert literal_text(literal) == text


@pytest.mark.parametrize("literal", ["1,000", "14:30", "14:34:54", "1:2", "[NaN]", "[1]x"])
def test_a_text_that_only_begins_with_a_value_is_a_text(literal: str) -> None:
    assert literal_text(literal) == literal


def test_null_is_none() -> None:
    assert literal_text(" null ") is None


@given(st.text() | st.from_regex(r"[+-]?[0-9.]{1,30}([eE][+-]?[0-9]{1,12})?", fullmatch=True))
def test_any_text_is_a_literal(literal: str) -> None:
    assert literal_text(literal) is not None or literal.strip() == "null"
