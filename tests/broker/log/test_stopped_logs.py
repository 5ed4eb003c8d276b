"""What a stop says of its logs is believed after that stop only."""

import uuid

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN, take_clean_shutdown, write_clean_shutdown
from tidemill.broker.log.stopped_logs import LOGS_AT_STOP, StoppedLog, read_stopped_logs, write_stopped_logs
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

KEY = TopicPartition("a topic", 3)
STOPPED = StoppedLog(
    topic_id=uuid.UUID(int=7),
    folder_modified_ms=5,
    segments=[[0, 100], [20, 300]],
    log_end_offset=42,
    latest=[1_700_000_000_000, 41],
    index_entries=[1, 2],
    epochs=[[0, 0], [4, 17]],
    producers=2,
    sparse=True,
)


@pytest.fixture
def stopped() -> Directory:
    root = SimulatedDisk().root
    write_clean_shutdown(root, write_stopped_logs(root, [(KEY, STOPPED)]))
    return root


def test_what_a_stop_says_is_what_a_start_reads(stopped: Directory) -> None:
    assert read_stopped_logs(stopped) == {KEY: STOPPED}
    assert read_stopped_logs(stopped) == {KEY: STOPPED}, "reading does not use it up"


def test_it_goes_with_the_mark_of_the_stop(stopped: Directory) -> None:
    assert take_clean_shutdown(stopped)
    assert read_stopped_logs(stopped) == {}


def test_the_mark_of_another_broker_says_nothing_of_it(stopped: Directory) -> None:
    for mark in (b'{"version": 0, "brokerEpoch": 12}', b"", b"[]", b'{"logsAtStop": "no"}', b"\xff"):
        stopped.replace(CLEAN_SHUTDOWN, mark)
        assert read_stopped_logs(stopped) == {}


def test_the_file_of_another_stop_is_not_believed(stopped: Directory) -> None:
    write_stopped_logs(stopped, [(KEY, STOPPED._replace(log_end_offset=43))])
    assert read_stopped_logs(stopped) == {}


def test_any_flipped_bit_is_noticed(stopped: Directory) -> None:
    data = bytearray(stopped.read(LOGS_AT_STOP))
    for at in range(len(data)):
        data[at] ^= 1
        stopped.replace(LOGS_AT_STOP, bytes(data))
        assert read_stopped_logs(stopped) == {}
        data[at] ^= 1


def test_without_the_file_nothing_is_known(stopped: Directory) -> None:
    stopped.remove(LOGS_AT_STOP)
    assert read_stopped_logs(stopped) == {}
