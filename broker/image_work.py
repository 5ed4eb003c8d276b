"""What another image of the metadata asks of a node's logs

Pure. An image says which topics there are, where their partitions live and what their settings are; a node has logs.
What changed is gone over topic by topic, which may be thousands: so what there is to do is told one by one, and judged
anew by the image of then, for a topic may be gone, or another of its name, when its turn comes.

Not here: doing it (`following`).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage

HasLog = Callable[[str, int], bool]
"""Whether a partition has a log on this node."""


class TopicWork(NamedTuple):
    """A topic that may need logs, and whether those that it has are to `obey` other settings."""

    topic: TopicImage
    obey: bool


def work_of(delta: ImageDelta) -> Iterator[TopicWork]:
    """The topics that may not be on this node what they are in the new image: all, where a setting is about all."""
    before, after = delta.before.topics, delta.after.topics
    for name in after if delta.broker_configs else delta.topics:
        topic = after.get(name)
        if topic is not None:
            old = before.get(name)
            yield TopicWork(topic, old is not None and (bool(delta.broker_configs) or old.configs != topic.configs))


def as_of(image: ClusterImage, topic: TopicImage) -> TopicImage | None:
    """That topic as `image` has it; None if it is gone, or another has its name."""
    found = image.topics.get(topic.name)
    return found if found is not None and found.topic_id == topic.topic_id else None


def lacks_log(topic: str, partition: PartitionImage, node_id: int, has_log: HasLog) -> bool:
    """Whether a partition lives on a node and has no log there."""
    return node_id in partition.replicas and not has_log(topic, partition.partition)
