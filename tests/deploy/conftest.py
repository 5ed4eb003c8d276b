"""The images, built from nothing once for the run; skips where no engine works, and says why"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.deploy.engine import Engine, EngineMissing, find_engine

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("broker", "connect", "mirror", "spark")
PUBLIC_BASE, OWN_BASE = "docker.io/library/debian:bookworm-slim", "localhost/debian:bookworm"
PUBLIC_POSTGRES, OWN_POSTGRES = "docker.io/library/postgres:17", "localhost/tidemill-test-postgres"
CONTEXT_FILES = (".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements.lock", "hatch_build.py")
CONTEXT_FOLDERS = ("core", "broker", "connect", "mirror", "spark_sink", "tidemill", "deploy")


@dataclass(slots=True)
class Note:
    """What the run has measured: seconds and sizes."""

    rows: list[str] = field(default_factory=list)

    def timed(self, what: str, begin: float) -> None:
        """Take note of the seconds since `begin`, of the monotonic clock."""
        self.rows.append(f"{what}: {time.monotonic() - begin:.1f} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Names of the images, and the folder they were built in: a copy of the sources."""

    base: str
    postgres: str
    folder: Path
    names: Mapping[str, str]


@pytest.fixture(scope="session")
def note(request: pytest.FixtureRequest) -> Iterator[Note]:
    """Shown at the end of the run, whatever is captured."""
    taken = Note()
    yield taken
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and taken.rows:
        reporter.write_line("")
        for row in taken.rows:
            reporter.write_line(f"deploy: {row}")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The container engine of this machine."""
    try:
        return find_engine(tmp_path_factory.mktemp("engine"))
    except EngineMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def base(engine: Engine, note: Note) -> str:
    """The image to build on: the registry's, else one made from the package archive."""
    if engine("image", "inspect", OWN_BASE, check=False).returncode == 0:
        return OWN_BASE
    with contextlib.suppress(subprocess.TimeoutExpired):  # a registry that does not answer is no registry
        if engine("pull", "-q", PUBLIC_BASE, check=False, timeout_s=120).returncode == 0:
            return PUBLIC_BASE
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no image registry answers and mmdebstrap is not installed: apt-get install mmdebstrap")
    begin = time.monotonic()
    command = [str(ROOT / "deploy" / "base-image.sh"), OWN_BASE]
    subprocess.run(command, env={**engine.environ, "ENGINE": engine.program}, check=True, timeout=300)
    note.timed("base image from the package archive", begin)
    return OWN_BASE


@pytest.fixture(scope="session")
def postgres(engine: Engine, base: str, note: Note) -> str:
    """An image of PostgreSQL that starts as the official one does."""
    if base == PUBLIC_BASE:
        return PUBLIC_POSTGRES
    begin, here = time.monotonic(), ROOT / "tests" / "deploy"
    engine.build(here / "postgres.Dockerfile", here, "--build-arg", f"BASE={base}", "-t", OWN_POSTGRES)
    note.timed("image of PostgreSQL", begin)
    return OWN_POSTGRES


@pytest.fixture(scope="session")
def images(engine: Engine, base: str, postgres: str, note: Note, tmp_path_factory: pytest.TempPathFactory) -> Images:
    """All images of the Dockerfile, built in a copy of the sources."""
    folder = tmp_path_factory.mktemp("sources")
    for name in CONTEXT_FILES:
        shutil.copy(ROOT / name, folder / name)
    left_out = shutil.ignore_patterns("__pycache__", "*.so", ".env")
    for name in CONTEXT_FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=left_out)
    names = {}
    base_bytes = engine.image_bytes(base)
    note.rows.append(f"base {base}: {base_bytes / 1e6:.0f} MB")
    for target in TARGETS:
        begin, names[target] = time.monotonic(), f"localhost/tidemill-{target}:latest"
        arguments = ("--build-arg", f"BASE={base}", "--target", target, "-t", names[target])
        engine.build(folder / "deploy" / "Dockerfile", folder, *arguments)
        note.timed(f"image {target}", begin)
        size = engine.image_bytes(names[target])
        note.rows.append(f"image {target}: {(size - base_bytes) / 1e6:.0f} MB above its base")
    return Images(base=base, postgres=postgres, folder=folder, names=names)
