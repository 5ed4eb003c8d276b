"""The files of a log in words, one row per thing

Every row is a flat mapping that names its `file` and its `kind`, made for one line of JSON or of text. The readers are
the log's own; where a batch cannot be believed there is a row that says why, and the dump goes on at the next whole
batch.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from tidemill.broker.log import snapshots
from tidemill.broker.log.checkpoints import (
    CLEANED,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_epochs,
    read_offsets,
)
from tidemill.broker.log.identity import META, PARTITION_METADATA
from tidemill.broker.log.index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    IndexDamaged,
    OffsetIndex,
    TimeIndex,
    without_reserve,
)
from tidemill.broker.log.scan import BadBatch, resync, walk
from tidemill.broker.log.segment_files import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, segment_name
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId
from tidemill.broker.quorum.snapshot import check as check_snapshot
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BatchView,
)
from tidemill.core.records.compression import CODEC_NAMES
from tidemill.core.records.record import Record, decode_records
from tidemill.core.runtime.disk import Directory, File

Row: TypeAlias = dict[str, Any]

_NAME_DIGITS = 20
_TEXT_FILES = (META, PARTITION_METADATA)


def dump_partition(directory: Directory, *, records: bool = False) -> Iterator[Row]:
    """Rows for every file of a partition's folder, those of a segment together; with `records` also what is inside."""
    for name in directory.list():
        stem, suffix = name[:_NAME_DIGITS], name[_NAME_DIGITS:]
        if name == LEADER_EPOCHS:
            for epoch, start_offset in read_epochs(directory):
                yield {"kind": "leader-epoch", "file": name, "epoch": epoch, "start_offset": start_offset}
        elif SnapshotId.parse(name) is not None:
            yield from _dump_metadata_snapshot(directory, name, records=records)
        elif not stem.isdigit() or directory.is_directory(name):
            yield from dump_text(directory, name)
        elif suffix == LOG_SUFFIX:
            yield from _dump_log(directory, name, int(stem), records=records)
        elif suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            yield from _dump_index(directory, name, int(stem), suffix)
        elif suffix == SNAPSHOT_SUFFIX:
            yield from _dump_snapshot(directory, name)
        else:
            yield {"kind": "other", "file": name, "bytes": len(directory.read(name))}


def dump_data_files(directory: Directory) -> Iterator[Row]:
    """Rows for the files of a data folder itself."""
    for name in directory.list():
        if name in (RECOVERY_POINTS, LOG_STARTS, CLEANED):
            for (topic, partition), offset in sorted(read_offsets(directory, name).items()):
                yield {"kind": "checkpoint", "file": name, "topic": topic, "partition": partition, "offset": offset}
        else:
            yield from dump_text(directory, name)


def dump_text(directory: Directory, name: str) -> Iterator[Row]:
    """The `key=value` or `key: value` lines of an identity file as one row; nothing for other files."""
    if name not in _TEXT_FILES:
        return
    row: Row = {"kind": "identity", "file": name}
    for line in directory.read(name).decode(errors="replace").splitlines():
        key, sign, value = line.partition("=" if name == META else ":")
        if sign and not line.startswith("#"):
            row[key.strip()] = value.strip()
    yield row


def _dump_metadata_snapshot(directory: Directory, name: str, *, records: bool) -> Iterator[Row]:
    yield from _dump_log(directory, name, 0, records=records)
    try:
        check_snapshot(directory.read(name))
    except SnapshotDamaged as damaged:
        yield {"kind": "bad", "file": name, "reason": f"the snapshot as a whole does not count: {damaged}"}


def _dump_log(directory: Directory, name: str, base_offset: int, *, records: bool) -> Iterator[Row]:
    file = directory.open(name)
    try:
        yield from _dump_batches(file, name, base_offset, records=records)
    finally:
        file.close()


def _dump_batches(file: File, name: str, base_offset: int, *, records: bool) -> Iterator[Row]:
    position, due, end = 0, base_offset, file.size()
    while position < end:
        try:
            for at, batch in walk(file, position, end, verify=True, due=due, dense=False):
                yield _batch_row(name, at, batch)
                due = batch.last_offset + 1
                if records:
                    yield from _record_rows(file, name, at, batch)
            return
        except BadBatch as bad:
            found = resync(file, bad.position + 1, end, due + 1, base_offset + RELATIVE_OFFSET_MAX + 1)
            goes_on = end if found is None else found[0]
            yield {
                "kind": "bad",
                "file": name,
                "position": bad.position,
                "end": goes_on,
                "reason": bad.reason,
                "offset_due": due,
                "nothing_whole_follows": found is None,
            }
            position = goes_on
            due = due if found is None else found[1].base_offset


def _batch_row(name: str, position: int, batch: BatchHeader) -> Row:
    return {
        "kind": "batch",
        "file": name,
        "position": position,
        "bytes": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "codec": CODEC_NAMES.get(batch.attributes & CODEC_MASK, str(batch.attributes & CODEC_MASK)),
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": "LogAppendTime" if batch.attributes & TIMESTAMP_TYPE_BIT else "CreateTime",
        "transactional": bool(batch.attributes & TRANSACTIONAL_BIT),
        "control": bool(batch.attributes & CONTROL_BIT),
        "magic": batch.magic,
        "crc": f"{batch.crc:08x}",
        "crc_ok": True,  # the walk stops at one that is not
    }


def _record_rows(file: File, name: str, position: int, batch: BatchHeader) -> Iterator[Row]:
    try:
        found = decode_records(BatchView(file.read_at(position, batch.size_bytes)))
    except KafkaError as error:
        yield {"kind": "bad", "file": name, "position": position, "reason": f"its records cannot be read: {error}"}
        return
    for record in found:
        yield _record_row(name, record)


def _record_row(name: str, record: Record) -> Row:
    return {
        "kind": "record",
        "file": name,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": {header: _text(value) for header, value in record.headers},
    }


def _text(data: bytes | None) -> str | None:
    """Bytes as text; what is not UTF-8 is shown as \\xNN."""
    return None if data is None else data.decode(errors="backslashreplace")


def _dump_index(directory: Directory, name: str, base_offset: int, suffix: str) -> Iterator[Row]:
    data = directory.read(name)
    try:
        if suffix == INDEX_SUFFIX:
            log_name = segment_name(base_offset)
            file = directory.open(log_name) if directory.exists(log_name) else None
            size_bytes = 0 if file is None else file.size()
            if file is not None:
                file.close()
            for offset, position in OffsetIndex.from_bytes(
                without_reserve(data, OFFSET_ENTRY_BYTES), size_bytes
            ).entries():
                yield {"kind": "index", "file": name, "last_offset": base_offset + offset, "position": position}
        else:
            for timestamp, offset in TimeIndex.from_bytes(without_reserve(data, TIME_ENTRY_BYTES)).entries():
                row = {"kind": "timeindex", "file": name, "timestamp": timestamp, "last_offset": base_offset + offset}
                yield row
    except IndexDamaged as damaged:
        yield {"kind": "bad", "file": name, "reason": str(damaged)}


def _dump_snapshot(directory: Directory, name: str) -> Iterator[Row]:
    try:
        remembered = snapshots.decode(directory.read(name))
    except snapshots.SnapshotDamaged as damaged:
        yield {"kind": "bad", "file": name, "reason": str(damaged)}
        return
    for state in remembered:
        for batch in state.batches:
            yield {
                "kind": "producer",
                "file": name,
                "producer_id": state.producer_id,
                "producer_epoch": state.epoch,
                **batch._asdict(),
            }
