"""What the doctor finds of the logs that a broker cannot compact"""

from pathlib import Path

import pytest

from tidemill.broker.log.cleanable import CleanerMachine
from tidemill.broker.log.cleaner_report import FAILURES, write_failures
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.types import TopicPartition
from tidemill.doctor import cleaner
from tidemill.doctor.cleaner import examine_cleaner
from tidemill.doctor.judge import Level

NOW_MS = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / cleaner.DATA_FOLDER_MARK).touch()
    return tmp_path


def test_what_the_broker_writes_is_what_the_doctor_reads(data: Path) -> None:
    (finding,) = examine_cleaner(data, NOW_MS)
    assert finding.level is Level.OK
    machine = CleanerMachine()
    machine.failed(TopicPartition("orders", 3), "corrupt: a batch", NOW_MS)
    write_failures(OsDirectory(str(data)), machine.failures, machine.failures_total)
    (finding,) = examine_cleaner(data, NOW_MS)
    assert finding.level is Level.WARN and finding.advice
    assert finding.text == (
        "cannot be compacted: orders-3: corrupt: a batch (attempt 1, the first at 2023-11-14 22:13:20Z, "
        "the next at 2023-11-14 22:13:35Z)"
    )


def test_a_folder_that_no_broker_has_used_says_nothing(tmp_path: Path) -> None:
    assert examine_cleaner(tmp_path, NOW_MS) == []
    assert examine_cleaner(tmp_path / "missing", NOW_MS) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"logs": [{}]}',
        '{"logs": 5}',
        '{"logs": [{"topic": "t", "partition": 0, "reason": "", "attempts": 1, "since_ms": 1e30, "retry_at_ms": 0}]}',
    ],
)
def test_a_list_that_makes_no_sense_is_a_finding_not_a_failure(data: Path, text: str) -> None:
    (data / FAILURES).write_text(text)
    (finding,) = examine_cleaner(data, NOW_MS)
    assert finding.level is Level.WARN
    assert FAILURES in finding.text
