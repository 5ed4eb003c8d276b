"""The mirror's producer ids: one per flow and partition, always the same

A target recognises a repeated batch by producer id, epoch and sequence. If all three follow from the flow and from the
position, a mirror needs no memory to be idempotent: a restarted one, or a second one started by mistake, sends what the
target already knows.

Layout of the 64-bit id, most significant bit first:

    1 bit    0, ids are not negative
    1 bit    1, the reserved range: brokers hand out ids counting up from 0
    16 bits  slot of the source cluster, so that the origin of a batch can be read off its header
    46 bits  hash of flow, target topic and partition, and the generation where it is not the first

The slot is a hash of the source alias; the hashes are BLAKE2b, which is the same on every machine and in every version.
"""

import hashlib

RESERVED = 1 << 62
_SLOT_BITS = 16
_HASH_BITS = 46


def _hash(bits: int, *parts: str) -> int:
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def cluster_slot(alias: str) -> int:
    """The 16-bit slot of the cluster that a flow calls `alias`."""
    return _hash(_SLOT_BITS, "cluster", alias)


def producer_id(source_alias: str, target_alias: str, target_topic: str, partition: int, generation: int = 0) -> int:
    """The producer id under which the flow writes to one partition of the target.

    A `generation` is begun when the epochs of the one before it are used up.
    """
    more = (str(generation),) if generation else ()
    flow_hash = _hash(_HASH_BITS, "flow", source_alias, target_alias, target_topic, str(partition), *more)
    return RESERVED | cluster_slot(source_alias) << _HASH_BITS | flow_hash


def origin_slot(producer_id: int) -> int | None:
    """Slot of the cluster a batch was mirrored from; None for a batch no mirror wrote."""
    return producer_id >> _HASH_BITS & (1 << _SLOT_BITS) - 1 if producer_id >= RESERVED else None
