"""Offset arithmetic of the source: how far to read, and who reads what

A stream's progress is a `StreamOffset`: the next offset of every partition, beside it the id of every topic. As JSON it
looks exactly like that of Spark's Kafka source (`{"topic": {"0": 23}}`), plus one entry `#ids` that cannot be a topic
name, so numbers can be carried over from there. The ids are what tells a topic that was deleted and made anew from one
that merely grew: offsets of the old one mean nothing in the new one.

A partition that appears while the stream runs starts at 0. Offsets that are gone (retention, truncation, a topic made
anew) are data loss: an error that says so, or, with `failOnDataLoss=false`, a jump to what is there.

Pure: the ends of partitions are given.
"""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidemill.spark_sink.core_api import ZERO_UUID, TopicPartition

IDS_KEY = "#ids"


class SourceStopped(RuntimeError):
    """The stream cannot go on until somebody decides something; the message says what."""

    permanent: ClassVar[bool] = True


class DataLoss(SourceStopped):
    """Offsets that were to be read no longer exist."""


class TopicRecreated(DataLoss):
    """A topic was deleted and made anew since the stream last read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """The next offset of every partition, and the topics' ids."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark's checkpoint keeps it."""
        tree = self.to_json_offsets()
        ids = {topic: str(topic_id) for topic, topic_id in sorted(self.topic_ids.items()) if topic_id != ZERO_UUID}
        if ids:
            tree[IDS_KEY] = ids
        return tree

    def to_json_offsets(self) -> dict[str, Any]:
        """Offsets alone, as `startingOffsets` takes them."""
        tree: dict[str, Any] = {}
        for partition, offset in sorted(self.offsets.items()):
            tree.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return tree

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "StreamOffset":
        """Read what `to_json` wrote, or an offset of Spark's Kafka source."""
        return cls(
            offsets={
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partitions in tree.items()
                if topic != IDS_KEY
                for partition, offset in partitions.items()
            },
            topic_ids={topic: uuid.UUID(text) for topic, text in dict(tree.get(IDS_KEY, {})).items()},
        )

    def topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id, zero when unknown."""
        return self.topic_ids.get(topic, ZERO_UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets `start <= offset < end` of one partition: what one task reads."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: uuid.UUID = ZERO_UUID

    @property
    def size(self) -> int:
        """Offsets in the range, an upper bound of its records."""
        return self.end - self.start


def recreated(before: StreamOffset, now: StreamOffset) -> tuple[str, ...]:
    """Topics whose id has changed; an unknown id on either side counts as unchanged."""
    return tuple(
        topic
        for topic, topic_id in sorted(before.topic_ids.items())
        if topic in now.topic_ids
        and ZERO_UUID not in (topic_id, now.topic_ids[topic])
        and now.topic_ids[topic] != topic_id
    )


def checked(start: StreamOffset, ends: StreamOffset, fail_on_data_loss: bool) -> StreamOffset:
    """`ends` as far as a stream at `start` may follow it; raises DataLoss where it may not.

    With `fail_on_data_loss` false, a partition that went backwards stands still until it has grown past `start` again,
    one that vanished is forgotten, and a topic made anew begins at its first offset.
    """
    anew = recreated(start, ends)
    if anew and fail_on_data_loss:
        raise TopicRecreated(
            f"topic {anew[0]} was deleted and created again since this query last read it (its id is now "
            f"{ends.topic_ids[anew[0]]}); start the query with a new checkpoint to read the new topic, or set "
            "failOnDataLoss=false to go on with its first record"
        )
    gone = sorted(partition for partition in start.offsets if partition not in ends.offsets)
    if gone and fail_on_data_loss:
        raise DataLoss(
            f"partition {gone[0]} no longer exists, its last position was {start.offsets[gone[0]]}; "
            "set failOnDataLoss=false to go on without it"
        )
    offsets = dict(ends.offsets)
    for partition, begin in start.offsets.items():
        if partition in gone or partition.topic in anew or offsets[partition] >= begin:
            continue
        if fail_on_data_loss:
            raise DataLoss(
                f"partition {partition} ends at offset {offsets[partition]}, before this query's position {begin}: "
                "records were lost; set failOnDataLoss=false to wait there for new ones"
            )
        offsets[partition] = begin
    return StreamOffset(offsets=offsets, topic_ids=ends.topic_ids)


def starts(start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
    """Where each partition of `end` begins: a partition or topic that `start` does not know begins at 0."""
    anew = set(recreated(start, end))
    return {partition: 0 if partition.topic in anew else start.offsets.get(partition, 0) for partition in end.offsets}


def limited(start: StreamOffset, end: StreamOffset, max_rows: int) -> StreamOffset:
    """Take at most about `max_rows`, each partition in proportion to its backlog and never starved."""
    begins = starts(start, end)
    backlog = {partition: max(offset - begins[partition], 0) for partition, offset in end.offsets.items()}
    total = sum(backlog.values())
    if total <= max_rows:
        return end
    offsets = {}
    for partition, size in backlog.items():
        share = max_rows * size / total
        step = 1 if 0 < share < 1 else int(share)
        offsets[partition] = min(begins[partition] + step, begins[partition] + size)
    return StreamOffset(offsets=offsets, topic_ids=end.topic_ids)


def backlog_rows(start: StreamOffset, end: StreamOffset) -> int:
    """Offsets between the two."""
    begins = starts(start, end)
    return sum(max(offset - begins[partition], 0) for partition, offset in end.offsets.items())


def ranges(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """The non-empty ranges between two positions, in order of partition."""
    begins = starts(start, end)
    return [
        OffsetRange(partition=partition, start=begins[partition], end=offset, topic_id=end.topic_id(partition.topic))
        for partition, offset in sorted(end.offsets.items())
        if offset > begins[partition]
    ]


def split(
    whole: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut ranges so that there are at least about `min_partitions`, none with more than `max_records` offsets."""
    if max_records is not None:
        whole = [piece for one in whole for piece in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return list(whole)
    total = sum(one.size for one in whole)
    return [piece for one in whole for piece in _cut(one, max(1, round(one.size / total * min_partitions)))]


def _cut(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut into `parts` ranges of nearly equal size."""
    parts = max(1, min(parts, one.size))
    edges = [one.start + one.size * index // parts for index in range(parts + 1)]
    return [
        OffsetRange(partition=one.partition, start=low, end=high, topic_id=one.topic_id)
        for low, high in itertools.pairwise(edges)
    ]
