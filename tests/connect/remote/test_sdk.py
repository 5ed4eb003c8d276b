"""The task process's own parts (the whole of it is tested through the host)"""

import sys
from pathlib import Path

import pytest

from tidemill.connect.api import Fatal
from tidemill.connect.loader import UnknownPlugin
from tidemill.connect.remote import sdk


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


def test_an_ends_text_can_be_written_whatever_it_quotes() -> None:
    assert sdk._trace(Fatal("cannot read caf\udce9")) == "cannot read caf?"
