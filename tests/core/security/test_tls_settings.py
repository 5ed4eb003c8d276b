"""Settings of TLS: Kafka's rules and sentences"""

from collections.abc import Mapping

import pytest

from tidemill.core.config import ConfigError
from tidemill.core.security.tls_settings import (
    SERVER_TLS,
    TLS13_SUITES,
    ClientAuth,
    TlsSettings,
    openssl_ciphers,
    openssl_name,
    server_tls,
)


def read(**more: str) -> TlsSettings:
    raw = {name.replace("_", "."): value for name, value in more.items()}
    return server_tls(SERVER_TLS.parse(raw))


def test_a_key_store_is_enough() -> None:
    settings = read(ssl_keystore_location="/k.pem")
    assert settings.client_auth is ClientAuth.NONE
    assert settings.protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.files == ("/k.pem",)
    assert settings.has_key
    assert not settings.has_trust


def test_secrets_are_not_shown() -> None:
    shown = repr(TlsSettings(key="SECRET-1", key_password="SECRET-2"))
    assert "SECRET" not in shown


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "it has no certificate: set ssl.keystore.location"),
        ({"ssl.keystore.type": "JKS"}, "only PEM is read: convert it with `keytool"),
        ({"ssl.truststore.type": "PKCS12"}, "only PEM is read: convert it with `openssl pkcs12"),
        ({"ssl.keystore.key": "k"}, "SSL private key is specified, but certificate chain is not specified."),
        (
            {"ssl.keystore.certificate.chain": "c"},
            "SSL certificate chain is specified, but private key is not specified.",
        ),
        (
            {"ssl.keystore.location": "f", "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
            "Both SSL key store location and separate private key are specified.",
        ),
        (
            {"ssl.keystore.location": "f", "ssl.keystore.password": "p"},
            "SSL key store password cannot be specified with PEM format, only key password may be specified.",
        ),
        (
            {"ssl.keystore.location": "f", "ssl.truststore.location": "t", "ssl.truststore.certificates": "c"},
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            {"ssl.keystore.location": "f", "ssl.truststore.location": "t", "ssl.truststore.password": "p"},
            "SSL trust store password cannot be specified for PEM format.",
        ),
        ({"ssl.keystore.location": "f", "ssl.client.auth": "required"}, "needs to know who may vouch for clients"),
        ({"ssl.client.auth": "maybe"}, "maybe is not one of none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 is not among TLSv1.2, TLSv1.3"),
        (
            {"ssl.keystore.location": "f", "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            "cannot choose among the suites of TLS 1.3",
        ),
        (
            {"ssl.keystore.location": "f", "ssl.cipher.suites": ",".join(TLS13_SUITES)},
            "names no suite of TLS 1.2",
        ),
    ],
)
def test_contradictions_are_said_in_a_sentence(raw: Mapping[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_tls(SERVER_TLS.parse(raw))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_java_become_those_of_openssl(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


def test_all_suites_of_the_newest_version_may_stand_beside_older_ones() -> None:
    settings = TlsSettings(cipher_suites=(*TLS13_SUITES, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"))
    assert openssl_ciphers(settings) == "ECDHE-RSA-AES128-GCM-SHA256"
    assert openssl_ciphers(TlsSettings(cipher_suites=TLS13_SUITES, protocols=("TLSv1.3",))) == ""
