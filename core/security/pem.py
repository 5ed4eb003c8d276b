"""PEM, the text form of keys and certificates (RFC 7468)

Settings files bring it in many shapes: a file of several blocks with words between them, one long line with blanks
where the line ends were, line ends spelled as backslash and n. `blocks` finds what is in a text and `text_of` writes it
as OpenSSL reads it. What is not PEM but a key store of Java is recognised, so that the error can say what to do.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import NamedTuple

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARACTERS = 64
_JAVA_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_DER_SEQUENCE = b"\x30"

CERTIFICATE_LABELS = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})

_TO_PEM = "`openssl pkcs12 -in STORE.p12 -out STORE.pem`"
FROM_JAVA = (
    "convert it with `keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12` "
    f"and {_TO_PEM}"
)
"""What to do with a JKS file."""

FROM_PKCS12 = f"convert it with {_TO_PEM}"
"""What to do with a PKCS#12 file."""


class PemBlock(NamedTuple):
    """One block; `body` is what stands between its first and its last line."""

    label: str
    body: str

    @property
    def is_certificate(self) -> bool:
        """Whether it holds a certificate."""
        return self.label in CERTIFICATE_LABELS

    @property
    def is_key(self) -> bool:
        """Whether it holds a private key."""
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted_key(self) -> bool:
        """Whether it holds a private key that a password is needed for."""
        return self.label == "ENCRYPTED PRIVATE KEY" or (self.is_key and "ENCRYPTED" in self.body)

    def der(self) -> bytes:
        """The binary form; raises ValueError."""
        try:
            return base64.b64decode("".join(self.body.split()), validate=True)
        except binascii.Error as error:
            raise ValueError(f"the {self.label} block is not base64: {error}") from None


def blocks(text: str) -> tuple[PemBlock, ...]:
    """Every block in `text`.

    >>> blocks("-----BEGIN CERTIFICATE----- AAAA BBBB -----END CERTIFICATE-----")
    (PemBlock(label='CERTIFICATE', body=' AAAA BBBB '),)
    """
    plain = text.replace("\\n", "\n")
    return tuple(PemBlock(match[1], match[2]) for match in _BLOCK.finditer(plain))


def text_of(found: Iterable[PemBlock]) -> str:
    """PEM as OpenSSL reads it: lines of 64 characters, or as they are where there are headers among them."""
    lines: list[str] = []
    for label, body in found:
        lines.append(f"-----BEGIN {label}-----")
        if ":" in body:
            lines.append(body.strip("\r\n"))
        else:
            packed = "".join(body.split())
            lines += [packed[at : at + _LINE_CHARACTERS] for at in range(0, len(packed), _LINE_CHARACTERS)]
        lines.append(f"-----END {label}-----")
    return "\n".join(lines) + "\n" if lines else ""


def why_not_pem(data: bytes) -> str:
    """What to say of a file in which there is no PEM block."""
    if data.startswith(_JAVA_MAGIC):
        return f"it is a Java key store: {FROM_JAVA}"
    if data.startswith(_DER_SEQUENCE):
        return f"it is binary, PKCS#12 or DER: {FROM_PKCS12}"
    return "it is empty" if not data.strip() else "it has no line -----BEGIN ...-----"
