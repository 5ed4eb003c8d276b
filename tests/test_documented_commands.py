"""Every `tidemill …` that a page shows is one that the program takes: its words and options are parsed, not run."""

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from tidemill.cli import OWN, load_command
from tidemill.health_cli import app as health

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/formats/*.md", "examples/**/*.md", "deploy/**/*.md")
    for path in ROOT.glob(pattern)
)
UNITS = sorted((ROOT / "deploy/systemd/system").glob("*.service"))
POINTS = {point.name: point for point in entry_points(group="tidemill.commands")}

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`((?:tidemill|until tidemill) [^`]+)`(?!`)")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_OUTPUT = re.compile(r"tidemill \w+ (ready|watched at:|problem:|progress:)")
"""What processes print begins with the same word."""
_BEFORE = {"until", "while", "if", "!", "exec", "sudo", "time"}


class Refused(Exception):
    """The program would not take these words."""


def words_of(line: str) -> list[str]:
    """The words and operators of a shell line, without its comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def commands_in(line: str) -> Iterator[list[str]]:
    """What follows `tidemill` in a shell line, for each time it is called in there, up to the next operator."""
    for inner in _SUBSTITUTION.findall(line):
        yield from commands_in(inner)
    words: list[str] = []
    for word in [*words_of(_SUBSTITUTION.sub("x", line)), ";"]:
        if word and set(word) <= set("();<>|&"):
            yield from _called(words)
            words = []
        else:
            words.append(word)


def _called(words: Sequence[str]) -> Iterator[list[str]]:
    while words and (words[0] in _BEFORE or "=" in words[0]):
        words = words[1:]
    if words[:2] == ["docker", "compose"] and "exec" in words:
        words = words[words.index("exec") + 1 :]
        words = [word for word in words if word != "-T"][1:]  # behind the name of the service
    if words and words[0].rpartition("/")[2] == "tidemill":
        yield [word for word in words[1:] if not re.fullmatch(r"\$[A-Z_]+", word)]


def shown_in(text: str) -> Iterator[tuple[list[str], bool]]:
    """The commands of a page, and whether each is a whole one: what stands in a sentence may leave the rest out."""
    for language, block in _FENCE.findall(text):
        if language in ("sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                if "tidemill" in line:
                    yield from ((words, True) for words in commands_in(line))
        elif language == "ini":
            yield from started_by(block)
    for span in _SPAN.findall(_FENCE.sub("", text)):
        if not _OUTPUT.match(span):
            for line in _each_way(span):
                yield from ((words, False) for words in commands_in(line))


def _each_way(span: str) -> Iterator[str]:
    """`log dump|verify DIR` is two commands."""
    if several := re.search(r"\w+(?:\|\w+)+", span):
        for one in several[0].split("|"):
            yield span.replace(several[0], one)
    else:
        yield span.replace("HOST:PORT", "localhost:9404")


def started_by(unit: str) -> Iterator[tuple[list[str], bool]]:
    """The commands of a unit of systemd."""
    for line in re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE):
        yield from ((words, True) for words in commands_in(line))


def check(words: Sequence[str], *, whole: bool) -> None:
    """Raise Refused if `tidemill` would not take these words."""
    if words[:1] == ["help"]:
        return check([*words[1:], "--help"], whole=False) if words[1:] else None
    if words[:1] == ["completion"]:
        if words[1:] not in (["bash"], ["zsh"], ["fish"]):
            raise Refused("completion is for a shell")
        return None
    if not words or words[0] in ("--help", "--version"):
        return None
    name, *rest = words
    if name not in POINTS and name not in OWN:
        raise Refused(f"no command {name!r}")
    command = health if name == "health" else load_command(POINTS[name])
    if isinstance(command, argparse.ArgumentParser):
        _check_parser(command, rest, whole=whole)
    else:
        _check_command(command, name, rest, whole=whole)
    return None


def _check_parser(parser: argparse.ArgumentParser, words: list[str], *, whole: bool) -> None:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parser.parse_args(words)
    except SystemExit as end:
        if end.code and (whole or "required" not in said.getvalue()):
            raise Refused(said.getvalue().splitlines()[-1]) from None


def _check_command(command: Any, name: str, words: list[str], *, whole: bool) -> None:
    path = f"tidemill {name}"
    while children := getattr(command, "commands", None):
        if not words or words[0] == "--help":
            return
        if words[0] not in children:
            raise Refused(f"{path} has no {words[0]!r}")
        command, path = children[words[0]], f"{path} {words[0]}"
        words = words[1:]
    if "--help" in words:
        return
    try:
        command.make_context(path, words)
    except Exception as error:  # Typer's own copy of click is not to be named
        if not hasattr(error, "format_message"):
            raise
        if whole or type(error).__name__ != "MissingParameter":
            raise Refused(error.format_message()) from None


@pytest.mark.parametrize("page", [*PAGES, *UNITS], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_taken(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    refused = []
    for words, whole in started_by(text) if page in UNITS else shown_in(text):
        try:
            check(words, whole=whole)
        except Refused as error:
            refused.append(f"tidemill {' '.join(words)}: {error}")
    assert refused == []


def test_the_pages_show_commands() -> None:
    assert sum(1 for page in PAGES for _ in shown_in(page.read_text(encoding="utf-8"))) > 100


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```sh\nA=1 tidemill topic list $ALL # tidemill x\n```", [(["topic", "list"], True)]),
        ("```sh\nuntil x/tidemill health h; do sleep 1; done\n```", [(["health", "h"], True)]),
        (
            "```sh\necho a |\n    docker compose -f c.yaml exec -T one tidemill produce t >o\n```",
            [(["produce", "t"], True)],
        ),
        ('```bash\neval "$(tidemill completion bash)"\n```', [(["completion", "bash"], True)]),
        (
            "```sh\ntidemill topic create t \\\n  --partitions 3\n```",
            [(["topic", "create", "t", "--partitions", "3"], True)],
        ),
        ("```ini\nExecStart=/opt/tidemill connect start\n```", [(["connect", "start"], True)]),
        ("```sh\ninstall -g tidemill a b\n```\nIt prints `tidemill connect ready`.", []),
        ("Run `tidemill log dump|verify DIR`.", [(["log", "dump", "DIR"], False), (["log", "verify", "DIR"], False)]),
    ],
)
def test_commands_are_found_in_a_text(text: str, found: list[tuple[list[str], bool]]) -> None:
    assert list(shown_in(text)) == found


@pytest.mark.parametrize(
    "line",
    [
        "brokr start",
        "broker begin",
        "broker start --confg x",
        "broker start server.properties",
        "connect start worker.properties",
        "topic creat t",
        "topic create t --partition 3",
        "topic create t --partitions many",
        "topic create",
        "group reset",
        "health",
        "completion csh",
        "help topics",
    ],
)
def test_what_is_wrong_is_refused(line: str) -> None:
    with pytest.raises(Refused):
        check(line.split(), whole=True)
