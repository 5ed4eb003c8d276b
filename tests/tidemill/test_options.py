"""The option by which commands find their cluster."""

import pytest
import typer
from typer.testing import CliRunner

from tidemill.options import DEFAULT_BOOTSTRAP, Bootstrap

app = typer.Typer()


@app.command()
def where(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Print the address."""
    print(bootstrap)


@pytest.mark.parametrize("option", ["--bootstrap-server", "--bootstrap", "-b"])
def test_all_spellings(option: str) -> None:
    assert CliRunner().invoke(app, [option, "east:9092"], env={"TIDEMILL_BOOTSTRAP": "no"}).stdout == "east:9092\n"


def test_the_variable_and_the_default() -> None:
    assert CliRunner().invoke(app, [], env={"TIDEMILL_BOOTSTRAP": "west:9092"}).stdout == "west:9092\n"
    assert CliRunner().invoke(app, [], env={"TIDEMILL_BOOTSTRAP": None}).stdout == f"{DEFAULT_BOOTSTRAP}\n"
