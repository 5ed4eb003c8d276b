"""CRC-32C of record batches, and its algebra

A CRC is linear over GF(2), so a change in the 40 header bytes that the checksum covers can be carried to the end of the
batch by multiplying with a power of x: the batch gets its new checksum without a pass over the payload. A payload that
was damaged on the way keeps a *wrong* checksum this way, which is the point: the producer's checksum guards the whole
path, recomputing would bless the damage.

The polynomials are bit-reflected, as CRC-32C is: the highest bit is the coefficient of x^0.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
        """CRC-32C of `data`; pass the previous result as `value` to go on."""
else:
    from crc32c import crc32c

POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31
_X = 1 << 30
_ZEROS = memoryview(bytes(128 * 1024))


def multiply(a: int, b: int) -> int:
    """Product of two polynomials modulo the CRC polynomial."""
    product = 0
    mask = _ONE
    while a:
        if a & mask:
            product ^= b
            a ^= mask
        mask >>= 1
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
    return product


def _squares(count: int) -> tuple[int, ...]:
    powers = [_X]
    for _ in range(count - 1):
        powers.append(multiply(powers[-1], powers[-1]))
    return tuple(powers)


_X_POWERS = _squares(64)
"""x^(2^k): enough for any length that fits 61 bits."""


def byte_shift(count: int) -> int:
    """x^(8 * count): what multiplies a CRC when `count` bytes follow."""
    power = _ONE
    k = 3
    while count:
        if count & 1:
            power = multiply(_X_POWERS[k], power)
        count >>= 1
        k += 1
    return power


def advance(linear: int, count: int) -> int:
    """The linear part of a CRC after `count` zero bytes: `linear * x^(8 * count)`.

    Up to about 100 KiB the hardware is faster over as many zeros than the multiplication is in Python.
    """
    if count <= len(_ZEROS):
        return crc32c(_ZEROS[:count], linear ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return multiply(byte_shift(count), linear)


def patch_crc(old_crc: int, diff40: bytes, payload_len: int) -> int:
    """Checksum after the 40 header bytes changed by `diff40` (old xor new); the payload is not read."""
    linear = crc32c(diff40, 0xFFFFFFFF) ^ 0xFFFFFFFF  # the linear part of a CRC: no initial value, no final xor
    return old_crc ^ advance(linear, payload_len)


def payload_crc(batch_crc: int, header40: bytes | memoryview, payload_len: int) -> int:
    """Checksum of the payload alone, from the batch's checksum and its 40 covered header bytes."""
    return batch_crc ^ advance(crc32c(header40), payload_len)
