"""The wheel as users get it: built through the sdist, installed into an environment of its own

Whatever lies at the top of a user's environment can clash with what the user wrote, so it is two names and no more; and
the pytest plugin must run in a project whose own packages or modules have the names of our folders.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("core", "broker", "connect", "mirror", "spark_sink")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PROJECT_TEST = """
import {names}
import pytest

@pytest.mark.parametrize("module", [{names}])
def test_own_modules_are_found(module):
    assert module.OWNER == "the user"

def test_a_broker_runs_beside_them(tidemill_broker):
    from confluent_kafka import Producer
    producer = Producer({{"bootstrap.servers": tidemill_broker.facts["address"]}})
    errors = []
    producer.produce("mine", b"value", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]
"""


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist, as an index would have it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, sdist, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, what it needs, and pytest."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    found = folder / "bin" / "python"
    constraints = ("-c", ROOT / "requirements.lock")
    run(found, "-m", "pip", "install", "--quiet", *constraints, wheel, "pytest", "pytest-timeout", cwd=folder)
    return found


def files(archive: Path) -> set[str]:
    """What a wheel holds, its own description left out."""
    with zipfile.ZipFile(archive) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


def test_two_names_at_the_top(wheel: Path, tmp_path: Path) -> None:
    assert {name.split("/")[0] for name in files(wheel)} == {"tidemill", "pyspark_tidemill.py"}
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, wheel, cwd=tmp_path)
    found = {entry.name for entry in tmp_path.iterdir() if not entry.name.endswith(".dist-info")}
    assert found - {"bin", "__pycache__"} == {"tidemill", "pyspark_tidemill.py"}


def test_the_wheel_is_the_tree_whichever_way_it_is_built(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    (direct,) = tmp_path.glob("*.whl")
    assert files(direct) == files(wheel)
    tracked = run("git", "ls-files", "tidemill", *PARTS, cwd=ROOT).splitlines()
    expected = {name if name.startswith("tidemill/") else f"tidemill/{name}" for name in tracked}
    links = {f"tidemill/{part}" for part in PARTS}
    # The compiled kernel is in it where there was a compiler: built, so in no repository.
    assert files(wheel) - {"tidemill/spark_sink/libkernel.so"} == expected - links | {"pyspark_tidemill.py"}


@pytest.mark.parametrize("kind", ["packages", "modules"])
def test_the_plugin_runs_beside_a_users_own_names(python: Path, kind: str, tmp_path: Path) -> None:
    for part in PARTS:
        file = tmp_path / part / "__init__.py" if kind == "packages" else tmp_path / f"{part}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text('OWNER = "the user"\n')
    (tmp_path / "test_project.py").write_text(PROJECT_TEST.format(names=", ".join(PARTS)))
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "60", cwd=tmp_path)
    assert "6 passed" in said
