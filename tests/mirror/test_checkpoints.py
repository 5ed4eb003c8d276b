"""Positions on the other side, and when they are committed there."""

from tidemill.core.client.admin import CommittedOffset
from tidemill.core.types import TopicPartition
from tidemill.mirror.checkpoints import CheckpointBook, checkpoints_of, commits_for
from tidemill.mirror.formats import Checkpoint


def at(offset: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(offset=offset, metadata=metadata)


def translate(partition: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
    if partition.topic == "other":
        return None
    return TopicPartition(f"A.{partition.topic}", partition.partition), offset // 2


def checkpoint(offset: int, partition: int = 0) -> Checkpoint:
    return Checkpoint(group="g", topic="A.t", partition=partition, upstream_offset=2 * offset, offset=offset)


def test_every_position_gets_an_answer() -> None:
    committed = {
        TopicPartition("t", 1): at(10, "note"),
        TopicPartition("t", 0): at(0),
        TopicPartition("other", 0): at(5),
    }
    assert checkpoints_of("g", committed, translate) == (
        Checkpoint(group="g", topic="A.t", partition=0, upstream_offset=0, offset=0),
        Checkpoint(group="g", topic="A.t", partition=1, upstream_offset=10, offset=5, metadata="note"),
    )


def test_commits_go_forward_only() -> None:
    found = [checkpoint(5, 0), checkpoint(7, 1), checkpoint(3, 2), checkpoint(0, 3)]
    present = {TopicPartition("A.t", 0): at(5), TopicPartition("A.t", 1): at(6), TopicPartition("A.t", 2): at(9)}
    assert commits_for(found, "Empty", present) == {TopicPartition("A.t", 1): at(7), TopicPartition("A.t", 3): at(0)}
    assert len(commits_for(found, "Dead", {})) == 4


def test_a_group_in_use_is_left_alone() -> None:
    for state in ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", ""):
        assert commits_for([checkpoint(5)], state, {}) == {}


def test_only_changes_are_written() -> None:
    book = CheckpointBook()
    first = [checkpoint(5, 0), checkpoint(5, 1)]
    assert book.changed(first) == first
    book.written(first)
    assert book.changed([checkpoint(5, 0), checkpoint(6, 1)]) == [checkpoint(6, 1)]
