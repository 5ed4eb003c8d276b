"""Completion of `tidemill` in bash, zsh and fish

`tidemill completion SHELL` prints a few lines for the shell's start file. They ask `tidemill` itself, once a TAB, what
may stand next, so a completion never knows less than the installed commands do. Only the command being typed is
loaded. Where nothing is known (a file name, a topic) the shell completes file names as always.
"""

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

WORD = "--words"
"""`tidemill completion --words A B C` prints what C, which may be empty, can become; for the scripts below."""

SCRIPTS = {
    "bash": """\
_tidemill() {
    COMPREPLY=($(tidemill completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _tidemill tidemill
""",
    "zsh": """\
_tidemill() {
    local -a found
    found=(${(f)"$(tidemill completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#found )) && compadd -a found || _files
}
compdef _tidemill tidemill
""",
    "fish": """\
complete -c tidemill -a '(tidemill completion --words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}

_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
_SUBCOMMAND = re.compile(r"^ {4}([a-z][a-z-]*)(?:  |$)", re.MULTILINE)


def candidates(words: Sequence[str], names: Iterable[str], load: Callable[[str], Any]) -> list[str]:
    """What the last of `words` can become: a command of `names`, or what the command that `load` gives takes there."""
    *before, typed = words or [""]
    if not before:
        found: Iterable[str] = names
    else:
        command = load(before[0])
        inside = _of_parser if isinstance(command, argparse.ArgumentParser) else _of_command
        found = [] if command is None else inside(command, before[1:], typed)
    return sorted(word for word in found if word.startswith(typed))


def _of_command(command: Any, before: Sequence[str], typed: str) -> Iterable[str]:
    for word in before:
        command = getattr(command, "commands", {}).get(word, command)
    previous = before[-1] if before else ""
    for parameter in command.params:
        if previous in parameter.opts and not getattr(parameter, "is_flag", False):
            shown = parameter.display_type_rich(None)
            return shown.split("|") if "|" in shown else []
    if typed.startswith("-"):
        return [
            "--help",
            *(name for each in command.params for name in each.opts + each.secondary_opts if name[0] == "-"),
        ]
    return list(getattr(command, "commands", {}))


def _of_parser(parser: argparse.ArgumentParser, before: Sequence[str], typed: str) -> Iterable[str]:
    """An argparse parser tells what it takes by its help alone."""
    subcommand = [word for word in before if not word.startswith("-")][:1]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), contextlib.suppress(SystemExit):
        parser.parse_args([*subcommand, "--help"])
    if typed.startswith("-"):
        return set(_OPTION.findall(shown.getvalue()))
    return () if subcommand else _SUBCOMMAND.findall(shown.getvalue())
