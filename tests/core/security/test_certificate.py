"""Names and dates of real certificates, and of what is none"""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import Authority, openssl
from tidemill.core.security.certificate import CertificateUnreadable, escaped, read_certificate
from tidemill.core.security.pem import blocks


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def der(file: Path) -> bytes:
    return blocks(file.read_text())[0].der()


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/CN=alice", "CN=alice"),
        ("/C=US/ST=MD/L=Fulton/O=mycp/OU=SME/CN=Duke", "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US"),
        ("/O=Acme, Inc/CN=a<b", "CN=a\\<b,O=Acme\\, Inc"),
        ("/DC=org/DC=example/UID=u1", "UID=u1,DC=example,DC=org"),
        ("/CN=Zoë", "CN=Zoë"),
        ("/CN=a/emailAddress=a@b.c", "1.2.840.113549.1.9.1=#16056140622e63,CN=a"),
        ("/O=o/CN=two+UID=one", "CN=two+UID=one,O=o"),
    ],
)
def test_a_subject_reads_as_java_writes_it(authority: Authority, subject: str, name: str) -> None:
    assert read_certificate(der(authority.signed(subject, "").certificate)).subject == name


def test_the_end_of_a_certificate(authority: Authority) -> None:
    ends = read_certificate(der(authority.signed(days=-3).certificate)).not_after_s
    assert abs(ends - (time.time() - 3 * 86_400)) < 3600


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (("rsa:2048",), "1.2.840.113549.1.1.1"),
        (("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "1.2.840.10045.3.1.7"),
        (("ed25519",), "1.3.101.112"),
    ],
)
def test_the_kind_of_its_key(tmp_path: Path, made: tuple[str, ...], kind: str) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    openssl("req", "-x509", "-newkey", *made, "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=a")
    assert read_certificate(der(certificate)).key_kind == kind


@given(st.text(alphabet=' a,=+<>#;"\\\0é'))
def test_nothing_in_a_value_can_be_taken_for_another_part(value: str) -> None:
    text = escaped(value)
    bare = text.replace("\\00", "\0")
    plain, at = "", 0
    while at < len(bare):
        at += bare[at] == "\\"
        plain += bare[at]
        at += 1
    assert plain == value
    assert not text.startswith(" ")


def test_damaged_certificates_are_errors_of_one_kind(authority: Authority) -> None:
    whole = der(authority.signed("/CN=alice").certificate)
    for end in range(0, len(whole), 7):
        with pytest.raises(CertificateUnreadable):
            read_certificate(whole[:end])
    for at in range(min(len(whole), 200)):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        try:
            read_certificate(bytes(damaged))
        except CertificateUnreadable:
            continue


@given(st.binary(max_size=200))
def test_garbage_is_an_error_too(data: bytes) -> None:
    with pytest.raises(CertificateUnreadable):
        read_certificate(data)
