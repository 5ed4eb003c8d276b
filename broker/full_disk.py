"""A full disk of one broker among others: it stands back and they lead

What it leads cannot be written to, and what it follows holds up every producer that waits for all in sync, for as long
as nobody frees anything. So it asks to be fenced, which makes others lead and takes it out of the ISRs at once; it goes
on copying, which is refused too, until there is room. When nothing was refused for a while it wants to be back.

It does not stand back where too few would be left in sync: what nobody may write to can at least be read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.quorum.image import BrokerImage
from tidemill.broker.replication.partition import PartitionMachine
from tidemill.broker.replication.replica import Replica

LOOK_INTERVAL_S: Final = 1.0
ROOM_AFTER_S: Final = 5.0
"""So long nothing was refused before there is taken to be room: followers try every second what was."""


class FullDisk:
    """What is known of it; to be looked at every `LOOK_INTERVAL_S`."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._refused = 0
        self._refused_at: float | None = None

    def look(self, logs: Iterable[PartitionLog]) -> bool:
        """Whether an append was refused lately because there was no room."""
        refused = sum(each.appends_refused for each in logs)
        if refused > self._refused:
            self._refused_at = self._monotonic()
        self._refused = refused  # fewer where a topic is gone
        return self._refused_at is not None and self._monotonic() - self._refused_at < ROOM_AFTER_S


def can_be_spared(replicas: Iterable[Replica], brokers: Mapping[int, BrokerImage]) -> bool:
    """Whether every partition that counts on this broker can be written to without it."""
    return all(
        _others(each.machine, brokers) >= min(each.log.config.min_insync_replicas, len(each.machine.replicas))
        for each in replicas
        if each.machine.node_id in each.machine.isr
    )


def _others(machine: PartitionMachine, brokers: Mapping[int, BrokerImage]) -> int:
    """How many others are in sync and active."""
    return sum(node != machine.node_id and node in brokers and brokers[node].active for node in machine.isr)
