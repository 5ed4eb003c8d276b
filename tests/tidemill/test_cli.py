"""The `tidemill` command: help, version, unknown commands, lazy loading."""

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

from tidemill import cli


def test_help_lists_every_command_without_loading_one(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--help"])
    shown = capsys.readouterr().out
    names = {point.name for point in entry_points(group="tidemill.commands")}
    assert names == set(cli.SUMMARIES)
    assert all(name in shown for name in names)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--version"])
    assert capsys.readouterr().out == f"tidemill {version('tidemill')}\n"


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["brokr"])
    assert caught.value.code == 2
    assert "no command 'brokr'" in capsys.readouterr().err


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


def test_the_command_imports_none_of_the_parts() -> None:
    parts = ("broker", "mirror", "spark_sink", "confluent_kafka", "grpc")
    code = f"import sys, tidemill.cli; print([m for m in {parts!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
