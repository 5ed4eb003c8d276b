"""Source offsets as the REST API shows and changes them

The offsets topic folded into a dictionary per connector. Tasks write the records; the worker follows them here so that
`GET …/offsets` needs no task, and rewrites them when a person moves a stopped connector. A rewritten partition keeps
the very key bytes it was stored under, since compaction and Apache's workers compare keys by bytes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tidemill.connect.api import SourceOffset, SourcePartition
from tidemill.connect.stores import (
    KeyValue,
    SourceOffsetRecord,
    decode_offset,
    encode_offset,
    encode_offset_key,
    partition_identity,
)


class Stored(NamedTuple):
    """An offset and the key it stands under."""

    key: bytes
    partition: SourcePartition
    offset: SourceOffset


class OffsetBook:
    """Every stored source offset."""

    def __init__(self) -> None:
        self._connectors: dict[str, dict[bytes, Stored]] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Take in a record of the offsets topic; false if its key or value is not one."""
        record = decode_offset(key, value)
        if record is None or key is None:
            return False
        offsets = self._connectors.setdefault(record.connector, {})
        identity = partition_identity(record.partition)
        if record.offset is None:
            offsets.pop(identity, None)
        else:
            offsets[identity] = Stored(key, record.partition, record.offset)
        return True

    def stored(self, connector: str) -> list[Stored]:
        """Every offset of the connector."""
        return list(self._connectors.get(connector, {}).values())

    def altered(self, connector: str, changes: Sequence[tuple[SourcePartition, SourceOffset | None]]) -> list[KeyValue]:
        """The records that carry out `changes`; None forgets a partition."""
        offsets = self._connectors.get(connector, {})
        records = []
        for partition, offset in changes:
            stored = offsets.get(partition_identity(partition))
            key = encode_offset_key(connector, partition) if stored is None else stored.key
            value = None if offset is None else encode_offset(SourceOffsetRecord(connector, partition, offset))[1]
            records.append((key, value))
        return records

    def reset(self, connector: str) -> list[KeyValue]:
        """The records that forget everything about the connector."""
        return [(stored.key, None) for stored in self.stored(connector)]


def flat(mapping: SourcePartition) -> bool:
    """Whether a partition or offset is legal: a flat map of primitive values, no number that its record cannot hold."""
    return all(map(_is_primitive, mapping.values()))


def _is_primitive(value: object) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63  # Java's long
    if isinstance(value, float):
        return math.isfinite(value)  # JSON has no others, and would be given null instead
    return value is None or isinstance(value, str)
