"""Warnings that many clients may cause, told once and then counted

A client that cannot get in tries again, some of them every tenth of a second, and a log full of the same line hides all
others. The first of its kind is told at once; those that follow are counted, and told as a number when `QUIET_S` have
passed and another one comes.
"""

from collections.abc import Hashable

QUIET_S = 60.0
KINDS_MAX = 1000  # of which something is remembered; whoever connects from everywhere makes no more


class RepeatedWarnings:
    """What was told, and when."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._told: dict[Hashable, tuple[float, int]] = {}  # when, and how many there were since

    def take(self, kind: Hashable, now: float) -> int | None:
        """How many there were untold, if this one is to be told; else None."""
        told = self._told.get(kind)
        if told is not None and now - told[0] < self._quiet_s:
            self._told[kind] = (told[0], told[1] + 1)
            return None
        if told is None and len(self._told) >= KINDS_MAX:
            self._told = {kind: row for kind, row in self._told.items() if now - row[0] < self._quiet_s}
            if len(self._told) >= KINDS_MAX:
                return None
        self._told[kind] = (now, 0)
        return 0 if told is None else told[1]
