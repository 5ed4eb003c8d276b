"""Repair brings back what can be, keeps what it cuts, and agrees with recovery."""

import shutil
from pathlib import Path

import pytest

from tests.broker.log.damaged_logs import SMALL, log_files, whole_offsets, write_log
from tests.broker.log.log_world import NOW_MS, LogWorld, read_all
from tidemill.broker.log.checkpoints import LEADER_EPOCHS
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.tools.audit import AuditOptions, PartitionFacts, audit
from tidemill.broker.tools.repair import SIDE_FOLDER, RepairPlan, carry_out, plan, quarantine
from tidemill.core.records.batch import HEADER_BYTES, LEADER_EPOCH_AT, MAGIC_AT, iter_batches
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.runtime.overlay import OverlayDirectory, Removed

STAMP = "20261121T000000Z"


def audited(folder: Path, recovery_point: int) -> PartitionFacts:
    options = AuditOptions(clean=True, recovery_point=recovery_point, log_start_offset=0)
    return audit(OverlayDirectory(folder), options)


def planned(folder: Path, recovery_point: int) -> RepairPlan:
    facts = audited(folder, recovery_point)
    overlay = OverlayDirectory(folder)
    return plan(overlay, facts, recovery_point=recovery_point, log_start_offset=0, now_ms=NOW_MS)


def repair(folder: Path, recovery_point: int, *, take_out: bool = False) -> RepairPlan:
    todo = planned(folder, recovery_point)
    carry_out(OsDirectory(folder), todo.changes, STAMP)
    if take_out and todo.fenced:
        quarantine(OsDirectory(folder), todo.fenced, STAMP)
        carry_out(OsDirectory(folder), planned(folder, recovery_point).changes, STAMP + "-2")
    return todo


def test_a_sound_log_needs_no_change(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    todo = planned(tmp_path, end)
    assert [change for change in todo.changes if not isinstance(change, Removed)] == []
    assert (todo.fenced, todo.offset_start, todo.offset_end) == ((), 0, end)


def test_a_tail_torn_at_any_byte_is_cut_off_and_kept(tmp_path: Path) -> None:
    reference = tmp_path / "reference"
    end = write_log(reference)
    for cut in range(1, 90):
        folder = tmp_path / str(cut)
        shutil.copytree(reference, folder)
        path = log_files(folder)[-1]
        torn = path.read_bytes()[:-cut]
        path.write_bytes(torn)
        before = {each.name: each.read_bytes() for each in folder.iterdir()}
        planned(folder, 0)
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == before, "a plan changes nothing"
        todo = repair(folder, 0)
        assert todo.offset_end < end
        left = path.read_bytes()
        side = folder / SIDE_FOLDER / STAMP / f"{path.name}@{len(left)}"
        kept = side.read_bytes() if side.exists() else b""
        assert left + kept == torn
        assert audited(folder, 0).ok
        assert (
            len(read_all(LogWorld(OsDirectory(folder), SMALL).open(recovery_point=todo.offset_end))) * 2
            == todo.offset_end
        )


def starts(path: Path) -> list[int]:
    return [view.offset for view in iter_batches(path.read_bytes())]


@pytest.mark.parametrize("take_out", [False, True])
def test_a_changed_byte_anywhere_below_the_recovery_point_costs_one_batch(tmp_path: Path, take_out: bool) -> None:
    reference = tmp_path / "reference"
    end = write_log(reference)
    every = set(whole_offsets(reference))
    for number, path in enumerate(log_files(reference)):
        for position in range(0, path.stat().st_size, 7):
            folder = tmp_path / f"{number}-{position}"
            shutil.copytree(reference, folder)
            if any(start + LEADER_EPOCH_AT <= position < start + MAGIC_AT for start in starts(path)):
                continue  # no CRC covers it, and nothing says what it was
            target = folder / path.name
            data = bytearray(target.read_bytes())
            data[position] ^= 0x41
            target.write_bytes(data)
            todo = repair(folder, end, take_out=take_out)
            facts = audited(folder, end)
            if take_out:
                assert facts.faults == [] or facts.ok, (path.name, position, facts.faults)
                assert every - set(whole_offsets(folder)) <= {fenced.offset_start for fenced in todo.fenced}
                assert len(every - set(whole_offsets(folder))) <= 2
                kept = b"".join(each.read_bytes() for each in (folder / SIDE_FOLDER).rglob("*.log@*"))
                assert all(data[fenced.position : fenced.end] in kept for fenced in todo.fenced)
            else:
                assert target.read_bytes() == data, "nothing durable is cut"
                assert len(facts.faults) - sum(fault.is_note for fault in facts.faults) <= 1
            assert facts.offset_end == end


def test_consumers_read_on_behind_a_quarantined_range(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    path = log_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 3] ^= 1
    path.write_bytes(data)
    todo = repair(tmp_path, end, take_out=True)
    (fenced,) = todo.fenced
    assert (fenced.offset_start, fenced.offset_end) == (0, 2)
    log = LogWorld(OsDirectory(tmp_path), SMALL).open(recovery_point=end)
    views = read_all(log)
    assert [view.base_offset for view in views] == list(range(0, end, 2))
    assert [view.record_count for view in views] == [0] + [2] * (len(views) - 1)
    assert repair(tmp_path, end).fenced == ()


def test_indexes_and_epochs_are_made_anew(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    times = (tmp_path / segment_name(0, ".timeindex")).read_bytes()
    epochs = (tmp_path / LEADER_EPOCHS).read_text()
    (tmp_path / segment_name(0, ".index")).write_bytes(b"1234567")
    (tmp_path / segment_name(0, ".timeindex")).unlink()
    (tmp_path / LEADER_EPOCHS).write_text("0\n1\n0 0\n")
    repair(tmp_path, end)
    assert (tmp_path / segment_name(0, ".timeindex")).read_bytes()[-12:] == times[-12:]
    assert (tmp_path / LEADER_EPOCHS).read_text() == epochs
    assert audited(tmp_path, end).ok
    assert (tmp_path / SIDE_FOLDER / STAMP / LEADER_EPOCHS).read_text() == "0\n1\n0 0\n"


def test_a_range_wider_than_a_batch_can_say_is_filled_by_several(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    first, *rest = log_files(tmp_path)
    data = bytearray(first.read_bytes())
    data[HEADER_BYTES + 3] ^= 1
    first.write_bytes(data)
    (fenced,) = planned(tmp_path, end).fenced
    assert rest
    quarantine(OsDirectory(tmp_path), (fenced,), STAMP)
    assert not (tmp_path / segment_name(0, ".index")).exists()
    assert (tmp_path / SIDE_FOLDER / STAMP / f"{first.name}@{fenced.position}").read_bytes() == bytes(
        data[fenced.position : fenced.end]
    )


def test_a_replacement_of_segments_that_was_under_way_is_finished(tmp_path: Path) -> None:
    end = write_log(tmp_path)
    first, second, *_ = log_files(tmp_path)
    old = first.read_bytes()
    swap = tmp_path / f"{first.name}.swap"
    swap.write_bytes(old + second.read_bytes())
    indexes = {path.name for path in tmp_path.glob(f"{first.stem}.*index")}
    assert len(indexes) == 2
    (tmp_path / segment_name(6, ".index")).write_bytes(b"1234567")  # else there would be nothing to repair
    repair(tmp_path, end)
    assert not swap.exists()
    assert not second.exists()
    assert (tmp_path / SIDE_FOLDER / STAMP / first.name).read_bytes() == old
    assert first.read_bytes()[: len(old)] == old
    assert whole_offsets(tmp_path) == list(range(0, end, 2))
    repair(tmp_path, end)
    assert audited(tmp_path, end).ok
