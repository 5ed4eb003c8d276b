"""Zigzag varints, the numbers inside records

Small numbers of either sign take few bytes: the sign moves to the lowest bit, seven bits go into each byte. The readers
of records inline the one-byte case and come here for the rest.
"""

from ..errors import CorruptMessage

_ONE_BYTE = tuple(bytes((z,)) for z in range(0x80))
VARLONG_BITS_MAX = 70  # ten bytes of seven bits


def encode_varint(value: int) -> bytes:
    """Encode a signed number of up to 64 bits."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def varint_tail(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Finish a varint whose `first` byte (continuation bit set) has been read; return the zigzag value and the end."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= VARLONG_BITS_MAX:
            raise CorruptMessage(f"varint before byte {at} is longer than ten bytes")


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed number; return it and the offset behind it."""
    zigzag = data[at]
    at += 1
    if zigzag > 0x7F:
        zigzag, at = varint_tail(data, at, zigzag)
    return (zigzag >> 1) ^ -(zigzag & 1), at
