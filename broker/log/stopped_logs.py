"""Logs as a stop in order left them, in one file

A start after a stop in order finds out of each log what the stop knew: where it ends, what its newest timestamp is, who
wrote it. For ten thousand logs that is sixty thousand files. So a stop writes all of it into `logs-at-stop`.

What is believed of it is what nobody can have touched since. The mark of the clean stop names the CRC of this file: a
start uses the mark up, so after a crash there is none, and the mark that another broker leaves, Apache Kafka or an
earlier version of this one, names nothing. The time at which each folder was last changed and the size of each log file
are in it; what does not agree with them is looked at as ever (`recovery`), which only costs time.
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemill.core.records.crc import crc32c
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

from .checkpoints import promised_at_stop

LOGS_AT_STOP = "logs-at-stop"
_VERSION = 1

Pairs = Sequence[Sequence[int]]


class StoppedLog(NamedTuple):
    """One log; `segments` are base offsets and sizes, `latest` and `index_entries` are of the active one."""

    topic_id: uuid.UUID
    folder_modified_ms: int
    segments: Pairs
    log_end_offset: int
    latest: Sequence[int]
    index_entries: Sequence[int]
    epochs: Pairs
    producers: int
    sparse: bool


def write_stopped_logs(directory: Directory, logs: Iterable[tuple[TopicPartition, StoppedLog]]) -> int:
    """Replace the file; returns the CRC that makes it believable."""
    rows = [(*key, log.topic_id.hex, *log[1:]) for key, log in logs]
    data = json.dumps({"version": _VERSION, "logs": rows}, separators=(",", ":")).encode()
    directory.replace(LOGS_AT_STOP, data)
    return crc32c(data)


def read_stopped_logs(directory: Directory) -> dict[TopicPartition, StoppedLog]:
    """What the last stop left, if that was a stop in order of a broker that leaves it; else nothing."""
    promised = promised_at_stop(directory)
    if promised is None or not directory.exists(LOGS_AT_STOP):
        return {}
    data = directory.read(LOGS_AT_STOP)
    if crc32c(data) != promised:
        return {}
    found = json.loads(data)
    if found["version"] != _VERSION:
        return {}
    return {
        TopicPartition(topic, partition): StoppedLog(uuid.UUID(topic_id), *rest)
        for topic, partition, topic_id, *rest in found["logs"]
    }
