"""One election, as whoever wants to win it counts it

Of a pre-vote (KIP-996) and of the real one alike: a majority that grants wins, a majority that refuses loses. Who does
not answer does neither.
"""

from collections.abc import Iterable

from tidemill.broker.quorum.raft.voters import VoterSet


class Campaign:
    """Mutable: who has granted and who has refused."""

    __slots__ = ("granted", "lost", "pre_vote", "refused")

    def __init__(self, *, pre_vote: bool, granted: Iterable[int]) -> None:
        """`granted` is the own vote, of one that is a voter."""
        self.pre_vote = pre_vote
        self.granted = set(granted)
        self.refused: set[int] = set()
        self.lost = False  # known to be, and waiting for another try

    def count(self, node_id: int, granted: bool) -> None:
        """One answer; the first one counts."""
        if not self.has_answered(node_id):
            (self.granted if granted else self.refused).add(node_id)

    def has_answered(self, node_id: int) -> bool:
        """Whether it needs not be asked any more."""
        return node_id in self.granted or node_id in self.refused

    def is_won(self, voters: VoterSet) -> bool:
        """Whether a majority of these has granted."""
        return voters.has_majority(self.granted)

    def is_hopeless(self, voters: VoterSet) -> bool:
        """Whether those who have not refused are no majority."""
        return not voters.has_majority(each for each in voters.ids if each not in self.refused)
