"""MirrorMaker 2's records, byte for byte

Heartbeats, checkpoints and offset syncs are what MirrorMaker 2's own Java classes (`RemoteClusterUtils`, the console
formatters) read from the internal topics. All integers are big-endian, a STRING is an int16 length plus UTF-8.

Readers take the value version of a checkpoint or heartbeat for 0 whatever it says, so it must never change; an offset
sync carries none. Tidemill's own records are in `tidemill.mirror.map_records`.
"""

import struct
from dataclasses import dataclass

_VERSION = 0


class FormatError(ValueError):
    """Bytes that are not the record they should be."""


def pack_string(text: str) -> bytes:
    """An int16 length and UTF-8; raises FormatError beyond 32,767 bytes."""
    raw = text.encode()
    if len(raw) > 32_767:
        raise FormatError(f"string of {len(raw)} bytes does not fit an int16 length")
    return struct.pack(">h", len(raw)) + raw


class Reader:
    """Sequential reads that fail with FormatError, never with an index error."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count < 0 or self._at + count > len(self._buffer):
            raise FormatError(f"record ends after {len(self._buffer)} bytes, {count} more needed at {self._at}")
        self._at += count
        return self._buffer[self._at - count : self._at]

    def int16(self) -> int:
        """A signed 16-bit integer."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """A signed 32-bit integer."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        """A signed 64-bit integer."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def string(self) -> str:
        """An int16 length and UTF-8."""
        try:
            return self.take(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"not UTF-8: {error}") from None

    def varint(self) -> int:
        """An unsigned LEB128 integer of at most 64 bits."""
        value = shift = 0
        while shift < 64:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7
        raise FormatError("varint longer than 64 bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """Record `upstream_offset` of the source is record `offset` of the target."""

    topic: str  # name on the source
    partition: int
    upstream_offset: int
    offset: int

    def key(self) -> bytes:
        """Key bytes: topic, partition."""
        return pack_string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        """Value bytes, without a version."""
        return struct.pack(">qq", self.upstream_offset, self.offset)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "OffsetSync":
        """Read one back."""
        keys, values = Reader(key), Reader(value)
        return cls(topic=keys.string(), partition=keys.int32(), upstream_offset=values.int64(), offset=values.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Group position `upstream_offset` of the source is `offset` on the target."""

    group: str
    topic: str  # name on the target
    partition: int
    upstream_offset: int
    offset: int
    metadata: str = ""

    def key(self) -> bytes:
        """Key bytes: group, topic, partition."""
        return pack_string(self.group) + pack_string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        """Value bytes."""
        return struct.pack(">hqq", _VERSION, self.upstream_offset, self.offset) + pack_string(self.metadata)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "Checkpoint":
        """Read one back; the version is read over, as MirrorMaker 2 does."""
        keys, values = Reader(key), Reader(value)
        values.int16()
        return cls(
            group=keys.string(),
            topic=keys.string(),
            partition=keys.int32(),
            upstream_offset=values.int64(),
            offset=values.int64(),
            metadata=values.string(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The flow from `source_alias` to `target_alias` was alive at `timestamp_ms`."""

    source_alias: str
    target_alias: str
    timestamp_ms: int

    def key(self) -> bytes:
        """Key bytes: both aliases."""
        return pack_string(self.source_alias) + pack_string(self.target_alias)

    def value(self) -> bytes:
        """Value bytes."""
        return struct.pack(">hq", _VERSION, self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "Heartbeat":
        """Read one back; the version is read over, as MirrorMaker 2 does."""
        keys, values = Reader(key), Reader(value)
        values.int16()
        return cls(source_alias=keys.string(), target_alias=keys.string(), timestamp_ms=values.int64())
