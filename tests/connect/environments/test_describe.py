"""What packages ask for and do not find"""

import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.connect.environments.wheels import make_plugin, make_wheel
from tidemill.connect.environments.describe import command, found_in, lacking


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to import from."""
    monkeypatch.syspath_prepend(tmp_path / "packages")
    return tmp_path / "packages"


def unpack(wheel: Path, into: Path) -> None:
    zipfile.ZipFile(wheel).extractall(into)


def test_what_is_there_in_no_or_another_version_is_told_extras_included(packages: Path, tmp_path: Path) -> None:
    needs = ["one[fast]>=2", "two; python_version < '3'", "three; extra == 'more'", "pydantic"]
    unpack(make_wheel(tmp_path, "top", "1", {}, requires=needs), packages)
    unpack(
        make_wheel(tmp_path, "one", "2.5", {}, requires=["four>1; extra == 'fast'", "five; extra == 'slow'"]), packages
    )
    unpack(make_wheel(tmp_path, "four", "1.0", {}), packages)
    (told,) = lacking(distributions(path=[str(packages)]))
    assert told == "one needs four>1, and 1.0 is there: list it with its hash, too"


def test_plugins_are_described_and_what_ends_the_interpreter_is_a_reason(packages: Path, tmp_path: Path) -> None:
    unpack(make_plugin(tmp_path, "3.1"), packages)
    found = found_in([str(packages)])
    assert [(each.name, each.version, [plugin.name for plugin in each.plugins]) for each in found.packages] == [
        ("shelf", "3.1", ["Shelf"])
    ]
    assert found.problems == ()
    sys.modules.pop("shelf", None)
    unpack(make_wheel(tmp_path, "exits", "1", {"exits.py": "raise SystemExit(1)"}, plugins={"e": "exits:e"}), packages)
    assert "the plugin e of exits cannot be used: SystemExit: 1" in found_in([str(packages)]).problems


def test_the_program_is_the_environments(tmp_path: Path) -> None:
    python, *arguments = command(str(tmp_path), "out")
    assert python == f"{tmp_path}/bin/python" and arguments[:2] == ["-P", "-c"] and "out" in arguments
