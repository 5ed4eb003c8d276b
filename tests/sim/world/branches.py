"""Branches of the broker that worlds have to take, counted; a simulation that never rolls a log says nothing of it

Counted are calls of what a branch leads to, and refusals that a client hears. Public methods are wrapped while the
counting goes on; the broker itself counts nothing.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.segment import Segment
from tidemill.broker.quorum.store import MetadataStore

CALLS: dict[str, tuple[type, str]] = {
    "log rolled": (PartitionLog, "roll"),
    "indexes built anew": (Segment, "rebuild_indexes"),
    "segment cut": (Segment, "truncate"),
    "cleaned segments put in place": (PartitionLog, "replace_segments"),
    "metadata rolled": (MetadataStore, "roll"),
    "metadata snapshot": (MetadataStore, "write_snapshot"),
}

HEARD = ("COORDINATOR_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "MESSAGE_TOO_LARGE", "REBALANCE_IN_PROGRESS")
"""Refusals that some world has to hear."""


def count_calls(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Begin to count; what is returned grows."""
    counts: Counter[str] = Counter()
    for name, (owner, method) in CALLS.items():
        patch.setattr(owner, method, _counted(getattr(owner, method), name, counts))
    return counts


def _counted(real: Callable[..., Any], name: str, counts: Counter[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        counts[name] += 1
        return real(*arguments, **named)

    return call


def refusals(trace: list[str]) -> Counter[str]:
    """How often clients heard what."""
    heard = (line.split("why=")[1] for line in trace if " Refused " in line)
    return Counter(heard)
