"""Leaders back where they are preferred

Whenever a broker misses more than a share of what prefers it, leaders go back to their preferred replicas, which costs
a moment. Replicas go to other brokers when somebody asks for that, by reassignments (`tidemill.core.client.balance` has
the plan), which costs copies of data.
"""

from collections import Counter
from dataclasses import dataclass

from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.leadership import changed, min_in_sync
from tidemill.broker.quorum.metadata import Result
from tidemill.broker.quorum.records import PartitionChangeRecord
from tidemill.broker.quorum.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferred:
    """Let brokers lead what prefers them, where others lead more of it than `leader_imbalance_percentage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceResult:
    """How many leaders move; `unfinished` if there are more than one decision moves."""

    elected: int
    unfinished: bool = False


def elect_preferred(image: ClusterImage, _request: ElectPreferred, rules: Rules) -> Result:
    """A record for each leader that goes back to where it is preferred."""
    preferring: Counter[int] = Counter()
    away: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred = partition.replicas[0]
            preferring[preferred] += 1
            if partition.leader != preferred:
                away.setdefault(preferred, []).append((topic, partition))
    due = [
        pair
        for node in sorted(away)
        if node in image.brokers and image.brokers[node].active
        if 100 * len(away[node]) > rules.leader_imbalance_percentage * preferring[node]
        for pair in away[node]
        if node in pair[1].isr
    ]
    records: list[PartitionChangeRecord] = []
    for topic, partition in due[: rules.changes_max]:
        enough = min_in_sync(image, topic, rules)
        record = changed(topic, partition, image.brokers, min_in_sync=enough, preferred=True)
        if record is not None:
            records.append(record)
    response = BalanceResult(elected=len(records), unfinished=len(due) > rules.changes_max)
    return Result(records=tuple(records), response=response)
