"""How many requests there were, how long they took and where

Every request is counted when it begins, one that is refused before that by the reason too. Times cost more than that,
so of the APIs that are asked for all the time (Produce, Fetch) only the first thousand requests of a broker and then
about one in sixteen are timed, and count for sixteen; the gaps between them vary, so that no rhythm of clients is
mistaken for their average. All others are timed.

A connection stamps each timed exchange as it goes (`arrived`, `began`, `worked`, `answered`) and hands it over when its
answer has left; that is when its times are added up, plain numbers without a lock. Whoever wants the figures reads them
on the same event loop.

The phases are Kafka's. A request waits in its connection (queue), is worked on until its handler has returned (local),
waits for what the handler wants (remote: the disk, new records, other members, its task's turn), then for the answers
before it (response queue), and is handed to the system (send). What a slow client has not taken by then is not in it.
"""

import struct
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidemill.broker.refusals import CODES, Refusal
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Buffer

if TYPE_CHECKING:
    from tidemill.broker.dispatch import Exchange

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of total times: from a produce without fsync to a rebalance."""

TIMED_FIRST: Final = 1000
"""So many hot requests are timed each; a broker with little to do, or a test, sees all of its own."""

GAP_MEAN: Final = 16
"""Requests from one that is timed to the next, after that: with a thousand requests a second some sixty."""

ARRIVALS_MAX: Final = 64
"""Moments remembered of what lies in one connection; clients have 5 requests on their way, librdkafka perhaps more."""

HOT_KEY_MAX: Final = int(max(ApiKey.PRODUCE, ApiKey.FETCH))
"""API keys up to here are asked for all the time."""

_API_KEY: Final = struct.Struct(">h")
_API_KEYS: Final = frozenset(key.value for key in ApiKey)
_GAPS: Final = (9, 23, 16, 5, 27, 12, 20, 30, 2, 14, 18, 25, 7)  # shuffled by hand; their mean is GAP_MEAN


class Arrivals:
    """When those bytes came that lie in one connection because no request of it may start.

    What comes while others lie there has a moment of its own, up to `ARRIVALS_MAX`; after these the last one stands for
    the rest, too early by a little and not by all of the queue.
    """

    __slots__ = ("_lying_bytes", "lying")

    def __init__(self) -> None:
        self._lying_bytes = 0
        self.lying: deque[tuple[float, int]] = deque()
        """Moments and how many bytes came then, the oldest first; empty while nothing has to wait."""

    def lie(self, lying_bytes: int, now: float) -> None:
        """So many bytes lie there; those that did not before came `now`."""
        came = lying_bytes - self._lying_bytes
        if came <= 0:
            return
        self._lying_bytes = lying_bytes
        if len(self.lying) < ARRIVALS_MAX:
            self.lying.append((now, came))
        else:
            last, count = self.lying[-1]
            self.lying[-1] = (last, count + came)

    def take(self, size_bytes: int, now: float) -> float:
        """When a request of `size_bytes` had come that starts: when its last byte had, `now` if that has not lain."""
        self._lying_bytes = max(self._lying_bytes - size_bytes, 0)
        while self.lying:
            when, count = self.lying.popleft()
            if count > size_bytes:
                self.lying.appendleft((when, count - size_bytes))
                return when
            if count == size_bytes:
                return when
            size_bytes -= count
        return now


class RequestTimes:
    """The timed requests of one API: how many they stand for, and sums."""

    __slots__ = ("buckets", "count", "local_s", "queue_s", "remote_s", "response_queue_s", "send_s", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.queue_s = 0.0
        self.local_s = 0.0
        self.remote_s = 0.0
        self.response_queue_s = 0.0
        self.send_s = 0.0
        self.total_s = 0.0
        self.buckets = [0] * (len(BOUNDS_S) + 1)  # the last one is beyond all bounds


class RequestMeter:
    """The requests of all connections of one broker."""

    __slots__ = ("_each", "_gap", "counts", "errors", "now", "refused", "times", "until_timed")

    def __init__(self, now: Callable[[], float], *, timed_first: int = TIMED_FIRST) -> None:
        self.now = now
        self.counts = [0] * (max(ApiKey) + 1)
        """Of requests that have begun, at the number of their API."""
        self.times: dict[int, RequestTimes] = {}
        """By API key."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """By API key and error code; a response counts once for each partition that has the error, as in Kafka."""
        self.refused: Counter[Refusal] = Counter(dict.fromkeys(Refusal, 0))
        """Requests that ended their connection before they were begun."""
        self.until_timed = 1
        """Counted down by each request; whoever finds nothing left is timed, and asks what that `weigh`s."""
        self._each = timed_first  # so many more are timed each
        self._gap = 0

    def weigh(self, api_key: int) -> int:
        """How many requests of its API one that is timed stands for."""
        if api_key > HOT_KEY_MAX:
            self.until_timed += 1  # the gaps are those between hot ones
            return 1
        if self._each > 0:
            self._each -= 1
            self.until_timed = 1
            return 1
        self._gap = (self._gap + 1) % len(_GAPS)
        self.until_timed = _GAPS[self._gap]
        return GAP_MEAN

    def note_errors(self, exchange: "Exchange") -> None:
        """Count the error codes of an answer."""
        self.note_codes(exchange.header.api_key, exchange.errors)

    def note_codes(self, api_key: int, codes: Iterable[int]) -> None:
        """Count error codes, told or not: an acks=0 produce that fails ends its connection."""
        for code in codes:
            self.errors[api_key, code] += 1

    def note_dropped(self, frame: Buffer, codes: Iterable[int]) -> None:
        """Count a request that has begun and at once ended its connection."""
        (api_key,) = _API_KEY.unpack_from(frame)
        self.counts[api_key] += 1
        self.note_codes(api_key, codes)

    def note_unserved(self, frame: Buffer, why: Refusal) -> None:
        """Count a request that was refused; with those of its API, if it is one that there is.

        Any other number is the sender's choice, of which there are too many to count them one by one.
        """
        self.refused[why] += 1
        if len(frame) >= _API_KEY.size:
            (api_key,) = _API_KEY.unpack_from(frame)
            if api_key in _API_KEYS:
                self.counts[api_key] += 1
                self.note_codes(api_key, [CODES[why]])

    def left(self, exchanges: "Iterable[Exchange]", sending: float) -> None:
        """The answers of `exchanges`, timed ones, have been sent just now; `sending` is when that was begun."""
        sent = self.now()
        for exchange in exchanges:
            times = self.times.setdefault(exchange.header.api_key, RequestTimes())
            weight, total_s = exchange.weight, sent - exchange.arrived
            times.count += weight
            times.queue_s += weight * (exchange.began - exchange.arrived)
            times.local_s += weight * (exchange.worked - exchange.began)
            times.remote_s += weight * (exchange.answered - exchange.worked)
            times.response_queue_s += weight * (sending - exchange.answered)
            times.send_s += weight * (sent - sending)
            times.total_s += weight * total_s
            times.buckets[bisect_left(BOUNDS_S, total_s)] += weight
