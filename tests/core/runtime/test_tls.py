"""Contexts from real files, handshakes in memory, and what is said when they fail"""

import shutil
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import Authority, Identity
from tidemill.core.runtime.tls import (
    TlsProblem,
    client_context,
    client_trouble,
    file_stamps,
    server_context,
    server_trouble,
)
from tidemill.core.security.tls_settings import TLS13_SUITES, ClientAuth, TlsSettings


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "Stranger")


@pytest.fixture(scope="module")
def identity(authority: Authority) -> Identity:
    return authority.signed()


def shake_hands(server: TlsSettings, client: TlsSettings, host: str = "localhost") -> tuple[ssl.SSLObject, ...]:
    """Both ends after a handshake in memory; raises what either side raises, the first one that does."""
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server_context(server).context.wrap_bio(there, here, server_side=True),
        client_context(client).context.wrap_bio(here, there, server_hostname=host),
    )
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for end in ends:
        try:
            end.read(1)
        except ssl.SSLWantReadError:
            continue
    return ends


def test_key_and_chain_from_one_file(authority: Authority, identity: Identity) -> None:
    settings = TlsSettings(keystore_location=str(identity.both))
    shake_hands(settings, TlsSettings(truststore_location=str(authority.certificate)))
    found = server_context(settings).certificate
    assert found is not None
    assert found.subject == "CN=localhost"


def test_key_and_chain_as_settings_and_in_files_of_their_own(authority: Authority, identity: Identity) -> None:
    inline = TlsSettings(
        chain=identity.certificate.read_text().replace("\n", " "), key=identity.key.read_text().replace("\n", "\\n")
    )
    apart = TlsSettings(keystore_location=str(identity.certificate), key_location=str(identity.key))
    for settings in (inline, apart):
        shake_hands(settings, TlsSettings(trusted=authority.certificate.read_text()))


def test_an_encrypted_key_opens_with_its_password_only(authority: Authority) -> None:
    hidden = authority.signed(password="right-one")
    settings = TlsSettings(keystore_location=str(hidden.both), key_password="right-one")
    shake_hands(settings, TlsSettings(truststore_location=str(authority.certificate)))
    with pytest.raises(TlsProblem, match=r"is encrypted: set ssl\.key\.password"):
        server_context(replace(settings, key_password=""))
    with pytest.raises(TlsProblem, match=r"is ssl\.key\.password right\?"):
        server_context(replace(settings, key_password="wrong-one"))


def test_files_that_cannot_be_used_say_why(authority: Authority, identity: Identity, tmp_path: Path) -> None:
    def problem(**settings: str) -> str:
        with pytest.raises(TlsProblem) as caught:
            server_context(TlsSettings(**settings))  # type: ignore[arg-type]
        return str(caught.value)

    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    other = authority.signed().key.read_text()
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(other + identity.certificate.read_text())
    damaged = tmp_path / "damaged.pem"
    damaged.write_text(identity.key.read_text() + identity.certificate.read_text().replace("M", "N"))
    assert "No such file or directory" in problem(keystore_location=str(tmp_path / "none.pem"))
    assert "keytool -importkeystore" in problem(keystore_location=str(jks))
    assert "has no private key" in problem(keystore_location=str(identity.certificate))
    assert "has no certificate" in problem(keystore_location=str(identity.key))
    assert "do not belong together" in problem(keystore_location=str(mixed))
    assert "cannot be read" in problem(keystore_location=str(damaged))
    assert "has no certificate" in problem(keystore_location=str(identity.both), truststore_location=str(identity.key))


def test_versions_and_ciphers_are_what_was_asked_for(authority: Authority, identity: Identity) -> None:
    server = TlsSettings(keystore_location=str(identity.both))
    trusting = TlsSettings(truststore_location=str(authority.certificate))
    assert shake_hands(server, replace(trusting, protocols=("TLSv1.2",)))[0].version() == "TLSv1.2"
    assert shake_hands(server, trusting)[0].version() == "TLSv1.3"
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
    chosen = replace(server, protocols=("TLSv1.2",), cipher_suites=suites)
    found = shake_hands(chosen, trusting)[0].cipher()
    assert found is not None
    assert found[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    with pytest.raises(TlsProblem, match=r"knows none of ssl\.cipher\.suites: nonsense"):
        server_context(replace(server, cipher_suites=("nonsense", *TLS13_SUITES)))


def trouble(server: TlsSettings, client: TlsSettings, host: str = "localhost") -> ssl.SSLError:
    with pytest.raises(ssl.SSLError) as caught:
        shake_hands(server, client, host)
    return caught.value


def test_a_client_is_told_what_is_wrong_with_the_broker(
    authority: Authority, stranger: Authority, identity: Identity
) -> None:
    trusting = TlsSettings(truststore_location=str(authority.certificate))
    good = TlsSettings(keystore_location=str(identity.both))
    expired = TlsSettings(keystore_location=str(authority.signed(days=-1).both))
    unknown = TlsSettings(keystore_location=str(stranger.signed().both))
    said = {
        "expired": client_trouble(trouble(expired, trusting), "localhost"),
        "not trusted": client_trouble(trouble(unknown, trusting), "localhost"),
        "is not about other.example": client_trouble(trouble(good, trusting, "other.example"), "other.example"),
    }
    for words, sentence in said.items():
        assert words in (sentence or "")
    assert client_trouble(OSError("refused"), "localhost") is None


def test_a_host_name_need_not_be_checked(authority: Authority, identity: Identity) -> None:
    trusting = TlsSettings(truststore_location=str(authority.certificate), check_host=False)
    shake_hands(TlsSettings(keystore_location=str(identity.both)), trusting, "other.example")
    careless = TlsSettings(check_peer=False)
    shake_hands(TlsSettings(keystore_location=str(identity.both)), careless, "other.example")


def test_a_server_says_what_is_wrong_with_a_client(
    authority: Authority, stranger: Authority, identity: Identity
) -> None:
    server = TlsSettings(
        keystore_location=str(identity.both),
        truststore_location=str(authority.certificate),
        client_auth=ClientAuth.REQUIRED,
    )
    trusting = TlsSettings(truststore_location=str(authority.certificate))
    known = replace(trusting, keystore_location=str(authority.signed("/CN=alice", "").both))
    assert shake_hands(server, known)[0].getpeercert(binary_form=True)
    assert "shows no certificate" in server_trouble(trouble(server, trusting))
    foreign = replace(trusting, keystore_location=str(stranger.signed("/CN=eve", "").both))
    assert "client's certificate is not accepted" in server_trouble(trouble(server, foreign))
    ended = replace(trusting, keystore_location=str(authority.signed("/CN=old", "", days=-1).both))
    assert "has expired" in server_trouble(trouble(server, ended))
    shake_hands(replace(server, client_auth=ClientAuth.REQUESTED), trusting)
    shared_nothing = replace(server, protocols=("TLSv1.3",))
    assert "share no version" in server_trouble(trouble(shared_nothing, replace(known, protocols=("TLSv1.2",))))


def test_other_ends_of_a_handshake() -> None:
    assert "in time" in server_trouble(TimeoutError())
    assert "hung up" in server_trouble(ConnectionResetError())
    assert "failed: what" in server_trouble(ValueError("what"))


def test_a_stamp_changes_with_the_file(identity: Identity, tmp_path: Path) -> None:
    file = tmp_path / "store.pem"
    assert file_stamps([str(file)]) == (None,)
    shutil.copy(identity.both, file)
    first = file_stamps([str(file)])
    assert first == file_stamps([str(file)])
    replaced = tmp_path / "new.pem"
    shutil.copy(identity.both, replaced)
    replaced.rename(file)
    assert file_stamps([str(file)]) != first
