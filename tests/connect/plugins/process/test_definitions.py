"""Settings that a plugin describes"""

import pytest

from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.definitions import refusals, with_defaults

SETTINGS = [
    pb.Setting(name="topic", required=True, documentation="Where to."),
    pb.Setting(name="size", type="int", default="3"),
    pb.Setting(name="share", type="double"),
    pb.Setting(name="round", type="boolean", default=""),
    pb.Setting(name="list", type="list"),
]


def test_defaults_are_filled_in() -> None:
    assert with_defaults(SETTINGS, {"topic": "t", "other": "1"}) == {
        "topic": "t",
        "size": "3",
        "round": "",
        "other": "1",
    }


def test_what_is_missing_or_of_another_type() -> None:
    assert list(refusals(SETTINGS, {"topic": "", "size": "-4", "share": "1e3", "round": "True", "list": "a,b"})) == []
    found = list(refusals(SETTINGS, {"size": "4.5", "share": "half", "round": "yes"}))
    assert [(each.field_name, str(each)) for each in found] == [
        ("topic", "The plugin needs topic. Where to."),
        ("size", "size is a whole number, not '4.5'."),
        ("share", "share is a number, not 'half'."),
        ("round", "round is true or false, not 'yes'."),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", text) for text in ("1_000", "\u0661\u0662", " 5", "", "1e3")]
    + [("share", text) for text in ("1_0.5", "nan", "inf", " 1", ".", "")],
)
def test_a_number_is_one_in_every_language(name: str, value: str) -> None:
    """Python reads more than other languages do, and a plugin is given the text."""
    (found,) = refusals(SETTINGS, {"topic": "t", name: value})
    assert found.field_name == name


@pytest.mark.parametrize("value", ["1", "+1.", "-.5", "1E-3", "12.25e+10"])
def test_numbers(value: str) -> None:
    assert not list(refusals(SETTINGS, {"topic": "t", "share": value}))
