"""What a node stands on: disk, clock, threads, chance and scheduled jobs

All that a broker needs of the machine it runs on, in one place, as constructor arguments. The values here are those of
the operating system; a simulated world puts its own in their place, and the node runs in it unchanged. The network of
its clients is the event loop's.
"""

import os
import socket
import ssl
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidemill.broker.log.data_folder import lock_folder
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.core.runtime.disk import Directory
from tidemill.core.runtime.jobs import Jobs, ScheduledJobs
from tidemill.core.runtime.net import Dialer, TcpDialer
from tidemill.core.runtime.threads import OS_THREADS, Threads

if TYPE_CHECKING:
    from tidemill.broker.quorum.grpc_tls import NodeTls
    from tidemill.broker.quorum.transport import Transport


class OpenFolder(NamedTuple):
    """A data folder that is this process's alone until it is unlocked."""

    directory: Directory
    unlock: Callable[[], None]


def open_folder(path: str) -> OpenFolder:
    """The folder `path` of the operating system, made if missing; raises FolderRefused when it is in use."""
    directory, descriptor = lock_folder(path)
    return OpenFolder(directory, partial(os.close, descriptor))


def grpc_transport(tls: "NodeTls | None" = None) -> "Transport":
    """Calls among nodes; loaded by a node that has others."""
    from tidemill.broker.quorum.grpc_transport import GrpcTransport

    return GrpcTransport(tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where one node runs."""

    clock: Clock = field(default_factory=SystemClock)
    threads: Threads = OS_THREADS
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4
    """All the chance that a node needs."""
    open_folder: Callable[[str], OpenFolder] = open_folder
    host_name: Callable[[], str] = socket.getfqdn
    """The full name of the machine; it may take as long as a name server does."""
    new_jobs: Callable[[], Jobs] = ScheduledJobs
    new_transport: "Callable[[], Transport]" = grpc_transport
    """The way to the other nodes' controllers."""
    new_dialer: Callable[[], Dialer] = TcpDialer
    """The way to their brokers."""
    new_tls_transport: "Callable[[NodeTls], Transport]" = grpc_transport
    new_tls_dialer: Callable[[Callable[[], ssl.SSLContext]], Dialer] = TcpDialer
    """The same two where they are encrypted."""
