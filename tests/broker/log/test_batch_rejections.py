"""Every batch of the rejection table, appended: the code, and nothing of it in the log"""

import pytest

from tests.broker.log.log_world import LogWorld, read_all
from tests.broker.log.rejection_table import (
    GOOD,
    INVALID_RECORD,
    NONE,
    NOW_MS,
    REJECTIONS,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Rejection,
)
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import BatchView
from tidemill.core.records.record import decode_records

# refused by the handler, before the log sees it: tests/broker/handlers/test_produce.py
OF_THE_LOG = [row for row in REJECTIONS if row.kafka_code != TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


def config_of(settings: dict[str, str]) -> LogConfig:
    typed: dict[str, object] = {}
    for key, value in settings.items():
        typed[key] = (value,) if key == "cleanup.policy" else int(value) if value.isdigit() else value
    return LogConfig.of(typed)


def append(log: PartitionLog, row: Rejection) -> int:
    """The error code of appending the row's batch as its version of Produce does."""
    try:
        log.append(bytearray(row.batch), now_ms=NOW_MS, produce_version=row.version)
    except KafkaError as error:
        return error.code
    return NONE


@pytest.mark.parametrize("row", OF_THE_LOG, ids=lambda row: row.name)
async def test_a_batch_is_answered_as_the_table_says_and_a_refused_one_changes_nothing(row: Rejection) -> None:
    world = LogWorld(SimulatedDisk().root, config_of(row.settings))
    log = world.open()
    await log.durable(log.append(GOOD, now_ms=NOW_MS).last_offset)
    before = (log.log_end_offset, log.size_bytes, log.producers.states())
    assert append(log, row) == row.code
    if row.code == NONE:
        await log.durable(log.log_end_offset - 1)
        stored = read_all(log)[1]
        assert stored.base_offset == 3
        assert stored.verify_crc()
    else:
        assert (log.log_end_offset, log.size_bytes, log.producers.states()) == before
        assert log.append(GOOD, now_ms=NOW_MS).base_offset == 3, "the log goes on"
    assert world.failures == []


@pytest.mark.parametrize("row", [row for row in OF_THE_LOG if not row.settings], ids=lambda row: row.name)
async def test_with_records_validation_whatever_kafka_refuses_is_refused(row: Rejection) -> None:
    log = LogWorld(SimulatedDisk().root, LogConfig(record_validation="records")).open()
    code = append(log, row)
    if row.kafka_code == NONE:
        assert code in (NONE, INVALID_RECORD)
    else:
        assert code != NONE
        assert log.log_end_offset == 0


def test_all_faults_of_the_table_are_named_once() -> None:
    names = [row.name for row in REJECTIONS]
    assert len(set(names)) == len(names) > 100


@pytest.mark.parametrize("row", [row for row in OF_THE_LOG if row.settings == {"cleanup.policy": "compact"}],
                         ids=lambda row: row.name)  # fmt: skip
async def test_a_compacted_topic_holds_only_records_that_can_be_read(row: Rejection) -> None:
    world = LogWorld(SimulatedDisk().root, config_of(row.settings))
    log = world.open()
    append(log, row)
    assert [decode_records(BatchView(bytes(view.batch_bytes()))) for view in read_all(log)] == []
