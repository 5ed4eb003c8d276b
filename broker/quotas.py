"""Quotas: how long a client that has had more than its share is not heard

The broker tells a quota manager what a client has used and is told how many milliseconds it has to wait. The client
reads that in its answer (`throttle_time_ms`), which is not held back, and its connection is not read from until then
(KIP-219): so whoever takes no notice waits too.

Used are bytes that are produced (whole requests) and fetched (whole answers, but not those of followers), seconds of
the broker's time, and partitions that are made or deleted. A request that uses several waits for the longest. What the
active controller's broker has told a client that came by another one, that one keeps, whatever its own quotas are.

Not here: muting a connection (`connection`), and quotas that are set: there is no such setting yet.
"""

import enum
from typing import Final, Protocol

from tidemill.broker.authorization import Requester


class Quota(enum.Enum):
    """What a client can use too much of."""

    PRODUCED_BYTES = "producer_byte_rate"
    FETCHED_BYTES = "consumer_byte_rate"
    REQUEST_SECONDS = "request_percentage"
    MUTATIONS = "controller_mutation_rate"

    __hash__ = object.__hash__  # each is there once; Enum's own is Python


class QuotaManager(Protocol):
    """Who has used how much, and how much that may be."""

    def charge(self, quota: Quota, amount: float, who: Requester, client_id: str | None) -> int:
        """Note that `who` has used `amount`; for how many milliseconds it has to wait, 0 for not at all."""


class Unlimited:
    """Nobody ever waits."""

    def charge(self, _quota: Quota, _amount: float, _who: Requester, _client_id: str | None) -> int:
        """Not at all."""
        return 0


UNLIMITED: Final = Unlimited()
"""The only one of its kind: where requests are many, a comparison with it is all that quotas cost."""
