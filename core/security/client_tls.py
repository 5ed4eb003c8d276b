"""Security settings of a client, by Kafka's names and by librdkafka's

People's files have the names of Kafka's Java clients (`ssl.truststore.location`), of librdkafka (`ssl.ca.location`), or
both. Our clients are of two kinds too, so whatever was given is turned into `TlsSettings` for our own (`client_tls`)
and into librdkafka's words for the others (`for_librdkafka`). A key store is PEM unless it says PKCS12 or has a
password; librdkafka reads that as well, our own client says what to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..config import ConfigError, nearest
from .pem import blocks, text_of
from .tls_settings import PROTOCOLS, TlsSettings, only_pem, only_protocols, openssl_name, store_problems

PLAINTEXT, SSL = "PLAINTEXT", "SSL"
CLIENT_NAMES = (
    "security.protocol",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.keystore.type",
    "ssl.truststore.type",
)
"""Kafka's names of what has an effect; the last two can only say PEM."""

_LIBRDKAFKA = {
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_OWN = ("ssl.key.location", "enable.ssl.certificate.verification")
_NO_EFFECT = (
    "ssl.protocol",
    "ssl.secure.random.implementation",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
)
_STORE_NAMES = ("ssl.keystore.password", "ssl.truststore.password")


def is_security(name: str) -> bool:
    """Whether a setting says how a cluster is reached."""
    return name.startswith(("ssl.", "sasl.", "security.")) or name in _OWN


def protocol_of(settings: Mapping[str, str]) -> str:
    """`security.protocol` in capitals."""
    return settings.get("security.protocol", PLAINTEXT).strip().upper() or PLAINTEXT


def client_tls(settings: Mapping[str, str]) -> TlsSettings | None:
    """How our own client encrypts, None if it does not; raises ConfigError for what it cannot do."""
    protocol = protocol_of(settings)
    given = {name: value for name, value in settings.items() if is_security(name) and value.strip()}
    if protocol not in (PLAINTEXT, SSL):
        raise ConfigError([f"security.protocol={protocol} is not available yet: PLAINTEXT and SSL are"])
    if protocol == PLAINTEXT:
        return None
    plain = {_LIBRDKAFKA.get(name, name): value.strip() for name, value in given.items()}
    known = {*CLIENT_NAMES, *_OWN, *_NO_EFFECT, *_STORE_NAMES}
    problems = [_not_honoured(name) for name in plain if name not in known]
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        problem = only_pem(plain.get(name, "PEM"))
        if problem:
            problems.append(f"Invalid value {plain[name]!r} for configuration {name}: {problem}")
    protocols = _list(plain.get("ssl.enabled.protocols", "")) or PROTOCOLS
    problem = only_protocols(protocols)
    if problem:
        problems.append(f"Invalid value {','.join(protocols)!r} for configuration ssl.enabled.protocols: {problem}")
        protocols = PROTOCOLS
    found = TlsSettings(
        keystore_location=plain.get("ssl.keystore.location", ""),
        key_location=plain.get("ssl.key.location", ""),
        chain=plain.get("ssl.keystore.certificate.chain", ""),
        key=plain.get("ssl.keystore.key", ""),
        key_password=plain.get("ssl.key.password", ""),
        truststore_location=plain.get("ssl.truststore.location", ""),
        trusted=plain.get("ssl.truststore.certificates", ""),
        protocols=protocols,
        cipher_suites=_list(plain.get("ssl.cipher.suites", "")),
        check_host=_checks_host(settings),
        check_peer=plain.get("enable.ssl.certificate.verification", "true").lower() != "false",
    )
    problems += store_problems(found, dict(plain))
    if problems:
        raise ConfigError(problems)
    return found


def _not_honoured(name: str) -> str:
    near = nearest(name, CLIENT_NAMES)
    return f"Configuration {name!r} cannot be honoured" + ("" if near is None else f": did you mean {near!r}?")


def _checks_host(settings: Mapping[str, str]) -> bool:
    return settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower() not in ("", "none")


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.replace(":", ",").split(","))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForLibrdkafka:
    """Settings in librdkafka's words, and a sentence for each that cannot be put in them, by its name."""

    settings: Mapping[str, str]
    refused: Mapping[str, str]


def for_librdkafka(given: Mapping[str, str]) -> ForLibrdkafka:
    """Put what begins with `ssl.` into librdkafka's words; all else stays as it is.

    >>> for_librdkafka({"ssl.truststore.location": "/ca.pem", "ssl.endpoint.identification.algorithm": ""}).settings
    {'ssl.ca.location': '/ca.pem', 'ssl.endpoint.identification.algorithm': 'none'}
    """
    settings: dict[str, str] = {}
    refused: dict[str, str] = {}
    kafka = {ours: theirs for theirs, ours in _LIBRDKAFKA.items() if ours != "ssl.keystore.location"}
    for name, value in given.items():
        match name:
            case "ssl.keystore.type" | "ssl.truststore.type":
                problem = only_pem(value)
                if problem and not (name == "ssl.keystore.type" and value.strip().upper() == "PKCS12"):
                    refused[name] = problem
            case "ssl.truststore.password":
                if value.strip():
                    refused[name] = "SSL trust store password cannot be specified for PEM format."
            case "ssl.keystore.location":
                settings |= _keystore(value, given)
            case "ssl.keystore.key" | "ssl.keystore.certificate.chain" | "ssl.truststore.certificates":
                settings[kafka[name]] = text_of(blocks(value)) or value
            case "ssl.endpoint.identification.algorithm":
                settings[name] = value.strip().lower() or "none"
            case "ssl.cipher.suites":
                settings[name] = ":".join(map(openssl_name, _list(value)))
            case _ if name in kafka:
                settings[kafka[name]] = value
            case _ if name not in _NO_EFFECT and name != "ssl.enabled.protocols":
                settings[name] = value
    return ForLibrdkafka(settings=settings, refused=refused)


def _keystore(location: str, given: Mapping[str, str]) -> dict[str, str]:
    kind = given.get("ssl.keystore.type", "").strip().upper()
    if kind == "PKCS12" or (not kind and given.get("ssl.keystore.password")):
        return {"ssl.keystore.location": location}
    return {"ssl.certificate.location": location, "ssl.key.location": given.get("ssl.key.location", location)}
