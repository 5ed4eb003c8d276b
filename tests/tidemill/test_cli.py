"""The `tidemill` command: help, version, unknown commands, lazy loading."""

import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path

import pytest

from tidemill import cli
from tidemill.cluster.cli import app as cluster_app


def test_help_lists_every_command_without_loading_one(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    shown = capsys.readouterr().out
    names = {point.name for point in entry_points(group="tidemill.commands")}
    assert names == set(cli.SUMMARIES)
    assert all(name in shown for name in names)


def test_the_list_of_commands_says_of_a_cluster_what_its_own_help_says(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert str(cluster_app.info.help) in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--version"])
    assert capsys.readouterr().out == f"tidemill {version('tidemill')}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("brokr", "broker"), ("topics", "topic"), ("Groups", "group"), ("hlep", "help")]
)
def test_a_mistyped_command_gets_the_nearest(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([typed])
    assert caught.value.code == 2
    assert f"no command {typed!r}: did you mean {meant!r}? 'tidemill --help' lists them all" in capsys.readouterr().err


def test_a_command_like_nothing_gets_the_list_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["xyzzy"])
    assert "no command 'xyzzy': 'tidemill --help' lists them all" in capsys.readouterr().err


def test_a_mistyped_word_of_a_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["topic", "lst"])
    assert (caught.value.code, "'list'" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_help_is_a_command_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["help", *words])
    assert "Usage: tidemill COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"), [(["topic", "create"], "tidemill topic create"), (["broker", "start"], "tidemill broker start")]
)
def test_help_of_a_command(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["help", *words])
    assert not caught.value.code
    assert says in capsys.readouterr().out


def test_whatever_talks_to_a_cluster_finds_it_the_same_way() -> None:
    commands = ("connect start", "consume", "doctor", "group list", "group lag", "produce", "topic list", "topic alter")
    for command in commands:
        found = set(cli.candidates_of([*command.split(), "-"]))
        assert {"--bootstrap-server", "--bootstrap", "-b"} <= found, command


@pytest.mark.parametrize("name", sorted(cli.SUMMARIES))
def test_every_command_has_help(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", name, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"tidemill {name}" in done.stdout
    assert not re.search(r"<\w+(\[\w+\])?>", done.stdout), "a type is told in words"


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("pyspark.sql", "the Python package 'pyspark', which is not installed: pip install 'tidemill[spark]'\n"),
        ("nobody_has_it", "the Python package 'nobody_has_it', which is not installed\n"),
    ],
)
def test_a_command_that_lacks_a_package_names_the_extra_that_brings_it(
    module: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"lacks_{module.partition('.')[0]}"
    (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={module!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "entry_points", lambda group: [EntryPoint("spark", f"{name}:app", group)])
    with pytest.raises(SystemExit):
        cli.main(["spark"])
    assert capsys.readouterr().err.endswith(says)


def test_the_command_imports_none_of_the_parts() -> None:
    parts = ("broker", "mirror", "spark_sink", "confluent_kafka", "grpc")
    code = f"import sys, tidemill.cli; print([m for m in {parts!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
