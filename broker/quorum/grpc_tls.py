"""The TLS of controllers: what a node shows by gRPC, and whom it trusts

gRPC brings its own TLS. It is given the PEM texts of the controllers' listener: as a server it asks for them with every
handshake, so a new certificate counts from the next connection on; as a client it gets a new channel. Files that cannot
be used change nothing, as at every listener (`tls_watch`).

What gRPC says of a handshake that failed is less than an administrator needs, and of one that the other side refused it
says nothing at all. So a connection is made as gRPC would make it, but with OpenSSL, whose errors have names, and what
becomes of that is told (`trouble`). It costs a handshake, so each node is asked seldom.

gRPC always wants the certificate to be about the host. Where that is not wanted, the certificate is looked at first and
gRPC is told to expect a name that it has (`name_shown`).
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

import grpc
import structlog

from tidemill.broker.repeated_warnings import RepeatedWarnings
from tidemill.broker.tls_watch import ListenerTls
from tidemill.core.client.connection import Address
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.tls import (
    PemTexts,
    TlsContext,
    TlsProblem,
    client_context,
    client_trouble,
    pem_texts,
    server_context,
)
from tidemill.core.security.tls_settings import ClientAuth, TlsSettings

log = structlog.get_logger("tidemill.broker.quorum")

LOOK_S: Final = 1.0
"""So long a handshake may take that is made to see what is wrong."""

AGAIN_S: Final = 5.0
"""Before a node is looked at once more; what was found then is said until then."""

NOT_ACCEPTED: Final = (
    "it hung up once it had seen what this node shows: it wants another certificate; is who signed this node's in its "
    "ssl.truststore.location, and ssl.keystore.location set here?"
)
_GRPC_PROTOCOL: Final = "h2"
_KEYS: Final = frozenset({"1.2.840.113549.1.1.1", "1.2.840.10045.3.1.7", "1.3.132.0.34"})
"""Kinds of keys whose signatures gRPC takes: RSA, ECDSA on P-256 and on P-384. A handshake with another just ends."""


class NodeTls:
    """The terms of the controllers' listener; raises TlsProblem where they cannot be met.

    A node that is no controller does not serve, and needs a certificate only if controllers ask for one.
    """

    def __init__(self, listener: str, settings: TlsSettings, clock: Clock, *, serves: bool) -> None:
        self._settings = settings
        self._clock = clock
        self._serves = serves
        self._looking_glass: ssl.SSLContext
        self.watch = ListenerTls(listener, settings, self._load)
        self._found: dict[Address, tuple[float, str | None]] = {}
        self._told = RepeatedWarnings()

    texts: PemTexts
    """In use; another object once the files have changed."""

    def _load(self, settings: TlsSettings) -> TlsContext:
        texts, client = pem_texts(settings), client_context(settings)
        used = server_context(settings) if self._serves else client
        if used.certificate is not None and used.certificate.key_kind not in _KEYS:
            raise TlsProblem(
                f"the key of {used.certificate.subject} is none that controllers take, whose TLS is gRPC's: make a "
                "certificate with an RSA, an ECDSA P-256 or an ECDSA P-384 key"
            )
        client.context.set_alpn_protocols([_GRPC_PROTOCOL])
        self._looking_glass, self.texts = client.context, texts
        return used

    # -- gRPC's words

    def server_credentials(self) -> grpc.ServerCredentials:
        """For the listener."""
        given = [self.texts]

        def changed() -> Any:
            if given[0] is self.texts:
                return None
            given[0] = self.texts
            return _certificate(given[0])

        required = self._settings.client_auth is ClientAuth.REQUIRED
        return grpc.dynamic_ssl_server_credentials(_certificate(given[0]), changed, required)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a connection that is made now."""
        now = self.texts
        return grpc.ssl_channel_credentials(now.trusted or None, now.key or None, now.chain or None)

    @property
    def checks_host(self) -> bool:
        """Whether a certificate has to be about the host that was asked for."""
        return self._settings.check_host

    # -- what is wrong

    async def trouble(self, address: Address) -> str | None:
        """Why there is no encrypted connection to that node, as far as it is about TLS; told in the log, too."""
        now_s = self._clock.monotonic()
        found = self._found.get(address)
        if found is None or now_s - found[0] >= AGAIN_S:
            self._found[address] = now_s, found[1] if found is not None else None  # whoever asks meanwhile
            found = self._found[address] = now_s, await self._look(address)
        reason = found[1]
        if reason is not None and self._told.take((address, reason), now_s) is not None:
            log.warning("no connection to a controller: TLS", controller=str(address), reason=reason)
        return reason

    async def _look(self, address: Address) -> str | None:
        shaken = False
        try:
            async with asyncio.timeout(LOOK_S):
                reader, writer = await self._connected(address)
                shaken = True
                try:
                    return None if await reader.read(1) else NOT_ACCEPTED  # a node that takes it speaks first
                finally:
                    writer.transport.abort()
        except TimeoutError:
            return None
        except (ssl.SSLError, OSError) as error:
            if shaken and not isinstance(error, ssl.SSLError):
                return NOT_ACCEPTED
            return client_trouble(error, address.host)

    async def _connected(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            address.host, address.port, ssl=self._looking_glass, server_hostname=address.host
        )

    async def name_shown(self, address: Address) -> str | None:
        """A name that the certificate of that node is about; None where it cannot be had.

        Raises ConnectionRefusedError where nobody listens.
        """
        try:
            async with asyncio.timeout(LOOK_S):
                _, writer = await self._connected(address)
                try:
                    return _name_in(writer.get_extra_info("peercert") or {})
                finally:
                    writer.transport.abort()
        except ConnectionRefusedError:
            raise
        except (OSError, TimeoutError):
            return None


def _certificate(texts: PemTexts) -> Any:
    return grpc.ssl_server_certificate_configuration([(texts.key, texts.chain)], texts.trusted or None)


def _name_in(certificate: Mapping[str, Any]) -> str | None:
    """The first host name or address, else the common name; a wildcard is filled in.

    >>> _name_in({"subjectAltName": (("DNS", "*.example.com"),)})
    'any.example.com'
    """
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "IP Address"):
            return str(name).replace("*", "any", 1)
    return next(
        (str(name) for part in certificate.get("subject", ()) for kind, name in part if kind == "commonName"), None
    )
