"""The compose deployment as a stranger meets it: the commands of deploy/README.md, and nothing else"""

import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.deploy.engine import Engine
from tidemill.free_ports import free_ports

Answer = TypeVar("Answer")

PROJECT = "tidemill"
SERVICES = ("postgres", "east", "west", "connect", "mirror", "spark")
WRAPPER = """\
#!/bin/sh
# What the page calls docker, here.
[ "$1" = compose ] || exec {engine} "$@"
shift
[ "$1" != build ] || set -- "$@" --build-arg BASE={base}
exec {compose} "$@"
"""
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_by_heading(page: str) -> dict[str, list[str]]:
    """The shell blocks below each heading of second rank, in their order."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        found[heading] = _BLOCK.findall(text)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports of this machine that the deployment takes."""

    postgres: int
    east: int
    west: int
    connect: int
    one: int
    two: int
    three: int

    @classmethod
    def free(cls) -> "Ports":
        """Some that nobody has."""
        return cls(**dict(zip(cls.__slots__, free_ports(len(cls.__slots__)), strict=True)))


class Deployment:
    """A copy of the folder `deploy`, its commands, and what they have started."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        base: str,
        postgres: str,
        *,
        project: str = PROJECT,
        file: str = "compose.yaml",
    ) -> None:
        self.engine = engine
        self._project = project
        self._file = file
        self.folder = folder
        self.ports = Ports.free()
        programs = folder.parent / "programs"
        programs.mkdir()
        docker = programs / "docker"
        docker.write_text(WRAPPER.format(engine=engine.program, compose=" ".join(engine.compose), base=base))
        docker.chmod(0o755)
        self._environ = {
            **engine.environ,
            "PATH": f"{programs}:{engine.environ['PATH'].replace(str(programs), '')}",
            "POSTGRES_IMAGE": postgres,
            "HOST": "what-some-shells-call-the-machine",
            **{f"{name.upper()}_PORT": str(getattr(self.ports, name)) for name in Ports.__slots__},
        }
        self._engine_path = engine.environ["PATH"]
        docker.write_text(docker.read_text().replace("exec docker", f"PATH={self._engine_path} exec docker"))

    def run(self, block: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run commands in the folder, ending at the first that fails."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{block}\nstatus {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done

    def until(self, block: str, timeout_s: float = 300) -> str:
        """Repeat commands until they succeed; returns what they printed."""
        return eventually(lambda: self.run(block).stdout, timeout_s)

    @property
    def dsn(self) -> str:
        """How to reach the database from here."""
        password = re.search(r"^POSTGRES_PASSWORD=(.+)$", (self.folder / ".env").read_text(), re.MULTILINE)
        assert password is not None
        return f"host=127.0.0.1 port={self.ports.postgres} user=postgres password={password[1]} dbname=shop"

    def container(self, service: str) -> str:
        """The id of a service's container."""
        label = f"label=com.docker.compose.service={service}"
        project = f"label=com.docker.compose.project={self._project}"
        return self.engine("ps", "-aq", "--filter", label, "--filter", project).stdout.split()[0]

    def volume(self, name: str) -> Path:
        """Where a volume lies on this machine."""
        return Path(self.engine.inspect("volume", f"{self._project}_{name}")["Mountpoint"])

    def state(self, service: str) -> Mapping[str, object]:
        """What the engine knows of a service's container."""
        found: Mapping[str, object] = self.engine.inspect("container", self.container(service))["State"]
        return found

    def wait_ready(self, *services: str, timeout_s: float = 300) -> None:
        """Wait until the health checks of services are passed: podman before 4.6 starts all of them at once."""

        def ask() -> None:
            for service in services:
                check = self.engine.inspect("container", self.container(service))["Config"]["Healthcheck"]["Test"][1:]
                self.engine("exec", self.container(service), *check)

        eventually(ask, timeout_s)

    def kill(self, service: str) -> int:
        """SIGKILL to the first process of a service's container, behind the engine's back; returns its id."""
        pid = self.state(service)["Pid"]
        assert isinstance(pid, int) and pid > 1
        subprocess.run(["kill", "-9", str(pid)], check=True)
        return pid

    def remove(self) -> None:
        """Leave nothing behind."""
        self.run(f"docker compose -f {self._file} down -v -t 1", check=False)


def eventually(ask: Callable[[], Answer], timeout_s: float, pause_s: float = 0.5) -> Answer:
    """Ask until nothing is raised, at most `timeout_s`; then the last failure is raised."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause_s)
