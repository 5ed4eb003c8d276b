"""Which sets of voters the log has, and where

The last one in the log counts, committed or not: whoever has appended it goes by it. So a log that is cut goes back to
the one before. A set that was configured instead of written stands before all of them, and is used as long as the log
has none; such a quorum does not change its voters.
"""

import uuid

from tidemill.broker.quorum.raft.voters import VoterSet

BOOTSTRAPPED = -1
"""The offset of a set that a folder was formatted with: in a snapshot that ends at 0."""

CONFIGURED = -2


class VoterHistory:
    """Mutable: the sets that may still count, by offset."""

    __slots__ = ("_sets",)

    def __init__(self, configured: VoterSet) -> None:
        self._sets: list[tuple[int, VoterSet]] = [(CONFIGURED, configured)]

    @property
    def latest(self) -> VoterSet:
        """The one that counts."""
        return self._sets[-1][1]

    @property
    def offset(self) -> int:
        """Where it is in the log, CONFIGURED (-2) if it is not there."""
        return self._sets[-1][0]

    @property
    def is_configured(self) -> bool:
        """Whether the log has no voters."""
        return self.offset == CONFIGURED

    def was_voter(self, node_id: int, directory_id: uuid.UUID) -> bool:
        """Whether it is one in a set that a truncation may lead back to."""
        return any(voters.is_voter(node_id, directory_id) for _, voters in self._sets[:-1])

    def add(self, offset: int, voters: VoterSet) -> None:
        """The log has these at `offset`, and nothing of what was there before."""
        self._sets = [each for each in self._sets if each[0] < offset]
        self._sets.append((offset, voters))

    def truncate(self, end_offset: int) -> None:
        """The log ends here now; the last committed set stays, for no log is cut below what is committed."""
        while len(self._sets) > 1 and self._sets[-1][0] >= end_offset:
            self._sets.pop()

    def settle(self, high_watermark: int) -> None:
        """Forget what no truncation leads back to: all that is before the last committed one."""
        while len(self._sets) > 1 and self._sets[1][0] < high_watermark:
            del self._sets[0]
