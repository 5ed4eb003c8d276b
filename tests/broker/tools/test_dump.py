"""A dump has a row for everything in the files, and says where it cannot believe them."""

from pathlib import Path

from tests.broker.log.damaged_logs import log_files, write_log
from tests.broker.log.log_world import TOPIC_ID
from tidemill.broker.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, write_offsets
from tidemill.broker.log.identity import write_topic_id
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.tools.dump import Row, dump_data_files, dump_partition
from tidemill.core.records.batch import iter_batches
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.runtime.overlay import OverlayDirectory
from tidemill.core.types import TopicPartition


def rows(folder: Path, kind: str, *, records: bool = False) -> list[Row]:
    return [row for row in dump_partition(OverlayDirectory(folder), records=records) if row["kind"] == kind]


def test_every_batch_has_a_row_with_what_its_header_says(tmp_path: Path) -> None:
    write_log(tmp_path)
    found = rows(tmp_path, "batch")
    views = [view for path in log_files(tmp_path) for view in iter_batches(path.read_bytes())]
    assert [(row["base_offset"], row["last_offset"], row["records"]) for row in found] == [
        (view.base_offset, view.last_offset, view.record_count) for view in views
    ]
    assert [(row["producer_id"], row["producer_epoch"], row["base_sequence"]) for row in found] == [
        (7, 0, view.base_sequence) for view in views
    ]
    assert {(row["codec"], row["timestamp_type"], row["crc_ok"], row["control"]) for row in found} == {
        ("none", "CreateTime", True, False)
    }
    assert rows(tmp_path, "bad") == []


def test_records_are_decoded_when_asked_for(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    assert rows(tmp_path, "record") == []
    found = rows(tmp_path, "record", records=True)
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (0, None, "0-a"),
        (1, None, "0-b"),
        (2, None, "1-a"),
        (3, None, "1-b"),
    ]


def test_indexes_epochs_snapshots_and_identities_have_rows(tmp_path: Path) -> None:
    write_log(tmp_path)
    write_topic_id(OsDirectory(tmp_path), TOPIC_ID)
    (tmp_path / segment_name(0, ".txnindex")).write_bytes(b"1234")
    positions = {(row["file"], row["position"]) for row in rows(tmp_path, "batch")}
    indexed = rows(tmp_path, "index")
    assert indexed
    path = log_files(tmp_path)[-1].with_suffix(".index")
    path.write_bytes(path.read_bytes() + bytes(800))
    assert rows(tmp_path, "index") == indexed, "zeros that Apache Kafka reserves are no entries"
    assert {(row["file"].replace(".index", ".log"), row["position"]) for row in indexed} <= positions
    assert rows(tmp_path, "timeindex")
    assert [(row["epoch"], row["start_offset"]) for row in rows(tmp_path, "leader-epoch")] == [(0, 0), (1, 6), (2, 12)]
    assert {row["producer_id"] for row in rows(tmp_path, "producer")} == {7}
    assert rows(tmp_path, "other") == [{"kind": "other", "file": segment_name(0, ".txnindex"), "bytes": 4}]
    assert rows(tmp_path, "identity")[0]["topic_id"]


def test_a_bad_batch_is_a_row_and_the_dump_goes_on_behind_it(tmp_path: Path) -> None:
    write_log(tmp_path)
    path = log_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    (bad,) = rows(tmp_path, "bad")
    assert (bad["position"], bad["offset_due"], bad["nothing_whole_follows"]) == (0, 0, False)
    assert rows(tmp_path, "batch")[0]["base_offset"] == 2
    (tmp_path / segment_name(0, ".index")).write_bytes(b"1")
    next(iter(sorted(tmp_path.glob("*.snapshot")))).write_bytes(b"x")
    assert len(rows(tmp_path, "bad")) == 3


def test_checkpoints_and_identity_of_a_data_folder_have_rows(tmp_path: Path) -> None:
    for name in (RECOVERY_POINTS, LOG_STARTS):
        write_offsets(OsDirectory(tmp_path), name, {TopicPartition("t", 0): 5})
    (tmp_path / "meta.properties").write_text("# written\nversion=1\ncluster.id=abc\n")
    (tmp_path / "other").write_text("x=y")
    assert list(dump_data_files(OverlayDirectory(tmp_path))) == [
        {"kind": "checkpoint", "file": LOG_STARTS, "topic": "t", "partition": 0, "offset": 5},
        {"kind": "identity", "file": "meta.properties", "version": "1", "cluster.id": "abc"},
        {"kind": "checkpoint", "file": RECOVERY_POINTS, "topic": "t", "partition": 0, "offset": 5},
    ]
