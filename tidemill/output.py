"""What commands print

Tables for people, JSON for programs, and one line on standard error for a failure.
"""

import difflib
import json
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table


def new_table(*columns: str) -> Table:
    """A table without lines, as all commands show theirs."""
    return Table(*columns, box=None, header_style="bold")


def print_table(table: Table, *, empty: str = "") -> None:
    """The table on standard output; where it has no row, the sentence `empty` on standard error instead."""
    if not table.row_count:
        print(empty, file=sys.stderr)
        return
    console = Console(markup=False, emoji=False)  # cells hold what others have said
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge: do not fold long names
    console.print(table)


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    print(json.dumps(value, ensure_ascii=False))


def complain(message: str) -> None:
    """One line on standard error; the command goes on."""
    print(f"tidemill: {message}", file=sys.stderr)


def fail(message: str, status: int = 1) -> NoReturn:
    """End the command with one line on standard error."""
    complain(message)
    raise typer.Exit(status)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'orders'?` where one of `known` looks like `name`, else nothing."""
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""
