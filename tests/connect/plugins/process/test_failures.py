"""Errors of a plugin, as a task raises them"""

import pytest

from tidemill.connect.api import EndOfInput, Fatal, InvalidConfig, NotConnected, PluginError, RetryAfter
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.failures import STACK_CHARACTERS_MAX, failure_of


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        (pb.Error.RETRY, RetryAfter),
        (pb.Error.NOT_CONNECTED, NotConnected),
        (pb.Error.CONFIGURATION, InvalidConfig),
        (pb.Error.FATAL, Fatal),
        (pb.Error.END_OF_INPUT, EndOfInput),
        (pb.Error.BUG, Fatal),
    ],
)
def test_every_kind(kind: "pb.Error.Kind", raised: type[PluginError]) -> None:
    failure = failure_of(pb.Error(kind=kind, message="so it is"), "poll")
    assert type(failure) is raised
    assert "so it is" in str(failure)


def test_a_kind_of_a_later_version_is_a_bug() -> None:
    later = pb.Error.FromString(b"\x08\x63\x12\x01x")
    assert str(failure_of(later, "put")) == "the plugin failed to put: x"


def test_what_goes_with_them() -> None:
    patience = failure_of(pb.Error(kind=pb.Error.RETRY), "poll")
    assert isinstance(patience, RetryAfter)
    assert (patience.seconds, str(patience)) == (0.1, "it gave no reason")
    wrong = failure_of(pb.Error(kind=pb.Error.CONFIGURATION, setting="file", message="is a folder"), "start")
    assert isinstance(wrong, InvalidConfig)
    assert (wrong.field_name, str(wrong)) == ("file", "file: is a folder")
    bug = failure_of(pb.Error(message="m", stack="s" * 1_000_000), "put")
    assert len(str(bug)) < STACK_CHARACTERS_MAX + 100
