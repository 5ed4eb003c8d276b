"""Throttling of replicas that are being moved

Whoever moves partitions to other brokers names the replicas that may be copied at a limited rate only, so that the
clients keep their share of disk and network (`leader.` and `follower.replication.throttled.replicas` of a topic, the
rates are a broker's). What is in sync is never held up: consumers and producers wait for it.

A rate is kept by waiting: each piece puts the moment off at which the next one may follow. So pieces are as large as
without, and what was not used is not saved up. Another rate holds for what is owed already, too: whoever has set one
too low can mend that. Pure; time is an argument.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

UNLIMITED_BYTES = 2**63 - 1
"""Kafka's default of both rates."""

EVERYBODY = "*"


class Throttle(Protocol):
    """How fast replicas may be copied that are being moved."""

    @property
    def owes(self) -> bool:
        """Whether anything at all may have to wait."""

    def pause_ms(self, topic: str, number: int, now_ms: int) -> int:
        """For how long nothing of partition `number` of a topic may be copied; 0 for what is not throttled."""

    def note(self, topic: str, number: int, size_bytes: int, now_ms: int) -> None:
        """So much of it was copied."""


class Unthrottled:
    """Everything is copied as fast as it can be."""

    @property
    def owes(self) -> bool:
        """Never."""
        return False

    def pause_ms(self, _topic: str, _number: int, _now_ms: int) -> int:
        """Never."""
        return 0

    def note(self, _topic: str, _number: int, _size_bytes: int, _now_ms: int) -> None:
        """It makes no difference."""


UNTHROTTLED = Unthrottled()


class RateThrottle:
    """All throttled replicas of one broker together, at a rate that may change."""

    def __init__(self, bytes_per_s: Callable[[], int], is_throttled: Callable[[str, int], bool]) -> None:
        self._bytes_per_s = bytes_per_s
        self._is_throttled = is_throttled
        self._owed_bytes = 0.0  # of what was copied, as far as it has not taken its time yet
        self._seen_ms = 0

    @property
    def owes(self) -> bool:
        """Whether what was copied has not taken its time yet, as far as is known."""
        return self._owed_bytes > 0

    def pause_ms(self, topic: str, number: int, now_ms: int) -> int:
        """Until what was copied so far has taken its time, at the rate of now."""
        if self._owed_bytes <= 0 or not self._is_throttled(topic, number):
            return 0
        rate = self._pay(now_ms)
        return int(self._owed_bytes * 1000 / rate) + 1 if self._owed_bytes > 0 else 0

    def note(self, topic: str, number: int, size_bytes: int, now_ms: int) -> None:
        """Put off the next piece."""
        rate = self._pay(now_ms)
        if rate < UNLIMITED_BYTES and self._is_throttled(topic, number):
            self._owed_bytes += size_bytes

    def _pay(self, now_ms: int) -> int:
        """Take off what has had its time by now; the rate."""
        rate = max(self._bytes_per_s(), 1)
        self._owed_bytes = max(0.0, self._owed_bytes - (now_ms - self._seen_ms) * rate / 1000)
        self._seen_ms = now_ms
        return rate


def names_replica(listed: Sequence[str], partition: int, broker: int) -> bool:
    """Whether a topic's list of throttled replicas (`partition:broker`, or one `*` for all) has that one.

    >>> names_replica(["0:1", "1:2"], 1, 2), names_replica(["*"], 7, 3), names_replica([], 0, 1)
    (True, True, False)
    """
    return EVERYBODY in listed or f"{partition}:{broker}" in listed
