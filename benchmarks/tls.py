"""Produce and fetch through TLS: Tidemill and Apache Kafka in alternating rounds

As `benchmarks/broker.py`, with both brokers behind a TLS listener, with the same certificate and the same cipher suite,
which is told with the figures. Encryption is OpenSSL's on one side and Java's on the other.
"""

import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.broker import Target, median, one_case, ratios
from benchmarks.measure import emit
from tidemill.free_ports import free_port
from tidemill.services import Service

CASES = {"1000B_16K": (1000, 16_384, 200_000), "1000B_1M": (1000, 1_048_576, 400_000)}
"""name: (record bytes, batch.size, records)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One for 127.0.0.1 that signs itself: clients trust `certificate`, brokers show what is in `both`."""

    certificate: Path
    both: Path


def certificate(folder: Path) -> Certificate:
    """Make one with the openssl program."""
    key, public, both = (folder / name for name in ("broker.key", "broker.crt", "broker.pem"))
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
            "-keyout", str(key), "-out", str(public),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + public.read_text())
    return Certificate(certificate=public, both=both)


def cipher(target: Target, trusted: Certificate) -> str:
    """The protocol and cipher suite that an OpenSSL client and the broker agree on."""
    context = ssl.create_default_context(cafile=str(trusted.certificate))
    host, port = target.address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as s,
    ):
        agreed = s.cipher()
    return f"{agreed[1]} {agreed[0]}" if agreed is not None else "none"


def security(shown: Certificate) -> Mapping[str, str]:
    """What librdkafka needs."""
    return {"security.protocol": "SSL", "ssl.ca.location": str(shown.certificate)}


@contextmanager
def ours(home: Path, shown: Certificate) -> Iterator[Target]:
    """A Tidemill broker."""
    home.mkdir(parents=True)
    port = free_port()
    settings = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "ssl.keystore.location": str(shown.both),
        "log.dirs": str(home / "data"),
        "flush.policy": "os",
    }
    file = home / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = ["broker", "start", "--config", str(file)]
    service = Service("tidemill", command, ready="tidemill broker ready", log=home / "broker.log").start()
    try:
        yield Target(name="tidemill", address=f"127.0.0.1:{port}", pid=service.pid, security=security(shown))
    finally:
        service.stop()


@contextmanager
def kafka(home: Path, shown: Certificate) -> Iterator[Target]:
    """An Apache Kafka node."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(shown.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(shown.certificate),
    }
    with peers.kafka_node(home, protocol="SSL", settings=settings) as (address, peer):
        yield Target(name="kafka", address=address, pid=peer.pid, security=security(shown))


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure, alternating the brokers, each alone on the machine."""
    shown = certificate(folder)
    starters = {"tidemill": ours} | ({"kafka": kafka} if with_peers else {})
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    ciphers: dict[str, str] = {}
    for number in range(rounds):
        for name, starter in starters.items():
            with starter(folder / f"{name}-{number}", shown) as target:
                ciphers[name] = cipher(target, shown)
                for case, (size, batch, count) in CASES.items():
                    results.setdefault(case, {}).setdefault(name, []).append(one_case(target, size, batch, count))
    cases = {case: {name: median(rows) for name, rows in by.items()} for case, by in results.items()}
    emit("tls", {"rounds": rounds, "ciphers": ciphers, "cases": cases, "ratios": ratios(cases)})
