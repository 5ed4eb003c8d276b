"""Plugins found by name, broken ones left out"""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from tidemill.connect import loader
from tidemill.connect.api import Plugin, PluginKind, SourceTask
from tidemill.connect.loader import NoSuchVersion, Plugins, UnknownPlugin


class Settings(BaseModel):
    pass


def task(settings: Settings) -> SourceTask:
    raise AssertionError("never started here")


def plugin(name: str, *aliases: str, version: str = "1") -> Plugin:
    return Plugin(name=name, kind=PluginKind.SOURCE, version=version, config=Settings, task=task, aliases=aliases)


LINES = plugin("Lines", "org.example.LinesSourceConnector")


@pytest.mark.parametrize(
    "name",
    [
        "Lines",
        "LinesConnector",
        "org.example.LinesSourceConnector",
        "org.example.LinesSource",
        "LinesSourceConnector",
        "LinesSource",
    ],
)
def test_a_plugin_answers_to_every_name_people_use(name: str) -> None:
    assert Plugins([LINES]).find(name) is LINES


def test_an_exact_name_wins_over_an_alias_and_an_alias_over_a_shortened_name() -> None:
    exact, alias, short = plugin("A"), plugin("B", "A"), plugin("C", "x.A")
    assert Plugins([short, alias, exact]).find("A") is exact
    assert Plugins([short, alias]).find("A") is alias
    assert Plugins([short]).find("A") is short


def test_an_unknown_name_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownPlugin, match=r"which name matches Nope, available connectors are: Lines"):
        Plugins([LINES]).find("Nope")
    with pytest.raises(
        UnknownPlugin, match=r"Lines\. A worker finds what is installed when it starts: install it beside every"
    ):
        Plugins([LINES]).find("Nope")
    with pytest.raises(UnknownPlugin, match="none"):
        Plugins([]).find("")


def test_of_several_versions_the_one_that_is_asked_for_is_found_or_the_newest() -> None:
    old, new, newest = (plugin("Lines", "x.Lines", version=each) for each in ("1.9", "1.10", "2.0"))
    plugins = Plugins([new, newest, old])
    asked = {"": newest, "latest": newest, "1.9": old, "[1.0,2.0)": new, "(,1.10)": old}
    for version, found in asked.items():
        assert plugins.of({"connector.class": "x.LinesConnector", "connector.plugin.version": version}) is found
    assert [each.version for each in plugins.versions("Lines")] == ["1.9", "1.10", "2.0"]
    for version in ("3", "[3,)"):
        with pytest.raises(NoSuchVersion, match=r"of Lines is not installed: this worker has 1\.9, 1\.10, 2\.0$"):
            plugins.find("Lines", version)
    with pytest.raises(NoSuchVersion, match="is neither a version nor a range"):
        plugins.find("Lines", "[3")


def test_others_come_and_go_and_are_meant_where_both_are_there() -> None:
    own, others = plugin("Lines", version="1.0"), [()]
    plugins = Plugins([own]).with_others(lambda: others[-1])
    assert plugins.find("Lines") is own
    same, newer, new = plugin("Lines", version="1.0"), plugin("Lines", version="1.1"), plugin("New", "x.NewConnector")
    others.append((newer, same, new))
    assert plugins.find("Lines") is newer and plugins.find("Lines", "1.0") is same
    assert plugins.find("x.New") is new and list(plugins) == [own, newer, same, new]
    others.append(())
    assert plugins.find("Lines") is own
    with pytest.raises(UnknownPlugin, match=r"available connectors are: Lines\."):
        plugins.find("New")


def test_broken_entry_points_are_left_out() -> None:
    points = [
        EntryPoint("missing", "no_such_module_anywhere:x", loader.GROUP),
        EntryPoint("wrong", "json:dumps", loader.GROUP),
        EntryPoint("gone", "json:no_such_name", loader.GROUP),
        EntryPoint("file-source", "tidemill.connect.plugins.file:file_source", loader.GROUP),
    ]
    assert [(target, each.name) for target, each in loader.load(points)] == [
        ("tidemill.connect.plugins.file:file_source", "FileStreamSource")
    ]


def test_a_plugin_of_another_kind_is_left_out_with_the_group_it_belongs_to() -> None:
    with capture_logs() as lines:
        points = [EntryPoint("f", "tidemill.connect.plugins.file:file_source", loader.TRANSFORMS_GROUP)]
        points += [EntryPoint("m", "tidemill.connect.transforms.registry:BUILT_IN", loader.TRANSFORMS_GROUP)]
        assert not list(loader.load(points, loader.TRANSFORMS))
    assert [line["reason"] for line in lines] == [
        "a source belongs into the entry point group tidemill.plugins",
        "a tuple, not a Plugin",
    ]
    assert loader.installed_transforms() == ()


def test_the_installed_plugins_hold_the_file_connectors() -> None:
    plugins = Plugins.installed()
    assert plugins.find("org.apache.kafka.connect.file.FileStreamSourceConnector").kind is PluginKind.SOURCE
    sink = plugins.find("FileStreamSink")
    assert sink.kind is PluginKind.SINK
    assert plugins.target(sink) == "tidemill.connect.plugins.file:file_sink"
    assert plugins.target(LINES) == "Lines"


def test_a_module_that_exits_when_it_is_imported_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with capture_logs() as lines:
        assert list(loader.load([EntryPoint("x", "leaves_at_once:plugin", loader.TRANSFORMS_GROUP)])) == []
    assert [line["reason"] for line in lines] == ["SystemExit: 3"]


def test_who_asks_for_a_plugin_that_lacks_a_package_is_told_which_extra_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacks_a_driver.py").write_text("raise ModuleNotFoundError(name='psycopg.rows')\n")
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("postgres", "lacks_a_driver:plugin", loader.GROUP)]
    monkeypatch.setattr(loader, "entry_points", lambda group: points)
    with pytest.raises(UnknownPlugin, match="available connectors are: none") as caught:
        Plugins.installed().find("PostgresSource")
    reason = "needs the Python package 'psycopg': pip install 'tidemill[postgres]'"
    assert f"The plugin postgres was left out: {reason}. A worker finds" in str(caught.value)
