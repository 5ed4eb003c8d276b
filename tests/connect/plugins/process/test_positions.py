"""Source partitions and offsets in text"""

import pytest

from tidemill.connect.plugins.process.positions import read_offset, read_partition, written


def test_equal_ones_are_equal_text() -> None:
    assert written({"b": 1, "a": "é"}) == written({"a": "é", "b": 1}) == '{"a":"é","b":1}'
    assert read_partition('{"a": "é", "b": null}') == {"a": "é", "b": None}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[1]", r"is a JSON object, not \[1\]"),
        ('{"a": {"b": 1}}', "is flat: 'a' is an object"),
        ('{"x": 1.5, "a": ' + "[" * 1_000 + "]" * 1_000 + "}", "is flat: 'a' is a list"),
        ('{"a": 18446744073709551616}', "'a' is a number beyond 64 bits, which has to be text"),
        ('{"a": -9223372036854775809}', "'a' is a number beyond 64 bits"),
        ('{"a": "' + "x" * 70_000 + '"}', "of 70009 characters, of 65536 at most"),
    ],
)
def test_what_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"a source offset.*{why}"):
        read_offset(text)


def test_the_largest_numbers_stay_what_they_are() -> None:
    text = '{"a":18446744073709551615,"b":-9223372036854775808,"c":0.5,"d":1.5e-7}'
    assert written(read_offset(text)) == text
