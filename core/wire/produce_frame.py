"""The common Produce request, read without making a message of it

Nearly every request of librdkafka, and many of others, carry one batch for one partition, no transactional id and no
tags. Such a frame is a prefix that repeats from request to request (client id, acks, timeout, topic, partition), with
the correlation id before it and the batch behind it. `read_produce_frame` says where those parts lie; whoever has seen
the prefix before needs only `records_span`.

Both accept a subset of what the general codec accepts and read the same values from it; for everything else they
return None, and the general codec decides what it is. Positions are relative to the frame, which is the request
without its size prefix.
"""

import struct
from typing import NamedTuple

PREFIX_AT = 8
"""Behind API key, version and correlation id: what a producer repeats begins here."""

VERSION_MIN, VERSION_MAX = 3, 13
FLEXIBLE_FROM = 9
TOPIC_ID_FROM = 13

_CLIENT_ID_LENGTH = struct.Struct(">h")
_OLD_SETTINGS = struct.Struct(">hhiih")  # transactional id, acks, timeout, topics, length of the name
_OLD_PARTITION = struct.Struct(">ii")  # partitions, index
_FLEXIBLE_SETTINGS = struct.Struct(">BBhiB")  # tags of the header, transactional id, acks, timeout, topics + 1
_FLEXIBLE_PARTITION = struct.Struct(">Bi")  # partitions + 1, index
_INT32 = struct.Struct(">i")

_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
_SHORT_NAME_MAX = 127  # one byte says the length + 1


class ProduceFrame(NamedTuple):
    """Where the parts of a request with one batch lie.

    `topic` is the name, or from version 13 on the 16 bytes of the topic id. The bytes `[PREFIX_AT, prefix_end)` say
    everything except version, correlation id and batch.
    """

    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    prefix_end: int
    records_at: int
    records_end: int


def read_produce_frame(frame: bytes | memoryview, version: int) -> ProduceFrame | None:
    """The parts of `frame`, a Produce request of `version`; None for anything but the common form."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    try:
        prefix = _flexible_prefix(frame, version) if version >= FLEXIBLE_FROM else _old_prefix(frame)
        if prefix is not None and version < TOPIC_ID_FROM:
            prefix[2].decode()
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if prefix is None:
        return None
    acks, timeout_ms, topic, partition, prefix_end = prefix
    span = records_span(frame, prefix_end, flexible=version >= FLEXIBLE_FROM)
    if span is None:
        return None
    return ProduceFrame(acks, timeout_ms, topic, partition, prefix_end, *span)


def records_span(frame: bytes | memoryview, prefix_end: int, *, flexible: bool) -> tuple[int, int] | None:
    """First byte of the batch and the byte behind it, if the rest of the frame is one batch and nothing else."""
    end = len(frame)
    if not flexible:
        if end - prefix_end < 4:
            return None
        start = prefix_end + 4
        return (start, end) if _INT32.unpack_from(frame, prefix_end)[0] == end - start else None
    end -= len(_NO_TAGS)
    start = prefix_end
    size = shift = 0
    while start < end:
        byte = frame[start]
        start += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (start, end) if size == end - start + 1 and frame[end:] == _NO_TAGS else None
        shift += 7
        if shift > 28:
            break
    return None


def _old_prefix(frame: bytes | memoryview) -> tuple[int, int, bytes, int, int] | None:
    at = _behind_client_id(frame)
    transactional, acks, timeout_ms, topics, length = _OLD_SETTINGS.unpack_from(frame, at)
    if transactional != -1 or topics != 1 or length < 0:
        return None
    at += _OLD_SETTINGS.size
    name = bytes(frame[at : at + length])
    partitions, partition = _OLD_PARTITION.unpack_from(frame, at + length)
    if partitions != 1:
        return None
    return acks, timeout_ms, name, partition, at + length + _OLD_PARTITION.size


def _flexible_prefix(frame: bytes | memoryview, version: int) -> tuple[int, int, bytes, int, int] | None:
    at = _behind_client_id(frame)
    header_tags, transactional, acks, timeout_ms, topics = _FLEXIBLE_SETTINGS.unpack_from(frame, at)
    if header_tags or transactional or topics != 2:
        return None
    at += _FLEXIBLE_SETTINGS.size
    length = 16
    if version < TOPIC_ID_FROM:
        length = frame[at] - 1
        at += 1
        if not 0 <= length < _SHORT_NAME_MAX:
            return None
    topic = bytes(frame[at : at + length])
    partitions, partition = _FLEXIBLE_PARTITION.unpack_from(frame, at + length)
    if partitions != 2:
        return None
    return acks, timeout_ms, topic, partition, at + length + _FLEXIBLE_PARTITION.size


def _behind_client_id(frame: bytes | memoryview) -> int:
    length: int = _CLIENT_ID_LENGTH.unpack_from(frame, PREFIX_AT)[0]
    at = PREFIX_AT + _CLIENT_ID_LENGTH.size
    if length <= 0:
        return at  # null, whatever negative number says so
    str(frame[at : at + length], "utf-8")  # the general codec refuses what is not
    return at + length
