"""A PostgreSQL container, where a Docker engine answers

The same attributes as `PostgresServer`, so that a fixture can hand out either. No engine, no client library: the
answer is None and the caller takes server binaries instead. Where the environment names the image
(`TIDEMILL_POSTGRES_IMAGE`), a container of it is what is wanted, and having none is an error.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from tidemill.testing.postgres_server import PostgresServerError

log = structlog.get_logger("tidemill.testing.postgres")

IMAGE = "postgres:18-alpine"
IMAGE_VARIABLE = "TIDEMILL_POSTGRES_IMAGE"
COMMAND = ["postgres", "-c", "wal_level=logical", "-c", "max_replication_slots=20", "-c", "max_wal_senders=20"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerServer:
    """A server in a container; it is removed with the stack it was started on."""

    host: str
    port: int
    user: str
    password: str
    dbname: str

    @property
    def dsn(self) -> str:
        """A libpq connection string."""
        return f"host={self.host} port={self.port} user={self.user} password={self.password} dbname={self.dbname}"


def container_server(stack: contextlib.ExitStack, environ: Mapping[str, str] | None = None) -> ContainerServer | None:
    """Start a container on `stack`; None where no Docker engine answers or the image cannot be had.

    Raises PostgresServerError instead if `environ`, by default the process', names an image.
    """
    named = (os.environ if environ is None else environ).get(IMAGE_VARIABLE)
    try:
        container = _started(stack, named or IMAGE)
    except Exception as error:  # the client library raises its own, urllib3's and the operating system's errors
        reason = " ".join(str(error).split()) or type(error).__name__
        if named:
            raise PostgresServerError(f"no container of {IMAGE_VARIABLE}={named}: {reason}") from error
        log.info("no container for PostgreSQL, taking server binaries", reason=reason)
        return None
    return ContainerServer(
        host=container.get_container_host_ip(),
        port=int(container.get_exposed_port(5432)),
        user=container.username,
        password=container.password,
        dbname=container.dbname,
    )


def _started(stack: contextlib.ExitStack, image: str) -> Any:
    import docker
    from testcontainers.community.postgres import PostgresContainer

    docker.from_env().ping()
    return stack.enter_context(PostgresContainer(image, driver=None).with_command(COMMAND))
