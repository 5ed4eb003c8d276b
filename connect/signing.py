"""The signature under a request of one worker to another (KIP-507)

What only workers may ask of each other (`POST /connectors/{name}/tasks`, `PUT …/fence`) carries a proof that the sender
can read the config topic: an HMAC over the body as it is sent, made with the session key that the leader keeps there.
Whoever reaches the REST API from outside does not know that key. What a user asked and a worker only passes on is not
signed: the worker it goes to looks at it as if the user had come to it.

Headers, algorithms, the order of the checks, their statuses and texts are those of Apache's worker 4.x
(`InternalRequestSignature`, `DistributedHerder.requestNotSignedProperly`): whoever is from Java finds what it expects.
A signature is compared in constant time, or the time of the answer would tell how much of a guess was right.

Pure. Who has the key, and when there is a new one, is `session_key`'s business.
"""

import base64
import binascii
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

SIGNATURE_HEADER: Final = "x-connect-authorization"
ALGORITHM_HEADER: Final = "x-connect-request-signature-algorithm"
"""Both as ASGI spells names: in small letters."""

MADE_FROM: Final = "x-tidemill-made-from"
"""Ours, and not signed: the offset of the configuration in the config topic that submitted tasks were made from."""

DIGESTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HmacMD5": "md5",
        "HmacSHA1": "sha1",
        "HmacSHA224": "sha224",
        "HmacSHA256": "sha256",
        "HmacSHA384": "sha384",
        "HmacSHA512": "sha512",
    }
)
"""Java's names of the algorithms that every Java runtime has, and Python's names of their digests."""

_DIGEST_OF: Final[Mapping[str, str]] = MappingProxyType({name.lower(): digest for name, digest in DIGESTS.items()})
"""The same however it is written: Java looks algorithms up without regard to capitals."""

UNSIGNED: Final = "Internal request missing required signature"
WRONG: Final = "Internal request contained invalid signature."
NO_KEY_YET: Final = (
    "This worker is still starting up and has not been able to read a session key from the config topic yet"
)
NOT_PERMITTED: Final = (
    "This worker does not support the '{algorithm}' key signing algorithm used by other workers. This worker is "
    "currently configured to use: [{permitted}]. Check that all workers' configuration files permit the same set of "
    "signature algorithms, and correct any misconfigured worker and restart it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not taken for one of another worker."""

    status: int
    message: str


def is_known(algorithm: str) -> bool:
    """Whether requests can be signed with it.

    >>> is_known("HmacSHA256"), is_known("hmacsha512"), is_known("HmacSHA1024")
    (True, True, False)
    """
    return algorithm.lower() in _DIGEST_OF


def signature(key: bytes, algorithm: str, body: bytes) -> bytes:
    """The HMAC of a body; the algorithm has to be a known one."""
    return hmac.digest(key, body, _DIGEST_OF[algorithm.lower()])


def signed(key: bytes, algorithm: str, body: bytes) -> dict[str, str]:
    """The two headers that sign a body."""
    encoded = base64.b64encode(signature(key, algorithm, body)).decode()
    return {SIGNATURE_HEADER: encoded, ALGORITHM_HEADER: algorithm}


def judge(headers: Mapping[str, str], body: bytes, key: bytes | None, permitted: Collection[str]) -> Refusal | None:
    """Look at a signature; None if it is good. Names of headers are in small letters; `key` is None until one is known.

    >>> judge({}, b"[]", b"key", ["HmacSHA256"])
    Refusal(status=400, message='Internal request missing required signature')
    >>> judge(signed(b"key", "HmacSHA256", b"[]"), b"[]", b"key", ["HmacSHA256"])
    >>> judge(signed(b"guess", "HmacSHA256", b"[]"), b"[]", b"key", ["HmacSHA256"])
    Refusal(status=403, message='Internal request contained invalid signature.')
    """
    encoded, algorithm = headers.get(SIGNATURE_HEADER), headers.get(ALGORITHM_HEADER)
    if encoded is None or algorithm is None:
        return Refusal(status=400, message=UNSIGNED)
    if not is_known(algorithm):
        return Refusal(status=400, message=f"Algorithm {algorithm[:100]} not available")
    given = _decoded(encoded)
    if given is None:
        return Refusal(status=400, message="The signature of this request is not Base64")
    if algorithm not in permitted:
        return Refusal(
            status=400, message=NOT_PERMITTED.format(algorithm=algorithm, permitted=", ".join(sorted(permitted)))
        )
    if key is None:
        return Refusal(status=503, message=NO_KEY_YET)
    if not hmac.compare_digest(signature(key, algorithm, body), given):
        return Refusal(status=403, message=WRONG)
    return None


def _decoded(encoded: str) -> bytes | None:
    # Java's decoder takes Base64 without its padding, and nothing else that is not written as it should be.
    padded = encoded if encoded.endswith("=") else encoded + "=" * (-len(encoded) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        return None
