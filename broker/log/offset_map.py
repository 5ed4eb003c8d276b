"""The newest offset of every key, in a bounded number of bytes

Compaction has to know, for millions of keys, the last offset each was seen at. A dict of keys would cost some two
hundred bytes a key and grow with the keys; this is an open-addressed table of 24 bytes a slot, as Apache Kafka has it:
16 bytes of a hash of the key, 8 of the offset. Its size is fixed when it is made, and `offer` says when it is full; the
caller then cleans up to there and goes on in another round.

A hash stands for its key, so two keys with one hash would lose the older one's value. BLAKE2b with 128 bits makes that
impossible by accident and not feasible by intent (Kafka's MD5 has known collisions). The number of slots is a power of
two and the step between probes is odd, so every slot is reached.
"""

from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16
SLOT_BYTES = DIGEST_BYTES + 8
SLOTS_MIN = 64


class OffsetMap:
    """Hash of a key -> newest offset."""

    __slots__ = ("_count", "_digests", "_limit", "_mask", "_offsets")

    def __init__(self, budget_bytes: int, *, keys_expected: int, load_factor: float = 0.9) -> None:
        """At most `budget_bytes` large, smaller when `keys_expected` fit into less; `load_factor` in (0, 1)."""
        slots = SLOTS_MIN
        while slots * load_factor < keys_expected and 2 * slots * SLOT_BYTES <= budget_bytes:
            slots *= 2
        self._mask = slots - 1
        self._limit = min(int(slots * load_factor), slots - 1)  # a free slot ends every search
        self._count = 0
        self._digests = bytearray(slots * DIGEST_BYTES)
        self._offsets = memoryview(bytearray(slots * 8)).cast("q")  # 0 is free; the system gives zeroed pages lazily

    def __len__(self) -> int:
        """Number of keys."""
        return self._count

    @property
    def capacity(self) -> int:
        """Most keys it takes."""
        return self._limit

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return len(self._offsets) * SLOT_BYTES

    def offer(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> bool:
        """Note every key at its offset, later ones over earlier ones; False if they might not all fit.

        Nothing is noted then. Offsets must not be below those already noted. None is no key.
        """
        if self._count + len(keys) > self._limit:
            return False
        digests, table, mask = self._digests, self._offsets, self._mask
        for key, offset in zip(keys, offsets, strict=True):
            if key is None:
                continue
            digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
            number = int.from_bytes(digest, "little")
            slot = number & mask
            step = number >> 64 | 1
            while table[slot]:
                at = slot * DIGEST_BYTES
                if digests[at : at + DIGEST_BYTES] == digest:
                    break
                slot = slot + step & mask
            else:
                at = slot * DIGEST_BYTES
                digests[at : at + DIGEST_BYTES] = digest
                self._count += 1
            table[slot] = offset + 1
        return True

    def newest(self, keys: Sequence[bytes | None]) -> list[int]:
        """For every key the newest offset that was noted, -1 if none was (or there is no key)."""
        digests, table, mask = self._digests, self._offsets, self._mask
        found = []
        for key in keys:
            if key is None:
                found.append(-1)
                continue
            digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
            number = int.from_bytes(digest, "little")
            slot = number & mask
            step = number >> 64 | 1
            while table[slot]:
                at = slot * DIGEST_BYTES
                if digests[at : at + DIGEST_BYTES] == digest:
                    break
                slot = slot + step & mask
            found.append(table[slot] - 1)
        return found
