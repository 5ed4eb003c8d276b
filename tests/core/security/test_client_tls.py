"""One client's security settings by two families of names"""

from collections.abc import Mapping

import pytest

from tidemill.core.config import ConfigError
from tidemill.core.security.client_tls import client_tls, for_librdkafka, is_security

JAVA = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/me.pem",
    "ssl.key.password": "secret",
    "ssl.protocol": "TLSv1.3",
    "ssl.endpoint.identification.algorithm": "",
}
RDKAFKA = {
    "security.protocol": "ssl",
    "ssl.ca.location": "/ca.pem",
    "ssl.certificate.location": "/me.crt",
    "ssl.key.location": "/me.key",
}


def test_without_encryption_there_is_nothing() -> None:
    assert client_tls({}) is None
    assert client_tls({"security.protocol": "plaintext", "ssl.ca.location": "/x"}) is None


def test_names_of_kafka() -> None:
    found = client_tls(JAVA)
    assert found is not None
    assert found.files == ("/me.pem", "/ca.pem")
    assert (found.key_password, found.check_host, found.check_peer) == ("secret", False, True)


def test_names_of_librdkafka() -> None:
    found = client_tls({**RDKAFKA, "enable.ssl.certificate.verification": "false"})
    assert found is not None
    assert found.files == ("/me.crt", "/me.key", "/ca.pem")
    assert (found.check_host, found.check_peer) == (True, False)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"security.protocol": "SASL_SSL"}, "security.protocol=SASL_SSL is not available yet"),
        ({"ssl.keystore.type": "JKS"}, "only PEM is read: convert it with `keytool"),
        ({"ssl.truststore.password": "x"}, "SSL trust store password cannot be specified"),
        ({"ssl.keystore.key": "x"}, "certificate chain is not specified"),
        ({"ssl.engine.factory.class": "x"}, "'ssl.engine.factory.class' cannot be honoured"),
        ({"ssl.trustore.location": "x"}, "did you mean 'ssl.truststore.location'?"),
        ({"ssl.enabled.protocols": "SSLv3"}, "SSLv3 is not among"),
    ],
)
def test_what_cannot_be_done_is_said(more: Mapping[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_tls({**JAVA, **more})
    assert says in str(caught.value)


def test_names_of_kafka_in_librdkafkas_words() -> None:
    found = for_librdkafka({**JAVA, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,AES256-SHA"})
    assert found.settings == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA",
    }
    assert found.refused == {}


def test_librdkafkas_own_names_stay_as_they_are() -> None:
    assert for_librdkafka(RDKAFKA).settings == RDKAFKA


def test_text_of_certificates_is_written_as_openssl_reads_it() -> None:
    given = "-----BEGIN CERTIFICATE----- QUJD -----END CERTIFICATE-----"
    assert for_librdkafka({"ssl.truststore.certificates": given}).settings == {
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    }


@pytest.mark.parametrize("kind", [{"ssl.keystore.type": "PKCS12"}, {}])
def test_a_key_store_with_a_password_is_pkcs12_for_librdkafka(kind: Mapping[str, str]) -> None:
    given = {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"}
    assert for_librdkafka({**given, **kind}).settings == given


def test_stores_of_java_are_refused_by_name() -> None:
    found = for_librdkafka(
        {"ssl.keystore.type": "JKS", "ssl.truststore.type": "PKCS12", "ssl.truststore.password": "x"}
    )
    assert set(found.refused) == {"ssl.keystore.type", "ssl.truststore.type", "ssl.truststore.password"}


def test_what_is_about_security() -> None:
    names = ("ssl.ca.pem", "security.protocol", "sasl.username", "enable.ssl.certificate.verification", "group.id")
    assert [is_security(name) for name in names] == [True, True, True, True, False]
