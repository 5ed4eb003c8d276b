"""What a consumer subscribes to, read from the bytes it joined with

The coordinator of a classic group hands subscriptions on without reading them, with one exception: whether a topic is
still being read, which an administrator who deletes offsets must be told (KIP-496). All versions of the consumer
protocol begin alike: a version (two bytes), then the topics (a count of four bytes, each name with a length of two).
What follows is not for us.
"""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type whose members send subscriptions."""

_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Every topic in `subscriptions`; None if one of them cannot be read.

    >>> sorted(subscribed_topics([b"\\0\\1" b"\\0\\0\\0\\2" b"\\0\\1a" b"\\0\\2bc" b"..."]))
    ['a', 'bc']
    >>> subscribed_topics([b"?"]) is None
    True
    """
    found: set[str] = set()
    for subscription in subscriptions:
        try:
            found.update(_topics(subscription))
        except (struct.error, ValueError):
            return None
    return frozenset(found)


def _topics(subscription: bytes) -> list[str]:
    _version, count = _COUNT.unpack_from(subscription)
    position = _COUNT.size
    if not 0 <= count <= len(subscription):
        raise ValueError(f"a subscription of {len(subscription)} bytes cannot name {count} topics")
    topics: list[str] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        name = subscription[position : position + length]
        if length < 0 or len(name) != length:
            raise ValueError("the subscription ends within a name")
        topics.append(name.decode())
        position += length
    return topics
