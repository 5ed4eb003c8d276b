"""The task process's own parts (the whole of it is tested through the host)"""

import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from tidemill.connect.api import Fatal, InvalidConfig, Plugin, PluginKind
from tidemill.connect.loader import UnknownPlugin
from tidemill.connect.remote import sdk


class Settings(BaseModel):
    """Settings to get wrong."""

    port: int


PLUGIN = Plugin(name="p", kind=PluginKind.SOURCE, version="1", config=Settings, task=lambda settings: None)  # type: ignore[arg-type,return-value]


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


def test_bad_settings_are_one_line() -> None:
    with pytest.raises(Fatal, match=r"^the configuration is not valid: port: Input should be a valid integer[^\n]*$"):
        sdk._settings(PLUGIN, {"port": "x"})
    assert sdk._settings(PLUGIN, {"port": "1"}) == Settings(port=1)


def test_a_trace_is_for_bugs_and_a_sentence_for_people() -> None:
    assert sdk._trace(Fatal("make room")) == "make room"
    assert sdk._trace(InvalidConfig("port", "is bad.", "Use 1.")) == "is bad. Use 1."
    with pytest.raises(KeyError) as caught:
        raise KeyError("x")
    assert "test_sdk.py" in sdk._trace(caught.value)
