"""A plugin process that is asked; what can go wrong in an answer is tested with sources and sinks"""

import os
from collections.abc import Callable

import pytest

from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.dialogue import Dialogue
from tidemill.connect.plugins.process.settings import ProcessSettings

Settings = Callable[..., ProcessSettings]


def test_it_says_who_it_is_and_ends(settings: Settings) -> None:
    dialogue = Dialogue(settings(), {}, pb.SINK)
    assert (dialogue.described.name, dialogue.described.version) == ("Program", "0.1")
    dialogue.stop()
    assert dialogue.failed
    assert not os.path.exists(f"/proc/{dialogue.pid}")
    with pytest.raises(NotConnected, match="runs no more"):
        dialogue.ask(pb.ToPlugin(flush=pb.Flush()))


def test_an_error_leaves_it_able_to_go_on(settings: Settings) -> None:
    dialogue = Dialogue(settings("split=fatal"), {}, pb.SOURCE)
    with pytest.raises(Fatal):
        dialogue.ask(pb.ToPlugin(split=pb.Split(tasks_max=1)))
    assert not dialogue.failed
    assert dialogue.ask(pb.ToPlugin(validate=pb.Validate())).validated == pb.Validated()
    dialogue.stop()


def test_its_environment_has_what_the_configuration_adds(settings: Settings) -> None:
    config = {"process.environment.PYTHONHASHSEED": "no number"}  # with which Python does not start
    with pytest.raises(
        NotConnected, match=r"exit status 1 while it was to describe; the last it printed: .*PYTHONHASHSEED"
    ):
        Dialogue(settings(), config, pb.SOURCE)
