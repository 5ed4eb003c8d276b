"""The small text files of a log folder, in Kafka's formats

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint` (the high watermarks)
and `cleaner-offset-checkpoint` (where the part that was never compacted begins) hold one offset per partition: the
version 0, the number of lines, then `topic partition offset`. `leader-epoch-checkpoint` of a partition has the same
frame around `epoch start_offset`. `.kafka_cleanshutdown` says that everything before it was closed in order. All are
replaced atomically; a file that cannot be read is reported and treated as missing, which only means more work at start.
Without the cleaner's a start expects gaps wherever the cleaner may have been at work, so a file that says nothing of a
partition is not the same as none: see `find_offsets`.
"""

import json
from collections.abc import Mapping

import structlog

from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

log = structlog.get_logger("tidemill.broker.log")

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_LOGS_AT_STOP = "logsAtStop"  # Apache Kafka asks only whether the file is there


def write_offsets(directory: Directory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint. In no order: to sort a hundred thousand would keep every other thread waiting."""
    rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    directory.replace(name, _frame(rows))


def find_offsets(directory: Directory, name: str) -> dict[TopicPartition, int] | None:
    """The offsets of a checkpoint; None when there is none that can be read."""
    rows = _read_rows(directory, name, width=3)
    return None if rows is None else {TopicPartition(row[0], int(row[1])): int(row[2]) for row in rows}


def read_offsets(directory: Directory, name: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; empty when there is none that can be read."""
    return find_offsets(directory, name) or {}


def write_epochs(directory: Directory, epochs: list[tuple[int, int]]) -> None:
    """Replace the epoch checkpoint of a partition's folder."""
    directory.replace(LEADER_EPOCHS, _frame([f"{epoch} {start}" for epoch, start in epochs]))


def read_epochs(directory: Directory) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs of a partition; empty when there are none that can be read."""
    return [(int(fields[0]), int(fields[1])) for fields in _read_rows(directory, LEADER_EPOCHS, width=2) or ()]


def write_clean_shutdown(directory: Directory, logs_at_stop: int | None = None) -> None:
    """Say that all logs of the folder were closed in order, and the CRC of what is said of them (`stopped_logs`)."""
    mark = {"version": 0, "brokerEpoch": -1}
    if logs_at_stop is not None:
        mark[_LOGS_AT_STOP] = logs_at_stop
    directory.replace(CLEAN_SHUTDOWN, json.dumps(mark).encode())


def promised_at_stop(directory: Directory) -> int | None:
    """The CRC that the mark of a clean shutdown gives; None without such a mark."""
    if not directory.exists(CLEAN_SHUTDOWN):
        return None
    try:
        mark = json.loads(directory.read(CLEAN_SHUTDOWN))
    except ValueError:
        return None
    promised = mark.get(_LOGS_AT_STOP) if isinstance(mark, dict) else None
    return promised if isinstance(promised, int) else None


def was_closed_in_order(directory: Directory) -> bool:
    """Whether the last shutdown was clean; the mark stays."""
    return directory.exists(CLEAN_SHUTDOWN)


def take_clean_shutdown(directory: Directory) -> bool:
    """Whether the last shutdown was clean; the mark is used up by asking."""
    if not directory.exists(CLEAN_SHUTDOWN):
        return False
    directory.remove(CLEAN_SHUTDOWN)
    directory.sync()
    return True


def _frame(rows: list[str]) -> bytes:
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()


def _read_rows(directory: Directory, name: str, width: int) -> list[list[str]] | None:
    if not directory.exists(name):
        return None
    try:
        lines = directory.read(name).decode().split("\n")  # the last one is empty, or the last number may be half there
        rows = [line.split(" ") for line in lines[2:] if line]
        sound = (
            lines[0] == "0"
            and lines[-1] == ""
            and len(rows) == int(lines[1])
            and all(len(row) == width for row in rows)
        )
        for row in rows:
            [int(number) for number in row[width - 2 :]]
    except (ValueError, IndexError):
        sound = False
    if not sound:
        log.warning("checkpoint cannot be read and is ignored", file=f"{directory.path}/{name}")
        return None
    return rows
