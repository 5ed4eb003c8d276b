"""The Fetch request of a consumer, read in one pass

A consumer asks for its partitions again and again, and its requests hold nothing but rows of numbers between names:
no tagged fields, no replica. `read_fetch_frame` reads such a frame, all rows of a topic by one `iter_unpack`, into
plain tuples that have the field names of the general messages, as far as a broker without followers needs them.

It accepts a subset of what the general codec accepts and reads the same values from it; for everything else it returns
None, and the general codec decides what it is. Positions are relative to the frame, which is the request without its
size prefix.
"""

import struct
import uuid
from typing import Any, NamedTuple, TypeAlias

from tidemill.core.types import ZERO_UUID

from .messages.fetch import FetchPartition, FetchRequest
from .primitives import DecodeError, array_reader, read_uvarint, uuid_from_bytes, uvarint_tail

VERSION_MIN, VERSION_MAX = 4, 18
LOG_START_OFFSET_FROM = 5
SESSIONS_FROM = 7
LEADER_EPOCH_FROM = 9
RACK_FROM = 11
FLEXIBLE_FROM = 12
TOPIC_ID_FROM = 13
NO_REPLICA_ID_FROM = 15

_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 4
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_CLIENT_ID_AT = 8

# (Tags of the header), replica id, longest wait, min bytes, max bytes, isolation level, session id, session epoch,
# topics (+ 1).
_LIMITS_4 = struct.Struct(">iiiibi")
_LIMITS_7 = struct.Struct(">iiiibiii")
_LIMITS_12 = struct.Struct(">BiiiibiiB")
_LIMITS = struct.Struct(">BiiibiiB")

# Partition, leader epoch, offset, last fetched epoch, (log start offset), max bytes, (number of tags).
_ROW_4 = struct.Struct(">iqi")
_ROW_5 = struct.Struct(">iq8xi")
_ROW_9 = struct.Struct(">iiq8xi")
_ROW_12 = struct.Struct(">iiqi8xix")
_ROW_AND_TAGS = struct.Struct(">iiqi8xiBB")  # the only one of its topic

# Nothing forgotten, no rack, no tags.
_NOTHING_ELSE = b"\1\1\0"
_NOTHING_ELSE_OLD = {
    version: bytes(0 if version < SESSIONS_FROM else 4 if version < RACK_FROM else 6)
    for version in range(VERSION_MIN, FLEXIBLE_FROM)
}
_NO_SESSION = (0, -1)  # id and epoch


class PartitionFetch(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    partition_max_bytes: int


class TopicFetch(NamedTuple):
    """What is wanted of one topic; from version 13 on it has an id and no name."""

    topic: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionFetch, ...]


class ForgottenPartitions(NamedTuple):
    """Partitions of one topic that a session shall forget."""

    topic: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class FetchFrame(NamedTuple):
    """A whole request with what its header says."""

    correlation_id: int
    client_id: str | None
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: tuple[TopicFetch, ...]
    forgotten_topics_data: tuple[ForgottenPartitions, ...]


AnyFetch: TypeAlias = FetchRequest | FetchFrame
AnyPartitionFetch: TypeAlias = FetchPartition | PartitionFetch

_new = tuple.__new__  # twice as fast as the NamedTuples' own constructors


def read_fetch_frame(frame: bytes | memoryview, version: int) -> FetchFrame | None:
    """What `frame`, a Fetch request of `version`, asks for; None for anything but the common form."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, _CORRELATION_ID_AT)
        (length,) = _INT16.unpack_from(frame, _CLIENT_ID_AT)
        at = _CLIENT_ID_AT + _INT16.size
        client_id = None
        if length >= 0:
            client_id = str(frame[at : at + length], "utf-8")
            at += length
        body = _flexible_body(frame, at, version) if version >= FLEXIBLE_FROM else _old_body(frame, at, version)
    except (struct.error, IndexError, ValueError):  # the last is a DecodeError or text that is not UTF-8, too
        return None
    if body is None:
        return None
    limits, topics, forgotten = body
    return _new(FetchFrame, (correlation_id, client_id, *limits, tuple(topics), tuple(forgotten)))


_Body: TypeAlias = tuple[Any, list[TopicFetch], list[ForgottenPartitions]]


def _old_body(frame: bytes | memoryview, at: int, version: int) -> _Body | None:
    limits: Any
    if version >= SESSIONS_FROM:
        *limits, count = _LIMITS_7.unpack_from(frame, at)
        at += _LIMITS_7.size
    else:
        *limits, count = _LIMITS_4.unpack_from(frame, at)
        limits += _NO_SESSION
        at += _LIMITS_4.size
    row = _ROW_9 if version >= LEADER_EPOCH_FROM else _ROW_5 if version >= LOG_START_OFFSET_FROM else _ROW_4
    topics: list[TopicFetch] = []
    for _ in range(_old_count(count)):
        (length,) = _INT16.unpack_from(frame, at)
        name, at = _string(frame, at + _INT16.size, length)
        (rows,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        end = at + _old_count(rows) * row.size
        partitions = _old_rows(row, frame[at:end])
        if len(partitions) != rows:
            return None
        topics.append(_new(TopicFetch, (name, ZERO_UUID, partitions)))
        at = end
    if frame[at:] == _NOTHING_ELSE_OLD[version]:
        return limits, topics, []
    forgotten = _old_rest(frame, at, version)
    return None if forgotten is None else (limits, topics, forgotten)


def _old_rest(frame: bytes | memoryview, at: int, version: int) -> list[ForgottenPartitions] | None:
    """Forgotten partitions and rack."""
    forgotten: list[ForgottenPartitions] = []
    if version >= SESSIONS_FROM:
        (count,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        for _ in range(_old_count(count)):
            (length,) = _INT16.unpack_from(frame, at)
            name, at = _string(frame, at + _INT16.size, length)
            (rows,) = _INT32.unpack_from(frame, at)
            at += _INT32.size
            forgotten.append(ForgottenPartitions(name, ZERO_UUID, _numbers(frame, at, _old_count(rows))))
            at += rows * _INT32.size
    if version >= RACK_FROM:
        (length,) = _INT16.unpack_from(frame, at)
        _, at = _string(frame, at + _INT16.size, length)
    return forgotten if at == len(frame) else None


def _old_rows(row: struct.Struct, rows: bytes | memoryview) -> tuple[PartitionFetch, ...]:
    if len(rows) == row.size:
        partition, *epoch, offset, max_bytes = row.unpack(rows)
        return (_new(PartitionFetch, (partition, epoch[0] if epoch else -1, offset, -1, max_bytes)),)
    if row is _ROW_9:
        return tuple(
            [
                _new(PartitionFetch, (partition, epoch, offset, -1, max_bytes))
                for partition, epoch, offset, max_bytes in row.iter_unpack(rows)
            ]
        )
    return tuple(
        [
            _new(PartitionFetch, (partition, -1, offset, -1, max_bytes))
            for partition, offset, max_bytes in row.iter_unpack(rows)
        ]
    )


def _old_count(count: int) -> int:
    if count < 0:
        raise DecodeError("null where there must be an array")
    return count


def _flexible_body(frame: bytes | memoryview, at: int, version: int) -> _Body | None:
    head: tuple[int, ...]
    if version >= NO_REPLICA_ID_FROM:
        head = _LIMITS.unpack_from(frame, at)
        limits: Any = (-1, *head[1:-1])
        at += _LIMITS.size
    else:
        head = _LIMITS_12.unpack_from(frame, at)
        limits = head[1:-1]
        at += _LIMITS_12.size
    tags, n = head[0], head[-1]
    if n > 127:
        n, at = uvarint_tail(frame, at, n)
    topics: list[TopicFetch] = []
    for _ in range(_count(n)):
        name, topic_id, at = _named(frame, at, version)
        n = frame[at]
        at += 1
        if n == 2:
            *row, row_tags, topic_tags = _ROW_AND_TAGS.unpack_from(frame, at)
            topics.append(_new(TopicFetch, (name, topic_id, (_new(PartitionFetch, row),))))
            tags |= row_tags | topic_tags
            at += _ROW_AND_TAGS.size
            continue
        if n > 127:
            n, at = uvarint_tail(frame, at, n)
        end = at + _count(n) * _ROW_12.size
        partitions = tuple([_new(PartitionFetch, row) for row in _ROW_12.iter_unpack(frame[at:end])])
        tags |= any(frame[at + _ROW_12.size - 1 : end : _ROW_12.size])
        tags |= frame[end]  # which also says that all rows were there
        topics.append(_new(TopicFetch, (name, topic_id, partitions)))
        at = end + 1
    if tags:
        return None
    if frame[at:] == _NOTHING_ELSE:
        return limits, topics, []
    forgotten = _flexible_rest(frame, at, version)
    return None if forgotten is None else (limits, topics, forgotten)


def _flexible_rest(frame: bytes | memoryview, at: int, version: int) -> list[ForgottenPartitions] | None:
    """Forgotten partitions and rack."""
    forgotten: list[ForgottenPartitions] = []
    tags = 0
    n, at = read_uvarint(frame, at)
    for _ in range(_count(n)):
        name, topic_id, at = _named(frame, at, version)
        n, at = read_uvarint(frame, at)
        forgotten.append(ForgottenPartitions(name, topic_id, _numbers(frame, at, _count(n))))
        at += (n - 1) * _INT32.size
        tags |= frame[at]
        at += 1
    n, at = read_uvarint(frame, at)
    _, at = _string(frame, at, n - 1)
    return forgotten if not tags and frame[at:] == b"\0" else None


def _count(n: int) -> int:
    """What the number before a compact array says; not null."""
    if n == 0:
        raise DecodeError("null where there must be an array")
    return n - 1


def _named(frame: bytes | memoryview, at: int, version: int) -> tuple[str, uuid.UUID, int]:
    if version >= TOPIC_ID_FROM:
        end = at + 16
        return "", uuid_from_bytes(bytes(frame[at:end])), end
    n = frame[at]
    at += 1
    if n > 127:
        n, at = uvarint_tail(frame, at, n)
    name, at = _string(frame, at, n - 1)
    return name, ZERO_UUID, at


def _string(frame: bytes | memoryview, at: int, length: int) -> tuple[str, int]:
    """A string and what is behind it; whether all of it was there is found out by whoever reads on."""
    if length < 0:
        raise DecodeError("null where there must be a string")
    end = at + length
    return str(frame[at:end], "utf-8"), end


def _numbers(frame: bytes | memoryview, at: int, count: int) -> tuple[int, ...]:
    if count > len(frame):  # before a reader is made for a mere promise
        raise DecodeError(f"{count} numbers in a frame of {len(frame)} bytes")
    numbers: tuple[int, ...] = array_reader("i", count)(frame, at)
    return numbers
