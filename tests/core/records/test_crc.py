"""The checksum and the algebra that moves it"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.records.crc import advance, byte_shift, crc32c, multiply, patch_crc, payload_crc

headers = st.binary(min_size=40, max_size=40)
polynomials = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_published_check_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(memoryview(bytearray(data))) == expected


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_a_checksum_can_be_continued(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@given(headers, headers, st.binary(max_size=300))
def test_a_patched_checksum_is_the_recomputed_one(old: bytes, new: bytes, payload: bytes) -> None:
    diff = bytes(a ^ b for a, b in zip(old, new, strict=True))
    assert patch_crc(crc32c(old + payload), diff, len(payload)) == crc32c(new + payload)


@given(headers, st.binary(max_size=300))
def test_the_payloads_checksum_needs_no_payload(header: bytes, payload: bytes) -> None:
    assert payload_crc(crc32c(header + payload), header, len(payload)) == crc32c(payload)


@given(polynomials, st.sampled_from([0, 1, 60, 16_384, 131_072, 131_073, 1_000_000]))
def test_zeros_and_multiplication_agree(linear: int, count: int) -> None:
    assert advance(linear, count) == multiply(byte_shift(count), linear)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 12345])
def test_large_payloads(size: int) -> None:
    old, new, payload = b"a" * 40, b"b" * 40, bytes(size)
    diff = bytes(a ^ b for a, b in zip(old, new, strict=True))
    assert patch_crc(crc32c(old + payload), diff, size) == crc32c(new + payload)


def test_damage_stays_visible_after_a_patch() -> None:
    old, new, payload = bytes(40), bytes(39) + b"\1", b"payload"
    diff = bytes(a ^ b for a, b in zip(old, new, strict=True))
    patched = patch_crc(crc32c(old + payload), diff, len(payload))
    assert patched == crc32c(new + payload)
    assert patched != crc32c(new + b"pAyload")


@given(polynomials, polynomials, polynomials)
def test_multiplication_is_that_of_a_ring(a: int, b: int, c: int) -> None:
    one = 1 << 31
    assert multiply(a, one) == multiply(one, a) == a
    assert multiply(a, b) == multiply(b, a)
    assert multiply(a, multiply(b, c)) == multiply(multiply(a, b), c)
    assert multiply(a, b ^ c) == multiply(a, b) ^ multiply(a, c)


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_shifts_add_up(m: int, n: int) -> None:
    assert multiply(byte_shift(m), byte_shift(n)) == byte_shift(m + n)
