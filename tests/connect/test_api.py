"""The small behaviour that the plugin contract has of its own"""

import dataclasses

import pytest

from tidemill.connect import api
from tidemill.connect.api import ConverterSpec, InvalidConfig, PartialFailure, PluginError, Record, RetryAfter


@pytest.mark.parametrize(
    ("options", "default", "answer"),
    [({}, True, True), ({}, False, False), ({"x": " TRUE "}, False, True), ({"x": "no"}, True, False)],
)
def test_options_of_a_converter_are_flags(options: dict[str, str], default: bool, answer: bool) -> None:
    assert ConverterSpec(kind="json", options=options).flag("x", default) is answer


def test_errors_read_well() -> None:
    assert str(RetryAfter(1.5)) == "retry after 1.5 s"
    assert (str(RetryAfter(1, "busy")), RetryAfter(1, "busy").seconds) == ("busy", 1)
    assert str(PartialFailure({0: ValueError(), 3: ValueError()})) == "2 records were refused"
    assert str(InvalidConfig("port", "is taken.", "Use another.")) == "is taken. Use another."
    assert str(InvalidConfig("port", "is taken.")) == "is taken."


def test_the_vocabulary_of_failure_has_one_parent() -> None:
    named = {api.NotConnected, api.RetryAfter, api.PartialFailure, api.EndOfInput, api.Fatal, api.InvalidConfig}
    assert named == set(PluginError.__subclasses__())


def test_records_do_not_change() -> None:
    record = Record(topic="t", value=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.value = 2  # type: ignore[misc]
    assert not hasattr(record, "__dict__")
