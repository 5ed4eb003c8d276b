"""Topics as offsets see them: a name, and the id behind it

An offset belongs to the topic it was committed for, not to whichever topic has that name later. The id in its record
says which one that was; an offset whose id is not the current topic's is not there for anybody, however long its record
stays in the log.

Records without an id were written by Kafka before 4.3 and by Tidemill before it kept ids. As in Kafka they count for
the topic of that name; here only for the one that was found under that name at the start, and they are written again
with its id at once, so that a later start has nothing to guess.

Not here: what is done about offsets of other topics (`tidemill.broker.groups.commits`).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tidemill.broker.groups.events import CommittedOffset, OffsetToCommit
from tidemill.broker.quorum.image import ClusterImage, TopicImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics there are, and the ones that offsets without an id count for."""

    image: ClusterImage = field(default_factory=ClusterImage)
    at_start: Mapping[str, uuid.UUID] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, image: ClusterImage) -> "Topics":
        """The same with the topics of a newer image."""
        return replace(self, image=image)

    def named(self, item: OffsetToCommit) -> tuple[TopicImage | None, ErrorCode]:
        """The topic that a commit is about, by name or by id, or why there is none."""
        if item.topic is None:
            topic = self.image.topic_by_id(item.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = self.image.topics.get(item.topic)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            return None, missing
        if not 0 <= item.partition < len(topic.partitions):
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic, ErrorCode.NONE

    def id_of(self, name: str, offset: CommittedOffset) -> uuid.UUID:
        """The topic that `offset`, kept under `name`, was committed for; ZERO_UUID when nobody knows."""
        if offset.topic_id != ZERO_UUID:
            return offset.topic_id
        return self.at_start.get(name, ZERO_UUID)

    def has(self, name: str, offset: CommittedOffset) -> bool:
        """Whether the topic that `offset`, kept under `name`, was committed for is there."""
        topic = self.image.topics.get(name)
        return topic is not None and topic.topic_id == self.id_of(name, offset)
