"""What is read of an X.509 certificate: whose it is, until when (RFC 5280)

A principal is the distinguished name of the subject as Java writes it, because that is what people's mapping rules and
ACLs are about: RFC 2253, last part first, and only the short names that RFC knows. Other attributes (an e-mail address)
are written as an object identifier and the bytes of the value. So the bytes are read here: what OpenSSL tells of a name
is without them.

Not here: whether a certificate is to be trusted, which OpenSSL has found before anything is read here.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_UTC_TIME = 0x17
_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_STRINGS = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "latin-1", 0x1C: "utf-32-be", 0x1E: "utf-16-be",
}  # fmt: skip
_ESCAPED = ',=+<>#;"\\'


class CertificateUnreadable(ValueError):
    """The bytes are not a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What is read; `not_after_s` is seconds since 1970.

    `key_kind` is the object identifier of the curve that its key is on, else of the key's algorithm.
    """

    subject: str
    not_after_s: int
    key_kind: str = ""


def read_certificate(der: bytes) -> Certificate:
    """Subject, end and kind of key of `der`; raises CertificateUnreadable."""
    try:
        return _read(der)
    except (IndexError, ValueError, OverflowError) as error:
        raise CertificateUnreadable(f"not a certificate: {error}") from error


def _read(der: bytes) -> Certificate:
    tag, start, _ = _element(der, 0)
    _expect(tag, _SEQUENCE)
    tag, start, end = _element(der, start)
    _expect(tag, _SEQUENCE)
    fields = list(_elements(der, start, end))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    _serial, _algorithm, _issuer, validity, subject, key = fields[:6]
    _expect(validity[0], _SEQUENCE)
    _expect(subject[0], _SEQUENCE)
    _, not_after = _elements(der, *validity[1:])
    return Certificate(
        subject=_name(der, *subject[1:]), not_after_s=_time(der, *not_after), key_kind=_key_kind(der, *key[1:])
    )


def _key_kind(der: bytes, at: int, end: int) -> str:
    (_, *algorithm), *_bits = _elements(der, at, end)
    kinds = [der[start:stop] for tag, start, stop in _elements(der, *algorithm) if tag == _OID]
    return _oid(kinds[-1])


def _expect(tag: int, wanted: int) -> None:
    if tag != wanted:
        raise ValueError(f"tag {tag:#x} instead of {wanted:#x}")


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, begin and end of the value at `at`."""
    tag, size = der[at], der[at + 1]
    start = at + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("a length that no certificate has")
        size = int.from_bytes(der[start : start + count], "big")
        start += count
    if start + size > len(der):
        raise ValueError("it is cut off")
    return tag, start, start + size


def _elements(der: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    while at < end:
        found = _element(der, at)
        at = found[2]
        yield found


def _name(der: bytes, at: int, end: int) -> str:
    """A Name as RFC 2253 writes it."""
    parts = []
    for tag, start, stop in _elements(der, at, end):
        _expect(tag, _SET)
        parts.append("+".join(_attribute(der, start_, stop_) for _, start_, stop_ in _elements(der, start, stop)))
    return ",".join(reversed(parts))


def _attribute(der: bytes, at: int, end: int) -> str:
    (oid_tag, oid_start, oid_end), (tag, start, stop) = _elements(der, at, end)
    _expect(oid_tag, _OID)
    oid = _oid(der[oid_start:oid_end])
    keyword, encoding = _KEYWORDS.get(oid), _STRINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{oid}=#{der[oid_end:stop].hex()}"
    return f"{keyword}={escaped(der[start:stop].decode(encoding))}"


def escaped(value: str) -> str:
    r"""The value of an attribute, with what would be read as something else behind a backslash.

    >>> escaped(" a,b ")
    '\\ a\\,b\\ '
    """
    inner = value.strip(" ")
    before = len(value) - len(value.lstrip(" ")) if inner else len(value)
    after = len(value) - len(inner) - before
    text = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in inner)
    return "\\ " * before + text + "\\ " * after


def _oid(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time(der: bytes, tag: int, start: int, end: int) -> int:
    text = der[start:end].decode("ascii").removesuffix("Z")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280, 4.1.2.5.1
    moment = datetime.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC)
    return int(moment.timestamp())
