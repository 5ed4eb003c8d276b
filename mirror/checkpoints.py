"""Consumer-group positions on the other side

A group's committed offset on the source is translated through the exact offset map, so a consumer that moves to the
target reads neither a record twice nor skips one. Every partition of the flow for which a group has committed gets an
answer: an idle one, one at the end of its log, one whose records are older than what the target still holds (clamped to
the log). The only thing not answered is a partition whose target log nobody has looked at yet.

Committing on the target is careful: only for groups that nobody uses there, and never backwards.

Pure: `tidemill.mirror.group_sync` asks and commits.
"""

from collections.abc import Callable, Iterable, Mapping

from tidemill.core.client.admin import EMPTY_STATES, CommittedOffset
from tidemill.core.types import TopicPartition
from tidemill.mirror.formats import Checkpoint

Translate = Callable[[TopicPartition, int], tuple[TopicPartition, int] | None]
"""Source partition and offset to target partition and offset; None when not known (yet) or not mirrored."""


def checkpoints_of(
    group: str, committed: Mapping[TopicPartition, CommittedOffset], translate: Translate
) -> tuple[Checkpoint, ...]:
    """Translate all positions of a group."""
    found = []
    for partition, position in sorted(committed.items()):
        translated = translate(partition, position.offset)
        if translated is not None:
            target, offset = translated
            found.append(
                Checkpoint(
                    group=group,
                    topic=target.topic,
                    partition=target.partition,
                    upstream_offset=position.offset,
                    offset=offset,
                    metadata=position.metadata,
                )
            )
    return tuple(found)


def commits_for(
    checkpoints: Iterable[Checkpoint], target_state: str, present: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """What to commit on the target, where the group is in `target_state` and has committed `present`."""
    if target_state not in EMPTY_STATES:
        return {}
    commits = {}
    for checkpoint in checkpoints:
        partition = TopicPartition(checkpoint.topic, checkpoint.partition)
        held = present.get(partition)
        if held is None or held.offset < checkpoint.offset:
            commits[partition] = CommittedOffset(offset=checkpoint.offset, metadata=checkpoint.metadata)
    return commits


class CheckpointBook:
    """Remembers what was written last, so that only changes are."""

    def __init__(self) -> None:
        self._written: dict[bytes, Checkpoint] = {}

    def changed(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Those that differ from the last written for their group and partition."""
        return [checkpoint for checkpoint in checkpoints if self._written.get(checkpoint.key()) != checkpoint]

    def written(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Take note."""
        for checkpoint in checkpoints:
            self._written[checkpoint.key()] = checkpoint
