"""What becomes of partitions, counted

Every change of a partition is a difference between two images, whoever asked for it: so nothing has to be told where
leaders are elected and ISRs change, and every node counts the same elections. What happened between two images that
were seen counts once, and what happened before this process began, not at all. A node that was away for a while hears
of much at once: who leads by then may have joined the ISR meanwhile, so an election that loses records is told by what
the controller wrote of it, not by the ISR before.
"""

from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.quorum.leadership import RECOVERING


class ChangeCounts:
    """Mutable: counts by `hear` only. Elections are those of the whole cluster, ISRs those of what is led here."""

    __slots__ = ("_node_id", "elections", "from_eligible", "isr_expands", "isr_shrinks", "unclean")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.elections = 0
        self.from_eligible = 0  # of them, those of a leader that was out of the ISR and had all that was committed
        self.unclean = 0  # of them, those of a leader that may have missed something
        self.isr_shrinks = 0
        self.isr_expands = 0

    def hear(self, delta: ImageDelta) -> None:
        """Take in what became different."""
        before, after = delta.before.topics, delta.after.topics
        for name in delta.topics:
            old, new = before.get(name), after.get(name)
            if old is None or new is None or old.topic_id != new.topic_id:
                continue
            for was, now in zip(old.partitions, new.partitions, strict=False):
                if was is not now:
                    self._compare(was, now)

    def _compare(self, was: PartitionImage, now: PartitionImage) -> None:
        if now.leader >= 0 and now.leader != was.leader:
            self.elections += 1
            if now.leader in was.eligible_leader_replicas:
                self.from_eligible += 1
            elif now.leader not in was.isr and now.leader_recovery_state == RECOVERING:
                self.unclean += 1
        if now.leader == self._node_id and now.isr != was.isr:
            self.isr_shrinks += not set(was.isr) <= set(now.isr)
            self.isr_expands += not set(now.isr) <= set(was.isr)
