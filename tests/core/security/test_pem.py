"""PEM in the shapes in which settings bring it"""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.security.pem import PemBlock, blocks, text_of, why_not_pem

BODY = base64.b64encode(bytes(range(120))).decode()


@given(st.binary(min_size=1), st.sampled_from(["\n", " ", "\\n", "\r\n"]))
def test_a_block_is_found_however_its_lines_end(data: bytes, between: str) -> None:
    packed = base64.b64encode(data).decode()
    lines = [packed[at : at + 64] for at in range(0, len(packed), 64)]
    text = between.join(["words before", "-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", "after"])
    (found,) = blocks(text)
    assert found.der() == data
    assert found.is_certificate
    assert not found.is_key
    written = text_of([found])
    assert max(map(len, written.splitlines())) <= 64
    assert blocks(written)[0].der() == data


def test_keys_and_certificates_of_one_text_are_told_apart() -> None:
    text = "".join(text_of([PemBlock(label, BODY)]) for label in ("EC PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"))
    assert [(each.is_key, each.is_certificate) for each in blocks(text)] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_headers_of_an_old_encrypted_key_stay_where_they_are() -> None:
    text = f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{BODY}\n-----END RSA PRIVATE KEY-----\n"
    (found,) = blocks(text)
    assert found.is_encrypted_key
    assert text_of([found]) == text


def test_a_key_says_whether_it_is_encrypted() -> None:
    assert PemBlock("ENCRYPTED PRIVATE KEY", BODY).is_encrypted_key
    assert not PemBlock("PRIVATE KEY", BODY).is_encrypted_key


def test_what_is_not_base64_is_an_error() -> None:
    with pytest.raises(ValueError, match="the CERTIFICATE block is not base64"):
        PemBlock("CERTIFICATE", "not/base64=x").der()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xfe\xed\xfe\xed\0\0", "keytool -importkeystore"),
        (b"\x30\x82\x09\x00", "openssl pkcs12"),
        (b" \n", "it is empty"),
        (b"hello", "no line -----BEGIN"),
    ],
)
def test_other_files_are_told_what_to_do_with(data: bytes, says: str) -> None:
    assert says in why_not_pem(data)
    assert blocks(data.decode("latin-1")) == ()
