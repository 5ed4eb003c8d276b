"""Running a Typer app as a part of `tidemill`, with help in words

Typer prints the Python type of a value (`<list[str]>`, `<bool>`). Whoever types a command thinks in texts, numbers and
paths, and a switch takes no value at all, so what is shown as a type is translated here, for all commands at once.
"""

from collections.abc import Callable
from typing import Any

import typer

WORDS = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "path": "PATH", "file": "FILE", "directory": "FOLDER"}


def command_of(name: str, target: Any, summary: str) -> Any:
    """The command that a Typer app or a plain function makes; its help is in words."""
    app = target
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name=name)(target)
    else:
        app.callback()(_group(summary))
    command = typer.main.get_command(app)
    _speak(command)
    return command


def in_words(shown: str | None) -> str:
    """`<list[str]>` → TEXT, `<int>` → NUMBER, `<text|json>` → text|json; a switch (`<bool>`) has no value: nothing."""
    bare = (shown or "").removesuffix("...")
    if not (bare.startswith("<") and bare.endswith(">")):
        return shown or ""
    bare = bare[1:-1].removeprefix("list[").removesuffix("]").removesuffix(" range")
    return "" if bare == "bool" else WORDS.get(bare, bare)


def _group(summary: str) -> Callable[[], None]:
    """An empty callback: it keeps Typer from collapsing a group of one command into that command."""

    def callback() -> None: ...

    callback.__doc__ = summary
    return callback


def _speak(command: Any) -> None:
    context = typer.Context(command)
    for parameter in command.get_params(context):  # the option --help among them
        words = in_words(parameter.display_type_rich(context))
        parameter.display_type_rich = lambda ctx, words=words: words
    for child in getattr(command, "commands", {}).values():
        _speak(child)
