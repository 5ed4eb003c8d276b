"""The Fetch response of a broker that tells of records and of errors

The general message knows leaders, snapshots, aborted transactions, other replicas; a row of it costs more to build and
to encode than to find out. A `FetchAnswer` holds plain tuples and writes each by one `pack`. It takes the place of a
`FetchResponse` wherever a message is encoded, and its bytes are the same. Records are passed on as they are, uncopied.
"""

import struct
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

from .fetch_frame import (
    FLEXIBLE_FROM,
    LOG_START_OFFSET_FROM,
    RACK_FROM,
    SESSIONS_FROM,
    TOPIC_ID_FROM,
    VERSION_MAX,
    VERSION_MIN,
)
from .message import Buffer, Message, Writer
from .messages.fetch import EpochEndOffset, PartitionData
from .primitives import uvarint

NO_EPOCH = EpochEndOffset()

_INT16 = struct.Struct(">h").pack
_INT32 = struct.Struct(">i").pack
_SESSION = struct.Struct(">ihii").pack  # throttle time, error code, session id, topics
_FLEXIBLE_SESSION = struct.Struct(">ihi").pack

# Partition, error code, high watermark, last stable offset, (log start offset), aborted transactions, (preferred
# replica), size of the records.
_ROW_4 = struct.Struct(">ihqqii").pack
_ROW_5 = struct.Struct(">ihqqqii").pack
_ROW_11 = struct.Struct(">ihqqqiii").pack
_ROW_12 = struct.Struct(">ihqqqBi").pack
_EMPTY_ROW_12 = struct.Struct(">ihqqqBiBB").pack  # with an empty set of records and no tags
_DIVERGING_TAG = struct.Struct(">BBBiqB").pack  # number of tags, tag, size, epoch, end offset, tags of the struct
_NO_REPLICA = -1
_set = object.__setattr__  # messages are frozen


class PartitionAnswer(NamedTuple):
    """What is told of one partition; `aborts` says whether there is a list of aborted transactions, an empty one."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborts: bool
    records: Buffer
    diverging_epoch: EpochEndOffset

    @property
    def preferred_read_replica(self) -> int:
        """There is none."""
        return _NO_REPLICA


AnyPartitionAnswer: TypeAlias = PartitionData | PartitionAnswer


class TopicAnswer(NamedTuple):
    """What is told of one topic, which is named as the request named it."""

    topic: str
    topic_id: uuid.UUID
    partitions: list[PartitionAnswer]


class FetchAnswer(Message):
    """A response without a top-level error."""

    __slots__ = ("responses", "session_id")
    WRITERS: ClassVar[Mapping[int, Writer]] = {}  # below

    session_id: int
    responses: list[TopicAnswer]

    def __init__(self, session_id: int, responses: list[TopicAnswer]) -> None:
        _set(self, "session_id", session_id)
        _set(self, "responses", responses)


def _write_old(version: int, answer: FetchAnswer, out: bytearray, chunks: list[Any]) -> bytearray:
    topics = answer.responses
    out += (
        _SESSION(0, 0, answer.session_id, len(topics)) if version >= SESSIONS_FROM else bytes(4) + _INT32(len(topics))
    )
    for name, _, rows in topics:
        raw = name.encode()
        out += _INT16(len(raw)) + raw + _INT32(len(rows))
        for partition, error, high_watermark, last_stable, log_start, aborts, records, _ in rows:
            aborted, size = 0 if aborts else -1, len(records)
            if version >= RACK_FROM:
                out += _ROW_11(partition, error, high_watermark, last_stable, log_start, aborted, _NO_REPLICA, size)
            elif version >= LOG_START_OFFSET_FROM:
                out += _ROW_5(partition, error, high_watermark, last_stable, log_start, aborted, size)
            else:
                out += _ROW_4(partition, error, high_watermark, last_stable, aborted, size)
            if size:
                chunks += (out, records)
                out = bytearray()
    return out


def _write_flexible(version: int, answer: FetchAnswer, out: bytearray, chunks: list[Any]) -> bytearray:
    topics = answer.responses
    out += _FLEXIBLE_SESSION(0, 0, answer.session_id) + uvarint(len(topics) + 1)
    for name, topic_id, rows in topics:
        if version >= TOPIC_ID_FROM:
            out += topic_id.bytes
        else:
            raw = name.encode()
            out += uvarint(len(raw) + 1) + raw
        out += uvarint(len(rows) + 1)
        for partition, error, high_watermark, last_stable, log_start, aborts, records, diverging in rows:
            if not records and diverging is NO_EPOCH:
                out += _EMPTY_ROW_12(
                    partition, error, high_watermark, last_stable, log_start, aborts, _NO_REPLICA, 1, 0
                )
                continue
            out += _ROW_12(partition, error, high_watermark, last_stable, log_start, aborts, _NO_REPLICA)
            out += uvarint(len(records) + 1)
            if records:
                chunks += (out, records)
                out = bytearray()
            if diverging is NO_EPOCH or diverging == NO_EPOCH:
                out.append(0)
            else:
                out += _DIVERGING_TAG(1, 0, 13, diverging.epoch, diverging.end_offset, 0)
        out.append(0)
    out.append(0)
    return out


FetchAnswer.WRITERS = {
    version: partial(_write_flexible if version >= FLEXIBLE_FROM else _write_old, version)
    for version in range(VERSION_MIN, VERSION_MAX + 1)
}
