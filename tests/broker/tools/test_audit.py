"""The audit finds every change to a log, says where, and changes nothing itself."""

from pathlib import Path

import pytest

from tests.broker.log.damaged_logs import log_files, write_log
from tidemill.broker.log.checkpoints import LEADER_EPOCHS
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.tools.audit import AuditOptions, PartitionFacts, audit, segment_bases
from tidemill.core.runtime.overlay import OverlayDirectory


def audited(folder: Path, end: int = -1, **more: bool | int) -> PartitionFacts:
    options = AuditOptions(**{"clean": True, "recovery_point": end, "log_start_offset": 0} | more)  # type: ignore[arg-type]
    return audit(OverlayDirectory(folder), options)


def texts(facts: PartitionFacts) -> str:
    return "\n".join(f"{fault.file}: {fault.text}" for fault in facts.faults)


def test_a_log_closed_in_order_has_no_fault(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    read: list[int] = []
    options = AuditOptions(clean=True, recovery_point=end, log_start_offset=0, decode=True)
    facts = audit(OverlayDirectory(tmp_path), options, read.append)
    assert facts.faults == []
    assert len(facts.segments) == len(log_files(tmp_path)) > 1
    assert (facts.offset_start, facts.offset_end, end) == (0, 16, 16)
    assert sum(segment.records for segment in facts.segments) == 16
    assert facts.epochs == [(0, 0), (1, 6), (2, 12)]
    assert facts.size_bytes == sum(read) == sum(path.stat().st_size for path in log_files(tmp_path))


def test_a_change_of_any_byte_of_the_log_is_found(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    missed = []
    for path in log_files(tmp_path):
        sound = path.read_bytes()
        for position in range(len(sound)):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << (position % 8)
            path.write_bytes(damaged)
            if audited(tmp_path, end).ok:
                missed.append((path.name, position))
        path.write_bytes(sound)
    assert missed == []


def test_a_change_of_any_byte_of_an_offset_index_is_found(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    indexes = [path for path in sorted(tmp_path.glob("*.index")) if path.stat().st_size]
    assert indexes
    for path in indexes:
        sound = path.read_bytes()
        for position in range(len(sound)):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << (position % 8)
            path.write_bytes(damaged)
            assert not audited(tmp_path, end).ok, (path.name, position)
        path.write_bytes(sound)
    assert audited(tmp_path, end).ok


def test_a_wrong_time_and_a_missing_index_are_found(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    path = tmp_path / segment_name(0, ".timeindex")
    sound = path.read_bytes()
    path.write_bytes(sound[:7] + bytes([sound[7] ^ 1]) + sound[8:])
    assert "timeindex: it has time" in texts(audited(tmp_path, end))
    path.unlink()
    assert "timeindex: it is missing" in texts(audited(tmp_path, end))


def test_indexes_reserved_in_zeros_are_those_of_a_running_kafka(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    last = log_files(tmp_path)[-1]
    for suffix, unit in ((".index", 8), (".timeindex", 12)):
        path = last.with_suffix(suffix)
        path.write_bytes(path.read_bytes() + bytes(unit * 100))
    assert audited(tmp_path, end).faults == []


@pytest.mark.parametrize("cut", [1, 40, 70])
def test_a_torn_tail_is_a_fault_unless_it_is_being_written(tmp_path: Path, cut: int) -> None:
    end = write_log(tmp_path)
    path = log_files(tmp_path)[-1]
    path.write_bytes(path.read_bytes()[:-cut])
    facts = audited(tmp_path, 0)
    assert not facts.ok
    assert "torn tail" in texts(facts)
    assert facts.offset_end == end - 2
    assert audited(tmp_path, 0, in_use=True, clean=False).ok
    assert "were durable and cannot be read" in texts(audited(tmp_path, end))


def test_a_missing_segment_is_a_gap_except_in_a_compacted_log(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    gone = log_files(tmp_path)[1]
    for path in tmp_path.glob(f"{gone.stem}.*"):
        path.unlink()
    assert "are missing before the next segment" in texts(audited(tmp_path, end))
    assert audited(tmp_path, end, cleaned_offset=12).ok


def test_epochs_are_compared_with_the_log(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    path = tmp_path / LEADER_EPOCHS
    for content, expected in (
        ("0\n3\n0 0\n1 7\n2 12\n", "it gives offset 6 to epoch 0, the log gives it to epoch 1"),
        ("0\n2\n1 0\n0 6\n", "epoch 0 at offset 6 follows epoch 1 at offset 0"),
        ("0\n4\n0 0\n1 6\n2 12\n3 99\n", "epoch 3 begins at offset 99, beyond the log's end 16"),
        ("nonsense", "it has no epochs, the log gives it to epoch 0"),
    ):
        path.write_text(content)
        assert expected in texts(audited(tmp_path, end))
    path.write_text("0\n2\n1 9\n2 12\n")
    assert audited(tmp_path, end, log_start_offset=9).ok, "epochs of deleted records are forgotten"
    path.write_text("0\n2\n0 0\n1 6\n")
    assert audited(tmp_path, 12, clean=False).ok, "not yet written down, and said anew by the next start"


def test_checkpoints_outside_of_the_log_are_faults(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    assert "acknowledged records are missing" in texts(audited(tmp_path, end + 1))
    assert "said to begin at offset 17, it ends at 16" in texts(audited(tmp_path, end, log_start_offset=17))
    first = log_files(tmp_path)[0]
    for path in tmp_path.glob(f"{first.stem}.*"):
        path.unlink()
    assert "its first segment begins at" in texts(audited(tmp_path, end, log_start_offset=0))


def test_what_the_next_start_clears_up_is_only_noted(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    snapshot = next(iter(sorted(tmp_path.glob("*.snapshot"))))
    snapshot.write_bytes(b"\0" * 20)
    (tmp_path / segment_name(99, ".snapshot")).write_bytes(b"")
    (tmp_path / segment_name(99, ".index")).touch()
    (tmp_path / "x.deleted").touch()
    (tmp_path / segment_name(6, ".log.swap")).touch()
    facts = audited(tmp_path, end)
    assert facts.ok
    assert len(facts.faults) == 6


def test_a_folder_without_a_segment_or_with_an_unreadable_topic_id_is_told(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    facts = audited(tmp_path)
    assert "there is no segment" in texts(facts)
    assert "has no topic_id" in texts(facts)
    assert not facts.ok


def test_only_segments_count_as_segments() -> None:
    assert segment_bases(["x.log", segment_name(7), segment_name(0), "1.log", segment_name(7, ".index")]) == [0, 7]
