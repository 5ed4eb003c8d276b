"""A TLS server in the test's own loop, on stdlib's loop as the tests are, with an authority of its own"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.broker.server_stage import LIMITS, Client, Stage
from tests.certificates import Authority
from tidemill.broker.listeners import ListenerSpec, SecurityProtocol
from tidemill.broker.principals import parse_rules
from tidemill.broker.server import Server
from tidemill.broker.tls_watch import ListenerTls
from tidemill.core.security.tls_settings import ClientAuth, TlsSettings


def settings(authority: Authority, keystore: Path, client_auth: ClientAuth = ClientAuth.REQUESTED) -> TlsSettings:
    """Of a listener that trusts who `authority` has signed."""
    return TlsSettings(
        keystore_location=str(keystore), truststore_location=str(authority.certificate), client_auth=client_auth
    )


@asynccontextmanager
async def tls_server(tls: TlsSettings, rules: str = "DEFAULT") -> AsyncIterator[tuple[Server, ListenerTls]]:
    """A server for whoever speaks TLS."""
    spec = ListenerSpec(name="SSL", protocol=SecurityProtocol.SSL, tls=tls, principal_rules=parse_rules(rules))
    shown = ListenerTls("SSL", tls)
    async with Server(Stage().dispatcher, host="127.0.0.1", port=0, spec=spec, tls=shown, limits=LIMITS) as server:
        yield server, shown


def trusting(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    """A client's context."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if own is not None:
        context.load_cert_chain(own)
    return context


async def connected(server: Server, context: ssl.SSLContext) -> Client:
    """A connection that is encrypted."""
    return Client(
        *await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname="localhost", limit=10**8)
    )
