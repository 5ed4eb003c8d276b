"""The `tidemill` command: one door, parts loaded only when used

Subcommands are found through the entry point group `tidemill.commands`, so this file imports nothing of the parts it
starts and `tidemill broker start` never pays for Spark. An entry point loads to a Typer app (a group such as `topic
list`), to a plain function (a command such as `produce`), which Typer makes a command of, or to an argparse parser that
sets `run` to a function from the parsed options to the exit status.

The parser is for what runs for months: Typer and what it reads a command line with (pydantic) are 8 MB that stay, and
a tenth of a second. So this file imports what only some commands use where they use it.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any, NoReturn

from tidemill import lifeline
from tidemill.core.runtime import lean_structlog

SUMMARIES = {
    "broker": "Run a Kafka-protocol broker.",
    "cluster": "Look at a cluster, move its replicas, change who votes in it, and make the files of a new one.",
    "connect": "Run a Kafka Connect worker.",
    "connector": "List, create, watch and change connectors of a Connect worker.",
    "consume": "Print records of a topic.",
    "demo": "Run the whole pipeline on this machine: Postgres, two clusters, Connect, mirror, Spark.",
    "doctor": "Check this machine and the way to a cluster, and say what to fix.",
    "group": "List and describe consumer groups, show how far behind they are, move them.",
    "log": "Look at, check and repair a log without a broker.",
    "mirror": "Replicate topics between clusters.",
    "new": "Begin a source, a sink or a transform of your own: a folder that can be tested and deployed.",
    "plugin": "Install plugins of a Connect worker, several versions side by side.",
    "produce": "Write lines of standard input to a topic.",
    "spark": "Keep a warehouse table equal to a topic.",
    "topic": "List, create, describe, change and delete topics.",
}
"""One line each for `tidemill --help`, so that help imports no part."""

OWN = {
    "completion": "Print the completion of this command for bash, zsh or fish.",
    "health": "Ask a process whether it is ready, for container health checks.",
    "help": "Show the help of a command: 'tidemill help topic create'.",
}
"""What this file does itself."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage."""
    lifeline.hold()
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["health"]:  # started every few seconds: it does not look for what else there is
        from tidemill.health_cli import app

        options = app.parse_args(given[1:])
        raise SystemExit(options.run(options))
    commands = {point.name: point for point in entry_points(group="tidemill.commands")}
    match given:
        case [] | ["-h" | "--help" | "help"] | ["help", "-h" | "--help" | "help"]:
            _help(commands)
        case ["help", name, *rest]:
            main([name, *rest, "--help"])
        case ["--version", *_]:
            print(f"tidemill {version('tidemill')}")
        case ["completion", *rest]:
            _complete(rest)
        case [name, *rest] if name in commands:
            if name in ("broker", "connect"):
                lean_structlog.load()
            _run(commands[name], rest)
        case [name, *_]:
            _fail(f"no command {name!r}: {_nearest(name, commands)}'tidemill --help' lists them all", 2)


def _nearest(name: str, commands: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), [*commands, *OWN], n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _run(point: EntryPoint, arguments: list[str]) -> None:
    command = load_command(point)
    if isinstance(command, argparse.ArgumentParser):
        options = command.parse_args(arguments)
        raise SystemExit(_heard(lambda: options.run(options)))
    command(args=arguments, prog_name=f"tidemill {point.name}")


def _heard(run: Callable[[], int]) -> int:
    """The exit status of `run`, or 1 once nobody reads what it prints (`| head`), as Typer's commands end then."""
    try:
        status = run()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the interpreter's end
        return 1
    return status


def load_command(point: EntryPoint) -> Any:
    """An argparse parser, or the command that Typer makes."""
    try:
        target = point.load()
    except ModuleNotFoundError as error:
        if point.module.startswith(str(error.name)):
            raise  # a part of ours is missing: that is a broken installation, not a missing extra
        from tidemill.core.extras import install_hint

        package = str(error.name).partition(".")[0]
        hint = install_hint(package)
        needs = f"'tidemill {point.name}' needs the Python package {package!r}, which is not installed"
        _fail(f"{needs}: {hint}" if hint else needs, 1)
    if isinstance(target, argparse.ArgumentParser):
        return target
    from tidemill.typer_commands import command_of

    return command_of(point.name, target, SUMMARIES.get(point.name, ""))


def candidates_of(words: list[str]) -> list[str]:
    """What the last of `words`, typed after `tidemill`, can become."""
    from tidemill.completion import candidates
    from tidemill.health_cli import app

    commands = {point.name: point for point in entry_points(group="tidemill.commands")}
    own = {"health": app}
    names = [*commands, *OWN]
    return candidates(words, names, lambda name: load_command(commands[name]) if name in commands else own.get(name))


def _complete(arguments: list[str]) -> None:
    from tidemill.completion import SCRIPTS, WORD

    match arguments:
        case [shell] if shell in SCRIPTS:
            print(SCRIPTS[shell], end="")
        case [word, *words] if word == WORD:
            print("\n".join(candidates_of(words)))
        case ["-h" | "--help"]:
            print("Usage: tidemill completion bash|zsh|fish\n")
            print('Prints what the shell\'s start file needs, for bash: eval "$(tidemill completion bash)"')
        case _:
            _fail(f"completion is for one of {', '.join(SCRIPTS)}: tidemill completion bash", 2)


def _help(commands: dict[str, EntryPoint]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print("Usage: tidemill COMMAND [OPTIONS]\n", highlight=False)
    console.print("A streaming data platform in Python that speaks the Apache Kafka wire protocol.\n", highlight=False)
    table = Table.grid(padding=(0, 2))
    for name in sorted([*commands, *OWN]):
        table.add_row(f"  {name}", SUMMARIES.get(name) or OWN.get(name, ""))
    console.print(table)
    console.print("\n'tidemill COMMAND --help' has the options of one; --version prints the version.", highlight=False)


def _fail(message: str, status: int) -> NoReturn:
    print(f"tidemill: {message}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
