"""The list of logs that cannot be compacted, as it lies in the data folder"""

import json
from pathlib import Path

from tidemill.broker.log.cleanable import CleaningFailure
from tidemill.broker.log.cleaner_report import FAILURES, write_failures
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.types import TopicPartition


def failure(reason: str) -> CleaningFailure:
    return CleaningFailure(reason=reason, attempts=2, since_ms=5, retry_at_ms=9)


def test_the_file_has_a_row_for_every_log_and_is_gone_with_the_last_of_them(tmp_path: Path) -> None:
    folder = OsDirectory(str(tmp_path))
    write_failures(folder, {TopicPartition("b", 1): failure("full — „voll“"), TopicPartition("a", 10): failure("x")}, 7)
    row = {"attempts": 2, "since_ms": 5, "retry_at_ms": 9}
    assert json.loads((tmp_path / FAILURES).read_text(encoding="utf-8")) == {
        "version": 0,
        "failures_total": 7,
        "logs": [
            {"topic": "a", "partition": 10, "reason": "x", **row},
            {"topic": "b", "partition": 1, "reason": "full — „voll“", **row},
        ],
    }
    for _ in range(2):
        write_failures(folder, {}, 7)
        assert list(tmp_path.iterdir()) == []
