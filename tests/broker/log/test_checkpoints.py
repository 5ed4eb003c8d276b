"""Checkpoint files: Kafka's text formats, and what happens to bad ones"""

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    RECOVERY_POINTS,
    read_epochs,
    read_offsets,
    take_clean_shutdown,
    write_clean_shutdown,
    write_epochs,
    write_offsets,
)
from tidemill.core.types import TopicPartition


def test_offsets_are_written_as_kafka_writes_them() -> None:
    directory = SimulatedDisk().root
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a.x_y-z", 0): 2**40}
    write_offsets(directory, RECOVERY_POINTS, offsets)
    assert directory.read(RECOVERY_POINTS) == b"0\n2\nb 1 7\na.x_y-z 0 1099511627776\n"
    assert read_offsets(directory, RECOVERY_POINTS) == offsets


def test_epochs_are_written_as_kafka_writes_them() -> None:
    directory = SimulatedDisk().root
    write_epochs(directory, [(0, 0), (3, 17)])
    assert directory.read(LEADER_EPOCHS) == b"0\n2\n0 0\n3 17\n"
    assert read_epochs(directory) == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    "content", [b"", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\nmany\n", b"\xff\xfe", b"0"]
)
def test_a_file_that_cannot_be_read_counts_as_missing(content: bytes) -> None:
    directory = SimulatedDisk().root
    directory.replace(RECOVERY_POINTS, content)
    directory.replace(LEADER_EPOCHS, content)
    assert read_offsets(directory, RECOVERY_POINTS) == {}
    assert read_epochs(directory) == []


def test_missing_files_mean_nothing_is_known() -> None:
    directory = SimulatedDisk().root
    assert read_offsets(directory, RECOVERY_POINTS) == {}
    assert read_epochs(directory) == []


def test_the_mark_of_a_clean_shutdown_is_used_up() -> None:
    directory = SimulatedDisk().root
    assert not take_clean_shutdown(directory)
    write_clean_shutdown(directory)
    assert directory.read(CLEAN_SHUTDOWN) == b'{"version": 0, "brokerEpoch": -1}'
    assert take_clean_shutdown(directory)
    assert not take_clean_shutdown(directory)
