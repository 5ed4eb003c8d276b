"""Parts of the platform as child processes

The demo, the tests and a user's own tests start the same commands an operator starts, wait for their readiness line
and stop or kill them. A `Service` is one such process; its output goes to a log file that an error message can quote.

A service dies with the program that started it (see `lifeline`), so a killed test run leaves nothing behind.
"""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemill import lifeline
from tidemill.core.ids import encode_id
from tidemill.known_brokers import known_brokers

LOG_TAIL_LINES = 25  # enough for a Python traceback


class ServiceError(RuntimeError):
    """A service did not come up or ended by itself; the message quotes the end of its log."""


class Service:
    """One long-running command with a readiness line on stdout.

    `command` are the arguments after `tidemill`. `ready` is a regular expression; its groups are kept in `facts`,
    e.g. the port that was chosen for port 0. `python` is the interpreter: another environment's runs what is
    installed there.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        ready: str,
        log: Path,
        environ: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.facts: dict[str, str] = {}
        self._ready = re.compile(ready)
        self._environ = dict(environ or {})
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0  # the byte of the log

    @property
    def pid(self) -> int:
        """The process id; raises ServiceError while the service is not running."""
        if self._process is None:
            raise ServiceError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 60) -> "Service":
        """Start the process and wait for its readiness line; raises ServiceError with the log's end."""
        self.begin()
        return self.wait(timeout_s)

    def begin(self) -> None:
        """Start the process, which may need others to become ready; `wait` for it then."""
        if self.running:
            raise ServiceError(f"{self.name} is already running as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._began_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                # -P: the current folder is the user's; a queue.py in it is not the standard library's
                [self._python, "-P", "-m", "tidemill.cli", *self.command],
                stdin=subprocess.PIPE,  # open until the process has ended
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", lifeline.VARIABLE: "1", **self._environ},
            )

    def wait(self, timeout_s: float = 60) -> "Service":
        """Return once the readiness line is there; raises ServiceError with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            match = self._ready.search(self.output(self._began_at))
            if match:
                self.facts = {name: value for name, value in match.groupdict().items() if value is not None}
                return self
            if not self.running:
                raise ServiceError(f"{self.name} ended with status {self._status()}:\n{self.tail()}")
            time.sleep(0.02)
        self.kill()
        raise ServiceError(f"{self.name} was not ready after {timeout_s:.0f} s:\n{self.tail()}")

    def output(self, offset: int = 0) -> str:
        """What the process has printed from byte `offset` of the log on."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def tail(self) -> str:
        """The end of the log, for an error message."""
        return "\n".join(self.output().splitlines()[-LOG_TAIL_LINES:])

    def stop(self, grace_s: float = 15) -> int | None:
        """Ask the process to end (SIGTERM), kill it after `grace_s`; returns its exit status if any."""
        if self._process is None:
            return None
        self.ask_to_end()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._forget()

    def ask_to_end(self) -> None:
        """Send SIGTERM, and go on at once."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process the hard way: SIGKILL, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self, timeout_s: float = 60) -> "Service":
        """Start again after `stop` or `kill`."""
        if self._process is not None and not self.running:
            self._forget()
        return self.start(timeout_s)

    def _status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _forget(self) -> int | None:
        status = self._status()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
        return status


ADDRESS = r"(?P<address>[\w.\-\[\]:]+:(?P<port>\d+))"


def broker(
    name: str, data: Path, *, listen: str = "127.0.0.1:0", settings: Mapping[str, str] | None = None, log: Path
) -> Service:
    """A one-node cluster; `facts["address"]` is its bootstrap address once started."""
    options = [option for key, value in (settings or {}).items() for option in ("--set", f"{key}={value}")]
    command = ["broker", "start", "--data", str(data), "--listen", listen, *options]
    return Service(name, command, ready=rf"tidemill broker ready: listening on {ADDRESS}", log=log)


def _cluster_id(folder: Path) -> str:
    """The same for one folder, and another for each."""
    return encode_id(uuid.uuid5(uuid.NAMESPACE_URL, folder.resolve().as_uri()))


class Cluster:
    """Broker nodes that are one cluster, each a process that is broker and controller.

    `ports` are two for each node, for its clients and for the other controllers; `nodes` are by node id, from 1 on.
    `listener` is that of clients and brokers, `racks` those of the nodes, if they are in any.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        ports: Sequence[int],
        *,
        settings: Mapping[str, str] | None = None,
        listener: str = "PLAINTEXT",
        racks: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._folder = folder
        self._listener = listener
        clients, controllers = ports[::2], ports[1::2]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        self._settings = {
            "cluster.id": _cluster_id(folder),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            **(settings or {}),
        }
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in clients)
        self.addresses = {node: f"127.0.0.1:{port}" for node, port in enumerate(clients, 1)}
        self.nodes: dict[int, Service] = {}
        for node, (port, controller) in enumerate(zip(clients, controllers, strict=True), 1):
            own = {"listeners": f"{listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"}
            if racks:
                own["broker.rack"] = racks[node - 1]
            self.nodes[node] = self._node(node, own)

    def _node(self, node: int, own: Mapping[str, str]) -> Service:
        given = {**self._settings, "node.id": str(node), **own}
        options = [option for key, value in given.items() for option in ("--set", f"{key}={value}")]
        return Service(
            f"{self.name} node {node}",
            ["broker", "start", "--data", str(self._folder / f"node-{node}"), *options],
            ready=rf"tidemill broker ready: listening on {ADDRESS}",
            log=self._folder / f"node-{node}.log",
        )

    def add_broker(self, port: int, settings: Mapping[str, str] | None = None) -> Service:
        """One more node, which is no controller; it is not started yet."""
        node = max(self.nodes) + 1
        own = {"process.roles": "broker", "listeners": f"{self._listener}://127.0.0.1:{port}", **(settings or {})}
        self.addresses[node] = f"127.0.0.1:{port}"
        self.nodes[node] = self._node(node, own)
        return self.nodes[node]

    def start(self, timeout_s: float = 60) -> "Cluster":
        """Start all that do not run, and wait for all; raises ServiceError with the end of a log.

        Clients of a PLAINTEXT listener find every broker then, whichever they ask. Without that, one that asked two
        brokers in turn would take the other for gone (librdkafka fails what it had sent there: `_DESTROY_BROKER`).
        """
        for node in self.nodes.values():
            if not node.running:
                node.begin()
        for node in self.nodes.values():
            node.wait(timeout_s)
        if self._listener == "PLAINTEXT":
            self._wait_until_acquainted(timeout_s)
        return self

    def _wait_until_acquainted(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for node, address in self.addresses.items():
            while missing := self.nodes.keys() - known_brokers(address, timeout_s):
                if time.monotonic() > deadline:
                    late = ", ".join(str(each) for each in sorted(missing))
                    raise ServiceError(
                        f"{self.name} node {node} did not hear of {late} within {timeout_s:.0f} s:\n"
                        + self.nodes[node].tail()
                    )
                time.sleep(0.02)

    @property
    def running(self) -> bool:
        """True while all of them live."""
        return all(node.running for node in self.nodes.values())

    def tail(self) -> str:
        """The end of the log of each that has ended by itself."""
        return "\n".join(f"{node.name}:\n{node.tail()}" for node in self.nodes.values() if not node.running)

    def kill(self) -> None:
        """End them all the hard way."""
        for node in self.nodes.values():
            node.kill()

    def restart(self, timeout_s: float = 60) -> "Cluster":
        """Start again after `stop` or `kill`."""
        return self.start(timeout_s)

    def stop(self, grace_s: float = 30) -> None:
        """Ask them all to end, and wait for them."""
        for node in self.nodes.values():
            node.ask_to_end()
        for node in self.nodes.values():
            node.stop(grace_s)


def connect_worker(
    name: str,
    bootstrap: str,
    *,
    rest: str = "127.0.0.1:0",
    settings: Mapping[str, str] | None = None,
    log: Path,
    environ: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Service:
    """A Connect worker; `facts["url"]` is its REST address once started."""
    options = [option for key, value in (settings or {}).items() for option in ("--set", f"{key}={value}")]
    command = ["connect", "start", "--bootstrap", bootstrap, "--rest", rest, *options]
    ready = r"tidemill connect ready: REST (?P<url>http://[^\s,]+)"
    return Service(name, command, ready=ready, log=log, environ=environ, python=python)


def mirror(name: str, properties: Path, *, log: Path, environ: Mapping[str, str] | None = None) -> Service:
    """A mirror that runs the flows of an mm2.properties file."""
    command = ["mirror", "start", str(properties)]
    return Service(name, command, ready=r"tidemill mirror ready", log=log, environ=environ)


def spark_job(
    name: str,
    properties: Path,
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Service:
    """A warehouse job."""
    command = ["spark", "run", str(properties)]
    return Service(name, command, ready=r"tidemill spark ready", log=log, environ=environ, python=python)
