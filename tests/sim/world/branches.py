"""Branches of the broker that worlds have to take, counted; a simulation that never rolls a log says nothing of it

Counted are calls of what a branch leads to, and refusals that a client hears. Public methods are wrapped while the
counting goes on; the broker itself counts nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from tidemill.broker.input_buffer import InputBuffer
from tidemill.broker.log.flusher import Cheaper
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.elected import Elected
from tidemill.broker.quorum.incoming import IncomingSnapshot
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.server_limits import RequestMemory


class Called(NamedTuple):
    """A method, and with which result its call counts; with any if that is None."""

    owner: type
    method: str
    result: object = None


CALLS: dict[str, Called] = {
    "log rolled": Called(PartitionLog, "roll"),
    "indexes built anew": Called(Segment, "rebuild_indexes"),
    "segment cut": Called(Segment, "truncate"),
    "cleaned segments put in place": Called(PartitionLog, "replace_segments"),
    "metadata rolled": Called(MetadataStore, "roll"),
    "metadata snapshot": Called(MetadataStore, "write_snapshot"),
    "a muted connection heard again": Called(InputBuffer, "excuse"),
    "the whole file system synced": Called(Cheaper, "whole", True),
    "large request begun": Called(InputBuffer, "begin_large"),
    "large request waits for memory": Called(RequestMemory, "take", False),
}

SELDOM: dict[str, Called] = {
    "a client gone that waited for memory": Called(RequestMemory, "stop_waiting"),
    "log cut for another leader": Called(LogStore, "truncate"),
    "log begun anew": Called(LogStore, "begin_anew"),
    "metadata cut for another leader": Called(MetadataStore, "truncate"),
    "chunk of a metadata snapshot": Called(IncomingSnapshot, "add"),
    "metadata snapshot installed": Called(MetadataStore, "install"),
    "controller hands over": Called(Elected, "resign"),
}
"""Counted like the others, and a hundred worlds may pass without; most of it happens in clusters only."""

HEARD = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
    "DUPLICATE_SEQUENCE_NUMBER",
    "MESSAGE_TOO_LARGE",
    "REBALANCE_IN_PROGRESS",
)
"""Refusals that some world has to hear."""


def count_calls(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Begin to count; what is returned grows."""
    counts: Counter[str] = Counter()
    for name, (owner, method, wanted) in {**CALLS, **SELDOM}.items():
        patch.setattr(owner, method, _counted(getattr(owner, method), name, wanted, counts))
    return counts


def _counted(real: Callable[..., Any], name: str, wanted: object, counts: Counter[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        counts[name] += wanted is None or result is wanted
        return result

    return call


def refusals(trace: Iterable[str]) -> Counter[str]:
    """How often clients heard what."""
    heard = (line.split("why=")[1] for line in trace if " Refused " in line)
    return Counter(heard)
