"""What a member of the quorum must not forget about elections

The newest epoch it has heard of, who leads it, and whom it has voted for in it. Kafka keeps the same four facts in its
`quorum-state` file. They are on the disk before anything that rests on them is said to anybody: a member that votes,
forgets and votes again elects two leaders of one epoch.
"""

import uuid
from dataclasses import dataclass

from tidemill.core.types import ZERO_UUID

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """One epoch, as one member knows it; `leader_id` and `voted_id` are NOBODY (-1) where there is none.

    `voted_directory_id` is the metadata directory of the one who got the vote, ZERO_UUID where that was not said. What
    a member knows of an epoch only grows: a vote is never another one, a leader never another one.
    """

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: uuid.UUID = ZERO_UUID

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.leader_id < NOBODY or self.voted_id < NOBODY:
            raise ValueError(f"no such state of an election: {self}")
        if self.voted_id == NOBODY and self.voted_directory_id != ZERO_UUID:
            raise ValueError(f"the directory of nobody: {self}")

    @property
    def has_leader(self) -> bool:
        """Whether it is known who leads this epoch."""
        return self.leader_id != NOBODY

    @property
    def has_voted(self) -> bool:
        """Whether the one vote of this epoch is given away."""
        return self.voted_id != NOBODY

    def has_voted_for(self, node_id: int, directory_id: uuid.UUID) -> bool:
        """Whether the vote of this epoch went there; a directory that either side does not know is any."""
        if self.voted_id != node_id:
            return False
        return self.voted_directory_id in (directory_id, ZERO_UUID) or directory_id == ZERO_UUID

    def may_follow(self, before: "ElectionState") -> bool:
        """Whether this can be what the member knows next: epochs never go back, and nothing of one is changed."""
        if self.epoch != before.epoch:
            return self.epoch > before.epoch
        leader_stays = not before.has_leader or self.leader_id == before.leader_id
        vote = (self.voted_id, self.voted_directory_id)
        return leader_stays and (not before.has_voted or vote == (before.voted_id, before.voted_directory_id))
