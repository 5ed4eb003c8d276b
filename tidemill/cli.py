"""The `tidemill` command: one door, parts loaded only when used

Subcommands are found through the entry point group `tidemill.commands`, so this file imports nothing of the parts it
starts and `tidemill broker start` never pays for Spark. An entry point loads to a Typer app (a group such as `topic
list`), to a plain function (a command such as `produce`), which Typer makes a command of, or to an argparse parser that
sets `run` to a function from the parsed options to the exit status.

The parser is for what runs for months: Typer and what it reads a command line with (pydantic) are 8 MB that stay, and
a tenth of a second. So this file imports what only some commands use where they use it.
"""

import argparse
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

from tidemill import lifeline

SUMMARIES = {
    "broker": "Run a Kafka-protocol broker.",
    "connect": "Run a Kafka Connect worker.",
    "consume": "Print records of a topic.",
    "demo": "Run the whole pipeline on this machine: Postgres, two clusters, Connect, mirror, Spark.",
    "doctor": "Check this machine and the way to a cluster, and say what to fix.",
    "log": "Look at, check and repair a log without a broker.",
    "mirror": "Replicate topics between clusters.",
    "produce": "Write lines of standard input to a topic.",
    "spark": "Keep a warehouse table equal to a topic.",
    "topic": "List, create, describe and delete topics.",
}
"""One line each for `tidemill --help`, so that help imports no part."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage."""
    lifeline.hold()
    given = sys.argv[1:] if arguments is None else arguments
    commands = {point.name: point for point in entry_points(group="tidemill.commands")}
    match given:
        case [] | ["-h" | "--help", *_]:
            _help(commands)
        case ["--version", *_]:
            print(f"tidemill {version('tidemill')}")
        case [name, *rest] if name in commands:
            _run(commands[name], rest)
        case [name, *_]:
            _fail(f"no command {name!r}: 'tidemill --help' lists them", 2)


def _run(point: EntryPoint, arguments: list[str]) -> None:
    try:
        target = point.load()
    except ModuleNotFoundError as error:
        if point.module.startswith(str(error.name)):
            raise  # a part of ours is missing: that is a broken installation, not a missing extra
        _fail(
            f"'tidemill {point.name}' needs the Python package {error.name!r}, which is not installed: "
            "install the extra that brings it, for everything pip install 'tidemill[demo]'",
            1,
        )
    if isinstance(target, argparse.ArgumentParser):
        options = target.parse_args(arguments)
        raise SystemExit(options.run(options))
    _run_typer(point.name, target, arguments)


def _run_typer(name: str, target: Any, arguments: list[str]) -> None:
    import typer

    app = target
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name=name)(target)
    else:
        app.callback()(_group(SUMMARIES.get(name, "")))
    typer.main.get_command(app)(args=arguments, prog_name=f"tidemill {name}")


def _group(summary: str) -> Callable[[], None]:
    """An empty callback: it keeps Typer from collapsing a group of one command into that command."""

    def callback() -> None: ...

    callback.__doc__ = summary
    return callback


def _help(commands: dict[str, EntryPoint]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print("Usage: tidemill COMMAND [OPTIONS]\n", highlight=False)
    console.print("A streaming data platform in Python that speaks the Apache Kafka wire protocol.\n", highlight=False)
    table = Table.grid(padding=(0, 2))
    for name in sorted(commands):
        table.add_row(f"  {name}", SUMMARIES.get(name, ""))
    console.print(table)
    console.print("\n'tidemill COMMAND --help' has the options of one; --version prints the version.", highlight=False)


def _fail(message: str, status: int) -> None:
    print(f"tidemill: {message}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
