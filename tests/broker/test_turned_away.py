"""What came too early is told to the log that opens, and not for ever"""

import pytest

from tests.broker.log.log_world import LogWorld
from tests.broker.replication.replica_world import led
from tests.sim.disk import SimulatedDisk
from tidemill.broker import turned_away
from tidemill.broker.replication.replica import Replica
from tidemill.broker.turned_away import KEPT_MS, TurnedAway
from tidemill.core.errors import KafkaStorageError
from tidemill.core.records.batch import read_header
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.types import TopicPartition


def batch(sequence: int, producer: int = 7, epoch: int = 0) -> bytes:
    return build_batch([NewRecord(0, None, b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def replica() -> Replica:
    return led(LogWorld(SimulatedDisk().root, group_commit=False).open())


def note(early: TurnedAway, opened: Replica, *batches: bytes, now_ms: int = 0) -> None:
    for data in batches:
        early.note(opened.log.topic_partition, data, now_ms)


def knows(opened: Replica, data: bytes) -> bool:
    """Whether its log does not let in what stands behind something else."""
    try:
        opened.log.producers.check(read_header(data))
    except KafkaStorageError:
        return True
    return False


def test_the_log_that_opens_hears_of_the_first_of_each_producer() -> None:
    opened, early = replica(), TurnedAway()
    note(early, opened, batch(5), batch(4), batch(6), batch(0, producer=8), batch(-1, producer=-1, epoch=-1), b"short")
    early.hand_over(opened, 1)
    assert not early.by_partition
    assert knows(opened, batch(5)) and knows(opened, batch(3, producer=8))
    assert not knows(opened, batch(4)) and not knows(opened, batch(0, producer=9))


def test_a_producer_that_has_begun_anew_is_another_story_and_a_straggler_is_none() -> None:
    opened, early = replica(), TurnedAway()
    note(early, opened, batch(4), batch(0, epoch=1), batch(3))
    early.hand_over(opened, 1)
    assert knows(opened, batch(1, epoch=1)) and not knows(opened, batch(0, epoch=1))


def test_what_is_sent_again_is_known_for_longer_and_what_is_not_is_forgotten() -> None:
    opened, early = replica(), TurnedAway()
    early.note(TopicPartition("elsewhere", 3), batch(4), 0)
    note(early, opened, batch(4))
    note(early, opened, batch(4), now_ms=KEPT_MS - 1)
    early.hand_over(opened, KEPT_MS)
    assert not early.by_partition and knows(opened, batch(5))
    note(early, opened, batch(7, producer=8))
    early.hand_over(opened, KEPT_MS)
    assert not early.by_partition and not knows(opened, batch(8, producer=8))


def test_a_log_that_is_closed_is_told_nothing() -> None:
    opened, early = replica(), TurnedAway()
    note(early, opened, batch(4))
    opened.log.closed = True
    early.hand_over(opened, 1)
    assert early.by_partition


def test_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turned_away, "PARTITIONS_MAX", 2)
    monkeypatch.setattr(turned_away, "PRODUCERS_MAX", 2)
    opened, early = replica(), TurnedAway()
    early.note(TopicPartition("elsewhere", 1), batch(1), 0)
    note(early, opened, *(batch(1, producer=producer) for producer in (1, 2, 3)))
    early.note(TopicPartition("elsewhere", 2), batch(1), 0)
    early.hand_over(opened, 0)
    assert [knows(opened, batch(2, producer=producer)) for producer in (1, 2, 3)] == [True, True, False]
    early.hand_over(opened, KEPT_MS)
    assert not early.by_partition
