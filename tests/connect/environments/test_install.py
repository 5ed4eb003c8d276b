"""Installations into environments of their own, with pip and without a network"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.connect.environments.wheels import hash_of, line_of, make_plugin, make_wheel, source_code
from tidemill.connect.environments import in_use
from tidemill.connect.environments.folder import MAKING, Environment, Folder
from tidemill.connect.environments.install import InstallFailed, for_pip, install, of_wheel
from tidemill.connect.environments.requirements import BadRequirements, parse

pytestmark = pytest.mark.integration

Install = Callable[..., Environment]


@pytest.fixture
def put(folder: Folder, environ: dict[str, str]) -> Install:
    return lambda *lines: install(folder, parse("\n".join(lines)), environ)


def test_two_versions_stand_side_by_side_whole(folder: Folder, put: Install, wheels: Path) -> None:
    library = make_wheel(
        wheels,
        "shelf-library",
        "1.0",
        {"shelf_library.py": "def say(): print('here')"},
        scripts={"shelf-say": "shelf_library:say"},
    )
    first = put(
        line_of(make_plugin(wheels, "1.0", requires=["shelf-library>=1", "pydantic", "tidemill"])), line_of(library)
    )
    second = put(line_of(make_plugin(wheels, "2.0")))
    assert [each.called for each in folder.environments()] == ["shelf==1.0", "shelf==2.0"]
    for environment, version in ((first, "1.0"), (second, "2.0")):
        assert environment.description is not None and not environment.problem
        (plugin,) = environment.description.plugins
        assert (plugin.name, plugin.version, plugin.target, plugin.splits) == ("Shelf", version, "shelf:plugin", True)
        assert [each.names for each in plugin.settings] == [("topic",), ("every.seconds",), ("password",)]
        assert (plugin.settings[2].type, plugin.settings[2].default_value) == ("PASSWORD", "[hidden]")
    assert os.listdir(folder.path) != [] and not [each for each in os.listdir(folder.path) if each.startswith(MAKING)]
    said = subprocess.run([Path(first.path, "bin", "shelf-say")], capture_output=True, text=True, check=True).stdout
    assert said == "here\n", "scripts work where the environment was moved to"
    assert put(line_of(wheels / "shelf-2.0-py3-none-any.whl")) == second, "the same again changes nothing"


def test_a_wheel_at_hand_is_pinned_to_what_it_is(folder: Folder, environ: dict[str, str], tmp_path: Path) -> None:
    wheel = make_plugin(tmp_path / "build", "1.0")
    made = install(folder, [of_wheel(wheel)], environ)
    assert made.description is not None
    assert made.description.requirements == (f"shelf @ {wheel.as_uri()} --hash={hash_of(wheel)}",)
    for wrong, why in (
        (tmp_path / "shelf.whl", "Invalid wheel filename"),
        (tmp_path / "a-1-py3-none-any.whl", "No such"),
    ):
        with pytest.raises(BadRequirements, match=why):
            of_wheel(tmp_path / wrong)


def _other(wheels: Path) -> list[str]:
    return [f"shelf==1.0 --hash=sha256:{'0' * 64}"]


def _lacks(wheels: Path) -> list[str]:
    return [line_of(make_plugin(wheels, "1.1", requires=["left-pad>=2", "pydantic<1", "unheard; extra == 'x'"]))]


def _breaks(wheels: Path) -> list[str]:
    return [line_of(make_wheel(wheels, "broken", "1", {"broken.py": "1 / 0"}, plugins={"b": "broken:plugin"}))]


def _plain(wheels: Path) -> list[str]:
    return [line_of(make_wheel(wheels, "plain", "1", {"plain.py": ""}))]


def _several(wheels: Path) -> list[str]:
    return [line_of(make_plugin(wheels, "1.0", name)) for name in ("one", "two")]


def _transforms(wheels: Path) -> list[str]:
    return [line_of(make_plugin(wheels, "1.0", "t", group="tidemill.transforms"))]


def _old_library(wheels: Path) -> list[str]:
    old = make_wheel(wheels, "pydantic", "0.1", {"pydantic/__init__.py": "raise ImportError('too old for tidemill')"})
    return [line_of(make_plugin(wheels, "1.2")), line_of(old)]


def _unknown(wheels: Path) -> list[str]:
    return [f"never-heard-of==1.0 --hash=sha256:{'0' * 64}"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (_other, "DO NOT MATCH THE HASHES"),
        (_unknown, "No matching distribution found for never-heard-of==1.0"),
        (
            _lacks,
            "shelf needs left-pad>=2, which is not there: list it with its hash, too\nshelf needs pydantic<1, and ",
        ),
        (_breaks, "the plugin b of broken cannot be used: ZeroDivisionError: division by zero"),
        (_plain, "none of the packages has a plugin: an entry point of the group tidemill.plugins"),
        (_several, "several packages have plugins, install each by itself: "),
        (_transforms, "t has transforms, which are installed beside the worker"),
        (_old_library, "too old for tidemill"),
    ],
)
def test_what_is_refused_leaves_nothing(
    folder: Folder, put: Install, wheels: Path, asked: Callable[[Path], list[str]], why: str
) -> None:
    make_plugin(wheels, "1.0")
    with pytest.raises(InstallFailed) as caught:
        put(*asked(wheels))
    assert why in str(caught.value)
    assert os.listdir(folder.path) == [".lock"]


def test_what_a_plugin_starts_and_prints_at_import_holds_up_nothing_and_ends(
    put: Install, wheels: Path, tmp_path: Path
) -> None:
    code = source_code("1.0") + (
        "import subprocess\nprint('x' * 1_000_000)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
    )
    begun = time.monotonic()
    put(line_of(make_wheel(wheels, "shelf", "1.0", {"shelf.py": code}, plugins={"s": "shelf:plugin"})))
    assert time.monotonic() - begun < 100
    started = int((tmp_path / "pid").read_text())
    while psutil.pid_exists(started) and psutil.Process(started).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() - begun < 110
        time.sleep(0.05)


def test_pip_is_told_where_packages_are_and_nothing_else_of_the_worker(
    folder: Folder, environ: dict[str, str], wheels: Path, tmp_path: Path
) -> None:
    line = line_of(make_plugin(wheels, "1.0"))
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "shelf.py").write_text(source_code("6.6.6"))
    more = {
        "PIP_TARGET": str(tmp_path / "elsewhere"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(shadow), environ.get("PYTHONPATH", "")])),
        "SECRET": "s3cret",
    }
    made = install(folder, parse(line), {**environ, **more})
    assert made.description is not None
    assert made.description.plugins[0].version == "1.0", "what the environment has comes first"
    assert not (tmp_path / "elsewhere").exists()
    assert set(for_pip({**environ, **more})) >= {"PATH", "PIP_NO_INDEX", "PIP_FIND_LINKS"}
    assert not set(more) & set(for_pip({**environ, **more}))


def test_sources_are_not_built(put: Install, wheels: Path, folder: Folder) -> None:
    wheels.mkdir()
    archive = wheels / "shelf-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        setup = wheels / "setup.py"
        setup.write_text("raise SystemExit('code of a package ran')")
        file.add(setup, "shelf-1.0/setup.py")
    with pytest.raises(InstallFailed) as caught:
        put(f"shelf==1.0 --hash={hash_of(archive)}")
    assert "No matching distribution" in str(caught.value) and "code of a package" not in str(caught.value)


def test_a_version_means_one_thing(
    folder: Folder, put: Install, environ: dict[str, str], wheels: Path, tmp_path: Path
) -> None:
    put(line_of(make_plugin(wheels, "1.0")))
    again = make_plugin(tmp_path / "again", "1.0", requires=["pydantic"])
    make_plugin(wheels, "1.0", requires=["pydantic"])
    with pytest.raises(InstallFailed, match=r"shelf==1\.0 is there already, with other content: remove it first"):
        put(line_of(again))
    same = make_plugin(tmp_path / "same", "1.0.0")
    with pytest.raises(InstallFailed, match=r"shelf==1\.0 is there already, with other content: remove it first"):
        install(folder, [of_wheel(same)], environ)
    other = make_plugin(wheels, "1.0", "other")
    with pytest.raises(
        InstallFailed, match=r"other==1\.0 has version 1\.0 of the plugin Shelf, and so has shelf==1\.0, which is there"
    ):
        put(line_of(other))


def test_one_that_cannot_be_used_is_to_be_removed_before_the_same_is_installed(
    folder: Folder, put: Install, wheels: Path
) -> None:
    line = line_of(make_plugin(wheels, "1.0"))
    file = Path(put(line).path, in_use.DESCRIPTION)
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    with pytest.raises(InstallFailed, match=r"shelf==1\.0 is there already, .*: remove it first"):
        put(line)
    folder.remove(folder.find("shelf", "1.0"), force=False)
    assert not put(line).problem


def test_a_setting_whose_name_is_a_path_is_shown_by_its_attribute(put: Install, wheels: Path) -> None:
    code = source_code("1.0").replace(
        'password: SecretStr = SecretStr("none")',
        'password: str = Field(default="x", validation_alias=AliasChoices(AliasPath("a", "b")))',
    )
    code = code.replace("from pydantic import", "from pydantic import AliasChoices, AliasPath,")
    made = put(line_of(make_wheel(wheels, "shelf", "1.0", {"shelf.py": code}, plugins={"s": "shelf:plugin"})))
    assert made.description is not None
    assert [each.names for each in made.description.plugins[0].settings][-1] == ("password",)


@pytest.mark.crash
@pytest.mark.parametrize("moment", ["pyvenv.cfg", "requirements.txt", "found.json"])
def test_who_is_killed_in_the_middle_leaves_nothing(
    folder: Folder, put: Install, environ: dict[str, str], wheels: Path, moment: str
) -> None:
    """Between any two steps: the environment is not there, and the next who comes removes what is."""
    line = line_of(make_plugin(wheels, "1.0"))
    program = (
        "import json, sys; from tidemill.connect.environments.folder import Folder; "
        "from tidemill.connect.environments.install import install; "
        "from tidemill.connect.environments.requirements import parse; install(Folder(sys.argv[1]), parse(sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-P", "-c", program, folder.path, line], env=environ)
    until = time.monotonic() + 60
    while not list(Path(folder.path).glob(f"{MAKING}*/{moment}")) and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.environments() == ()
    assert list(Path(folder.path).glob(f"{MAKING}*")), "it was in the middle"
    while list(Path(folder.path).glob(f"{MAKING}*")) and time.monotonic() < until:
        folder.sweep()  # what pip and others still hold is left to them
        time.sleep(0.1)
    assert os.listdir(folder.path) == [".lock"]
    assert put(line).called == "shelf==1.0"


def test_one_that_is_being_built_is_not_taken_for_left_behind(folder: Folder) -> None:
    with folder.making() as (made, _):
        Folder(folder.path).sweep()
        assert Path(made).exists()
    assert not Path(made).exists()


def test_what_it_says_of_itself_can_be_read_by_others(put: Install, wheels: Path) -> None:
    made = put(line_of(make_plugin(wheels, "1.0")))
    found: dict[str, Any] = json.loads(Path(made.path, "tidemill-plugin.json").read_text())
    assert (found["format"], found["name"], found["version"]) == (1, "shelf", "1.0")
