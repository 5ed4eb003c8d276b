"""The nodes: one process each, of ours or of Apache Kafka, with what can be done to a process

Both start from the settings that a user would have to give, and the defaults otherwise. A node may be given other code
to run from its next start on, which is what an upgrade is.
"""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import peers
from tests.faults.clocks import Clock
from tests.faults.disks import Disk
from tests.faults.hosts import Hosts
from tidemill import lifeline
from tidemill.core.ids import encode_id

CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
END_WITHIN_S = 40.0
"""Whoever is asked to end has so long, like under an init system."""
HEAP = "600M"
OURS_READY, KAFKA_READY = b"tidemill broker ready", b"Kafka Server started"
"""What a node says when it has started."""
KAFKA_SAYS_SO = """\
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=INFO
"""


class Node:
    """One process, which says `ready` when it has started."""

    def __init__(
        self, number: int, command: Sequence[str], environ: Mapping[str, str], log: Path, disk: Disk, ready: bytes
    ) -> None:
        self.number = number
        self.disk = disk
        self.clock: Clock | None = None
        self.environ = dict(environ)
        self.log = log
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = ready
        self._looked_bytes = 0
        self._has_started = False

    def begin(self) -> None:
        """Start it, and do not wait."""
        assert not self.running
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        clock = self.clock.environ if self.clock else {}
        self._looked_bytes = self.log.stat().st_size if self.log.exists() else 0
        self._has_started = False
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,  # open for as long as the kit lives
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environ, **clock},
            )

    @property
    def has_started(self) -> bool:
        """Whether it has said since it began that it is ready."""
        if not self._has_started:
            with self.log.open("rb") as lines:
                lines.seek(self._looked_bytes)
                new = lines.read()
            self._has_started = self._ready in new
            self._looked_bytes += max(len(new) - len(self._ready), 0)  # half of the words may be there
        return self._has_started

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the one that lives, or lived last."""
        assert self._process is not None
        return self._process.pid

    def signal(self, what: signal.Signals) -> None:
        """Send one, if anybody lives."""
        if self._process is not None and self.running:
            self._process.send_signal(what)

    def kill(self) -> None:
        """As a power cut would, but for what the kernel holds."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(END_WITHIN_S)

    def stop(self) -> bool:
        """Ask it to end; False if it had to be killed."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True


class Nodes:
    """All of one cluster, by number."""

    def __init__(self, hosts: Hosts, nodes: Mapping[int, Node]) -> None:
        self.hosts = hosts
        self.by_number = dict(nodes)
        self.bootstrap = ",".join(f"{hosts.address(number)}:{CLIENT_PORT}" for number in nodes)

    def begin(self) -> None:
        """Start all of them."""
        for node in self.by_number.values():
            node.begin()


def settings(hosts: Hosts, number: int, more: Mapping[str, str]) -> dict[str, str]:
    """What a node of either kind has to be told."""
    address = hosts.address(number)
    return {
        "node.id": str(number),
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(f"{each}@{hosts.address(each)}:{CONTROLLER_PORT}" for each in hosts.nodes),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{address}:{CLIENT_PORT},CONTROLLER://{address}:{CONTROLLER_PORT}",
        **more,
    }


def ours(hosts: Hosts, folder: Path, disks: Mapping[int, Disk], more: Mapping[str, str], code: Path | None) -> Nodes:
    """Nodes of Tidemill; `code` is another checkout, whose they are."""
    cluster_id = encode_id(uuid.uuid4())
    nodes = {}
    for number, disk in disks.items():
        values = {**settings(hosts, number, more), "cluster.id": cluster_id}
        options = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        start = [sys.executable, "-P", "-m", "tidemill.cli", "broker", "start", "--data", str(disk.data), *options]
        environ = {"PYTHONUNBUFFERED": "1", lifeline.VARIABLE: "1", **code_of(code)}
        log = folder / f"node-{number}.log"
        nodes[number] = Node(number, [*hosts.inside(number), *start], environ, log, disk, OURS_READY)
    return Nodes(hosts, nodes)


def code_of(checkout: Path | None) -> dict[str, str]:
    """The environment in which a process runs the code of another checkout."""
    return {"PYTHONPATH": str(checkout)} if checkout else {}


def kafka(hosts: Hosts, folder: Path, disks: Mapping[int, Disk], more: Mapping[str, str]) -> Nodes:
    """Nodes of Apache Kafka, with their storage formatted."""
    libraries = peers.libraries("kafka", peers.KAFKA)
    logging = folder / "log4j2.properties"
    logging.write_text(peers.LOGGING + KAFKA_SAYS_SO)
    cluster_id = peers.cluster_id()
    nodes = {}
    for number, disk in disks.items():
        file = folder / f"node-{number}.properties"
        values = {**settings(hosts, number, more), "log.dirs": str(disk.data)}
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        peers.run_tool("kafka.tools.StorageTool", ["format", "-t", cluster_id, "-c", str(file)])
        start = [
            "java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
            f"-Dlog4j2.configurationFile={logging}", "-cp", f"{libraries}/*", "kafka.Kafka", str(file),
        ]  # fmt: skip
        log = folder / f"node-{number}.log"
        nodes[number] = Node(number, [*hosts.inside(number), *start], {}, log, disk, KAFKA_READY)
    return Nodes(hosts, nodes)
