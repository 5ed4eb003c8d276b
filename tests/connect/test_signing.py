"""Signatures under requests between workers

Expected signatures were worked out with OpenSSL (`openssl dgst -sha256 -hmac`), statuses and texts read in the source
of Apache Kafka 4.x: InternalRequestSignature.java, DistributedHerder.java (requestNotSignedProperly).
"""

import base64

import pytest

from tidemill.connect.signing import DIGESTS, NO_KEY_YET, UNSIGNED, WRONG, Refusal, judge, signature, signed

KEY, BODY = b"k" * 32, b'[{"tasks.max":"1"}]'
PERMITTED = ("HmacSHA256",)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("HmacMD5", "7808773b525dd96664f5f4ee2c9c5a57"),
        ("HmacSHA1", "f238c70ce736019d85e811cecab9c37250515a34"),
        ("HmacSHA256", "f2e15a259135884855b5a89d7780a7e44846659c24a76f315811fdcac802ffb7"),
        (
            "HmacSHA512",
            "f08d81c726fd256bac16a2512fdbf3020917b8413660aeed90a170b3c9df69cbba1193d6fdcbe541ea42658c93a75343d9ba69a43eaf819435ed9ebe18718d67",
        ),
    ],
)
def test_a_signature_is_javas(algorithm: str, expected: str) -> None:
    assert signature(KEY, algorithm, BODY).hex() == expected


@pytest.mark.parametrize("algorithm", DIGESTS)
def test_what_was_signed_is_taken(algorithm: str) -> None:
    assert judge(signed(KEY, algorithm, BODY), BODY, KEY, [algorithm]) is None


def test_the_headers_are_kafkas() -> None:
    assert set(signed(KEY, "HmacSHA256", b"")) == {"x-connect-authorization", "x-connect-request-signature-algorithm"}


@pytest.mark.parametrize("missing", ["x-connect-authorization", "x-connect-request-signature-algorithm"])
def test_without_either_header_it_is_unsigned(missing: str) -> None:
    headers = signed(KEY, "HmacSHA256", BODY)
    del headers[missing]
    assert judge(headers, BODY, KEY, PERMITTED) == Refusal(status=400, message=UNSIGNED)


def test_another_body_or_another_key_is_refused() -> None:
    headers = signed(KEY, "HmacSHA256", BODY)
    assert judge(headers, BODY + b" ", KEY, PERMITTED) == Refusal(status=403, message=WRONG)
    assert judge(headers, BODY, b"j" * 32, PERMITTED) == Refusal(status=403, message=WRONG)


def test_every_other_bit_of_a_signature_is_refused() -> None:
    right = signature(KEY, "HmacSHA256", BODY)
    for bit in range(len(right) * 8):
        wrong = bytearray(right)
        wrong[bit // 8] ^= 1 << bit % 8
        headers = signed(KEY, "HmacSHA256", BODY) | {"x-connect-authorization": base64.b64encode(wrong).decode()}
        assert judge(headers, BODY, KEY, PERMITTED) == Refusal(status=403, message=WRONG)


@pytest.mark.parametrize("given", ["", "AAAA", base64.b64encode(b"x" * 100_000).decode()])
def test_a_signature_of_another_length_is_wrong(given: str) -> None:
    headers = signed(KEY, "HmacSHA256", BODY) | {"x-connect-authorization": given}
    assert judge(headers, BODY, KEY, PERMITTED) == Refusal(status=403, message=WRONG)


@pytest.mark.parametrize("given", ["A", "not base64!", "AA=A", "é", "AAAA AAAA", "AAAA\n"])
def test_what_is_not_base64_is_a_bad_request(given: str) -> None:
    refusal = judge(signed(KEY, "HmacSHA256", BODY) | {"x-connect-authorization": given}, BODY, KEY, PERMITTED)
    assert refusal is not None and refusal.status == 400


def test_padding_may_be_missing_as_for_javas_decoder() -> None:
    headers = signed(KEY, "HmacSHA256", BODY)
    headers["x-connect-authorization"] = headers["x-connect-authorization"].rstrip("=")
    assert judge(headers, BODY, KEY, PERMITTED) is None


def test_an_algorithm_that_does_not_exist_is_a_bad_request() -> None:
    refusal = judge(
        signed(KEY, "HmacSHA256", BODY) | {"x-connect-request-signature-algorithm": "X" * 5_000}, BODY, KEY, PERMITTED
    )
    assert refusal is not None and refusal.status == 400 and len(refusal.message) < 200


def test_an_algorithm_that_is_not_permitted_is_named_with_those_that_are() -> None:
    refusal = judge(signed(KEY, "HmacSHA1", BODY), BODY, KEY, ["HmacSHA512", "HmacSHA256"])
    assert refusal is not None and refusal.status == 400
    assert refusal.message.startswith("This worker does not support the 'HmacSHA1' key signing algorithm")
    assert "currently configured to use: [HmacSHA256, HmacSHA512]." in refusal.message


def test_without_a_key_everything_but_bad_requests_waits() -> None:
    assert judge(signed(KEY, "HmacSHA256", BODY), BODY, None, PERMITTED) == Refusal(status=503, message=NO_KEY_YET)
    assert judge({}, BODY, None, PERMITTED) == Refusal(status=400, message=UNSIGNED)
