"""Patience with a slot that somebody else has

Mostly it is our own former connection, which the server is about to notice; so it is asked often at first. Somebody
else is waited for as long as the settings say.
"""

import re
from typing import Final

import psycopg

from tidemill.connect.api import Fatal, RetryAfter
from tidemill.connect.plugins.postgres.assignment import Assignment
from tidemill.connect.plugins.postgres.connection import one_line

FIRST_DELAY_S: Final = 0.25

_HOLDER: Final = re.compile(r"PID (\d+)")


class SlotWait:
    """How long it has been, and how long it may be."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._deadline_s: float | None = None
        self._delay_s = FIRST_DELAY_S / 2

    def refused(self, error: psycopg.errors.ObjectInUse) -> Exception:
        """Return what to raise: `RetryAfter`, which names the process that has the slot, or in the end Fatal."""
        config = self._assignment.config
        now_s = self._assignment.clock.monotonic()
        if self._deadline_s is None:
            self._deadline_s = now_s + config.slot_max_retries * config.slot_retry_delay_ms / 1000
        text = one_line(error)
        if now_s >= self._deadline_s:
            return Fatal(
                f"The replication slot {config.slot_name} is in use: {text}; stop the other connector or set another "
                "slot.name."
            )
        holder = _HOLDER.search(text)
        who = f"process {holder[1]} of the server" if holder else "another connection"
        self._delay_s = min(self._delay_s * 2, config.slot_retry_delay_ms / 1000)
        return RetryAfter(self._delay_s, f"the replication slot {config.slot_name} is in use by {who}: {text}")
