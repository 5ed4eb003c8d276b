"""The session key of a group of workers

Every worker that can read the config topic knows one secret that nobody else does: the record `session-key`, which the
leader writes. With it workers sign what they ask of each other (`connect/signing`). Each key lives for
`inter.worker.key.ttl.ms`; a reader takes the last one in the topic and needs no clock.

Pure: `why_new` is the whole decision, asked by the leader with every tick. Bytes and time come from outside. The rules
are those of Apache's leader (`DistributedHerder.checkForKeyRotation`), with two more: a key from the future, written by
a worker whose clock was ahead, would never grow old and is replaced; and a lifetime of 0 means no end, where Apache's
leader would write a new key in every round of its loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidemill.connect.stores import SessionKey

KEY_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "HmacMD5": 512,
        "HmacSHA1": 512,
        "HmacSHA224": 224,
        "HmacSHA256": 256,
        "HmacSHA384": 384,
        "HmacSHA512": 512,
    }
)
"""How long a key OpenJDK's generators make that are told nothing."""

BITS_MIN: Final = 40
"""What OpenJDK's generators ask for at least."""

BITS_MAX: Final = 65_536
"""Longer than any HMAC uses; a key is read by every worker, and stands in one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """How a leader makes keys."""

    algorithm: str = "HmacSHA256"
    bits: int | None = None  # None: what is usual for the algorithm
    ttl_ms: int = 3_600_000  # 0: keys do not grow old

    @property
    def size(self) -> int:
        """Bytes of a key.

        >>> KeySettings().size, KeySettings(algorithm="HmacSHA512").size, KeySettings(bits=129).size
        (32, 64, 17)
        """
        return ((self.bits or KEY_BITS[self.algorithm]) + 7) // 8


def why_new(settings: KeySettings, key: SessionKey | None, now_ms: int) -> str | None:
    """Why a leader has to make a new key; None while the one in the topic is good."""
    if key is None:
        return "there is none yet"
    if key.algorithm != settings.algorithm or len(key.key) != settings.size:
        return "it was made by other settings"
    if settings.ttl_ms and now_ms >= key.created_ms + settings.ttl_ms:
        return "it has grown old"
    if settings.ttl_ms and key.created_ms > now_ms + settings.ttl_ms:
        return "it is dated in the future"
    return None
