"""The task process's own parts (the whole of it is tested through the host)"""

import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from tidemill.connect.api import Fatal, InvalidConfig
from tidemill.connect.loader import UnknownPlugin
from tidemill.connect.remote import sdk


class Settings(BaseModel):
    """Settings to object to."""

    port: int


def test_installed_plugins_are_found_by_their_names() -> None:
    assert sdk.find_plugin("FileStreamSource") is sdk.find_plugin(
        "org.apache.kafka.connect.file.FileStreamSourceConnector"
    )
    with pytest.raises(UnknownPlugin, match=r"no\.such\.Class"):
        sdk.find_plugin("no.such.Class")


def test_plugins_under_development_are_found_by_their_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "draft_plugin.py").write_text(
        "from tidemill.connect.plugins.file import file_sink as mine\nother = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sdk.find_plugin("draft_plugin:mine").name == "FileStreamSink"
    with pytest.raises(Fatal, match="is a int, not a plugin"):
        sdk.find_plugin("draft_plugin:other")
    del sys.modules["draft_plugin"]


def test_a_check_may_have_several_things_against_the_settings() -> None:
    def check(settings: BaseModel) -> None:
        inner = ExceptionGroup("of one part", [InvalidConfig("host", "is away."), InvalidConfig("", "is odd.")])
        raise ExceptionGroup("several", [InvalidConfig("port", "is bad.", "Use 1."), inner])

    found = [(each.setting, each.message) for each in sdk.objections(check, Settings(port=2))]
    assert found == [("port", "is bad. Use 1."), ("host", "is away."), ("", "is odd.")]


def test_a_check_with_a_bug_is_no_refusal() -> None:
    def one(settings: BaseModel) -> None:
        raise ZeroDivisionError

    def both(settings: BaseModel) -> None:
        raise ExceptionGroup("both", [InvalidConfig("port", "is bad."), ZeroDivisionError()])

    with pytest.raises(ZeroDivisionError):
        sdk.objections(one, Settings(port=2))
    with pytest.raises(ExceptionGroup):
        sdk.objections(both, Settings(port=2))
