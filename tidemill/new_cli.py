"""`tidemill new`: a project for a source, a sink or a transform

It writes a folder of a few small files that can be tested, installed and deployed as they are, and says how. What is
there already is never touched.
"""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tidemill.new_project import BadName, files_of
from tidemill.output import fail

app = typer.Typer(help="Begin a source, a sink or a transform of your own.", no_args_is_help=True, add_completion=False)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Small letters and digits, joined by '-': web-orders.", show_default=False)
]
Into = Annotated[Path, typer.Option("--into", metavar="FOLDER", help="Where the project's folder is made.")]


@app.command()
def source(name: Name, into: Into = Path()) -> None:
    """A project for a source, which reads from somewhere into topics."""
    _write("source", name, into)


@app.command()
def sink(name: Name, into: Into = Path()) -> None:
    """A project for a sink, which writes the records of topics somewhere."""
    _write("sink", name, into)


@app.command()
def transform(name: Name, into: Into = Path()) -> None:
    """A project for a transform, which changes records on their way."""
    _write("transform", name, into)


def _write(kind: str, name: str, into: Path) -> None:
    try:
        files = files_of(kind, name)
    except BadName as error:
        fail(str(error), 2)
    folder = into / name
    try:
        folder.mkdir()  # not with its parents: a mistyped folder is a mistake
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except FileExistsError:
        fail(f"{folder} is there already and is left as it is: take another name, or --into another folder")
    except OSError as error:
        fail(f"cannot write {error.filename or folder}: {error.strerror}")
    print(f"made {folder}: {', '.join(sorted(files))}")
    print("next:")
    print(f"  cd {shlex.quote(str(folder))}")
    print("  pip install pytest                      # once, for the test")
    print("  python -m pytest                        # test it")
    print("  pip install -e .                        # install it; a worker finds it when it starts")
    print(f"  tidemill connector create {name}.json    # deploy it")
