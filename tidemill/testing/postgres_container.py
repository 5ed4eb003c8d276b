"""A PostgreSQL container, where a Docker engine answers

The same attributes as `PostgresServer`, so that a fixture can hand out either. No engine, no client library: the
answer is None and the caller takes server binaries instead.
"""

import contextlib
from dataclasses import dataclass

import structlog

log = structlog.get_logger("tidemill.testing.postgres")

IMAGE = "postgres:18-alpine"
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


def container_server(stack: contextlib.ExitStack) -> ContainerServer | None:
    """Start a container on `stack`; None where no Docker engine answers or the image cannot be had."""
    try:
        import docker
        from testcontainers.community.postgres import PostgresContainer
    except ImportError:
        return None
    try:
        docker.from_env().ping()
        container = stack.enter_context(PostgresContainer(IMAGE, driver=None).with_command(COMMAND))
    except Exception as error:  # the client library raises its own, urllib3's and the operating system's errors
        log.info("no container for PostgreSQL, taking server binaries", reason=str(error))
        return None
    return ContainerServer(
        host=container.get_container_host_ip(),
        port=int(container.get_exposed_port(5432)),
        user=container.username,
        password=container.password,
        dbname=container.dbname,
    )
