"""TLS contexts out of PEM, and what went wrong when a handshake fails

A context is made from the bytes that are there when it is made, so a file that is replaced later changes nothing until
a new context is made from it (`file_stamps` says whether to). A key given in settings is handed to OpenSSL by a file in
memory: it is on no disk. An encrypted key without its password is an error; OpenSSL would ask for it at the terminal.

`server_trouble` and `client_trouble` turn OpenSSL's words into a sentence with what to do.

When a handshake fails OpenSSL has a word for the other side too, the alert, and asyncio hangs up without sending it. A
server's context keeps it within reach: whoever wants it sent runs the handshake inside `keeping_alerts`.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from ..security.certificate import Certificate, CertificateUnreadable, read_certificate
from ..security.pem import PemBlock, blocks, text_of, why_not_pem
from ..security.tls_settings import ClientAuth, TlsSettings, openssl_ciphers

PEM_BYTES_MAX = 8 * 2**20  # the authorities of a whole system are 0.3 MB

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


_ALERTS: ContextVar[list[bytes] | None] = ContextVar("tidemill_tls_alerts", default=None)


@contextmanager
def keeping_alerts() -> Iterator[list[bytes]]:
    """What was to be sent when the handshake failed that is begun in here. For one handshake of one task."""
    alerts: list[bytes] = []
    token = _ALERTS.set(alerts)
    try:
        yield alerts
    finally:
        _ALERTS.reset(token)


class _ServerObject(ssl.SSLObject):
    """A connection that takes its alert out of the way of the event loop, which would drop it."""

    outgoing: ssl.MemoryBIO
    alerts: list[bytes] | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.alerts is not None:
                self.alerts.append(self.outgoing.read())
            raise


class _ServerContext(ssl.SSLContext):
    """A context of such connections."""

    sslobject_class = _ServerObject

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _ServerObject)
        made.outgoing, made.alerts = outgoing, _ALERTS.get()
        return made


class TlsProblem(ValueError):
    """Settings or files that no context can be made from; one sentence that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContext:
    """A context, and the certificate that it shows, if any."""

    context: ssl.SSLContext
    certificate: Certificate | None


def server_context(settings: TlsSettings) -> TlsContext:
    """For a listener; raises TlsProblem."""
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    certificate = _load(context, settings)
    context.verify_mode = _VERIFY[settings.client_auth]
    return TlsContext(context=context, certificate=certificate)


def client_context(settings: TlsSettings) -> TlsContext:
    """For a client; raises TlsProblem."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_host and settings.check_peer
    if not settings.check_peer:
        context.verify_mode = ssl.CERT_NONE
    certificate = _load(context, settings)
    if not settings.has_trust:
        context.load_default_certs()
    return TlsContext(context=context, certificate=certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class PemTexts:
    """What others than OpenSSL make contexts from; empty is what is not given. The own certificate opens the chain."""

    key: bytes = field(default=b"", repr=False)
    chain: bytes = b""
    trusted: bytes = b""


def pem_texts(settings: TlsSettings) -> PemTexts:
    """Key and certificates as they are now; raises TlsProblem for files without any, and for a key with a password."""
    key = chain = trusted = b""
    if settings.has_key:
        where, found, keys = _key_blocks(settings)
        if keys[0].is_encrypted_key:
            raise TlsProblem(f"the private key of {where} is encrypted: take the password off with `openssl pkey`")
        key, chain = (text_of(each).encode() for each in (keys[:1], found))
    if settings.has_trust:
        trusted = text_of(_trusted(settings)).encode()
    return PemTexts(key=key, chain=chain, trusted=trusted)


class ClientTls:
    """A client's context, made anew when its files have changed; raises TlsProblem when there is none to begin with."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._stamps = file_stamps(settings.files)
        self._used = client_context(settings)

    def context(self) -> ssl.SSLContext:
        """For the next connection; files that cannot be used now change nothing."""
        stamps = file_stamps(self._settings.files)
        if stamps != self._stamps:
            self._stamps = stamps
            with suppress(TlsProblem):  # the certificate before may do; if not, the handshake says why
                self._used = client_context(self._settings)
        return self._used.context


def file_stamps(files: Sequence[str]) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes when a file is written or replaced; None for one that cannot be looked at."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _load(context: ssl.SSLContext, settings: TlsSettings) -> Certificate | None:
    versions = sorted(_VERSIONS[name] for name in settings.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whoever is in the trust store is trusted, as in Java
    try:
        ciphers = openssl_ciphers(settings)
        if ciphers:
            context.set_ciphers(ciphers)
    except ValueError as error:
        raise TlsProblem(str(error)) from None
    except ssl.SSLError:
        raise TlsProblem(f"OpenSSL knows none of ssl.cipher.suites: {', '.join(settings.cipher_suites)}") from None
    certificate = _load_key(context, settings) if settings.has_key else None
    if settings.has_trust:
        _load_trust(context, settings)
    return certificate


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificates = _trusted(settings)
    try:
        context.load_verify_locations(cadata=text_of(certificates))
    except ssl.SSLError as error:
        where = settings.truststore_location or "ssl.truststore.certificates"
        raise TlsProblem(f"{where} has a certificate that cannot be read: {_words(error)}") from None


def _trusted(settings: TlsSettings) -> list[PemBlock]:
    found = _blocks(settings.truststore_location, settings.trusted, "ssl.truststore.certificates")
    certificates = [each for each in found if each.is_certificate]
    if not certificates:
        raise TlsProblem(f"{settings.truststore_location or 'ssl.truststore.certificates'} has no certificate")
    return certificates


def _key_blocks(settings: TlsSettings) -> tuple[str, list[PemBlock], list[PemBlock]]:
    """Where the certificate is from, its chain, and the private keys; there is at least one of each."""
    where = settings.keystore_location or "ssl.keystore.certificate.chain"
    found = _blocks(settings.keystore_location, settings.chain, "ssl.keystore.certificate.chain")
    chain = [each for each in found if each.is_certificate]
    if settings.key_location or settings.key:
        found = _blocks(settings.key_location, settings.key, "ssl.keystore.key")
    keys = [each for each in found if each.is_key]
    if not chain:
        raise TlsProblem(f"{where} has no certificate: put the certificate chain behind the private key")
    if not keys:
        raise TlsProblem(f"{settings.key_location or where} has no private key: put it before the certificate chain")
    return where, chain, keys


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> Certificate:
    where, chain, keys = _key_blocks(settings)
    if keys[0].is_encrypted_key and not settings.key_password:
        raise TlsProblem(f"the private key of {where} is encrypted: set ssl.key.password")
    try:
        certificate = read_certificate(chain[0].der())
        with _as_file(text_of((keys[0], *chain))) as path:
            context.load_cert_chain(path, password=settings.key_password)
    except (CertificateUnreadable, ValueError) as error:
        raise TlsProblem(f"{where} has a certificate that cannot be read: {_words(error)}") from None
    except ssl.SSLError as error:
        raise TlsProblem(_key_trouble(where, error, encrypted=keys[0].is_encrypted_key)) from None
    return certificate


def _key_trouble(where: str, error: ssl.SSLError, *, encrypted: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key and the first certificate of {where} do not belong together"
    if encrypted and error.reason != "EE_KEY_TOO_SMALL":
        return f"the private key of {where} cannot be opened: is ssl.key.password right?"
    return f"{where} cannot be used: {_words(error)}"


def _blocks(file: str, text: str, name: str) -> tuple[PemBlock, ...]:
    """What is in `file`, or in `text` of the setting `name` if there is no file."""
    data = _read(file) if file else text.encode()
    found = blocks(data.decode("utf-8", "replace"))
    if not found:
        raise TlsProblem(f"{file or name} is not PEM: {why_not_pem(data)}")
    return found


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise TlsProblem(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > PEM_BYTES_MAX:
        raise TlsProblem(f"{file} has more than {PEM_BYTES_MAX} bytes: that is no PEM file")
    return data


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path that `text` can be read from, in memory where the system has files there."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        number = os.memfd_create("tidemill-tls")
        try:
            os.write(number, text.encode())
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _words(error: Exception) -> str:
    """OpenSSL's reason in lower case, else the message."""
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if isinstance(reason, str) else str(error)


_PLAIN = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})
_NO_CERTIFICATE = frozenset({"PEER_DID_NOT_RETURN_A_CERTIFICATE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"})
_NOTHING_SHARED = frozenset(
    {
        "NO_SHARED_CIPHER", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION",
        "SSLV3_ALERT_HANDSHAKE_FAILURE", "VERSION_TOO_LOW",
    }
)  # fmt: skip
_REFUSED = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_REVOKED", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "TLSV1_ALERT_DECRYPT_ERROR", "TLSV1_ALERT_ACCESS_DENIED",
    }
)  # fmt: skip
_EXPIRED, _NOT_YET, _WRONG_HOST, _WRONG_ADDRESS = 10, 9, 62, 64  # of X509_verify_cert


def server_trouble(error: BaseException) -> str:
    """Why a handshake with a client failed, for the log of a server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the client's certificate is not accepted ({error.verify_message}): give it another, or add who signed "
            "it to ssl.truststore.location here"
        )
    reason = getattr(error, "reason", None)
    if reason in _PLAIN:
        return "the client does not speak TLS: set security.protocol=SSL there, or connect to a PLAINTEXT listener"
    if reason in _NO_CERTIFICATE:
        return (
            "the client shows no certificate and ssl.client.auth=required: set ssl.keystore.location there "
            "(ssl.certificate.location and ssl.key.location with librdkafka)"
        )
    if reason in _REFUSED:
        return (
            f"the client does not accept this broker's certificate ({_words(error)}): check there "  # type: ignore[arg-type]
            "ssl.truststore.location (ssl.ca.location with librdkafka) and here the certificate's end and names"
        )
    if reason in _NOTHING_SHARED:
        return (
            "client and broker share no version of TLS or no cipher suite: compare ssl.enabled.protocols and "
            "ssl.cipher.suites on both sides"
        )
    if isinstance(error, TimeoutError) or "is taking longer" in str(error):
        return "the handshake was not finished in time"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return (
            "the client hung up during the handshake: it may not accept this broker's certificate (issuer, end, host "
            "name), see its log"
        )
    return f"the handshake failed: {error}"


def client_trouble(error: BaseException, host: str) -> str | None:
    """Why a handshake with a server failed; None if `error` is not about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        match error.verify_code:
            case code if code == _EXPIRED:
                return "the broker's certificate has expired: renew it"
            case code if code == _NOT_YET:
                return "the broker's certificate is not valid yet: are both clocks right?"
            case code if code in (_WRONG_HOST, _WRONG_ADDRESS):
                return (
                    f"the broker's certificate is not about {host}: connect by a name that it has, or make one with "
                    "this name (subjectAltName)"
                )
        return (
            f"the broker's certificate is not trusted ({error.verify_message}): set ssl.truststore.location to a PEM "
            "file with the certificate of who signed it"
        )
    reason = getattr(error, "reason", None)
    if reason in _PLAIN:
        return "the broker does not speak TLS at this port: set security.protocol=PLAINTEXT, or take its TLS port"
    if reason in _NO_CERTIFICATE:
        return "the broker wants a certificate: set ssl.keystore.location to a PEM file with key and certificate"
    if reason in _REFUSED:
        return f"the broker does not accept this client's certificate ({_words(error)})"  # type: ignore[arg-type]
    if reason in _NOTHING_SHARED:
        return "client and broker share no version of TLS or no cipher suite"
    if isinstance(error, ssl.SSLEOFError):
        return None  # it just hung up
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {_words(error)}"
    return None
