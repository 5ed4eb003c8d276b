"""Apache Kafka, Connect, MirrorMaker 2 and Debezium, to be measured against

Fetched by Maven into a cache folder (`TIDEMILL_PEERS`, default in the user's cache) and started as processes. The
product never depends on them; where Java or Maven is missing, or Maven cannot fetch, `available` says why and the
caller leaves them out.
"""

import base64
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tidemill.free_ports import free_port

KAFKA_VERSION = "4.3.1"
DEBEZIUM_VERSION = "3.6.3.Final"
SPARK_KAFKA_VERSION = "4.2.0"
START_TIMEOUT_S = 90

KAFKA = [
    ("org.apache.kafka", artifact, KAFKA_VERSION)
    for artifact in ("kafka_2.13", "kafka-tools", "connect-runtime", "connect-mirror", "connect-file", "connect-json")
] + [("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")]
DEBEZIUM = [("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION)]
SPARK_KAFKA = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_KAFKA_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
]

LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%p %c{1} %m%n
"""


class PeerError(RuntimeError):
    """A peer cannot be had or did not start."""


def cache() -> Path:
    """Where fetched programs are kept."""
    home = os.environ.get("TIDEMILL_PEERS") or os.environ.get("PEERS_HOME")
    return Path(home) if home else Path.home() / ".cache" / "tidemill-peers"


def available() -> str | None:
    """None when peers can be started, else why not."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not found on PATH"
    try:
        libraries("kafka", KAFKA)
    except PeerError as error:
        return str(error)
    return None


def libraries(name: str, artifacts: Sequence[tuple[str, str, str]], *, transitive: bool = True) -> Path:
    """The folder with the jars of `artifacts`, fetched on first use."""
    target = cache() / name / "libs"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second finds them fetched
            if not target.is_dir():
                _fetch(name, artifacts, target, transitive=transitive)
    return target


def _fetch(name: str, artifacts: Sequence[tuple[str, str, str]], target: Path, *, transitive: bool) -> None:
    excluded = (
        ""
        if transitive
        else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{excluded}</dependency>"
        for group, artifact, version in artifacts
    )
    pom = target.parent / "pom.xml"
    label = target.parent.name  # an artifact id has no slash
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>peers</groupId><artifactId>{label}</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{rows}</dependencies></project>"
    )
    part = target.with_suffix(".part")
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={part}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerError(f"Maven could not fetch {name}: {(done.stdout or done.stderr).strip().splitlines()[-1:]}")
    part.rename(target)


@dataclass(slots=True)
class Peer:
    """A running Java program."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def java(
    name: str,
    main: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    heap: str = "2G",
    first_heap: str = "256M",
    environ: Mapping[str, str] | None = None,
) -> Peer:
    """Start a Java program of the Kafka distribution; its output goes to `folder/name.log`.

    The heap is by default what Kafka's own start scripts give Connect and MirrorMaker 2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    log = folder / f"{name}.log"
    command = [
        "java", f"-Xms{first_heap}", f"-Xmx{heap}", "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        f"-Dlog4j2.configurationFile={logging}", "-cp", f"{libraries('kafka', KAFKA)}/*", main, *arguments,
    ]  # fmt: skip
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(environ or {})}
        )
    return Peer(name, process, log)


def run_tool(main: str, arguments: Sequence[str], *, timeout_s: float = 300) -> str:
    """Run one of Kafka's tools to its end and return what it printed; raises PeerError when it fails."""
    command = ["java", "-Xmx512M", "-cp", f"{libraries('kafka', KAFKA)}/*", main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise PeerError(f"{main} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def cluster_id() -> str:
    """A new one: clusters of one id count as one cluster."""
    return base64.urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


@contextlib.contextmanager
def kafka_node(
    folder: Path, *, heap: str = "1G", protocol: str = "PLAINTEXT", settings: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Peer]]:
    """One Kafka node, broker and controller; yields its bootstrap address and the process.

    `protocol` is that of its one listener for clients, `PLAINTEXT` or `SSL`.
    """
    port, controller = free_port(), free_port()
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"{protocol}://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": protocol,
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    if not Path(values["log.dirs"], "meta.properties").exists():  # a node that comes back keeps the id it has
        run_tool("kafka.tools.StorageTool", ["format", "-t", cluster_id(), "-c", str(properties)])
    peer = java("kafka", "kafka.Kafka", [str(properties)], folder, heap=heap, first_heap=heap)
    try:
        wait_for_port(peer, port)
        yield f"127.0.0.1:{port}", peer
    finally:
        peer.stop()


def wait_for_port(peer: Peer, port: int) -> None:
    """Return once somebody listens on `port`; raises PeerError with the log's end."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and peer.process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise PeerError(f"{peer.name} did not open port {port}:\n{peer.log.read_text(errors='replace')[-3000:]}")


@contextlib.contextmanager
def connect_worker(
    folder: Path, bootstrap: str, *, plugins: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Peer]]:
    """One Kafka Connect worker; yields its REST address and the process."""
    port = free_port()
    values = {
        "bootstrap.servers": bootstrap,
        "group.id": "peer-connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.flush.interval.ms": "1000",
        **{f"{store}.storage.topic": f"peer-connect-{store}" for store in ("config", "offset", "status")},
        **{f"{store}.storage.replication.factor": "1" for store in ("config", "offset", "status")},
    }
    if plugins is not None:
        values["plugin.path"] = str(plugins)
    values |= settings or {}
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "connect.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    peer = java("connect", "org.apache.kafka.connect.cli.ConnectDistributed", [str(properties)], folder)
    try:
        wait_for_port(peer, port)
        url = f"http://127.0.0.1:{port}"
        wait_until(
            lambda: httpx.get(f"{url}/connectors", timeout=10).status_code == 200, START_TIMEOUT_S, "Connect's REST API"
        )
        yield url, peer
    finally:
        peer.stop()


@contextlib.contextmanager
def mirror_maker(folder: Path, properties: str) -> Iterator[Peer]:
    """MirrorMaker 2 in dedicated mode with the given mm2.properties text."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mm2.properties"
    path.write_text(properties)
    peer = java("mirror-maker", "org.apache.kafka.connect.mirror.MirrorMaker", [str(path)], folder)
    try:
        yield peer
    finally:
        peer.stop()


def debezium_plugin() -> Path:
    """A `plugin.path` folder that has Debezium's Postgres connector."""
    jars = libraries("plugins/debezium-postgres", DEBEZIUM)
    return jars.parent.parent


def wait_until(check: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll `check` until it is true; raises PeerError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if check():
                return
        time.sleep(0.1)
    raise PeerError(f"{what} was not ready after {timeout_s:.0f} s")
