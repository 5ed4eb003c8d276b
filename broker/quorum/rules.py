"""What the configuration of the cluster allows and takes as default

The rules come from the file of the active controller. A topic may say otherwise, and so may the dynamic default of all
brokers; what holds for a topic is asked here, in that order.

min.insync.replicas is special: where nobody has set it, a new topic with three replicas or more gets 2 as a setting of
its own (`min_in_sync_of_new`). With 1, which is Kafka's default, acks=all promises no more than acks=1 as soon as two
brokers are away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MIN_IN_SYNC_KEY: Final = "min.insync.replicas"
UNCLEAN_KEY: Final = "unclean.leader.election.enable"
COMMON_KEYS: Final = frozenset({MIN_IN_SYNC_KEY, UNCLEAN_KEY})
"""They hold for a topic or for all brokers, and for no single broker: the controller goes by them too."""

_REPLICAS_FOR_TWO: Final = 3
"""From so many replicas on, two in sync can be asked for and one broker may still be away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decisions go by."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    unclean_leader_election_enable: bool = False
    max_topics: int = 100_000
    max_partitions: int = 200_000
    min_insync_replicas: int | None = None
    """What the file says of min.insync.replicas; None if it says nothing."""
    cluster_id: str = ""
    """Brokers of other clusters are refused; empty is not known, and none is."""
    changes_max: int = 2_000
    """Partitions that one decision about brokers changes: some 30 ms that others wait, 0.1 MB of log."""
    leader_imbalance_percentage: int = 10
    """Of the partitions that prefer a broker, so many may be led by others before they are taken back to it."""

    def min_in_sync(self, configs: Mapping[str, str], defaults: Mapping[str, str]) -> int:
        """min.insync.replicas of a topic with these settings, where brokers have these dynamic defaults.

        What counts is this or the number of replicas, whichever is less.
        """
        text = configs.get(MIN_IN_SYNC_KEY, defaults.get(MIN_IN_SYNC_KEY))
        return (self.min_insync_replicas or 1) if text is None else int(text)

    def min_in_sync_of_new(self, configs: Mapping[str, str], defaults: Mapping[str, str], replicas: int) -> str | None:
        """What a new topic with so many replicas gets as a setting of its own; None is nothing."""
        given = MIN_IN_SYNC_KEY in configs or MIN_IN_SYNC_KEY in defaults or self.min_insync_replicas is not None
        return None if given or replicas < _REPLICAS_FOR_TWO else "2"

    def may_lose(self, configs: Mapping[str, str], defaults: Mapping[str, str]) -> bool:
        """Whether a topic takes a leader that misses records rather than none."""
        text = configs.get(UNCLEAN_KEY, defaults.get(UNCLEAN_KEY))
        return self.unclean_leader_election_enable if text is None else text.lower() == "true"
