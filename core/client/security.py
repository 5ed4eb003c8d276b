"""The way to a cluster that asks for encryption

Settings of a client as its file has them, in, and a dialer out. A client that lives long takes up new certificates with
its next connection.
"""

from collections.abc import Mapping

from ..config import ConfigError
from ..runtime.net import FrameBuffers, TcpDialer
from ..runtime.tls import ClientTls, TlsProblem
from ..security.client_tls import client_tls


def dialer_of(settings: Mapping[str, str], buffers: FrameBuffers | None = None) -> TcpDialer:
    """How to reach a cluster by `security.protocol` and `ssl.*`; raises ConfigError."""
    tls = client_tls(settings)
    if tls is None:
        return TcpDialer(buffers=buffers)
    try:
        return TcpDialer(ClientTls(tls).context, buffers=buffers)
    except TlsProblem as problem:
        raise ConfigError([str(problem)]) from None
