"""Settings of TLS by Kafka's names, checked by Kafka's rules

`SERVER_TLS` are the keys of a listener; `TlsSettings` is what they come to, for servers and clients alike. Keys and
certificates are PEM (KIP-651): in a file (`ssl.keystore.location`, `ssl.truststore.location`) or in the settings
themselves. A value that cannot have the effect it has in Kafka is refused with what to do instead: Java's key stores,
protocols that OpenSSL does not speak any more, a choice among the ciphers of TLS 1.3.

Not here: reading files and making an SSLContext (`tidemill.core.runtime.tls`), names of librdkafka (`client_tls`).
"""

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..config import ConfigError, ConfigKey, ConfigTable, ConfigType, Importance, Value
from .pem import FROM_JAVA, FROM_PKCS12

_LOW = Importance.LOW
PROTOCOLS = ("TLSv1.2", "TLSv1.3")
TLS13_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""What OpenSSL offers for TLS 1.3, all of it or nothing: Python cannot choose among them."""

CHECK_HOST = "ssl.endpoint.identification.algorithm"


class ClientAuth(enum.StrEnum):
    """Whether a client has to show a certificate, in Kafka's words."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """One side of TLS. Empty strings are what is not given; `key_location` is for a key in a file of its own.

    Without anything to trust a client takes the authorities that the system trusts. `check_host` says that a client
    wants the server's certificate to be about the host it has asked for; `check_peer`, that it wants it to be trusted.
    """

    keystore_location: str = ""
    key_location: str = ""
    chain: str = ""
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_location: str = ""
    trusted: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    check_host: bool = True
    check_peer: bool = True

    @property
    def has_key(self) -> bool:
        """Whether there is a certificate to show."""
        return bool(self.keystore_location or self.chain)

    @property
    def has_trust(self) -> bool:
        """Whether it is said whom to trust."""
        return bool(self.truststore_location or self.trusted)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from."""
        return tuple(filter(None, (self.keystore_location, self.key_location, self.truststore_location)))


def only_pem(value: Value) -> str | None:
    """Accept PEM, and say what becomes of other stores."""
    match str(value).upper():
        case "PEM":
            return None
        case "JKS" | "JCEKS" | "BCFKS":
            return f"only PEM is read: {FROM_JAVA}"
        case "PKCS12":
            return f"only PEM is read: {FROM_PKCS12}"
    return "only PEM is read"


def only_protocols(value: Value) -> str | None:
    """Accept what OpenSSL speaks."""
    given = value if isinstance(value, tuple) else (value,)
    wrong = [str(each) for each in given if each not in PROTOCOLS]
    if wrong or not given:
        return f"{', '.join(wrong) or 'nothing'} is not among {', '.join(PROTOCOLS)}"
    return None


def _one_of_client_auth(value: Value) -> str | None:
    return None if value in tuple(ClientAuth) else f"{value} is not one of {', '.join(ClientAuth)}"


def _https_or_nothing(value: Value) -> str | None:
    return None if str(value).strip().lower() in ("https", "") else f"{value} is neither https nor empty"


def _text(name: str, default: str, doc: str, **more: object) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.STRING, default=default, doc=doc, **more)  # type: ignore[arg-type]


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.PASSWORD, default="", doc=doc)


SERVER_TLS = ConfigTable(
    (
        _text("ssl.keystore.type", "PEM", "Kind of key store: PEM.", valid=only_pem),
        _text("ssl.keystore.location", "", "File with this broker's private key and certificate chain, in PEM. It is "
              "read again when it changes."),
        _secret("ssl.keystore.password", "Not for PEM: only the key has a password."),
        _secret("ssl.key.password", "Password of the private key, if it is encrypted."),
        _secret("ssl.keystore.key", "The private key itself, in PEM, where it is in no file."),
        _text("ssl.keystore.certificate.chain", "", "The certificate chain itself, in PEM, this broker's certificate "
              "first."),
        _text("ssl.truststore.type", "PEM", "Kind of trust store: PEM.", valid=only_pem),
        _text("ssl.truststore.location", "", "File with the certificates of those who may vouch for clients, in PEM. "
              "It is read again when it changes."),
        _secret("ssl.truststore.password", "Not for PEM."),
        _text("ssl.truststore.certificates", "", "These certificates themselves, in PEM."),
        _text("ssl.client.auth", "none", "Whether a client has to show a certificate: none, requested, required.",
              valid=_one_of_client_auth),
        ConfigKey(name="ssl.enabled.protocols", type=ConfigType.LIST, default=PROTOCOLS, valid=only_protocols,
                  doc="Versions of TLS that are spoken."),
        ConfigKey(name="ssl.cipher.suites", type=ConfigType.LIST, default=(), importance=_LOW,
                  doc="Cipher suites of TLS 1.2 that are taken, by their names in Java or in OpenSSL; empty for "
                  "OpenSSL's own choice. Those of TLS 1.3 are taken all or, with ssl.enabled.protocols, none."),
        _text("ssl.principal.mapping.rules", "DEFAULT", "What a client with a certificate is called: rules such as "
              "RULE:^CN=(.*?),.*$/$1/L, the first that matches the certificate's name decides; DEFAULT is the name "
              "as it is."),
        _text(CHECK_HOST, "https", "Whether a node that connects to another one wants the certificate to be about the "
              "host it has asked for: https, or empty for no.", valid=_https_or_nothing),
    )
)  # fmt: skip
"""The keys of a listener that speaks TLS."""

_KEYSTORE_PASSWORD = "SSL key store password cannot be specified with PEM format, only key password may be specified."


def server_tls(values: Mapping[str, Value], *, serves: bool = True) -> TlsSettings:
    """What parsed settings of `SERVER_TLS` come to, where it `serves` or is a client there; raises ConfigError."""
    settings = TlsSettings(
        keystore_location=str(values["ssl.keystore.location"]),
        chain=str(values["ssl.keystore.certificate.chain"]),
        key=str(values["ssl.keystore.key"]),
        key_password=str(values["ssl.key.password"]),
        truststore_location=str(values["ssl.truststore.location"]),
        trusted=str(values["ssl.truststore.certificates"]),
        client_auth=ClientAuth(str(values["ssl.client.auth"])),
        protocols=_names(values["ssl.enabled.protocols"]),
        cipher_suites=_names(values["ssl.cipher.suites"]),
        check_host=bool(str(values[CHECK_HOST]).strip()),
    )
    problems = [*store_problems(settings, values), *(_server_problems(settings) if serves else ())]
    if problems:
        raise ConfigError(problems)
    return settings


def store_problems(settings: TlsSettings, values: Mapping[str, Value]) -> Iterator[str]:
    """What contradicts itself, in Kafka's words."""
    if values.get("ssl.keystore.password"):
        yield _KEYSTORE_PASSWORD
    if values.get("ssl.truststore.password"):
        yield "SSL trust store password cannot be specified for PEM format."
    if settings.key and not settings.chain:
        yield "SSL private key is specified, but certificate chain is not specified."
    if settings.chain and not settings.key:
        yield "SSL certificate chain is specified, but private key is not specified."
    if (settings.key or settings.chain) and settings.keystore_location:
        yield "Both SSL key store location and separate private key are specified."
    if settings.trusted and settings.truststore_location:
        yield "Both SSL trust store location and separate trust certificates are specified."
    try:
        openssl_ciphers(settings)
    except ValueError as error:
        yield str(error)


def _server_problems(settings: TlsSettings) -> Iterator[str]:
    if not settings.has_key and not settings.key:
        yield (
            "it has no certificate: set ssl.keystore.location to a PEM file with private key and certificate chain, "
            "or ssl.keystore.key and ssl.keystore.certificate.chain to their text"
        )
    if settings.client_auth is not ClientAuth.NONE and not settings.has_trust:
        yield (
            f"ssl.client.auth={settings.client_auth} needs to know who may vouch for clients: set "
            "ssl.truststore.location to a PEM file with their certificates"
        )


def _names(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def openssl_ciphers(settings: TlsSettings) -> str:
    """The suites of TLS 1.2 as OpenSSL names them, with colons; empty for its own choice. Raises ValueError.

    >>> openssl_ciphers(TlsSettings(cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",), protocols=("TLSv1.2",)))
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    given = settings.cipher_suites
    if not given:
        return ""
    newest = [name for name in given if name in TLS13_SUITES]
    older = [openssl_name(name) for name in given if name not in TLS13_SUITES]
    if "TLSv1.3" in settings.protocols and len(newest) < len(TLS13_SUITES):
        raise ValueError(
            "ssl.cipher.suites cannot choose among the suites of TLS 1.3: name all of "
            f"{', '.join(TLS13_SUITES)}, or take TLSv1.3 out of ssl.enabled.protocols"
        )
    if "TLSv1.2" in settings.protocols and not older:
        raise ValueError(
            "ssl.cipher.suites names no suite of TLS 1.2: name one, or take TLSv1.2 out of ssl.enabled.protocols"
        )
    return ":".join(older)


_JAVA_NAME = re.compile(r"(?:TLS|SSL)_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_([A-Z0-9_]+)")


def openssl_name(name: str) -> str:
    """A suite of TLS 1.2 by OpenSSL's name; one that does not look like Java's is taken to be one.

    >>> openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"), openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA256")
    ('ECDHE-ECDSA-CHACHA20-POLY1305', 'AES256-SHA256')
    """
    match = _JAVA_NAME.fullmatch(name)
    if match is None:
        return name
    exchange, signature, rest = match.groups()
    cipher = rest.replace("AES_", "AES").replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    return "-".join(filter(None, (exchange, signature if exchange else "", cipher.replace("_", "-"))))
