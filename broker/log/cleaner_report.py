"""The list of logs that cannot be compacted, for people and the doctor

`cleaner-failures.json` lies in the data folder as long as there is something to tell: one entry per log that could not
be compacted the last time, with the reason, how often it was tried, since when and when it is tried next, and the
number of all failures since the start. `tidemill doctor --data` shows it. The broker never reads it back: after a start
everything is tried anew.
"""

import json
from collections.abc import Mapping

from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

from .cleanable import CleaningFailure

FAILURES = "cleaner-failures.json"
VERSION = 0


def write_failures(
    directory: Directory, failures: Mapping[TopicPartition, CleaningFailure], failures_total: int
) -> None:
    """Replace the file, or remove it when no log is left in it; raises OSError."""
    if not failures:
        directory.remove(FAILURES)
        return
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "reason": failure.reason,
            "attempts": failure.attempts,
            "since_ms": failure.since_ms,
            "retry_at_ms": failure.retry_at_ms,
        }
        for key, failure in sorted(failures.items())
    ]
    page = {"version": VERSION, "failures_total": failures_total, "logs": rows}
    directory.replace(FAILURES, (json.dumps(page, ensure_ascii=False, indent=1) + "\n").encode())
