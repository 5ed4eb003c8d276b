"""A container engine for tests: Docker where its daemon answers, else podman, and compose for either

Where podman runs as root without systemd and without the right to raise limits (a container or a small VM of CI), crun
and the default limits fail: it gets a configuration of its own with runc and limits that it may set.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTAINERS_CONF = """\
[containers]
default_ulimits=["nofile=16384:16384","nproc=16384:16384"]
[engine]
runtime="runc"
"""
COMMAND_TIMEOUT_S = 300.0
BUILD_TIMEOUT_S = 900.0


class EngineMissing(RuntimeError):
    """No engine can be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The commands of an engine, with the environment they need."""

    program: str
    compose: tuple[str, ...]
    environ: Mapping[str, str]

    def __call__(
        self,
        *arguments: str,
        check: bool = True,
        given: str | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the engine's command; with `check`, a failure shows what it said."""
        done = subprocess.run(
            [self.program, *arguments],
            env={**self.environ, **(more or {})},
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{self.program} {' '.join(arguments)}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """What the engine knows of a container, image or volume."""
        found: list[dict[str, Any]] = json.loads(self(kind, "inspect", name).stdout)
        return found[0]

    def image_bytes(self, name: str) -> int:
        """Size of an image with all its layers."""
        return int(self.inspect("image", name)["Size"])

    def build(self, dockerfile: Path, context: Path, *arguments: str) -> None:
        """Build an image; the package index that pip uses here is there while it is built."""
        if self.program == "podman":
            arguments = ("--network", "host", *arguments)
        more = {"DOCKER_BUILDKIT": "1"}
        with pip_secrets() as secrets:
            self(
                "build", *secrets, *arguments, "-f", str(dockerfile), str(context), timeout_s=BUILD_TIMEOUT_S, more=more
            )


def find_engine(folder: Path) -> Engine:
    """The engine of this machine; raises EngineMissing. `folder` takes podman's configuration."""
    environ = dict(os.environ)
    if _answers(["docker", "info", "--format", "{{.ServerVersion}}"], environ):
        if not _answers(["docker", "compose", "version"], environ):
            raise EngineMissing("docker has no compose plugin")
        return Engine(program="docker", compose=("docker", "compose"), environ=environ)
    if shutil.which("podman") is None:
        raise EngineMissing(
            "no Docker daemon answers and podman is not installed (root may: apt-get install podman runc)"
        )
    if os.geteuid() == 0 and shutil.which("runc") and "CONTAINERS_CONF" not in environ:
        file = folder / "containers.conf"
        file.write_text(CONTAINERS_CONF)
        environ["CONTAINERS_CONF"] = str(file)
    if not _answers(["podman", "info"], environ):
        raise EngineMissing("podman is installed and does not work: see 'podman info'")
    if importlib.util.find_spec("podman_compose") is None:
        raise EngineMissing("podman is here and podman-compose is not: pip install podman-compose")
    environ["BUILDAH_FORMAT"] = "docker"  # podman's own format has no health checks
    return Engine(program="podman", compose=(sys.executable, "-m", "podman_compose"), environ=environ)


def _answers(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    try:
        return subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextlib.contextmanager
def pip_secrets() -> Iterator[tuple[str, ...]]:
    """Build arguments that hand pip's configuration of this machine and its certificates over as secrets."""
    import tempfile

    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=False
    )
    settings: dict[str, str] = {}
    for line in said.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pip.conf")
        wanted = ("index-url", "extra-index-url", "trusted-host", "proxy", "cert", "default-timeout")
        lines = [f"{name} = {settings[name]}" for name in wanted if name in settings]
        file.write_text("\n".join(["[global]", *lines, ""]))
        arguments = ["--secret", f"id=pip,src={file}"]
        authorities = Path(settings.get("cert", "/etc/ssl/certs/ca-certificates.crt"))
        if authorities.is_file():
            arguments += ["--secret", f"id=ca,src={authorities}"]
        yield tuple(arguments)


@contextlib.contextmanager
def docker_api(engine: Engine, folder: Path) -> Iterator[dict[str, str]]:
    """Variables with which Docker's client libraries find the engine; podman serves their API while this is open."""
    if engine.program == "docker":
        yield {}
        return
    address = f"unix://{folder}/podman.sock"
    service = subprocess.Popen(
        [engine.program, "system", "service", "-t", "0", address],
        env=engine.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not Path(folder, "podman.sock").exists():
            if service.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("podman does not serve Docker's API")
            time.sleep(0.05)
        yield {
            "DOCKER_HOST": address,
            "TESTCONTAINERS_RYUK_DISABLED": "true",
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
            "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
        }
    finally:
        service.terminate()
        service.wait(30)


class HealthTimer:
    """Runs health checks where nothing else does: podman leaves that to systemd's timers.

    `names` of containers are asked for before each round, as containers come and go.
    """

    def __init__(self, engine: Engine, label: str) -> None:
        self._engine = engine
        self._label = label
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health timer", daemon=True)

    def __enter__(self) -> "HealthTimer":
        if self._engine.program == "podman" and not Path("/run/systemd/system").exists():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            names = self._engine("ps", "--filter", f"label={self._label}", "--format", "{{.Names}}", check=False)
            for name in names.stdout.split():
                self._engine("healthcheck", "run", name, check=False)
