"""Completion: what may stand next, and the script of a real bash."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill import cli


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["conn"], ["connect", "connector"]),
        (["topic", "de"], ["delete", "describe"]),
        (["topic", "create", "--part"], ["--partitions"]),
        (["consume", "--format", ""], ["json", "text"]),
        (["consume", "--format", "j"], ["json"]),
        (["consume", "--group", ""], []),
        (["broker", ""], ["config", "format", "start"]),
        (["broker", "start", "--li"], ["--listen"]),
        (["help", ""], []),
        (["no-such-command", ""], []),
    ],
)
def test_what_may_stand_next(words: list[str], expected: list[str]) -> None:
    assert cli.candidates_of(words) == expected


def test_nothing_typed_gives_every_command() -> None:
    assert set(cli.candidates_of([""])) == cli.SUMMARIES.keys() | cli.OWN.keys()


def test_a_script_for_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        cli.main(["completion", shell])
        assert "tidemill completion --words" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        cli.main(["completion", "tcsh"])
    assert (caught.value.code, "bash, zsh, fish" in capsys.readouterr().err) == (2, True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path) -> None:
    command = tmp_path / "tidemill"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidemill.cli "$@"\n')
    command.chmod(0o755)
    script = """
        PATH="$1:$PATH"
        eval "$(tidemill completion bash)"
        COMP_WORDS=(tidemill topic de) COMP_CWORD=2
        _tidemill
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "delete describe\n"
