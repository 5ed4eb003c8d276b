"""Produce requests, read without making a message of them

Produce is asked for more often than anything else, and nearly every request has the same plain form: no transactional
id, no tags, a batch for every partition that it names. `read_produce_frame` says where the batches of such a frame lie,
for any number of topics and partitions; `encode_stored` is the answer when all of them were stored.

librdkafka, and many others, send one batch at a time. Then the frame is a prefix that repeats from request to request
(client id, acks, timeout, topic, partition), with the correlation id before it and the batch behind it; whoever has
seen the prefix before needs only `records_span`.

The readers accept a subset of what the general codec accepts and read the same values from it; for everything else they
return None, and the general codec decides what it is. Positions are relative to the frame, which is the request
without its size prefix.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemill.core.types import new_tuple

from .api import ApiKey, api
from .messages.produce import SINCE
from .primitives import read_uvarint, uvarint, uvarint_tail

PREFIX_AT = 8
"""Behind API key, version and correlation id: what a producer repeats begins here."""

_PRODUCE = api(ApiKey.PRODUCE)
FLEXIBLE_FROM = _PRODUCE.flexible_from
LOG_START_OFFSET_FROM = SINCE["PartitionProduceResponse.log_start_offset"]
ERROR_MESSAGE_FROM = SINCE["PartitionProduceResponse.error_message"]
TOPIC_ID_FROM = SINCE["TopicProduceData.topic_id"]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_OLD_SETTINGS = struct.Struct(">hhii")  # transactional id, acks, timeout, topics
_TWO_INT32 = struct.Struct(">ii")
_FLEXIBLE_SETTINGS = struct.Struct(">BBhi")  # tags of the header, transactional id, acks, timeout
_FLEXIBLE_PARTITION = struct.Struct(">iB")  # index, size of the batch + 1 if one byte says it
_LOW_BYTES = struct.Struct("<I")  # of a varint: read together, which takes less than half of the time of one by one
_INDEX_BYTES = 4

_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request

_CORRELATION_ID_AND_NO_TAGS = struct.Struct(">ix")
_NO_THROTTLE = bytes(4)
# index, no error, base offset, append time ...
_ROW = struct.Struct(">i2xqq").pack
_ROW_WITH_START = struct.Struct(">i2xqqq").pack  # log start offset
_ROW_WITH_MESSAGE = struct.Struct(">i2xqqq4xh").pack  # log start offset, no record errors, no message
_FLEXIBLE_ROW = struct.Struct(">i2xqqqB2x").pack  # the same and no tags

Span = tuple[int, int, int]
"""Of one partition: its index, the first byte of its batch and the byte behind it."""

Stored = tuple[int, int, int, int]
"""Of one partition: its index, base offset, append time in ms (-1 for none) and log start offset."""


class TopicSpans(NamedTuple):
    """The batches for one topic; `topic` is its name, or from version 13 on the 16 bytes of its id."""

    topic: bytes
    spans: list[Span]


class ProduceFrame(NamedTuple):
    """Where the batches of a request lie.

    If there is only one, the bytes `[PREFIX_AT, prefix_end)` say everything except version, correlation id and batch.
    """

    acks: int
    timeout_ms: int
    topics: list[TopicSpans]
    prefix_end: int

    @property
    def has_one_batch(self) -> bool:
        """Whether the request is a prefix and a batch."""
        return len(self.topics) == 1 and len(self.topics[0].spans) == 1


def read_produce_frame(frame: bytes | memoryview, version: int) -> ProduceFrame | None:
    """The parts of `frame`, a Produce request of `version`; None for anything but the plain form."""
    if not _PRODUCE.serves(version):
        return None
    try:
        at = _behind_client_id(frame)
        if version < FLEXIBLE_FROM:
            return _read_old(frame, at)
        return _read_flexible(frame, at, by_id=version >= TOPIC_ID_FROM)
    except (struct.error, IndexError, ValueError):  # the frame ends too early, not UTF-8, a varint that is too long
        return None


def records_span(frame: bytes | memoryview, prefix_end: int, *, flexible: bool) -> tuple[int, int] | None:
    """First byte of the batch and the byte behind it, if the rest of the frame is one batch and nothing else."""
    end = len(frame)
    if not flexible:
        if end - prefix_end < 4:
            return None
        start = prefix_end + 4
        return (start, end) if _INT32.unpack_from(frame, prefix_end)[0] == end - start else None
    if end - prefix_end < _LOW_BYTES.size:
        return None  # not even the tags
    end -= len(_NO_TAGS)
    (low,) = _LOW_BYTES.unpack_from(frame, prefix_end)
    if not low & 0x80:
        size, start = low & 0x7F, prefix_end + 1
    elif not low & 0x8000:
        size, start = low & 0x7F | low >> 1 & 0x3F80, prefix_end + 2
    elif not low & 0x800000:
        size, start = low & 0x7F | low >> 1 & 0x3F80 | low >> 2 & 0x1FC000, prefix_end + 3
    else:
        try:
            size, start = read_uvarint(frame, prefix_end)
        except (IndexError, ValueError):
            return None
    return (start, end) if size == end - start + 1 and not (frame[end] or frame[end + 1] or frame[end + 2]) else None


def _behind_client_id(frame: bytes | memoryview) -> int:
    length: int = _INT16.unpack_from(frame, PREFIX_AT)[0]
    at = PREFIX_AT + _INT16.size
    if length <= 0:
        return at  # null, whatever negative number says so
    str(frame[at : at + length], "utf-8")  # the general codec refuses what is not
    return at + length


def _read_old(frame: bytes | memoryview, at: int) -> ProduceFrame | None:
    """Every count costs bytes that must be there, so a loop ends where the frame does, whatever the count says."""
    transactional, acks, timeout_ms, count = _OLD_SETTINGS.unpack_from(frame, at)
    if transactional != -1 or count < 0:
        return None
    at += _OLD_SETTINGS.size
    prefix_end = at
    topics: list[TopicSpans] = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(frame, at)
        at += _INT16.size
        topic = bytes(frame[at : at + length])
        topic.decode()
        at += length
        (partitions,) = _INT32.unpack_from(frame, at)
        if length < 0 or partitions < 0:
            return None
        at += _INT32.size
        prefix_end = at + _INDEX_BYTES
        spans: list[Span] = []
        for _ in range(partitions):
            index, size = _TWO_INT32.unpack_from(frame, at)
            start = at + _TWO_INT32.size
            at = start + size
            if size < 0:
                return None
            spans.append((index, start, at))
        topics.append(new_tuple(TopicSpans, (topic, spans)))
    return ProduceFrame(acks, timeout_ms, topics, prefix_end) if at == len(frame) else None


def _read_flexible(frame: bytes | memoryview, at: int, *, by_id: bool) -> ProduceFrame | None:
    header_tags, transactional, acks, timeout_ms = _FLEXIBLE_SETTINGS.unpack_from(frame, at)
    count, at = read_uvarint(frame, at + _FLEXIBLE_SETTINGS.size)
    if header_tags or transactional or not count:
        return None
    prefix_end = at
    unpack_partition = _FLEXIBLE_PARTITION.unpack_from
    topics: list[TopicSpans] = []
    for _ in range(count - 1):
        length = 17
        if not by_id:
            length, at = read_uvarint(frame, at)
        topic = bytes(frame[at : at + length - 1])
        if not by_id:
            topic.decode()
        partitions, at = read_uvarint(frame, at + length - 1)
        if not length or not partitions:
            return None
        prefix_end = at + _INDEX_BYTES
        spans: list[Span] = []
        for _ in range(partitions - 1):
            index, size = unpack_partition(frame, at)
            at += 5
            if size > 0x7F:
                size, at = uvarint_tail(frame, at, size)
            start, at = at, at + size
            if not size or frame[at - 1]:  # no batch, or tags behind it
                return None
            spans.append((index, start, at - 1))
        if frame[at]:
            return None
        at += 1
        topics.append(new_tuple(TopicSpans, (topic, spans)))
    if frame[at] or at + 1 != len(frame):
        return None
    return ProduceFrame(acks, timeout_ms, topics, prefix_end)


def encode_stored(version: int, correlation_id: int, topics: Iterable[tuple[bytes, Sequence[Stored]]]) -> bytes:
    """The framed response that says where each batch was stored, as the general codec encodes it."""
    flexible, by_id = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    body: list[bytes] = []
    count = 0
    for topic, stored in topics:
        count += 1
        if flexible:
            if not by_id:
                body.append(uvarint(len(topic) + 1))
            body += (topic, uvarint(len(stored) + 1), *_encode_rows(version, stored), b"\0")
        else:
            body += (_INT16.pack(len(topic)), topic, _INT32.pack(len(stored)), *_encode_rows(version, stored))
    if flexible:
        head = _CORRELATION_ID_AND_NO_TAGS.pack(correlation_id) + uvarint(count + 1)
        response = b"".join((head, *body, _NO_THROTTLE, b"\0"))
    else:
        response = b"".join((_TWO_INT32.pack(correlation_id, count), *body, _NO_THROTTLE))
    return _INT32.pack(len(response)) + response


def _encode_rows(version: int, stored: Sequence[Stored]) -> list[bytes]:
    if version >= FLEXIBLE_FROM:
        return [_FLEXIBLE_ROW(index, base, time_ms, start, 1) for index, base, time_ms, start in stored]
    if version >= ERROR_MESSAGE_FROM:
        return [_ROW_WITH_MESSAGE(index, base, time_ms, start, -1) for index, base, time_ms, start in stored]
    if version >= LOG_START_OFFSET_FROM:
        return [_ROW_WITH_START(index, base, time_ms, start) for index, base, time_ms, start in stored]
    return [_ROW(index, base, time_ms) for index, base, time_ms, _ in stored]
